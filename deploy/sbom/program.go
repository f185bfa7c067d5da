package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// treeSitter is the module whose Go packages each hold one grammar in C.
const treeSitter = "github.com/smacker/go-tree-sitter"

// grammarCall is the one function that each package of a grammar has. Its name is in the
// table of functions, which stripping leaves in place.
var grammarCall = regexp.MustCompile(regexp.QuoteMeta(treeSitter) + `/([a-z0-9_/-]+)\.GetLanguage`)

// program is what a built program says of itself.
type program struct {
	name     string // of its file
	info     *buildinfo.BuildInfo
	sum      [sha256.Size]byte // of the whole file
	grammars []string          // packages below treeSitter, sorted
	glibc    bool              // the GNU C library is linked in statically
	compiler string            // of the parts in C, as it signed them; "" when it did not

	version, commit string
	helpers         []*program // other programs that are given away with it

	bytes []byte
}

// read reads a program. The error says what to do when the file is none of Go's.
func read(path string) (*program, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the program cannot be read: %w", err)
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s does not say what it was built from (%w); give a program that the go command built", path, err)
	}
	p := &program{name: filepath.Base(path), info: info, sum: sha256.Sum256(data), bytes: data}
	for _, m := range grammarCall.FindAllSubmatch(data, -1) {
		p.grammars = append(p.grammars, string(m[1]))
	}
	slices.Sort(p.grammars)
	p.grammars = slices.Compact(p.grammars)
	p.lookAtC()
	return p, nil
}

// lookAtC finds what C code is linked in, in ELF files. Others have none that can be told:
// the go command links the system's own library there.
func (p *program) lookAtC() {
	f, err := elf.NewFile(bytes.NewReader(p.bytes))
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, s := range f.Sections {
		switch {
		// Sections that glibc's own objects bring along: in the program only when it is static.
		case strings.HasPrefix(s.Name, "__libc_"):
			p.glibc = true
		case s.Name == ".comment":
			if text, err := s.Data(); err == nil {
				first, _, _ := bytes.Cut(text, []byte{0})
				p.compiler = string(first)
			}
		}
	}
}

// named sets version and commit, which a release puts into the program by the linker, where
// the build information does not show them. So a text that is nowhere in the program is
// refused: it would name another one. Without a text, what the build information has counts.
func (p *program) named(version, commit string) error {
	for what, text := range map[string]string{"version": version, "commit": commit} {
		if !bytes.Contains(p.bytes, []byte(text)) {
			return fmt.Errorf("the %s %q is not in the program; give the one that it was built with", what, text)
		}
	}
	p.version, p.commit = version, commit
	if p.version == "" && p.info.Main.Version != "(devel)" {
		p.version = p.info.Main.Version
	}
	if p.commit == "" {
		p.commit = p.setting("vcs.revision")
	}
	return nil
}

// setting is a value of the build information, "" when there is none.
func (p *program) setting(key string) string {
	for _, s := range p.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
