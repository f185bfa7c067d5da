package chattest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
)

// Subject is an adapter under test together with a hand on the network behind
// it. Its functions are called from several goroutines.
type Subject struct {
	Adapter chat.Adapter
	User    chat.UserID   // who acts in Say and Press
	Unknown chat.ThreadID // a thread that does not exist; empty where the network cannot tell
	// Say lets the person write text. id is the network's own name for the
	// message: what comes again has the same. An empty thread starts a new one,
	// named by the returned id. It returns nil only when the adapter has
	// acknowledged the message to the network.
	Say func(t chat.ThreadID, id, text string) (chat.ThreadID, error)
	// Press lets the person press a button and returns what they are told.
	Press func(t chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error)
	// Edit lets the person press a button that offers a text for editing, and
	// change it to text; nil where the network has no forms.
	Edit func(t chat.ThreadID, b chat.ButtonID, text string) (chat.Answer, error)
	// Shown returns the bot's messages that people see in a thread, oldest
	// first. Keys need not be filled in.
	Shown func(t chat.ThreadID) []chat.Post
	// Channel is where an adapter that is a [chat.Opener] can open threads, and
	// NoChannel one that does not exist. Again is what a restart would make of the
	// adapter, on the same network; it is ready to open threads.
	Channel, NoChannel string
	Again              func() chat.Opener
}

// Harness makes a fresh subject. The suite runs and stops its adapter.
type Harness func(t *testing.T) Subject

// patience bounds the waits of the suite; nothing waits that long unless it is
// broken.
const patience = 30 * time.Second

// Run checks that an adapter keeps the promises of [chat.Adapter].
func Run(t *testing.T, harness Harness) {
	t.Helper()
	for _, c := range []struct {
		rule  string
		check func(*testing.T, Subject, *bot)
	}{
		{"an event names its thread, its person and its text", eventIsComplete},
		{"a message is acknowledged only when the handler has it", ackAfterDurable},
		{"a refused message is not acknowledged and can be sent again", refusedThenRetried},
		{"a message that comes again is the same event", redeliveryIsOneEvent},
		{"messages of a thread arrive in order", messagesInOrder},
		{"a click carries the person, the button and the reason", clickIsComplete},
		{"a click carries what the person made of a text", editIsExact},
		{"a choice of a menu is a click, also the second time", menuIsPressed},
		{"a click that was not decided says so", clickFails},
		{"a click gives the card its new face", clickRepaints},
		{"a decided card offers what comes after it", clickAfter},
		{"a post with the same key replaces the message at its place", postIsIdempotent},
		{"the same key in two threads is two messages", keysAreOfThreads},
		{"an edit replaces the message at its place", editReplaces},
		{"an edit of a message that is not there is gone", editGone},
		{"a post to a thread that does not exist is gone", postGone},
		{"posts of a thread keep their order while others post", postsInOrder},
		{"a done context posts nothing", cancelledPost},
		{"a draft becomes its post", draftBecomesPost},
		{"a draft without a post goes away", draftGoesAway},
		{"lines of the log stand in order above what comes next", logInOrder},
		{"what goes on leaves nothing behind", statusGoesAway},
		{"an opened thread begins with its post and is a thread like others", opensAThread},
		{"the same key opens one thread, after a restart too", openIsIdempotent},
		{"another key opens another thread, even with the same text", openKeysDiffer},
		{"what a thread began with can be edited, after a restart too", openedRootIsEdited},
		{"what is no single message opens no thread", openRejects},
		{"a thread in a channel that does not exist is gone", openGone},
		{"a done context opens nothing", cancelledOpen},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			s := harness(t)
			b := &bot{}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Adapter.Run(ctx, b) }()
			c.check(t, s, b)
			stop()
			select {
			case err := <-ended:
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("Run returned %v when its context was done", err)
				}
			case <-time.After(patience):
				t.Error("Run did not return when its context was done")
			}
		})
	}
}

