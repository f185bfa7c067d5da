package slack_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// patience is how long a test waits for something that must happen.
const patience = 10 * time.Second

// agent is a bot that remembers what it was told, and takes part in the threads
// that it was told of.
type agent struct {
	mu      sync.Mutex
	events  []chat.Event
	clicks  []chat.Click
	known   map[chat.ThreadID]bool
	deliver func(chat.Event) error
	answer  func(chat.Click) (chat.Answer, error)
}

func (b *agent) Deliver(_ context.Context, ev chat.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deliver != nil {
		if err := b.deliver(ev); err != nil {
			return err
		}
	}
	b.events = append(b.events, ev)
	b.known[ev.Thread] = true
	return nil
}

func (b *agent) Click(_ context.Context, c chat.Click) (chat.Answer, error) {
	b.mu.Lock()
	b.clicks = append(b.clicks, c)
	do := b.answer
	b.mu.Unlock()
	if do != nil {
		return do(c)
	}
	return chat.Answer{Notice: "Noted.", OK: true}, nil
}

func (b *agent) knows(_ context.Context, t chat.ThreadID) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[t], nil
}

func (b *agent) seen(_ context.Context, id chat.EventID) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.events, func(e chat.Event) bool { return e.ID == id }), nil
}

func (b *agent) open(context.Context) ([]chat.ThreadID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.known)), nil
}

func (b *agent) got() []chat.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func (b *agent) clicked() []chat.Click {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.clicks)
}

func (b *agent) onDeliver(f func(chat.Event) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliver = f
}

func (b *agent) onClick(f func(chat.Click) (chat.Answer, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// texts are the texts of the events so far.
func (b *agent) texts() []string {
	out := []string{}
	for _, e := range b.got() {
		out = append(out, e.Text)
	}
	return out
}

// scene is a local Slack with the bot in it.
type scene struct {
	*slack.Adapter
	t      *testing.T
	server *slackfake.Server
	bot    *agent
	cfg    slack.Config

	stop    context.CancelFunc
	ended   chan error
	handler chat.Handler // in the place of bot
}

// quick are the times of a local Slack in the tests.
func quick(c slackfake.Config) slackfake.Config {
	if c.AckTimeout == 0 {
		c.AckTimeout = slackfake.DefaultAckTimeout
	}
	if c.RetryDelays == nil {
		c.RetryDelays = []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond}
	}
	return c
}

// stage sets a scene up without starting the adapter.
func stage(t *testing.T, sc slackfake.Config, change ...func(*slack.Config)) *scene {
	t.Helper()
	s := &scene{t: t, server: workspace(t, quick(sc)), bot: &agent{known: map[chat.ThreadID]bool{}}}
	s.cfg = config(s.server)
	s.cfg.Sockets = 1
	s.cfg.Known, s.cfg.Seen, s.cfg.Open = s.bot.knows, s.bot.seen, s.bot.open
	for _, f := range change {
		f(&s.cfg)
	}
	s.Adapter = adapter(t, s.cfg)
	s.Hurry(100 * time.Millisecond)
	return s
}

// play sets a scene up and starts it.
func play(t *testing.T, sc slackfake.Config, change ...func(*slack.Config)) *scene {
	t.Helper()
	s := stage(t, sc, change...)
	s.start()
	s.ready()
	return s
}

func (s *scene) start() {
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop, s.ended = stop, make(chan error, 1)
	ended, a, h := s.ended, s.Adapter, s.handler
	if h == nil {
		h = s.bot
	}
	go func() { ended <- a.Run(ctx, h) }()
	s.t.Cleanup(s.end)
}

// end stops the adapter; a second call does nothing.
func (s *scene) end() {
	s.stop()
	if s.ended == nil {
		return
	}
	select {
	case err := <-s.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("Run returned %v", err)
		}
	case <-time.After(patience):
		s.t.Error("Run did not return when its context was done")
	}
	s.ended = nil
}

