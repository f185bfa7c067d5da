package embed

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
	"countersign/approvals/card/cardtest"
)

var update = flag.Bool("update", false, "write the golden files")

// shown is a message as the golden files have it, with its files.
type shown struct {
	Message
	Files []chat.File `json:"files"`
}

// shownOf keeps long files out of golden files.
func shownOf(ms ...Message) []shown {
	var out []shown
	for _, m := range ms {
		s := shown{Message: m, Files: slices.Clone(m.Files)}
		for j, f := range s.Files {
			if len(f.Text) > 100 {
				s.Files[j].Text = fmt.Sprintf("(%s)", measure(f.Text))
			}
		}
		out = append(out, s)
	}
	return out
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
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

// pending is a card as the gate makes it, with foreign text that does something in
// Discord's markup.
func pending() chat.Card {
	const code = "systemctl restart app\necho \"<@1> *done* @everyone `x`\""
	return chat.Card{
		Title: "Restart app on web-1", Tone: chat.ToneHigh, Env: "production", Production: true, Risk: "high risk", Code: code,
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
			{ID: "grant:abcdefghij.NONCE", Label: "Approve for 30 min", Style: chat.StyleApprove, More: true},
			{ID: "edit:abcdefghij.NONCE", Label: "Edit", Style: chat.StyleEdit, Edit: code, More: true},
			{ID: "glass:abcdefghij.NONCE", Label: "Break glass", Style: chat.StyleApprove, AskReason: true, Confirm: "You decide alone.", More: true},
			{ID: "stop:abcdefghij", Label: "Stop", Style: chat.StyleStop, More: true},
		},
		Digest: "1a2b-3c4d",
	}
}

func goldenCards(t *testing.T) map[string]chat.Card {
	out := map[string]chat.Card{}
	for _, f := range cardtest.All(t) {
		out["state-"+f.Name] = f.Card
	}
	out["card-hostile"] = pending()
	final := pending()
	final.Final, final.Tone, final.Body = true, chat.ToneGood, "Approved by bob at 03:05 UTC · exit 0"
	final.Attach = []chat.File{{Name: "output.txt", Text: "ok"}}
	final.After = []chat.Button{{ID: "undo:abcdefghij", Label: "Undo", Style: chat.StyleEdit}}
	out["card-final-undo"] = final
	long := pending()
	long.Code = "#!/bin/sh\n" + strings.Repeat("echo one more line of a long script\n", 600) + "rm -rf /srv/data"
	out["card-long"] = long
	ticks := pending()
	ticks.Code = "cat > README.md <<X\n```sh\nmake\n```\nX\n"
	out["card-backticks"] = ticks
	wordy := pending()
	wordy.Fields = append(wordy.Fields, chat.Field{Name: "Model's long reason", Value: strings.Repeat("trust me ", 900)})
	out["card-wordy"] = wordy
	return out
}

func TestGoldenCards(t *testing.T) {
	for name, c := range goldenCards(t) {
		t.Run(name, func(t *testing.T) { golden(t, name, shownOf(Card(c, Options{}))[0]) })
	}
}

func replySources(t *testing.T) map[string]string {
	tour, err := os.ReadFile("../../chat/markdown/testdata/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"reply-tour":    string(tour),
		"reply-hostile": "<@1> <@&2> <#3> </x:4> <t:1:R> <a:b:5> @here @everyone <https://evil.example|ok> :smile: ||spoiler|| __u__ \u202ereverse `` ` `` [bank](https://evil.example \"t\") [x](javascript:1) ![i](https://i.example/p.png) http\\://a.example https://x@y.example/@everyone\n\n-# small\n\n>>> all\n\n> quoted\n> ```\n> code <@1>\n> ```\n\n- a\n\n  ```\n  in an item\n  ```\n- b ⚠️\n\n# C#\n\n````\n```\n````",
		"reply-tables":  "|a|b|\n|-|-:|\n|**c**|d|\n\nand\n\n|e|\n|-|\n|[f](https://f.example)|\n",
		"reply-two":     strings.Repeat("A sentence of some length that goes on a bit. ", 80),
		"reply-code":    "See:\n\n```go\n" + strings.Repeat("fmt.Println(1)\n", 300) + "```\n\nDone.",
		"reply-file":    "# Log\n\n" + strings.Repeat("- a line of a very long list\n", 3000),
	}
}

func TestGoldenReplies(t *testing.T) {
	for name, s := range replySources(t) {
		t.Run(name, func(t *testing.T) { golden(t, name, shownOf(Reply(s, []chat.File{{Name: "x.txt", Text: "x"}})...)) })
	}
}

func TestGoldenProgress(t *testing.T) {
	golden(t, "progress-short", Progress("Looking at **web-1**: `upti"))
	golden(t, "progress-code", Progress("First a word.\n\n```sh\n"+strings.Repeat("echo a line of a script that is still being written\n", 200)))
}

func TestGoldenModals(t *testing.T) {
	for name, c := range map[string]chat.Card{"modal": pending(), "modal-long": goldenCards(t)["card-long"]} {
		var forms []Form
		for _, b := range Buttons(c) {
			if v, _, err := ParseCustomID(buttonNamed(t, Card(c, Options{}), b.Label).CustomID); err != nil || !v.Asks() {
				continue
			}
			f, err := Modal(b)
			if err != nil {
				t.Fatal(err)
			}
			forms = append(forms, f)
		}
		golden(t, name, forms)
	}
}

// choices are a message's buttons, and the entries of its menu as if they were some.
func choices(m Message) (all []Button) {
	for _, r := range m.Components {
		for _, b := range r.Components {
			if len(b.Options) == 0 {
				all = append(all, b)
			}
			for _, o := range b.Options {
				all = append(all, Button{Type: typeButton, Style: styleGrey, Label: o.Label, CustomID: o.Value})
			}
		}
	}
	return all
}

func buttonNamed(t *testing.T, m Message, label string) Button {
	t.Helper()
	for _, b := range choices(m) {
		if b.Label == label {
			return b
		}
	}
	t.Fatalf("no button %q", label)
	return Button{}
}
