package agent

import "testing"

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
	out, notice := printed(`{"result":{"exit_code":null,"stdout":"half\n","stderr":"","state":"stopped","notice":"It was stopped."}}`)
	if out != "half" || notice != "It was stopped." {
		t.Errorf("%q %q", out, notice)
	}
}
