package slack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/chattest"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// workspace is a local Slack with one channel and the people of the tests.
func workspace(t *testing.T, cfg slackfake.Config) *slackfake.Server {
	t.Helper()
	s := slackfake.New(cfg)
	t.Cleanup(s.Close)
	for _, u := range []slackfake.User{
		{ID: "UALICE", Name: "alice"}, {ID: "UBOB", Name: "bob"}, {ID: "UGUEST", Name: "guest", Guest: true},
		{ID: "UEXT", Name: "ext", Stranger: true, Team: "T2"},
	} {
		s.AddUser(u)
	}
	s.AddChannel(slackfake.Channel{ID: "C1", Name: "ops", Members: []string{"UBOT", "UALICE", "UBOB", "UGUEST", "UEXT"}})
	return s
}

func config(s *slackfake.Server) slack.Config {
	return slack.Config{
		BotToken: "xoxb-1", AppToken: "xapp-1", SigningSecret: "secret", APIURL: s.URL(), Name: "ops",
		Known: func(_ context.Context, t chat.ThreadID) (bool, error) {
			return !strings.HasPrefix(string(t), "slack:T1:C404:"), nil
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

func adapter(t *testing.T, cfg slack.Config) *slack.Adapter {
	t.Helper()
	a, err := slack.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// subject joins the adapter with people who act on the local Slack.
type subject struct {
	*slack.Adapter
	t      *testing.T
	server *slackfake.Server

	mu   sync.Mutex
	ts   map[string]string // by thread and the message's id
	n    int
	last chat.Answer
	err  error
}

func (s *subject) Run(ctx context.Context, h chat.Handler) error {
	return s.Adapter.Run(ctx, recorder{h, s})
}

// recorder remembers what the bot answered to the last click.
type recorder struct {
	chat.Handler
	s *subject
}

func (r recorder) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	ans, err := r.Handler.Click(ctx, c)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.last, r.s.err = ans, err
	return ans, err
}

func (s *subject) connected() error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for s.Ready() != nil {
		select {
		case <-tick.C:
		case <-late:
			return s.Ready()
		}
	}
	return nil
}

func (s *subject) say(th chat.ThreadID, id, text string) (chat.ThreadID, error) {
	if err := s.connected(); err != nil {
		return "", err
	}
	channel, root := split(th)
	s.mu.Lock()
	key := string(th) + "/" + id
	ts := s.ts[key]
	if ts == "" {
		s.n++
		ts = fmt.Sprintf("%d.%06d", time.Now().Unix(), s.n)
		s.ts[key] = ts
	}
	s.mu.Unlock()
	m := slackfake.Message{User: "UALICE", Channel: channel, Thread: root, Text: escape.Replace(text), TS: ts}
	if root == "" {
		m.Text, m.Mention = "<@UBOT> "+m.Text, true
		root = ts
	}
	_, err := s.server.Say(s.t.Context(), m)
	return chat.ThreadID("slack:T1:" + channel + ":" + root), err
}

func split(th chat.ThreadID) (channel, root string) {
	p := strings.Split(string(th), ":")
	if len(p) != 4 {
		return "C1", ""
	}
	return p[2], p[3]
}

func (s *subject) press(th chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
	channel, root := split(th)
	for _, m := range s.server.Messages(channel, root) {
		id, ok := action(m, b)
		if !ok {
			continue
		}
		told := len(s.server.Ephemerals(channel, "UALICE"))
		if _, err := s.server.PressWith(s.t.Context(), "UALICE", channel, m.TS, id, map[string]string{"cs.text": reason}); err != nil {
			return chat.Answer{}, err
		}
		s.mu.Lock()
		ans, err := s.last, s.err
		s.mu.Unlock()
		if err == nil && ans.Card != nil && ans.Card.Final {
			return ans, nil
		}
		if err := s.server.Wait(s.t.Context(), func() bool { return len(s.server.Ephemerals(channel, "UALICE")) > told }); err != nil {
			return ans, err
		}
		all := s.server.Ephemerals(channel, "UALICE")
		if err != nil {
			return chat.Answer{}, errors.New(all[len(all)-1].Text)
		}
		ans.Notice = all[len(all)-1].Text
		return ans, nil
	}
	return chat.Answer{}, fmt.Errorf("no message has the button %s", b)
}

// action finds the action_id of a button on a message.
func action(m slackfake.Msg, b chat.ButtonID) (string, bool) {
	var blocks []struct {
		Elements []struct {
			ActionID string `json:"action_id"`
			Value    string `json:"value"`
			Options  []struct {
				Value string `json:"value"`
			} `json:"options"`
		} `json:"elements"`
	}
	_ = json.Unmarshal(m.Blocks, &blocks)
	for _, bl := range blocks {
		for _, e := range bl.Elements {
			if e.Value == string(b) {
				return e.ActionID, true
			}
			for _, o := range e.Options {
				if _, id, _ := strings.Cut(o.Value, ":"); id == string(b) {
					return o.Value, true
				}
			}
		}
	}
	return "", false
}

func (s *subject) shown(th chat.ThreadID) []chat.Post {
	channel, root := split(th)
	var out []chat.Post
	for _, m := range s.server.Messages(channel, root) {
		if m.BotID != "BBOT" || m.Deleted {
			continue
		}
		if title, ok := header(m); ok {
			out = append(out, chat.Post{Card: &chat.Card{Title: title}})
		} else {
			out = append(out, chat.Post{Text: m.Text})
		}
	}
	return out
}

// header is the title of a card, false for other messages.
func header(m slackfake.Msg) (string, bool) {
	var blocks []struct {
		Type string `json:"type"`
		Text struct {
			Text string `json:"text"`
		} `json:"text"`
	}
	_ = json.Unmarshal(m.Blocks, &blocks)
	for _, b := range blocks {
		if b.Type == "header" {
			title := b.Text.Text
			for _, tone := range []string{"🔵 ", "🟡 ", "🔴 ", "✓ ", "✗ "} {
				title = strings.TrimPrefix(title, tone)
			}
			return title, true
		}
	}
	return "", false
}

func TestMain(m *testing.M) { chattest.Main(m) }

// TestAdapter runs the suite that every network's adapter passes, over Socket
// Mode and over HTTP.
// D-01: what every chat network has to keep.
func TestAdapter(t *testing.T) {
	t.Parallel()
	harness := func(http bool) chattest.Harness {
		return func(t *testing.T) chattest.Subject {
			sc := slackfake.Config{RetryDelays: []time.Duration{}}
			var server *slackfake.Server
			s := &subject{t: t, ts: map[string]string{}}
			if http {
				front := &front{}
				sc.HTTPEvents = front.listen(t)
				server = workspace(t, sc)
				c := config(server)
				c.AppToken = ""
				s.Adapter = adapter(t, c)
				front.set(s.Handler())
			} else {
				server = workspace(t, sc)
				s.Adapter = adapter(t, config(server))
			}
			s.server = server
			return chattest.Subject{
				Adapter: s, User: "slack:T1:UALICE", Unknown: "slack:T1:C404:1700000000.000001",
				Say: s.say, Press: s.press, Shown: s.shown,
				Channel: "slack:T1:C1", NoChannel: "slack:T1:C404",
				Again: func() chat.Opener { return adapter(t, config(server)) },
			}
		}
	}
	t.Run("socket mode", func(t *testing.T) { chattest.Run(t, harness(false)) })
	t.Run("events over HTTP", func(t *testing.T) { chattest.Run(t, harness(true)) })
}
