package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/slack/blockkit"
)

// sample is a form of a card that Slack is asked about.
type sample struct {
	name string
	kind string // the argument of blocks.validate
	form any
}

// samples are the forms that a card takes in its life, each with all that it can have.
func samples() []sample {
	now := time.Now()
	details := []chat.Field{{Name: "Account", Value: "deploy"}, {Name: "Rule", Value: "production"}}
	stop := chat.Button{ID: "stop:1", Label: "Stop", Style: chat.StyleStop}
	asks := chat.Card{
		Title: "Restart nginx on web-1", Tone: chat.ToneHigh, Env: "production", Production: true, Risk: "high risk",
		Code: "systemctl restart nginx", Context: "in /srv", Preview: []string{"nginx is down for a moment"},
		Warn: []string{"The agent called it harmless."}, Why: "It does not answer.", Footer: "Asked by Alice · needs 1 of oncall",
		Expires: now.Add(time.Hour), Details: details, DetailsID: "details:1", Digest: "sha256:0123456789ab",
		Choose: []chat.Button{
			{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove, Confirm: "It can't be undone."}, {ID: "deny:1", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: "grant:1", Label: "Approve for 60 min", Style: chat.StyleApprove, Confirm: "It then runs again without asking.", More: true},
			{ID: "edit:1", Label: "Edit", Style: chat.StyleEdit, Edit: "systemctl restart nginx", More: true},
			{ID: stop.ID, Label: stop.Label, Style: stop.Style, More: true},
		},
	}
	runs := chat.Card{
		Title: asks.Title, Code: asks.Code, Body: "Approved by Bob at 12:00 UTC · running", Since: now, Last: "Stopping nginx",
		Details: details, DetailsID: asks.DetailsID, Final: true, After: []chat.Button{stop},
	}
	ended := runs
	ended.Tone, ended.Since, ended.Last, ended.After = chat.ToneGood, time.Time{}, "", []chat.Button{{ID: "undo:1", Label: "Undo", Style: chat.StyleEdit}}
	card := func(c chat.Card) []slackapi.Block { return blockkit.Card(c, blockkit.CardOptions{}).Blocks }
	all := []sample{
		{"a card that asks", "blocks", card(asks)}, {"a card of what runs", "blocks", card(runs)}, {"a card of what ended", "blocks", card(ended)},
		{"a card's details", "view", blockkit.DetailsModal(asks)},
	}
	if form, err := blockkit.ConfirmModal(blockkit.Private{Channel: "C1", TS: "1.1", Button: "grant:1"}, asks.Choose[2], asks, ""); err == nil {
		all = append(all, sample{"what a card's menu asks", "view", form})
	}
	return all
}

// validate asks Slack whether it takes the forms of a card, which posts nothing
// (docs.slack.dev/reference/methods/blocks.validate). The result is Skipped where Slack has no
// such method.
func (d *doctor) validate(ctx context.Context) Outcome {
	all := samples()
	for _, s := range all {
		form, err := json.Marshal(s.form)
		if err != nil {
			return failed("%s can't be drawn: %s", s.name, err)
		}
		word, why, err := d.valid(ctx, s.kind, form)
		switch {
		case err != nil:
			return failed("Slack could not be asked about %s: %s; try again in a minute", s.name, err)
		case slices.Contains(lacking, word):
			return skipped("this Slack can't be asked about the form of cards")
		case word != "":
			return failed("Slack refuses %s (%s), so that people would get it as plain text; update the bot, and report it if that does not help", s.name, safe(word+why))
		}
	}
	return passed("Slack accepts the %d forms of a card", len(all))
}

// valid asks about one form. word is Slack's word for what is wrong with it, "" for nothing, and
// why says where.
func (d *doctor) valid(ctx context.Context, kind string, form []byte) (word, why string, err error) {
	body := url.Values{kind: {string(form)}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.address+"blocks.validate", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Authorization", "Bearer "+d.cfg.BotToken)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusTooManyRequests {
		return "", "", fmt.Errorf("it wants no more questions for %s s", safe(resp.Header.Get("Retry-After")))
	}
	var answer struct {
		OK     bool   `json:"ok"`
		Error  string `json:"error"`
		Errors []struct {
			Pointer string `json:"pointer"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil {
		return "", "", fmt.Errorf("its answer is no JSON (%s)", resp.Status)
	}
	if answer.OK {
		return "", "", nil
	}
	if len(answer.Errors) > 0 {
		why = ": " + answer.Errors[0].Pointer + " " + answer.Errors[0].Message
	}
	if answer.Error == "" {
		answer.Error = "no reason given"
	}
	return answer.Error, why, nil
}
