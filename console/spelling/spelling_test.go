package spelling

import (
	"strings"
	"testing"
)

func TestANameHasOneForm(t *testing.T) {
	for _, c := range []struct{ rule, in, want string }{
		{"it stays", "bob", "bob"},
		{"spaces around it go", " bob\u00a0", "bob"},
		{"spaces within it are single", "Bob \u2003 Smith", "Bob Smith"},
		{"composed and decomposed are one", "jose\u0301", "jos\u00e9"},
		{"wide letters are letters", "\uff42\uff4f\uff42", "bob"},
	} {
		if got, err := Clean(c.in); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.rule, got, err)
		}
	}
	for _, bad := range []string{"bo\u200bb", "bob\u202e", "b\u2066ob", "bob\u00ad", "bob\ufe0f", "bob\x00", "bob\xff", "\u3164bob", "bob\U000e0041"} {
		if got, err := Clean(bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestNamesOfAConfigurationStandApart(t *testing.T) {
	got, err := Distinct([]string{"you", "bob ", "bob"})
	if err != nil || strings.Join(got, ",") != "you,bob" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range [][]string{{"bob", "Bob"}, {"bob", "b\u043eb"}, {"bo\u200bb"}} {
		if got, err := Distinct(bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}