// bot is a handler that remembers, and does as it is told.
type bot struct {
	mu      sync.Mutex
	events  []chat.Event
	clicks  []chat.Click
	deliver func(chat.Event) error
	answer  func(chat.Click) (chat.Answer, error)
}

func (b *bot) Deliver(_ context.Context, ev chat.Event) error {
	b.mu.Lock()
	do := b.deliver
	b.mu.Unlock()
	if do != nil {
		if err := do(ev); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, ev)
	return nil
}

func (b *bot) Click(_ context.Context, c chat.Click) (chat.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clicks = append(b.clicks, c)
	if b.answer != nil {
		return b.answer(c)
	}
	return chat.Answer{Notice: "Noted.", OK: true}, nil
}

func (b *bot) onDeliver(f func(chat.Event) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliver = f
}

func (b *bot) onClick(f func(chat.Click) (chat.Answer, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

func (b *bot) seen() []chat.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func (b *bot) pressed() []chat.Click {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.clicks)
}

func start(t *testing.T, s Subject) chat.ThreadID {
	t.Helper()
	th, err := s.Say("", "first", "hello")
	if err != nil {
		t.Fatalf("a first message was refused: %v", err)
	}
	if !strings.HasPrefix(string(th), s.Adapter.Scheme()+":") {
		t.Fatalf("thread %q does not begin with the scheme %q", th, s.Adapter.Scheme())
	}
	return th
}

func say(t *testing.T, s Subject, th chat.ThreadID, id, text string) {
	t.Helper()
	if _, err := s.Say(th, id, text); err != nil {
		t.Fatalf("the message %q was refused: %v", text, err)
	}
}

func post(t *testing.T, s Subject, th chat.ThreadID, p chat.Post) chat.MessageRef {
	t.Helper()
	ref, err := s.Adapter.Post(t.Context(), th, p)
	if err != nil {
		t.Fatalf("posting %q: %v", p.Key, err)
	}
	if ref == "" {
		t.Fatalf("posting %q gave no reference", p.Key)
	}
	return ref
}

func texts(posts []chat.Post) []string {
	out := []string{}
	for _, p := range posts {
		if p.Card != nil {
			out = append(out, p.Card.Title)
		} else {
			out = append(out, p.Text)
		}
	}
	return out
}

// shows waits for a network that shows things a little later.
func shows(t *testing.T, s Subject, th chat.ThreadID, want ...string) {
	t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		got := texts(s.Shown(th))
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s shows %q, want %q", th, got, want)
		}
	}
}

func eventIsComplete(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	say(t, s, th, "second", "disk is full\n  on web-1 <b>&amp;")
	all := b.seen()
	if len(all) != 2 {
		t.Fatalf("the handler got %d events, want 2", len(all))
	}
	ev := all[1]
	if ev.Thread != th || ev.From.ID != s.User || ev.Text != "disk is full\n  on web-1 <b>&amp;" || ev.ID == "" || ev.At.IsZero() || ev.From.Bot {
		t.Errorf("the event is %+v", ev)
	}
	if all[0].ID == ev.ID {
		t.Error("two messages have one event id")
	}
}

func ackAfterDurable(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	inside, release := make(chan struct{}), make(chan struct{})
	b.onDeliver(func(chat.Event) error {
		close(inside)
		<-release
		return nil
	})
	acked := make(chan error, 1)
	go func() {
		_, err := s.Say(th, "slow", "slow")
		acked <- err
	}()
	<-inside
	select {
	case err := <-acked:
		t.Errorf("acknowledged (%v) while the handler was still at it", err)
	default:
	}
	close(release)
	if err := <-acked; err != nil {
		t.Errorf("not acknowledged: %v", err)
	}
}

func refusedThenRetried(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	b.onDeliver(func(chat.Event) error { return errors.New("the store is away") })
	if _, err := s.Say(th, "again", "do it"); err == nil {
		t.Fatal("acknowledged although the handler refused it")
	}
	b.onDeliver(nil)
	say(t, s, th, "again", "do it")
	if all := b.seen(); len(all) != 2 || all[1].Text != "do it" {
		t.Errorf("the handler has %+v", all)
	}
}

