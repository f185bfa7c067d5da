package discord_test

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
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/adapters/discord/embed"
)

// town is a local Discord with one guild, one channel and the people of the tests.
type town struct {
	*discordfake.Server
	guild, channel, oncall string
	alice, bob, pager      string
	called                 string // whom posts are for, in this test; messages may mention them alone
}

// newTown holds each request of the adapter against Discord's own description.
func newTown(t testing.TB, cfg discordfake.Config) *town {
	t.Helper()
	if cfg.Checker == nil {
		c, err := discordfake.FindChecker()
		if err != nil {
			t.Logf("requests are not held against the description: %v", err)
		}
		cfg.Checker = c
	}
	if cfg.IdentifyWindow == 0 {
		cfg.IdentifyWindow = -1
	}
	s := discordfake.New(cfg)
	w := &town{Server: s}
	t.Cleanup(func() {
		s.Close()
		for _, v := range s.Violations() {
			t.Error(v)
		}
		for _, c := range s.Calls() {
			mentionsNobody(t, c, w.called)
		}
	})
	w.alice, w.bob = s.AddUser(discordfake.User{Name: "alice", GlobalName: "Alice"}), s.AddUser(discordfake.User{Name: "bob"})
	w.pager = s.AddUser(discordfake.User{Name: "pager", Bot: true})
	w.guild = s.AddGuild(discordfake.Guild{Name: "ops"})
	w.oncall = s.AddRole(w.guild, discordfake.Role{Name: "oncall"})
	w.channel = s.AddChannel(discordfake.Channel{Guild: w.guild, Name: "incidents", Type: discordfake.TypeText})
	s.AddMember(w.guild, w.alice, w.oncall)
	s.AddMember(w.guild, w.bob)
	s.AddMember(w.guild, w.pager)
	return w
}

// mentionsNobody checks that every message says so, or that it mentions but, at its beginning. A form and an
// acknowledgement have no text.
func mentionsNobody(t testing.TB, c discordfake.Call, but string) {
	t.Helper()
	var b struct {
		Type    int              `json:"type"`
		Content *string          `json:"content"`
		Allowed *json.RawMessage `json:"allowed_mentions"`
		Data    *struct {
			Content *string          `json:"content"`
			Allowed *json.RawMessage `json:"allowed_mentions"`
		} `json:"data"`
	}
	if json.Unmarshal(c.Body, &b) != nil {
		return
	}
	content, allowed := b.Content, b.Allowed
	if b.Data != nil {
		content, allowed = b.Data.Content, b.Data.Allowed
	}
	if but != "" && content != nil && allowed != nil && strings.HasPrefix(*content, "<@"+but+">") && string(*allowed) == `{"parse":[],"users":["`+but+`"]}` {
		return
	}
	if content != nil && (allowed == nil || string(*allowed) != `{"parse":[]}`) {
		t.Errorf("%s may mention people: %s", c.Route, c.Body)
	}
}

func (w *town) config() discord.Config {
	return discord.Config{
		Token: "token", APIURL: w.URL() + "/v10", Name: "ops", Guilds: []string{w.guild}, Shards: 1,
		Known: func(context.Context, chat.ThreadID) (bool, error) { return true, nil },
		Log:   slog.New(slog.DiscardHandler),
	}
}