// restart puts a new adapter in the place of the old one, as after a crash: it
// knows nothing of what the old one did.
func (s *scene) restart() {
	s.t.Helper()
	s.end()
	s.Adapter = adapter(s.t, s.cfg)
	s.Hurry(100 * time.Millisecond)
	s.start()
	s.ready()
}

func (s *scene) ready() {
	s.t.Helper()
	s.until("the bot listens", func() bool { return s.Ready() == nil })
}

// until waits for something that must happen.
func (s *scene) until(what string, cond func() bool) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("this did not happen: %s", what)
		}
	}
}

// settled waits until Slack has nothing more on its way to the bot.
func (s *scene) settled() {
	s.t.Helper()
	s.until("Slack has delivered everything", func() bool { return s.server.Pending() == 0 })
}

func (s *scene) say(m slackfake.Message) string {
	s.t.Helper()
	if m.User == "" && m.BotID == "" {
		m.User = "UALICE"
	}
	if m.Channel == "" {
		m.Channel = "C1"
	}
	ts, err := s.server.Say(s.t.Context(), m)
	if err != nil {
		s.t.Fatalf("%q was not taken: %v", m.Text, err)
	}
	return ts
}

// mention starts a thread, or speaks in one, with a mention of the bot.
func (s *scene) mention(thread, text string) string {
	s.t.Helper()
	return s.say(slackfake.Message{Thread: thread, Text: "<@UBOT> " + text, Mention: true})
}

func (s *scene) thread(ts string) chat.ThreadID { return chat.ThreadID("slack:T1:C1:" + ts) }

// begun is a thread in which the bot takes part.
func (s *scene) begun() chat.ThreadID { s.t.Helper(); return s.thread(s.mention("", "hello")) }

func (s *scene) post(th chat.ThreadID, p chat.Post) chat.MessageRef {
	s.t.Helper()
	r, err := s.Post(s.t.Context(), th, p)
	if err != nil {
		s.t.Fatalf("%s was not posted: %v", p.Key, err)
	}
	return r
}

func (s *scene) edit(th chat.ThreadID, r chat.MessageRef, p chat.Post) {
	s.t.Helper()
	if err := s.Edit(s.t.Context(), th, r, p); err != nil {
		s.t.Fatalf("%s was not edited: %v", p.Key, err)
	}
}

// ours are the bot's messages that stand in a thread.
func (s *scene) ours(th chat.ThreadID) []slackfake.Msg {
	channel, root := split(th)
	var out []slackfake.Msg
	for _, m := range s.server.Messages(channel, root) {
		if m.BotID == "BBOT" && !m.Deleted {
			out = append(out, m)
		}
	}
	return out
}

// shows are the bot's messages in a thread as people read them.
func (s *scene) shows(th chat.ThreadID) []string {
	out := []string{}
	for _, m := range s.ours(th) {
		text := m.Plain()
		for _, f := range m.Files {
			text += "[" + f.Name + "]"
		}
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

// whispers are what only one person was shown.
func (s *scene) whispers(channel, user string) []string {
	out := []string{}
	for _, m := range s.server.Ephemerals(channel, user) {
		out = append(out, m.Plain())
	}
	return out
}

// methods counts the calls of a method that Slack accepted.
func (s *scene) accepted(method string) int {
	n := 0
	for _, c := range s.server.Calls() {
		if c.Method == method && c.OK() {
			n++
		}
	}
	return n
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func contains(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s says %q, which lacks %q", what, got, w)
		}
	}
}

// forged posts a message with a button of any name, as another version of the
// bot may have left behind.
func forged(s *scene, root, action, value string) string {
	s.t.Helper()
	api := slackapi.New(s.cfg.BotToken, slackapi.OptionAPIURL(s.cfg.APIURL))
	b := slackapi.NewButtonBlockElement(action, value, slackapi.NewTextBlockObject(slackapi.PlainTextType, "Go", false, false))
	_, ts, err := api.PostMessageContext(s.t.Context(), "C1", slackapi.MsgOptionTS(root), slackapi.MsgOptionText("x", false), slackapi.MsgOptionBlocks(slackapi.NewActionBlock("", b)))
	if err != nil {
		s.t.Fatal(err)
	}
	return ts
}
