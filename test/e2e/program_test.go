package e2e

import (
	"debug/elf"
	"strings"
	"testing"
)

// TestTheProgramCallsNoMethodsByName: a program that may call a method whose name it computes
// keeps the exported methods of everything that it links. A template engine does, and made it
// 11 MB larger.
func TestTheProgramCallsNoMethodsByName(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(binary)
	if err != nil {
		t.Skip("not an ELF program: its symbols are read on Linux only")
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		for _, by := range []string{"text/template.(*Template).Execute", "html/template.(*Template).Execute"} {
			if strings.HasPrefix(s.Name, by) {
				t.Errorf("the program has %s: find who calls it with go build -ldflags=-dumpdep ./cmd/bot", s.Name)
			}
		}
	}
}
