package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the golden files anew")

// built is a program as the go command describes one, with a grammar and a static C library.
func built() *program {
	return &program{
		sum:      sha256.Sum256([]byte("the program")),
		grammars: []string{"bash", "typescript/tsx"}, glibc: true, compiler: "GCC: (Debian 12.2.0) 12.2.0",
		version: "1.2.0-rc.1+x", commit: "0123abc",
		info: &buildinfo.BuildInfo{
			GoVersion: "go1.26.8 X:nothing", Main: debug.Module{Path: "countersign", Version: "(devel)"},
			Deps: []*debug.Module{
				{Path: treeSitter, Version: "v0.0.0-20240827094217-dd81d9e9be82", Sum: "h1:tree="},
				{Path: "github.com/Big/Case", Version: "v2.0.0+incompatible", Sum: "h1:big="},
				{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v1.0.1", Sum: "h1:new="}},
			},
			Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "-trimpath", Value: "true"}, {Key: "CGO_CFLAGS", Value: ""}, {Key: "vcs.time", Value: "2026"}},
		},
	}
}

func oneLicence(string, string) ([]licence, error) {
	return []licence{{file: "LICENSE", sum: strings.Repeat("ab", 32)}}, nil
}

func text(t *testing.T, p *program, at time.Time) []byte {
	t.Helper()
	bom, err := assemble(t.Context(), p, at, oneLicence)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := encode(&b, bom); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWhatIsWritten(t *testing.T) {
	got := text(t, built(), time.Unix(1700000000, 0).UTC())
	path := filepath.Join("testdata", "sbom.cdx.json")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("it differs from %s; look at it, then run the test with -update:\n%s", path, got)
	}
	valid(t, got)
	roundTrip(t, got)
	if again := text(t, built(), time.Unix(1700000000, 0).UTC()); !bytes.Equal(got, again) {
		t.Error("the same program gave two lists")
	}
	if bytes.Contains(text(t, built(), time.Time{}), []byte("timestamp")) {
		t.Error("a time that nobody gave is in the list")
	}
}

// The test's own program is as real as the bot: built by the go command, with modules from
// the cache.
func TestARealProgram(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(goCommand(t, "env", "GOMODCACHE"))
	env := map[string]string{"SOURCE_DATE_EPOCH": "1700000000"}
	var out, again bytes.Buffer
	for _, b := range []*bytes.Buffer{&out, &again} {
		if err := run(t.Context(), []string{"-modcache", cache, "-version", "go1.", path}, func(k string) string { return env[k] }, b, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same program gave two lists")
	}
	valid(t, out.Bytes())
	bom := roundTrip(t, out.Bytes())
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("the test's own program does not say what it is made of")
	}
	names := map[string]string{}
	for _, c := range *bom.Components {
		names[c.Name] = c.Version
	}
	for _, m := range info.Deps {
		if names[m.Path] != m.Version {
			t.Errorf("%s %s is linked in and the list has %q", m.Path, m.Version, names[m.Path])
		}
	}
	if names["stdlib"] == "" {
		t.Error("Go's standard library is not in the list")
	}
}

// A helper has its own line with its hash, and its parts are in the list once.
func TestAHelperThatIsGivenAwayToo(t *testing.T) {
	p, h := built(), built()
	h.name, h.sum = "countersign-parser", sha256.Sum256([]byte("the helper"))
	p.glibc, p.compiler, p.grammars, p.info.Deps = false, "", nil, p.info.Deps[1:]
	p.helpers = []*program{h}
	got := text(t, p, time.Time{})
	valid(t, got)
	for part, n := range map[string]int{
		`"name": "countersign-parser"`: 1, `"name": "glibc"`: 1, `"name": "tree-sitter grammar bash"`: 1, `"name": "github.com/Big/Case"`: 1, `GCC: (Debian`: 1,
	} {
		if c := bytes.Count(got, []byte(part)); c != n {
			t.Errorf("%s is there %d times", part, c)
		}
	}
	h.info.Deps[1].Version = "v3.0.0"
	if _, err := assemble(t.Context(), p, time.Time{}, oneLicence); err == nil || !strings.Contains(err.Error(), "build them from one source") {
		t.Error(err)
	}
}

