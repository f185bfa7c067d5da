package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// Names of properties. CycloneDX has no place of its own for these.
const (
	propSum      = "countersign:go.sum"   // the module's h1 sum, as go.sum has it: a hash over a list of hashes, not of a file
	propLicence  = "countersign:licence"  // a licence file of the module, and the SHA-256 of its content
	propCommit   = "countersign:commit"   // what the program was built from
	propSetting  = "countersign:build:"   // a setting of the build, by its key
	propCompiler = "countersign:compiler" // of the parts in C
)

// assemble makes the list. Licences are asked for each module by path and version. The
// zero time leaves the time out.
func assemble(ctx context.Context, p *program, stamp time.Time, terms func(path, version string) ([]licence, error)) (*cdx.BOM, error) {
	bom := cdx.NewBOM()
	// The number is the program's: who has two lists of one program sees that they are one.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, p.sum[:]).URN()
	bom.Metadata = &cdx.Metadata{
		Component:  p.component(),
		Lifecycles: &[]cdx.Lifecycle{{Phase: cdx.LifecyclePhasePostBuild}},
		Tools:      &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "countersign/deploy/sbom"}}},
	}
	if !stamp.IsZero() {
		bom.Metadata.Timestamp = stamp.Format(time.RFC3339)
	}

	std, err := standardLibrary(p.info.GoVersion)
	if err != nil {
		return nil, err
	}
	parts := []cdx.Component{std}
	for _, h := range p.helpers {
		parts = append(parts, h.helper())
	}
	glibc := false
	versions := map[string]string{}
	for _, q := range append([]*program{p}, p.helpers...) {
		glibc = glibc || q.glibc
		for _, dep := range q.info.Deps {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if at, ok := versions[dep.Path]; ok && at == dep.Version {
				continue
			} else if ok {
				return nil, fmt.Errorf("%s was built with %s %s and another of the programs with %s; build them from one source", q.name, dep.Path, dep.Version, at)
			}
			versions[dep.Path] = dep.Version
			c, err := moduleComponent(dep, terms)
			if err != nil {
				return nil, err
			}
			if dep.Path == treeSitter {
				c.Components = grammars(q.grammars, c.Version)
			}
			parts = append(parts, c)
		}
	}
	if glibc {
		parts = append(parts, cdx.Component{
			BOMRef: "glibc", Type: cdx.ComponentTypeLibrary, Name: "glibc", Scope: cdx.ScopeRequired,
			Description: "The GNU C library, linked in statically. The program does not say which version.",
		})
	}
	slices.SortFunc(parts, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &parts

	refs := make([]string, 0, len(parts))
	for _, c := range parts {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: bom.Metadata.Component.BOMRef, Dependencies: &refs}}
	// Everything that is linked in is named; who needs whom is not known.
	bom.Compositions = &[]cdx.Composition{{
		Aggregate: cdx.CompositionAggregateIncomplete, Dependencies: &[]cdx.BOMReference{cdx.BOMReference(bom.Metadata.Component.BOMRef)},
	}}
	return bom, nil
}

// component is the program itself.
func (p *program) component() *cdx.Component {
	name := p.info.Main.Path
	purl := "pkg:generic/" + escapePurl(name)
	if p.version != "" {
		purl += "@" + escapePurl(p.version)
	}
	props := []cdx.Property{}
	if p.commit != "" {
		props = append(props, cdx.Property{Name: propCommit, Value: p.commit})
	}
	if p.compiler != "" {
		props = append(props, cdx.Property{Name: propCompiler, Value: p.compiler})
	}
	for _, s := range p.info.Settings {
		if s.Value != "" && !strings.HasPrefix(s.Key, "vcs") {
			props = append(props, cdx.Property{Name: propSetting + s.Key, Value: s.Value})
		}
	}
	slices.SortFunc(props, func(a, b cdx.Property) int { return cmp.Compare(a.Name, b.Name) })
	c := &cdx.Component{
		BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: name, Version: p.version, PackageURL: purl,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(p.sum[:])}},
	}
	if len(props) > 0 {
		c.Properties = &props
	}
	return c
}

