package e2e

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"countersign/adapters/slack/slackfake"
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

// TestALongOutputOfAChangeComesAsAFile: where people can't open an output in place, the whole
// of what an approved command printed is a file beside its end.
func TestALongOutputOfAChangeComesAsAFile(t *testing.T) {
	t.Parallel()
	done := filepath.Join(t.TempDir(), "done")
	srv := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{shell("seq 300; touch " + done)}}
		}
		return turn{text: "It is done."}
	})
	w := newWorkspace(t, slackfake.Config{}, srv.URL)
	w.start()
	root := w.ask("UALICE", "COPS", "do it")
	w.press("UBOB", "COPS", root, "Approve")
	w.sees("COPS", root, "The last 20 of 300 lines.")
	whole := ""
	eventually(t, "the file is there", func() bool {
		for _, m := range w.Messages("COPS", root) {
			if strings.Contains(m.Plain(), "posts all of it") {
				t.Error("it also says how to ask for the file")
			}
			for _, f := range m.Files {
				whole = string(w.FileContent(f.ID))
			}
		}
		return whole != ""
	}, w.bot.log.String)
	if !strings.HasPrefix(whole, "1\n2\n") || !strings.HasSuffix(whole, "299\n300\n") {
		t.Errorf("the file has %.40q", whole)
	}
}
