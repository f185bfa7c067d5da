package blockkit

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, v any) {
	t.Helper()
	switch m := v.(type) {
	case Message:
		v = measured([]Message{m})[0]
	case []Message:
		v = measured(m)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s differs (run with -update after looking at it): %v\n%s", path, err, b.String())
	}
}

// measured keeps long files out of golden files.
func measured(ms []Message) []Message {
	for i := range ms {
		ms[i].Files = slices.Clone(ms[i].Files)
		for j, f := range ms[i].Files {
			if len(f.Text) > 100 {
				ms[i].Files[j].Text = fmt.Sprintf("(%s)", measure(f.Text))
			}
		}
	}
	return ms
}

// pending is a card as the gate makes it.
func pending() chat.Card {
	return chat.Card{
		Title: "Restart app on web-1", Tone: chat.ToneHigh, Env: "production", Production: true, Risk: "high risk", Code: "systemctl restart app\necho \"<!channel> `done`\"",
		Context: "in /srv/app · terminal ops / shared", Preview: []string{"- stop app", "# start app"},
		Warn: []string{"The agent called this harmless. It restarts a service."},
		Why:  `harmless, <@1> *trust* me :smile: [x](https://evil.example) \u{202E}`, Footer: "Asked by alice · needs 1 of oncall (not alice)",
		Expires: time.Date(2026, 1, 2, 3, 19, 5, 0, time.UTC),
		Details: []chat.Field{
			{Name: "Target", Value: "root@web-1"}, {Name: "Directory", Value: "/srv/app"},
			{Name: "Analysis", Value: "high risk (service): it restarts a service"}, {Name: "Agent's label", Value: "low risk, no change"},
			{Name: "Rule", Value: "default: balanced"}, {Name: "Votes", Value: "0 of 1"}, {Name: "Request", Value: "abcdefghij, digest 1a2b-3c4d"},
		},
		DetailsID: "details:abcdefghij",
		Choose: []chat.Button{
			{ID: "approve:abcdefghij.NONCE", Label: "Approve", Style: chat.StyleApprove, Confirm: "This is high risk. Run exactly this on web-1?"},
			{ID: "deny:abcdefghij.NONCE", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: "grant:abcdefghij.NONCE", Label: "Approve for 60 min", Style: chat.StyleApprove, Confirm: "It then runs again for 60 minutes without asking.", More: true},
			{ID: "edit:abcdefghij.NONCE", Label: "Edit", Style: chat.StyleEdit, Edit: "systemctl restart app\necho \"<!channel> `done`\"", More: true},
			{ID: "stop:abcdefghij", Label: "Stop", Style: chat.StyleStop, More: true},
		},
		Digest: "1a2b-3c4d",
	}
}

func TestGoldenCards(t *testing.T) {
	low := pending()
	low.Tone, low.Risk, low.Env, low.Production, low.Warn, low.Choose = chat.ToneLow, "low risk", "staging", false, nil, low.Choose[:2]
	low.Choose[0].Confirm = ""
	final := pending()
	final.Final, final.Tone, final.Body = true, chat.ToneGood, "Approved by bob at 03:05 UTC · exit 0"
	final.Attach = []chat.File{{Name: "output.txt", Text: "ok"}}
	alone := pending() // one choice needs no menu
	alone.Choose = append(alone.Choose[:2:2], alone.Choose[4])
	long := pending()
	long.Code = "#!/bin/sh\n" + strings.Repeat("echo one more line of a long script\n", 600) + "rm -rf /srv/data"
	for name, c := range map[string]chat.Card{"card-high": pending(), "card-alone": alone, "card-low": low, "card-final": final, "card-long": long} {
		t.Run(name, func(t *testing.T) { golden(t, name, Card(c, CardOptions{Thread: "slack:T1:C1:1700000000.0001"})) })
	}
}

func TestGoldenReplies(t *testing.T) {
	tour, err := os.ReadFile("../../chat/markdown/testdata/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{
		"reply-tour":    string(tour),
		"reply-hostile": "<!channel> @here <https://evil.example|ok> :smile: \u202ereverse `` ` `` [bank](https://evil.example \"t\") [x](javascript:1) ![i](https://i.example/p.png)\n\n> quoted\n> ```\n> code <@U1>\n> ```\n\n- a\n\n  ```\n  in an item\n  ```\n- b ⚠️",
		"reply-tables":  "|a|b|\n|-|-|\n|**c**|d|\n\nand\n\n|e|\n|-|\n|f|\n",
		"reply-two":     strings.Repeat("A sentence of some length that goes on a bit. ", 300),
		"reply-file":    "# Log\n\n" + strings.Repeat("- a line of a very long list\n", 3000),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, Reply(s, []chat.File{{Name: "x.txt", Text: "x"}})) })
	}
}

func TestGoldenHome(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	link := func(t chat.ThreadID) string {
		if t == "slack:T1:C1:1" {
			return "https://x.slack.com/archives/C1/p1"
		}
		return ""
	}
	golden(t, "home", Home(chat.Overview{
		Approvals: []chat.Waiting{
			{Thread: "slack:T1:C1:1", ID: "later", Title: "restart <!here> app", Level: "high", Target: "web-1", Expires: now.Add(90 * time.Minute), Mine: true},
			{Thread: "slack:T1:C1:1", ID: "sooner", Title: "uptime", Level: "low", Target: "web-2", Expires: now.Add(5 * time.Minute), Mine: true},
			{Thread: "slack:T1:C2:1", ID: "other", Title: "reboot", Level: "critical", Target: "db-1", Expires: now},
		},
		Sessions: []chat.Session{{Thread: "slack:T1:C1:1", Name: "countersign-1", State: "idle", Attach: "tmux attach -t countersign-1"}},
		Busy:     []chat.Busy{{Thread: "slack:T1:C1:1", Doing: "running uptime"}},
	}, link, now))
	golden(t, "home-empty", Home(chat.Overview{}, nil, now))
}

func TestGoldenModals(t *testing.T) {
	p := Private{Channel: "C1", TS: "1700000000.0002", Thread: "1700000000.0001", Button: "edit:abcdefghij"}
	edit, err := EditModal(p, chat.Button{Edit: "uptime\n"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "modal-edit", edit)
	steps, err := EditModal(p, chat.Button{Edit: "1. Touch a\n    touch a\n2. Delete b\n    rm b\n"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "modal-steps", steps)
}