// helper is a program that is given away with another one.
func (p *program) helper() cdx.Component {
	c := cdx.Component{
		BOMRef: "program:" + p.name, Type: cdx.ComponentTypeApplication, Name: p.name, Version: p.version, Scope: cdx.ScopeOptional,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(p.sum[:])}},
	}
	if p.compiler != "" {
		c.Properties = &[]cdx.Property{{Name: propCompiler, Value: p.compiler}}
	}
	return c
}

// standardLibrary is Go's own, under the name that scanners and the Go vulnerability database
// know it by: stdlib.
func standardLibrary(goVersion string) (cdx.Component, error) {
	// "go1.26.8 X:experiment" has a release in its first word; "devel ..." has none.
	word, _, _ := strings.Cut(goVersion, " ")
	version, ok := strings.CutPrefix(word, "go")
	if !ok || version == "" {
		return cdx.Component{}, fmt.Errorf("the program was built by Go %q, which is no release; build it with one", goVersion)
	}
	purl := "pkg:golang/stdlib@" + escapePurl(version)
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: version, Scope: cdx.ScopeRequired,
		Description: "Go's standard library and runtime", PackageURL: purl,
		CPE: "cpe:2.3:a:golang:go:" + version + ":-:*:*:*:*:*:*",
	}, nil
}

// moduleComponent describes a linked module, or what replaces it.
func moduleComponent(m *debug.Module, terms func(path, version string) ([]licence, error)) (cdx.Component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" || m.Sum == "" {
		return cdx.Component{}, fmt.Errorf("the module %s comes from a directory, so nobody can say what it was; build without a replacement by a directory", m.Path)
	}
	files, err := terms(m.Path, m.Version)
	if err != nil {
		return cdx.Component{}, err
	}
	props := []cdx.Property{{Name: propSum, Value: m.Sum}}
	for _, l := range files {
		props = append(props, cdx.Property{Name: propLicence, Value: l.file + " " + l.sum})
	}
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, Scope: cdx.ScopeRequired,
		PackageURL: golangPurl(m.Path, m.Version, ""), Properties: &props,
	}
	c.BOMRef = c.PackageURL
	return c, nil
}

// grammars are the parts of the tree-sitter module that are C code of others, each under the
// module's version: the module does not say which of their own versions it copied.
func grammars(names []string, version string) *[]cdx.Component {
	if len(names) == 0 {
		return nil
	}
	out := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, Name: "tree-sitter", Version: version, Scope: cdx.ScopeRequired,
		Description: "The parser's C library, as the Go module has it", PackageURL: golangPurl(treeSitter, version, ""),
	}}
	for _, n := range names {
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: "tree-sitter grammar " + n, Version: version, Scope: cdx.ScopeRequired,
			Description: "A grammar in C, as the Go module has it", PackageURL: golangPurl(treeSitter, version, n),
		})
	}
	for i := range out {
		out[i].BOMRef = "c:" + out[i].Name
	}
	return &out
}

// golangPurl writes a package URL of type golang. Its definition wants lower case
// (https://github.com/package-url/purl-spec, types/golang-definition.json); the component's
// name keeps the real one.
func golangPurl(path, version, subpath string) string {
	parts := strings.Split(strings.ToLower(path), "/")
	for i := range parts {
		parts[i] = escapePurl(parts[i])
	}
	purl := "pkg:golang/" + strings.Join(parts, "/") + "@" + escapePurl(version)
	if subpath != "" {
		purl += "#" + subpath
	}
	return purl
}

// escapePurl escapes one part of a package URL: all but letters, digits and ".-_~:".
func escapePurl(s string) string {
	return strings.NewReplacer("+", "%2B", "%3A", ":").Replace(url.PathEscape(s))
}
