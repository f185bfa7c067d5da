package agent

import (
	"strings"
	"testing"

	"countersign/agent/llm"
)

// T5: people read names and values, not JSON.
func TestAResultIsWrittenForPeople(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":"bg-1","exit_code":0,"output":"a\nb\n","error":"","more":null}`:               "exit code: 0\nid: bg-1\noutput:\n  a\n  b",
		`{"matches":[{"line":3,"path":"a.go"},{"line":12345678901234567890,"path":"b.go"}]}`: "matches:\n  - line: 3, path: a.go\n  - line: 12345678901234567890, path: b.go",
		`["x","y z"]`:                      "- x\n- y z",
		`{"a":{"b":[{"c":[1,2]}]},"e":{}}`: "a:\n  b:\n    -\n      c:\n        - 1\n        - 2",
		`true`:                             "true", `no json`: "no json", `{}`: "",
	} {
		if got := readable([]byte(in)); got != want {
			t.Errorf("%s\n%q, want\n%q", in, got, want)
		}
	}
	if out := printed(map[string]any{"exit_code": nil, "stdout": "half\n", "stderr": "", "state": "stopped", "notice": "It was stopped."}); out != "half\n" {
		t.Errorf("%q", out)
	}
}

func TestOutputIsShownAsOnAScreen(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                              "plain\ttext\n",
		"\x1b[1;32mok\x1b[0m done\n\x1b[Kend":        "ok done\nend",
		"10 %\r20 %\r\nnext\r\n":                     "20 %\nnext\n",
		"a\rb\rc":                                    "c",
		"\x1b]0;title\x07rest":                       "\x1b]0;title\x07rest", // people see that something is there
		"\x1b[2J\x1b[Hdelete everything":             "\x1b[2J\x1b[Hdelete everything",
		"tail of a sequence \x1b[3":                  "tail of a sequence \x1b[3",
		"\r\n\r\n":                                   "\n\n",
		"\x1b[38;2;1;2;3mtrue\x1b[m \x1b[4:3mcurl\r": "true curl",
	} {
		if got := onScreen(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestAStatusNamesACallByItsCommand(t *testing.T) {
	redact := strings.NewReplacer("hunter2", "***").Replace
	for _, tc := range []struct{ name, args, want string }{
		{"run_shell", `{"command":"uptime","risk":"low"}`, "uptime"},
		{"run_shell", `{"command":"  set -e\nrm -rf x"}`, "set -e …"},
		{"run_shell", `{"command":"echo ` + strings.Repeat("x", 52) + `hunter2"}`, "echo " + strings.Repeat("x", 52) + "***"},
		{"run_shell", `{"command":"` + strings.Repeat("é", 70) + `"}`, strings.Repeat("é", 60) + " …"},
		{"run_shell", `{"command":"a\u202eb"}`, `a\u{202E}b`},
		{"read_file", `{"path":"/etc/hosts"}`, "read_file /etc/hosts"},
		{"run_shell", `{"command":7}`, "run_shell"},
		{"time", `{}`, "time"},
		{"time", ``, "time"},
	} {
		if got := doing(llm.Call{Name: tc.name, Args: tc.args}, redact); got != tc.want {
			t.Errorf("%s %s is %q, want %q", tc.name, tc.args, got, tc.want)
		}
	}
	if got := marked("running rm *x*"); got != "running `rm *x*`" {
		t.Errorf("in an answer: %q", got)
	}
}