func adapter(t testing.TB, cfg discord.Config) *discord.Adapter {
	t.Helper()
	a, err := discord.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// split is the channel and the conversation of a thread's id.
func split(th chat.ThreadID) (parent, channel string) {
	p := strings.Split(string(th), ":")
	if len(p) != 4 {
		return "", ""
	}
	return p[2], p[3]
}

// subject joins the adapter with people who act on the local Discord.
type subject struct {
	*discord.Adapter
	t *testing.T
	w *town

	mu      sync.Mutex
	cond    *sync.Cond
	ids     map[string]string // by thread and the message's name
	handled map[string]int    // how often a message was done with
	refused map[chat.EventID]int
	last    chat.Answer
	err     error
}

func newSubject(t *testing.T) *subject {
	w := newTown(t, discordfake.Config{Privileged: discordfake.IntentMessageContent})
	s := &subject{t: t, w: w, Adapter: adapter(t, w.config()), ids: map[string]string{}, handled: map[string]int{}, refused: map[chat.EventID]int{}}
	s.cond = sync.NewCond(&s.mu)
	s.Hurry(100 * time.Millisecond)
	s.OnHandled(func(id string, _ error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handled[id]++
		s.cond.Broadcast()
	})
	return s
}

func (s *subject) Run(ctx context.Context, h chat.Handler) error {
	return s.Adapter.Run(ctx, recorder{h, s})
}

// recorder remembers what the bot answered.
type recorder struct {
	chat.Handler
	s *subject
}

func (r recorder) Deliver(ctx context.Context, ev chat.Event) error {
	err := r.Handler.Deliver(ctx, ev)
	if err != nil {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.refused[ev.ID]++
		r.s.cond.Broadcast()
	}
	return err
}

func (r recorder) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	ans, err := r.Handler.Click(ctx, c)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.last, r.s.err = ans, err
	return ans, err
}

// say writes, or sends the same message again. Discord has no acknowledgement of
// messages; what stands for it here is that the adapter needs the message no more.
func (s *subject) say(th chat.ThreadID, name, text string) (chat.ThreadID, error) {
	if err := s.w.WaitOnline(s.t.Context(), 1); err != nil {
		return "", err
	}
	_, channel := split(th)
	if th == "" {
		channel, text = s.w.channel, "<@"+s.w.BotID()+"> "+text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(th) + "/" + name
	id, again := s.ids[key]
	done, refused := s.handled[id], s.refused[chat.EventID("discord:"+id)]
	s.mu.Unlock()
	var err error
	if again {
		err = s.w.Redeliver(channel, id)
	} else {
		id, err = s.w.Say(s.w.alice, channel, text)
	}
	s.mu.Lock()
	if err != nil {
		return "", err
	}
	s.ids[key] = id
	for s.handled[id] == done || again && refused > 0 && s.handled[id] < 1 {
		if s.refused[chat.EventID("discord:"+id)] > refused {
			return "", errors.New("the bot refused it")
		}
		s.cond.Wait()
	}
	if th == "" {
		th = chat.ThreadID("discord:" + s.w.guild + ":" + s.w.channel + ":" + id)
	}
	return th, nil
}

func (s *subject) press(th chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
	return s.act(th, b, func(m *discordfake.Modal) map[string]string {
		out := map[string]string{}
		for _, in := range m.Inputs {
			if in.CustomID == "cs.why" {
				out[in.CustomID] = reason
			}
		}
		return out
	})
}

func (s *subject) edit(th chat.ThreadID, b chat.ButtonID, text string) (chat.Answer, error) {
	return s.act(th, b, func(*discordfake.Modal) map[string]string { return map[string]string{"cs.text": text} })
}

// act presses a button, fills in the form if one opens, and returns what the
// person was told.
func (s *subject) act(th chat.ThreadID, b chat.ButtonID, fill func(*discordfake.Modal) map[string]string) (chat.Answer, error) {
	_, channel := split(th)
	message, id := button(s.w.Shown(channel), b)
	if id == "" {
		return chat.Answer{}, fmt.Errorf("no message has the button %s", b)
	}
	if err := s.w.Wait(s.t.Context(), func() bool { return s.w.Chosen(s.w.alice, channel, message, embed.MenuID) != id }); err != nil {
		return chat.Answer{}, err
	}
	r, err := s.w.Press(s.t.Context(), s.w.alice, channel, message, id)
	if err == nil && r.Modal != nil {
		r, err = s.w.SubmitModal(s.t.Context(), r.Modal, fill(r.Modal))
	}
	if err != nil {
		return chat.Answer{}, err
	}
	s.mu.Lock()
	ans, failed := s.last, s.err
	s.mu.Unlock()
	if failed == nil && ans.Card != nil && ans.Card.Final {
		return ans, nil
	}
	if !r.Ephemeral() {
		return ans, fmt.Errorf("the person was told nothing: %+v", r)
	}
	if failed != nil {
		return chat.Answer{}, errors.New(r.Message.Text())
	}
	ans.Notice = r.Message.Text()
	return ans, nil
}

// button finds a button of ours on the messages of a channel.
func button(list []discordfake.Message, b chat.ButtonID) (message, customID string) {
	for _, m := range list {
		for _, id := range m.Buttons() {
			if _, rest, _ := strings.Cut(id, ":"); rest == string(b) {
				return m.ID, id
			}
		}
	}
	return "", ""
}

// restarted is an adapter on the same Discord that has just begun.
func (w *town) restarted(t testing.TB) *discord.Adapter {
	t.Helper()
	a := adapter(t, w.config())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx, deaf{}) }()
	t.Cleanup(func() { stop(); <-ended })
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(20 * time.Second); a.Ready() != nil; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(a.Ready())
		}
	}
	return a
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Deliver(context.Context, chat.Event) error              { return nil }
func (deaf) Click(context.Context, chat.Click) (chat.Answer, error) { return chat.Answer{}, nil }

