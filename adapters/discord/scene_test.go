package discord_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/adapters/discord/embed"
)

// patience is how long a test waits for something that must happen.
const patience = 20 * time.Second

// agent is a bot that remembers what it was told, and takes part in the threads
// that it was told of.
type agent struct {
	mu      sync.Mutex
	events  []chat.Event
	clicks  []chat.Click
	known   map[chat.ThreadID]bool
	deliver func(chat.Event) error
	answer  func(context.Context, chat.Click) (chat.Answer, error)
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

func (b *agent) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	b.mu.Lock()
	b.clicks = append(b.clicks, c)
	do := b.answer
	b.mu.Unlock()
	if do != nil {
		return do(ctx, c)
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

func (b *agent) onClick(f func(context.Context, chat.Click) (chat.Answer, error)) {
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

// logged keeps a log for what fails.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is what was written so far.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// scene is a local Discord with the bot in it.
type scene struct {
	*discord.Adapter
	*town
	t   *testing.T
	bot *agent
	cfg discord.Config

	log *logged // what the adapter wrote

	handler chat.Handler // in the place of bot

	mu      sync.Mutex
	handled map[string]int
	stop    context.CancelFunc
	ended   chan error
}

// full is a Discord that gives the bot the text of all messages.
func full() discordfake.Config {
	return discordfake.Config{Privileged: discordfake.IntentMessageContent}
}

// stage sets a scene up without starting the adapter.
func stage(t *testing.T, dc discordfake.Config, change ...func(*town, *discord.Config)) *scene {
	t.Helper()
	s := &scene{t: t, log: &logged{}, town: newTown(t, dc), bot: &agent{known: map[chat.ThreadID]bool{}}, handled: map[string]int{}}
	s.cfg = s.config()
	s.cfg.Log = slog.New(slog.NewTextHandler(s.log, nil))
	s.cfg.Known, s.cfg.Seen, s.cfg.Open = s.bot.knows, s.bot.seen, s.bot.open
	for _, f := range change {
		f(s.town, &s.cfg)
	}
	s.made()
	return s
}

func (s *scene) made() {
	s.t.Helper()
	s.Adapter = adapter(s.t, s.cfg)
	s.Hurry(100 * time.Millisecond)
	s.OnHandled(func(id string, _ error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handled[id]++
	})
}

// play sets a scene up and starts it.
func play(t *testing.T, dc discordfake.Config, change ...func(*town, *discord.Config)) *scene {
	t.Helper()
	s := stage(t, dc, change...)
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
	s.made()
	s.start()
	s.ready()
}

// later lets the next adapter believe that a minute has passed.
func (s *scene) later() {
	s.cfg.Now = func() time.Time { return time.Now().Add(time.Minute) }
}

func (s *scene) ready() {
	s.t.Helper()
	s.until("the bot listens", func() bool { return s.Ready() == nil })
	// The slash commands come last of what a start does.
	s.until("the server is known", func() bool { return s.Count("PUT /applications/{application_id}/guilds/{guild_id}/commands") > 0 })
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
			s.t.Fatalf("this did not happen: %s\n%s", what, s.log)
		}
	}
}

func (s *scene) times(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled[id]
}

// says writes as somebody and waits until the adapter is done with it.
func (s *scene) says(user, channel, text string, files ...discordfake.Upload) string {
	s.t.Helper()
	id, err := s.Say(user, channel, text, files...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.until("the message was handled", func() bool { return s.times(id) > 0 })
	return id
}

// at is the bot's mention.
func (s *scene) at() string { return "<@" + s.BotID() + ">" }

// begun is a thread in which the bot takes part.
func (s *scene) begun() chat.ThreadID {
	s.t.Helper()
	return s.thread(s.says(s.alice, s.channel, s.at()+" hello"))
}

func (s *scene) thread(channel string) chat.ThreadID {
	return chat.ThreadID("discord:" + s.guild + ":" + s.channel + ":" + channel)
}

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

// shows are the bot's messages in a channel as people read them.
func (s *scene) shows(channel string) []string {
	out := []string{}
	for _, m := range ours(s.town, channel) {
		text := unescape(m.Content)
		if t := title(m); t != "" {
			text = t
		}
		for _, f := range m.Attachments {
			text += "[" + f.Filename + "]"
		}
		out = append(out, text)
	}
	return out
}

func (s *scene) showing(th chat.ThreadID, want ...string) {
	s.t.Helper()
	_, channel := split(th)
	s.until("the thread shows "+strings.Join(want, " | "), func() bool {
		got := s.shows(channel)
		return len(got) == len(want) && !slices.ContainsFunc(want, func(w string) bool {
			return !strings.Contains(got[slices.Index(want, w)], w)
		})
	})
}

// press presses a button of the card in a thread.
func (s *scene) press(user string, th chat.ThreadID, b chat.ButtonID) (discordfake.Response, error) {
	s.t.Helper()
	_, channel := split(th)
	message, id := button(s.Shown(channel), b)
	if id == "" {
		s.t.Fatalf("no message has the button %s", b)
	}
	s.until("the menu can be used again", func() bool { return s.Chosen(user, channel, message, embed.MenuID) != id })
	return s.Press(s.t.Context(), user, channel, message, id)
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

// question is a card that waits for a decision.
func question() *chat.Card {
	return &chat.Card{
		Title: "Restart?", Tone: chat.ToneHigh, Code: "systemctl restart web",
		Choose: []chat.Button{
			{ID: "deny:1", Label: "Deny", Style: chat.StyleDeny},
			{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove},
			{ID: "edit:1", Label: "Edit", Style: chat.StyleEdit, Edit: "systemctl restart web"},
		},
	}
}