func redeliveryIsOneEvent(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	for range 3 {
		say(t, s, th, "same", "once")
	}
	ids := map[chat.EventID]bool{}
	for _, ev := range b.seen()[1:] {
		ids[ev.ID] = true
	}
	if len(ids) != 1 {
		t.Errorf("one message has the event ids %v", ids)
	}
}

func messagesInOrder(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	for i := range 20 {
		say(t, s, th, fmt.Sprint("m", i), fmt.Sprint(i))
	}
	for i, ev := range b.seen()[1:] {
		if ev.Text != fmt.Sprint(i) {
			t.Fatalf("event %d is %q", i, ev.Text)
		}
	}
}

func question(title string) *chat.Card {
	return &chat.Card{
		Title: title, Tone: chat.ToneHigh, Code: "systemctl restart web",
		Choose: []chat.Button{
			{ID: "deny:1", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove},
		},
	}
}

func clickIsComplete(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	post(t, s, th, chat.Post{Key: "q", Card: question("Restart?")})
	shows(t, s, th, "Restart?")
	ans, err := s.Press(th, "deny:1", "not now")
	if err != nil || !ans.OK || ans.Notice != "Noted." {
		t.Errorf("the answer is %+v, %v", ans, err)
	}
	all := b.pressed()
	if len(all) != 1 {
		t.Fatalf("the handler got %d clicks", len(all))
	}
	c := all[0]
	if c.Thread != th || c.From.ID != s.User || c.Button != "deny:1" || c.Reason != "not now" || c.ID == "" {
		t.Errorf("the click is %+v", c)
	}
}

func editIsExact(t *testing.T, s Subject, b *bot) {
	if s.Edit == nil {
		t.Skip("this network has no forms")
	}
	th := start(t, s)
	card := question("Restart?")
	card.Choose = append(card.Choose, chat.Button{ID: "edit:1", Label: "Edit", Style: chat.StyleEdit, Edit: card.Code, More: true},
		chat.Button{ID: "stop:1", Label: "Stop", Style: chat.StyleStop, More: true})
	post(t, s, th, chat.Post{Key: "q", Card: card})
	shows(t, s, th, "Restart?")
	const text = "systemctl  restart \"web\" <a> &amp; *b*\n\techo `done` é"
	if ans, err := s.Edit(th, "edit:1", text); err != nil || !ans.OK {
		t.Errorf("the answer is %+v, %v", ans, err)
	}
	all := b.pressed()
	if len(all) != 1 {
		t.Fatalf("the handler got %d clicks", len(all))
	}
	if c := all[0]; c.Thread != th || c.From.ID != s.User || c.Button != "edit:1" || c.Text != text || c.ID == "" {
		t.Errorf("the click is %+v", c)
	}
}

func menuIsPressed(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	card := question("Restart?")
	card.Choose = append(card.Choose, chat.Button{ID: "later:1", Label: "Later", Style: chat.StyleDeny, More: true},
		chat.Button{ID: "stop:1", Label: "Stop", Style: chat.StyleStop, More: true})
	post(t, s, th, chat.Post{Key: "q", Card: card})
	shows(t, s, th, "Restart?")
	for i, id := range []chat.ButtonID{"stop:1", "later:1", "later:1"} {
		if ans, err := s.Press(th, id, ""); err != nil || !ans.OK {
			t.Errorf("the answer to %s is %+v, %v", id, ans, err)
		}
		all := b.pressed()
		if len(all) != i+1 || all[i].Button != id || all[i].Thread != th || all[i].From.ID != s.User {
			t.Fatalf("the clicks are %+v", all)
		}
	}
}

func clickFails(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	post(t, s, th, chat.Post{Key: "q", Card: question("Restart?")})
	b.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{}, errors.New("the store is away") })
	if ans, err := s.Press(th, "approve:1", ""); err == nil {
		t.Errorf("the person was told %+v although nothing was decided", ans)
	}
	shows(t, s, th, "Restart?")
}