func TestAProgramThatCannotBeListedIsRefused(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "bare")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		rule string
		args []string
		env  map[string]string
		want string
	}{
		{"no program at all", nil, nil, "there are 0 arguments"},
		{"a helper that is no program of Go", []string{self, bare}, nil, "give a program that the go command built"},
		{"a file that is not there", []string{bare + "x"}, nil, "cannot be read"},
		{"a file that is no program of Go", []string{bare}, nil, "give a program that the go command built"},
		// The text must not be in the test's own program in one piece.
		{"a version that the program does not have", []string{"-version", "9.9.9-" + strings.ToLower("NOT-THERE"), self}, nil, "is not in the program"},
		{"a time that is none", []string{self}, map[string]string{"SOURCE_DATE_EPOCH": "yesterday"}, "seconds since 1970"},
		{"modules that are not there", []string{"-modcache", t.TempDir(), self}, nil, "is not in the module cache"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tt.args, func(k string) string { return tt.env[k] }, &out, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it says %v, want %q", err, tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("it wrote %q all the same", out.String())
			}
		})
	}
	t.Run("a module from a directory", func(t *testing.T) {
		p := built()
		p.info.Deps[0].Sum = ""
		if _, err := assemble(t.Context(), p, time.Time{}, oneLicence); err == nil || !strings.Contains(err.Error(), "directory") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("a Go that is no release", func(t *testing.T) {
		p := built()
		p.info.GoVersion = "devel +abc"
		if _, err := assemble(t.Context(), p, time.Time{}, oneLicence); err == nil || !strings.Contains(err.Error(), "no release") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := assemble(ctx, built(), time.Time{}, oneLicence); !errors.Is(err, context.Canceled) {
			t.Errorf("it says %v", err)
		}
	})
}

func TestLicenceFiles(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "github.com", "!big", "!case@v1.0.0-!r!c")
	if err := os.MkdirAll(filepath.Join(dir, "LICENSES"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := licences(cache, "github.com/Big/Case", "v1.0.0-RC"); err == nil || !strings.Contains(err.Error(), "no file with its licence") {
		t.Errorf("a module without a licence: %v", err)
	}
	for _, name := range []string{"LICENSE.txt", "NOTICE", "COPYING.md", "README.md", "license_test.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := licences(cache, "github.com/Big/Case", "v1.0.0-RC")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range got {
		names = append(names, l.file)
		if len(l.sum) != 64 {
			t.Errorf("the hash of %s is %q", l.file, l.sum)
		}
	}
	if s := strings.Join(names, " "); s != "COPYING.md LICENSE.txt NOTICE" {
		t.Errorf("the licence files are %s", s)
	}
}

func TestPackageAddresses(t *testing.T) {
	for _, tt := range []struct{ path, version, sub, want string }{
		{"github.com/Masterminds/Semver", "v3.1.0+incompatible", "", "pkg:golang/github.com/masterminds/semver@v3.1.0%2Bincompatible"},
		{"cel.dev/expr", "v0.25.2", "", "pkg:golang/cel.dev/expr@v0.25.2"},
		{treeSitter, "v0.0.1", "typescript/tsx", "pkg:golang/github.com/smacker/go-tree-sitter@v0.0.1#typescript/tsx"},
		{"gopkg.in/yaml.v3", "v3.0.0~x", "", "pkg:golang/gopkg.in/yaml.v3@v3.0.0~x"},
	} {
		if got := golangPurl(tt.path, tt.version, tt.sub); got != tt.want {
			t.Errorf("%s is %s, want %s", tt.path, got, tt.want)
		}
	}
}

// roundTrip reads the list with the library and writes it again: nothing may be lost.
func roundTrip(t *testing.T, list []byte) *cdx.BOM {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(list), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := encode(&again, &bom); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(list, again.Bytes()) {
		t.Error("the library reads something else than was written")
	}
	refs := map[string]bool{}
	var walk func([]cdx.Component)
	walk = func(cs []cdx.Component) {
		for _, c := range cs {
			if c.BOMRef == "" || refs[c.BOMRef] {
				t.Errorf("the reference %q of %s is empty or there twice", c.BOMRef, c.Name)
			}
			refs[c.BOMRef] = true
			if c.Components != nil {
				walk(*c.Components)
			}
		}
	}
	walk(append([]cdx.Component{*bom.Metadata.Component}, *bom.Components...))
	for _, d := range *bom.Dependencies {
		for _, ref := range append([]string{d.Ref}, *d.Dependencies...) {
			if !refs[ref] {
				t.Errorf("there is no component %q", ref)
			}
		}
	}
	return &bom
}

// valid checks a list against the official schema, which the library's module has with it.
func valid(t *testing.T, list []byte) {
	t.Helper()
	dir := strings.TrimSpace(goCommand(t, "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go"))
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	const base = "http://cyclonedx.org/schema/"
	for name, file := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		raw, err := os.ReadFile(filepath.Join(dir, "schema", file))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(base+name, doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile(base + "bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("the official schema says: %v", err)
	}
	// The check itself must be able to say no.
	var broken map[string]any
	if err := json.Unmarshal(list, &broken); err != nil {
		t.Fatal(err)
	}
	broken["serialNumber"] = "urn:uuid:1"
	if schema.Validate(broken) == nil {
		t.Error("the schema takes everything")
	}
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
