package guard

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for cmd, refused := range map[string]bool{
		"ls":                             false,
		"exit":                           true,
		"exit 0":                         true,
		"logout":                         true,
		"true; exit":                     true,
		"true && exit 3":                 true,
		"if x; then exit; fi":            true,
		"if x; then y; else exit; fi":    true,
		"while :; do exit; done":         true,
		"for i in a; do exit; done":      true,
		"case x in x) exit;; esac":       true,
		"{ exit; }":                      true,
		"f() { exit; }":                  true,
		"eval exit":                      true,
		"eval 'set -e'":                  true,
		`\exit`:                          true,
		"'exit'":                         true,
		`"ex"it`:                         true,
		"builtin exit":                   true,
		"command exit":                   true,
		"time exit":                      true,
		"exec sleep 1":                   true,
		"exec 2>/dev/null":               true,
		"set -e":                         true,
		"set -euo pipefail":              true,
		"set -u -o errexit":              true,
		"set -o errexit":                 true,
		"setopt errexit":                 true,
		"setopt ERR_EXIT":                true,
		"set +e":                         false,
		"set -u":                         false,
		"set -o pipefail":                false,
		"set -- -e":                      false,
		"(exit 3)":                       false,
		"(set -e; false)":                false,
		"bash -lc 'set -e; false; true'": false,
		"bash <<'X'\nset -e\nexit 1\nX":  false,
		"echo exit":                      false,
		"echo $(exit 3)":                 false,
		"exit 1 | cat":                   false,
		"exit 1 &":                       false,
		"# exit":                         false,
		"echo 'unterminated":             true,
		"if true; then":                  true,
	} {
		if err := Check(cmd); (err != nil) != refused {
			t.Errorf("%q: %v", cmd, err)
		}
	}
	if err := Check("true\n\nexit"); err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), "bash -lc") {
		t.Errorf("the sentence names no line or no way out: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"exit", "eval eval exit", "set -e", "$(("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, b := Check(s), Check(s); (a == nil) != (b == nil) {
			t.Fatalf("%q: %v, then %v", s, a, b)
		}
	})
}