func clickRepaints(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	post(t, s, th, chat.Post{Key: "before", Text: "before"})
	post(t, s, th, chat.Post{Key: "q", Card: question("Restart?")})
	post(t, s, th, chat.Post{Key: "after", Text: "after"})
	b.onClick(func(chat.Click) (chat.Answer, error) {
		return chat.Answer{OK: true, Notice: "Approved.", Card: &chat.Card{Title: "Approved by you", Final: true}}, nil
	})
	if _, err := s.Press(th, "approve:1", ""); err != nil {
		t.Fatal(err)
	}
	shows(t, s, th, "before", "Approved by you", "after")
}

func clickAfter(t *testing.T, s Subject, b *bot) {
	th := start(t, s)
	card := question("Approved by you")
	card.Final, card.After = true, []chat.Button{{ID: "undo:abcdefghij", Label: "Undo", Style: chat.StyleEdit}}
	post(t, s, th, chat.Post{Key: "q", Card: card})
	shows(t, s, th, "Approved by you")
	if ans, err := s.Press(th, "undo:abcdefghij", ""); err != nil || !ans.OK {
		t.Errorf("the answer is %+v, %v", ans, err)
	}
	if all := b.pressed(); len(all) != 1 || all[0].Button != "undo:abcdefghij" || all[0].From.ID != s.User {
		t.Errorf("the clicks are %+v", all)
	}
}

func postIsIdempotent(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	first := post(t, s, th, chat.Post{Key: "a", Text: "one"})
	post(t, s, th, chat.Post{Key: "b", Text: "two"})
	again := post(t, s, th, chat.Post{Key: "a", Text: "one, again"})
	if first != again {
		t.Errorf("the same key has the references %q and %q", first, again)
	}
	shows(t, s, th, "one, again", "two")
}

func keysAreOfThreads(t *testing.T, s Subject, _ *bot) {
	one := start(t, s)
	two, err := s.Say("", "other", "another thread")
	if err != nil || two == one {
		t.Fatalf("a second thread: %q, %v", two, err)
	}
	post(t, s, one, chat.Post{Key: "k", Text: "in one"})
	post(t, s, two, chat.Post{Key: "k", Text: "in two"})
	shows(t, s, one, "in one")
	shows(t, s, two, "in two")
}

func editReplaces(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	ref := post(t, s, th, chat.Post{Key: "a", Text: "one"})
	post(t, s, th, chat.Post{Key: "b", Text: "two"})
	if err := s.Adapter.Edit(t.Context(), th, ref, chat.Post{Key: "a:2", Card: &chat.Card{Title: "changed", Final: true}}); err != nil {
		t.Fatal(err)
	}
	shows(t, s, th, "changed", "two")
}

func editGone(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	for _, ref := range []chat.MessageRef{"999999", "no such reference"} {
		if err := s.Adapter.Edit(t.Context(), th, ref, chat.Post{Key: "x", Text: "x"}); !errors.Is(err, chat.ErrGone) {
			t.Errorf("editing %q: %v, want ErrGone", ref, err)
		}
	}
}

func postGone(t *testing.T, s Subject, _ *bot) {
	if s.Unknown == "" {
		t.Skip("this network cannot tell which threads exist")
	}
	if _, err := s.Adapter.Post(t.Context(), s.Unknown, chat.Post{Key: "x", Text: "x"}); !errors.Is(err, chat.ErrGone) {
		t.Errorf("posting: %v, want ErrGone", err)
	}
	if err := s.Adapter.Edit(t.Context(), s.Unknown, "1", chat.Post{Key: "x", Text: "x"}); !errors.Is(err, chat.ErrGone) {
		t.Errorf("editing: %v, want ErrGone", err)
	}
}

