package tools_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/tools"
)

// B-17.
func TestEnvelope(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{"a < b & c", `"a < b & c"`},
		{map[string]any{"z": 1, "a": "é"}, `{"a":"é","z":1}`},
		{nil, "null"},
		{func() {}, `"the result cannot be shown: json: unsupported type: func()"`},
	} {
		want := `{"harness_timestamp":{"source":"harness","unix_millis":1700000000123},"result":` + c.want + `}`
		if got := tools.Envelope(at(), c.value); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// B-44.
func TestDenialIsExact(t *testing.T) {
	for _, reason := range []string{"", "wrong host"} {
		var got struct {
			Result string
			Reason string
		}
		if err := json.Unmarshal([]byte(tools.DeniedEnvelope(at(), reason)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Result != "Command execution denied by user." || got.Reason != reason {
			t.Errorf("%+v", got)
		}
	}
	if s := tools.DeniedEnvelope(at(), ""); strings.Contains(s, "reason") {
		t.Error(s)
	}
}

// B-05.
func TestErrorText(t *testing.T) {
	if got := tools.ErrorText(tools.Failed("no such file")); got != "Tool error: no such file" {
		t.Error(got)
	}
	if got := tools.ErrorText(tools.Invalid("bad")); got != "Tool error: invalid arguments: bad" {
		t.Error(got)
	}
}

func TestTruncateHead(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc...[truncated]"},
		{"äöü€", 3, "äöü...[truncated]"}, {"äöü", 3, "äöü"}, {"a\xff\xfeb", 4, "a\ufffd\ufffdb"}, {"x", 0, "...[truncated]"},
	} {
		if got := tools.TruncateHead(c.in, c.n); got != c.want {
			t.Errorf("TruncateHead(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestTruncateTail(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcde", 3, "[truncated 2 chars from start]\ncde"},
		{"äöü€", 3, "[truncated 1 chars from start]\nöü€"}, {"a\xff\xfeb", 3, "[truncated 1 chars from start]\n\ufffd\ufffdb"},
		{"xy", 0, "[truncated 2 chars from start]\n"},
	} {
		if got := tools.TruncateTail(c.in, c.n); got != c.want {
			t.Errorf("TruncateTail(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestTruncationIsValidAndExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		n := rapid.IntRange(0, 40).Draw(t, "n")
		head, tail := tools.TruncateHead(s, n), tools.TruncateTail(s, n)
		if !utf8.ValidString(head) || !utf8.ValidString(tail) {
			t.Fatal("not valid UTF-8")
		}
		kept, cut := strings.CutSuffix(head, "...[truncated]")
		chars := utf8.RuneCountInString(s)
		if cut && utf8.RuneCountInString(kept) != n || !cut && chars > n {
			t.Fatalf("TruncateHead(%q, %d) = %q", s, n, head)
		}
		if rest, ok := strings.CutPrefix(tail, "[truncated "); ok && chars > n {
			_, rest, _ = strings.Cut(rest, "\n")
			if utf8.RuneCountInString(rest) != n {
				t.Fatalf("TruncateTail(%q, %d) = %q", s, n, tail)
			}
		}
	})
}

func TestQuoteIsShortAndVisible(t *testing.T) {
	if got := tools.Quote("a\u202eb\n"); got != `"a\u202eb\n"` {
		t.Error(got)
	}
	if got := tools.Quote(strings.Repeat("é", 500)); utf8.RuneCountInString(got) > 60 {
		t.Error(got)
	}
}

func TestWithoutClaimKeepsTheRest(t *testing.T) {
	got := tools.WithoutClaim([]byte(`{"command":"a<b","mutation":true,"privesc":false,"risk":"low","wait":true,"why":"x"}`))
	if string(got) != `{"command":"a<b","wait":true}` {
		t.Errorf("%s", got)
	}
}