func (s *subject) shown(th chat.ThreadID) []chat.Post {
	parent, channel := split(th)
	var out []chat.Post
	list := ours(s.w, channel)
	if root, ok := s.w.Message(parent, channel); ok && root.Author == s.w.BotID() {
		list = append([]discordfake.Message{root}, list...) // a thread of ours begins in the channel above
	}
	for _, m := range list {
		if title := title(m); title != "" {
			out = append(out, chat.Post{Card: &chat.Card{Title: title}})
		} else {
			out = append(out, chat.Post{Text: unescape(m.Content)})
		}
	}
	return out
}

// ours are the bot's messages that stand in a channel.
func ours(w *town, channel string) []discordfake.Message {
	var out []discordfake.Message
	for _, m := range w.Shown(channel) {
		if m.Author == w.BotID() && m.Type != discordfake.MessageThreadStarter {
			out = append(out, m)
		}
	}
	return out
}

// unescape is what people read where no markup is.
func unescape(s string) string { return strings.ReplaceAll(s, "\\", "") }

// title is the title of a card, "" for other messages.
func title(m discordfake.Message) string {
	var embeds []struct {
		Title string `json:"title"`
	}
	_ = json.Unmarshal(m.Embeds, &embeds)
	if len(embeds) == 0 {
		return ""
	}
	text := embeds[0].Title
	if text == "" { // the message's text begins with it
		text, _, _ = strings.Cut(m.Content, "\n")
	}
	for _, tone := range []string{"🔵 ", "🟡 ", "🔴 ", "✓ ", "✗ "} {
		text = strings.TrimPrefix(text, tone)
	}
	return unescape(text)
}

func TestMain(m *testing.M) { chattest.Main(m) }

// TestAdapter runs the suite that every network's adapter passes.
// D-01: what every chat network has to keep.
func TestAdapter(t *testing.T) {
	t.Parallel()
	chattest.Run(t, func(t *testing.T) chattest.Subject {
		s := newSubject(t)
		return chattest.Subject{
			Adapter: s, User: chat.UserID("discord:" + s.w.alice),
			Unknown: chat.ThreadID("discord:" + s.w.guild + ":" + s.w.channel + ":404"),
			Say:     s.say, Press: s.press, Edit: s.edit, Shown: s.shown,
			Channel: "discord:" + s.w.guild + ":" + s.w.channel, NoChannel: "discord:" + s.w.guild + ":404",
			Again: func() chat.Opener { return s.w.restarted(t) },
		}
	})
}