func postsInOrder(t *testing.T, s Subject, _ *bot) {
	const threads, each = 4, 10
	ids := make([]chat.ThreadID, threads)
	for i := range ids {
		var err error
		if ids[i], err = s.Say("", fmt.Sprint("t", i), fmt.Sprint("thread ", i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, th := range ids {
		wg.Go(func() {
			for i := range each {
				if _, err := s.Adapter.Post(t.Context(), th, chat.Post{Key: fmt.Sprint(i), Text: fmt.Sprint(th, " ", i)}); err != nil {
					t.Errorf("posting: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, th := range ids {
		want := []string{}
		for i := range each {
			want = append(want, fmt.Sprint(th, " ", i))
		}
		shows(t, s, th, want...)
	}
}

func cancelledPost(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Adapter.Post(ctx, th, chat.Post{Key: "late", Text: "late"}); err == nil {
		t.Error("posted although its context was done")
	}
	shows(t, s, th)
}

func opener(t *testing.T, s Subject) chat.Opener {
	t.Helper()
	o, ok := s.Adapter.(chat.Opener)
	if !ok || s.Channel == "" {
		t.Skip("this network opens no threads by itself")
	}
	start(t, s) // the adapter is connected
	return o
}

func open(t *testing.T, s Subject, o chat.Opener, key string, p chat.Post) (chat.ThreadID, chat.MessageRef) {
	t.Helper()
	th, ref, err := o.Open(t.Context(), s.Channel, key, p)
	if err != nil {
		t.Fatalf("opening %q: %v", key, err)
	}
	if !strings.HasPrefix(string(th), s.Channel+":") || ref == "" {
		t.Fatalf("opening %q in %s gave the thread %q and the reference %q", key, s.Channel, th, ref)
	}
	return th, ref
}

func opensAThread(t *testing.T, s Subject, b *bot) {
	o := opener(t, s)
	th, _ := open(t, s, o, "one", chat.Post{Key: "root", Text: "the disk is full"})
	shows(t, s, th, "the disk is full")
	post(t, s, th, chat.Post{Key: "a", Text: "it still is"})
	shows(t, s, th, "the disk is full", "it still is")
	say(t, s, th, "answer", "who filled it?")
	all := b.seen()
	if ev := all[len(all)-1]; ev.Thread != th || ev.Text != "who filled it?" || ev.From.ID != s.User {
		t.Errorf("what a person said in it is %+v", ev)
	}
}

func openIsIdempotent(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	p := chat.Post{Key: "root", Text: "the disk is full"}
	th, ref := open(t, s, o, "one", p)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			again, r, err := o.Open(t.Context(), s.Channel, "one", p)
			if err != nil || again != th || r != ref {
				t.Errorf("the same key opened %q %q %v, not %q %q", again, r, err, th, ref)
			}
		})
	}
	wg.Wait()
	if th2, ref2 := open(t, s, s.Again(), "one", p); th2 != th || ref2 != ref {
		t.Errorf("after a restart the same key opened %q %q, not %q %q", th2, ref2, th, ref)
	}
	shows(t, s, th, "the disk is full")
}

func openKeysDiffer(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	one, _ := open(t, s, o, "one", chat.Post{Key: "root", Text: "the disk is full"})
	two, _ := open(t, s, o, "two", chat.Post{Key: "root", Text: "the disk is full"})
	if one == two {
		t.Fatalf("two keys opened %q", one)
	}
	shows(t, s, one, "the disk is full")
	shows(t, s, two, "the disk is full")
}

func openedRootIsEdited(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	th, ref := open(t, s, o, "one", chat.Post{Key: "root", Text: "the disk is full"})
	post(t, s, th, chat.Post{Key: "a", Text: "it still is"})
	if err := s.Adapter.Edit(t.Context(), th, ref, chat.Post{Key: "root", Text: "the disk was full"}); err != nil {
		t.Fatal(err)
	}
	shows(t, s, th, "the disk was full", "it still is")
	if again, ok := s.Again().(chat.Adapter); ok {
		if err := again.Edit(t.Context(), th, ref, chat.Post{Key: "root", Text: "all is well"}); err != nil {
			t.Fatal(err)
		}
		shows(t, s, th, "all is well", "it still is")
	}
	card, ref := open(t, s, o, "card", chat.Post{Key: "root", Card: &chat.Card{Title: "Disk full", Fields: []chat.Field{{Name: "host", Value: "web-1"}}}})
	shows(t, s, card, "Disk full")
	if err := s.Adapter.Edit(t.Context(), card, ref, chat.Post{Key: "root", Card: &chat.Card{Title: "Disk emptied", Final: true}}); err != nil {
		t.Fatal(err)
	}
	shows(t, s, card, "Disk emptied")
}

func openRejects(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	for what, p := range map[string]chat.Post{
		"an empty post": {Key: "root"},
		"a question":    {Key: "root", Card: question("Restart?")},
		"a file":        {Key: "root", Text: "see", Files: []chat.File{{Name: "a.txt", Text: "a"}}},
	} {
		if th, _, err := o.Open(t.Context(), s.Channel, what, p); !errors.Is(err, chat.ErrRejected) {
			t.Errorf("%s opened %q, %v; want ErrRejected", what, th, err)
		}
	}
}

func openGone(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	for _, channel := range []string{s.NoChannel, "", "no channel"} {
		if th, _, err := o.Open(t.Context(), channel, "one", chat.Post{Key: "root", Text: "a"}); !errors.Is(err, chat.ErrGone) {
			t.Errorf("in %q it opened %q, %v; want ErrGone", channel, th, err)
		}
	}
}

func cancelledOpen(t *testing.T, s Subject, _ *bot) {
	o := opener(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if th, _, err := o.Open(ctx, s.Channel, "late", chat.Post{Key: "root", Text: "late"}); err == nil {
		t.Errorf("opened %q although its context was done", th)
	}
}

// progress shows something that passes, and waits a moment for a network that shows it
// among its messages.
func progress(t *testing.T, s Subject, th chat.ThreadID, p chat.Progress, visible string) {
	t.Helper()
	shower, ok := s.Adapter.(chat.ProgressShower)
	if !ok {
		t.Skip("this network shows no progress")
	}
	shower.ShowProgress(t.Context(), th, p)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Second); !strings.Contains(strings.Join(texts(s.Shown(th)), "\n"), visible); {
		select {
		case <-tick.C:
		case <-late:
			return
		}
	}
}

func draftBecomesPost(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	post(t, s, th, chat.Post{Key: "a", Text: "before"})
	progress(t, s, th, chat.Progress{Key: "b", Kind: chat.ProgressDraft, Text: "half"}, "half")
	post(t, s, th, chat.Post{Key: "b", Text: "the whole reply"})
	post(t, s, th, chat.Post{Key: "c", Text: "after"})
	shows(t, s, th, "before", "the whole reply", "after")
}

func draftGoesAway(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	progress(t, s, th, chat.Progress{Key: "b", Kind: chat.ProgressDraft, Text: "half"}, "half")
	progress(t, s, th, chat.Progress{Key: "b", Kind: chat.ProgressDraft, Done: true}, "nothing shows it")
	post(t, s, th, chat.Post{Key: "c", Text: "another"})
	shows(t, s, th, "another")
}

func logInOrder(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	first := post(t, s, th, chat.Post{Key: "a", Text: "one", Log: true})
	post(t, s, th, chat.Post{Key: "b", Text: "two", Log: true})
	post(t, s, th, chat.Post{Key: "c", Text: "three"})
	if err := s.Adapter.Edit(t.Context(), th, first, chat.Post{Key: "a", Text: "one, done", Log: true}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	const want = "one, done\n\ntwo\n\nthree" // in one message or in several
	for late := time.After(patience); strings.Join(texts(s.Shown(th)), "\n\n") != want; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s shows %q, want %q", th, texts(s.Shown(th)), want)
		}
	}
}

func statusGoesAway(t *testing.T, s Subject, _ *bot) {
	th := start(t, s)
	progress(t, s, th, chat.Progress{Key: "x", Kind: chat.ProgressStatus, Status: "running uptime"}, "uptime")
	progress(t, s, th, chat.Progress{Key: "x", Kind: chat.ProgressStatus, Done: true}, "nothing shows it")
	post(t, s, th, chat.Post{Key: "c", Text: "up"})
	shows(t, s, th, "up")
}
