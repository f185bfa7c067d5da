package gateway

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/discord/discordfake"
)

// TestAgainstTheFake talks to a Discord that shares no code with this package, and
// that holds every request and answer against Discord's own description of the
// API.
func TestAgainstTheFake(t *testing.T) {
	checker, err := discordfake.FindChecker()
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("the description of the API is not here: requests are not held against it")
	} else if err != nil {
		t.Fatal(err)
	}
	f := discordfake.New(discordfake.Config{Checker: checker, IdentifyWindow: -1, Privileged: discordfake.IntentMessageContent, RateLimits: true})
	defer f.Close()
	ann := f.AddUser(discordfake.User{Name: "ann"})
	guild := f.AddGuild(discordfake.Guild{Name: "home"})
	f.AddMember(guild, ann)
	ch := f.AddChannel(discordfake.Channel{Guild: guild, Name: "ops"})

	texts := make(chan string, 100)
	clicks := make(chan *discordgo.Interaction, 10)
	ups := make(chan Phase, 100)
	gaps := make(chan time.Time, 10)
	s, err := New(Config{
		Token: "token", APIURL: f.URL() + "/v10", Intents: discordgo.IntentsGuilds | discordgo.IntentsGuildMessages | discordgo.IntentMessageContent,
		Log: slog.New(slog.DiscardHandler),
		Events: func(_ context.Context, _ int, e any) {
			switch e := e.(type) {
			case *discordgo.MessageCreate:
				if !e.Author.Bot {
					texts <- e.Content
				}
			case *discordgo.InteractionCreate:
				clicks <- e.Interaction
			}
		},
		OnState: func(st State) {
			if st.Up() {
				ups <- st.Phase
			}
		},
		OnGap: func(_ context.Context, _ int, since time.Time) { gaps <- since },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.times.stable, s.times.base = 0, 100*time.Millisecond // real time passes here
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	expect := func(want Phase) {
		t.Helper()
		select {
		case got := <-ups:
			if got != want {
				t.Fatalf("it is %s, want %s", got, want)
			}
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		case <-ctx.Done():
			t.Fatalf("it is not %s: %v", want, s.Ready())
		}
	}
	say := func(text string) {
		t.Helper()
		if _, err := f.Say(ann, ch, text); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		select {
		case got := <-texts:
			if got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%q was not heard: %v", want, s.Ready())
		}
	}
	expect(Ready)
	say("one")
	hear("one")

	// Connections end in every way; what is said meanwhile comes once.
	f.DropConnections(1006)
	say("two")
	expect(Resumed)
	hear("two")
	f.Reconnect()
	say("three")
	expect(Resumed)
	hear("three")
	f.FailResumes(1, discordfake.GatewayFault{Op: 7})
	f.DropConnections(4000)
	say("four")
	expect(Resumed)
	hear("four")
	if err := f.InjectUnknownComponent(ann, ch); err != nil {
		t.Fatal(err)
	}
	hear("broken") // without the component
	if err := f.InjectAuthorless(ann, ch); err != nil {
		t.Fatal(err)
	}
	f.RequestHeartbeats()
	say("five")
	hear("five")
	f.FailResumes(1, discordfake.GatewayFault{Op: 9})
	f.DropConnections(4000)
	expect(Ready)
	say("six")
	hear("six")
	if st := s.Stats(); st.Identifies != 2 || st.Malformed != 1 || f.Identifies() != 2 || f.TokenReset() {
		t.Errorf("%+v", st)
	}
	if first, second := <-gaps, <-gaps; !first.IsZero() || second.IsZero() {
		t.Errorf("gaps since %s and %s", first, second)
	}

	r := s.REST()
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	card := Outgoing{Key: "card-1", Body: map[string]any{"content": "approve? @everyone", "components": []any{map[string]any{"type": 1, "components": []any{
		map[string]any{"type": 2, "style": 3, "label": "Approve", "custom_id": "approve:1"},
	}}}}}
	_, err = r.Post(ctx, ch, Outgoing{Body: map[string]any{"content": "with a file"}, Files: []File{{"a.txt", []byte("text")}}})
	no(err)
	sent, err := r.Post(ctx, ch, card)
	no(err)
	again, err := r.Post(ctx, ch, card)
	no(err)
	if again != sent {
		t.Errorf("the same key made two messages: %+v and %+v", sent, again)
	}
	pressed := make(chan error, 1)
	go func() { _, err := f.Press(ctx, ann, ch, sent.ID, "approve:1"); pressed <- err }()
	select {
	case click := <-clicks:
		if click.Member.User.ID != ann || click.MessageComponentData().CustomID != "approve:1" {
			t.Errorf("%+v", click)
		}
		no(r.Respond(ctx, click, ReplyUpdate, Outgoing{Body: map[string]any{"content": "approved", "components": []any{}}}))
		if err := r.Respond(ctx, click, ReplyUpdate, Outgoing{Body: map[string]any{"content": "twice"}}); Code(err) != CodeAcknowledged {
			t.Errorf("the second answer: %v", err)
		}
		_, err := r.FollowUp(ctx, click, Outgoing{Body: map[string]any{"content": "only you", "flags": 64}})
		no(err)
	case <-ctx.Done():
		t.Fatal("no click came")
	}
	no(<-pressed)
	if m, ok := f.Message(ch, sent.ID); !ok || m.Content != "approved" {
		t.Errorf("%+v", m)
	}
	_, err = r.Edit(ctx, ch, sent.ID, Outgoing{Body: map[string]any{"content": "done"}, Files: []File{{"out.txt", []byte("text")}}})
	no(err)
	thread, err := r.StartThread(ctx, ch, sent.ID, NewThread{Name: "talk", AutoArchive: 1440})
	no(err)
	if _, err := r.StartThread(ctx, ch, sent.ID, NewThread{Name: "talk"}); Code(err) != CodeThreadExists || thread.ID != sent.ID {
		t.Errorf("the second thread: %v", err)
	}
	yes := true
	_, err = r.EditChannel(ctx, thread.ID, ChannelEdit{Archived: &yes})
	no(err)
	no(r.Typing(ctx, ch))
	list, left, err := r.Messages(ctx, ch, Page{Limit: 100})
	no(err)
	if !slices.ContainsFunc(list, func(m *discordgo.Message) bool { return m.ID == sent.ID }) || left > 2 {
		t.Errorf("%d messages, %d left out", len(list), left)
	}
	_, err = r.Message(ctx, ch, sent.ID)
	no(err)
	_, err = r.Channel(ctx, ch)
	no(err)
	_, err = r.Guild(ctx, guild)
	no(err)
	_, err = r.Roles(ctx, guild)
	no(err)
	_, err = r.Member(ctx, guild, ann)
	no(err)
	_, err = r.ActiveThreads(ctx, guild)
	no(err)
	_, err = r.DM(ctx, ann)
	no(err)
	me, err := r.Me(ctx)
	no(err)
	app, err := r.Application(ctx)
	no(err)
	if me.ID != f.BotID() || app.ID != f.AppID() {
		t.Errorf("%+v, %+v", me, app)
	}
	no(r.PutCommands(ctx, app.ID, guild, []any{map[string]any{"name": "ops", "description": "Ask the bot", "type": 1}}))
	no(r.Delete(ctx, ch, sent.ID))
	if _, err := r.Message(ctx, ch, sent.ID); !errors.Is(err, ErrGone) {
		t.Errorf("a message that is gone: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, v := range f.Violations() {
		t.Error(v)
	}
}
