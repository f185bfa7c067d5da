package workflow

import (
	"testing"
	"time"

	"countersign/tools"
)

func TestObservedTakesOutputAndExitCode(t *testing.T) {
	type result struct {
		ExitCode *int   `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
	now := time.UnixMilli(1)
	for _, c := range []struct {
		rule, text, out string
		code            int // -1 is none
	}{
		{"run_shell", tools.Envelope(now, result{new(0), "out\n", "warning"}), "out\n", 0},
		{"run_shell without output", tools.Envelope(now, result{new(2), " \n", "no such file"}), "no such file", 2},
		{"run_shell whose end is not known", tools.Envelope(now, result{nil, "", ""}), "", -1},
		{"bash", tools.Envelope(now, "out\nmore"), "out\nmore", -1},
		{"bash that failed", tools.Envelope(now, "out\n[exit code: 3]"), "out", 3},
		{"bash that failed silently", tools.Envelope(now, "[exit code: 3]"), "", 3},
		{"text that only looks so", tools.Envelope(now, "[exit code: 3] or more"), "[exit code: 3] or more", -1},
		{"another tool", tools.Envelope(now, map[string]any{"a": []int{1}}), `{"a":[1]}`, -1},
		{"a list", tools.Envelope(now, []int{1, 2}), `[1,2]`, -1},
		{"a denial", tools.DeniedEnvelope(now, "no"), tools.DeniedText, -1},
		{"an error", "Tool error: the target does not answer", "the target does not answer", -1},
		{"no envelope", "{]", "{]", -1},
		{"nothing", "", "", -1},
	} {
		out, exit := Observed(c.text)
		if out != c.out || (exit == nil) != (c.code < 0) || exit != nil && *exit != c.code {
			t.Errorf("%s: %q, %v", c.rule, out, exit)
		}
	}
}
