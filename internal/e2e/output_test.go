package e2e

import (
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestAWholeOutputOpensInTheConsole: whoever reads a thread on the page gets all that a command
// of it printed, with its colours, and nobody gets it under another thread.
func TestAWholeOutputOpensInTheConsole(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string][]turn{
		"print": {{calls: []call{{"run_shell", `{"command":"seq 300; printf '\\033[31mred\\033[0m\\n'","risk":"low","mutation":false,"privesc":false,"why":"much"}`}}}},
	})
	c := newChatter(t, strings.TrimLeft(plainConfig, "\n"), l)
	c.say("print a lot", true)
	found := regexp.MustCompile("The last 20 of 301 lines. `output (out-[0-9a-z]{8})` posts all of it\\.").FindStringSubmatch(pageOf(c.rows()))
	if found == nil {
		t.Fatalf("the thread does not say how to get the rest:\n%s", pageOf(c.rows()))
	}
	get := func(thread string) (int, string) {
		res, err := c.p.http.Get(c.b.url + "/api/threads/" + thread + "/outputs/" + found[1])
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	st, text := get(c.thread)
	if st != 200 || !strings.HasPrefix(text, "1\n2\n3\n") || !strings.HasSuffix(text, "\n300\n\x1b[31mred\x1b[0m\n") || strings.Count(text, "\n") != 301 {
		t.Errorf("%d %.80q ... %d bytes", st, text, len(text))
	}
	first := c.thread
	c.thread = ""
	c.say("another conversation", false)
	if st, text := get(c.thread); c.thread == first || st != 404 {
		t.Errorf("another thread's: %d %.80q", st, text)
	}
}
