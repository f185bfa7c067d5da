package risk_test

import (
	"testing"

	"countersign/approvals/risk"
)

// A comment ends with its line, whatever stands at its end.
func TestACommentHidesNoLine(t *testing.T) {
	for _, text := range []string{
		"ls # \\\nrm -rf /srv", "# \\\nrm -rf /srv", "echo deploying # \\\nkubectl delete ns prod", "true # \\\n# \\\nrm -rf /srv",
		"{ ls # \\\nrm -rf /srv\n}", "ls; cat x # \\\ndd if=/dev/zero of=/dev/sda",
	} {
		for _, shell := range []risk.Shell{risk.Bash, risk.POSIX, risk.AnyShell} {
			for _, locked := range []bool{false, true} {
				if v := risk.Judge(risk.Text{Command: text, Dir: "/", Shell: shell, Locked: locked}); v.ReadOnly || v.Risk < risk.Medium {
					t.Errorf("%q for shell %v, locked %v: %v, reads only: %v", text, shell, locked, v.Risk, v.ReadOnly)
				}
			}
		}
	}
}
