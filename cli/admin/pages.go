package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/approvals/audit"
	"countersign/bot"
	"countersign/bot/desk"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console/api"
	"countersign/store"
)

// Pages are what the console shows beside the bot's own lists: what the policy says of a command,
// what another policy would have said of past ones, and whether the audit record is whole.
func Pages(s bot.Site) []desk.Page {
	return []desk.Page{explainPage(s), replayPage(s), verifyPage(s)}
}

func explainPage(s bot.Site) desk.Page {
	command := api.FormField{Name: "command", Label: "Command", Hint: "systemctl restart nginx"}
	target := api.FormField{Name: "target", Label: "Target"}
	user := api.FormField{Name: "user", Label: "Person", Hint: "web:anna or slack:T012:U345"}
	channel := api.FormField{Name: "channel", Label: "Channel", Hint: "web or slack:C012", Value: "web"}
	return desk.Page{
		ID: "policy", Title: "Policy", About: sayPolicyPage, Columns: []string{"About", "Answer"}, Ask: "Explain",
		Fields: func() []api.FormField {
			f := s.Rules().File
			target.Choices, target.Value = slices.Sorted(maps.Keys(f.Targets)), f.Agent.Target
			return []api.FormField{command, target, user, channel}
		},
		Rows: func(ctx context.Context, q api.ListQuestion) (a desk.Answer, err error) {
			text := strings.TrimSpace(q.Value(command))
			if text == "" {
				return a, nil
			}
			who := strings.TrimSpace(q.Value(user))
			if who == "" {
				who = string(q.From.ID)
			}
			k := &explainer{rules: s.Rules(), specs: map[string]toolLevel{}}
			in, d, err := k.judge(ctx, Question{Command: text, Target: q.Fields[target.Name], Channel: strings.TrimSpace(q.Value(channel)), User: who, At: time.Now()})
			if said, ok := errors.AsType[*config.Error](err); ok {
				a.Note = capital(said.Error()) + "."
				return a, nil
			}
			for _, l := range k.lines(in, d) {
				a.Rows = append(a.Rows, api.Row{Cells: []api.Cell{{Text: capital(l[0])}, {Text: l[1]}}})
			}
			return a, err
		},
	}
}

// capital is a text that begins a sentence.
func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func replayPage(s bot.Site) desk.Page {
	since := api.FormField{Name: "since", Label: "Since", Choices: []string{"1d", "7d", "30d", "90d"}, Value: "7d"}
	policy := api.FormField{Name: "policy", Label: "Policy to try", Hint: sayPolicyHint, Long: true}
	return desk.Page{
		ID: "replay", Title: "Policy replay", About: sayReplayPage, Columns: []string{"When", "Then", "Now", "Tool", "Command", "Rule"}, Ask: "Replay",
		Fields: func() []api.FormField { return []api.FormField{since, policy} },
		Rows: func(ctx context.Context, q api.ListQuestion) (a desk.Answer, err error) {
			if q.Fields == nil {
				return a, nil
			}
			r, err := tried(s.Rules(), q.Value(policy))
			from, bad := sinceOf(q.Value(since), time.Now())
			if err = errors.Join(err, bad); err != nil {
				a.Note = capital(err.Error()) + "."
				return a, nil
			}
			network, _, _ := strings.Cut(string(q.From.ID), ":")
			p := replay{rules: r, since: from, total: map[string]int{}, change: func(l audit.Line, before, after, why string) {
				row := api.Row{Thread: chat.ThreadID(l.Thread)}
				command := strings.Join(strings.Fields(l.Event.Command), " ")
				if !strings.HasPrefix(l.Thread, network+":") { // what was written there is for its channel
					row.Thread, command = "", ""
				}
				if r := []rune(command); len(r) > 160 {
					command = string(r[:160]) + "…"
				}
				row.Cells = []api.Cell{{At: l.At}, {Text: before}, {Text: after}, {Text: l.Event.Tool}, {Text: command, Code: true}, {Text: why}}
				a.Rows = append(a.Rows, row)
			}}
			if err := p.read(ctx, s.DB); err != nil {
				return a, err
			}
			slices.Reverse(a.Rows)
			a.Note = strings.Join(strings.Fields(strings.Join(p.sums(), "; ")), " ") + "."
			return a, nil
		},
	}
}

// tried are the rules with another policy section; "" leaves it.
func tried(now *rules.Rules, text string) (*rules.Rules, error) {
	if strings.TrimSpace(text) == "" {
		return now, nil
	}
	part := struct {
		Policy any `yaml:"policy"`
	}{}
	f := now.File
	f.Policy = config.Defaults().Policy
	d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	if err := d.Decode(&part); err != nil && !errors.Is(err, io.EOF) {
		return nil, config.Errorf("this is no YAML: %v", err)
	}
	if part.Policy == nil {
		return nil, config.Errorf("there is no policy section; begin with a line policy: and its keys below")
	}
	raw, err := yaml.Marshal(part.Policy)
	if err != nil {
		return nil, err
	}
	d = yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&f.Policy); err != nil {
		return nil, config.Errorf("the policy section can't be read: %v", err)
	}
	return rules.New(f)
}

func verifyPage(s bot.Site) desk.Page {
	return desk.Page{
		ID: "verify", Title: "Audit check", About: sayVerifyPage, Columns: []string{"Fault"}, Ask: "Verify",
		Rows: func(ctx context.Context, q api.ListQuestion) (a desk.Answer, err error) {
			if q.Fields == nil {
				return a, nil
			}
			var c audit.Checked
			err = s.DB.View(ctx, func(tx store.Tx) error {
				a.Rows = nil
				c = audit.Check(tx, audit.CheckOptions{}, func(f audit.Fault) {
					a.Rows = append(a.Rows, api.Row{Cells: []api.Cell{{Text: fmt.Sprint(f)}}})
				})
				return ctx.Err()
			})
			label := "The record is whole"
			if len(a.Rows) > 0 {
				label = "The record has " + words.Plural(len(a.Rows), "fault")
			}
			a.Note = fmt.Sprintf("%s: %s, %s, %s.", label, words.Plural(c.Threads, "thread"), words.Plural(c.Lines, "line"), words.Plural(c.Anchors, "anchor"))
			return a, err
		},
	}
}

const (
	sayPolicyPage = "What would happen to a command, and who could approve it. Nothing runs."
	sayReplayPage = "What would have gone another way under another policy, by the record of decisions. Nothing runs."
	sayPolicyHint = "The policy section of a configuration. Empty: the one in force."
	sayVerifyPage = "Checks the hash chain of every line in the audit record. Compare the anchors with what was posted by `countersign audit verify --anchor`."
)
