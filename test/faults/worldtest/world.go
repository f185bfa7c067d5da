package worldtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/test/buildtest"
	"countersign/test/faults/invariants"
	"countersign/test/faults/model"
	"countersign/test/faults/network"
)

// Verdict is how the people decide about one card.
type Verdict struct {
	// Deny denies in the place of approving.
	Deny bool
	// Stranger lets somebody press first who may not.
	Stranger bool
	// Clickers is how many of those who may approve press at the same moment; at least 1.
	Clickers int
	// Late lets somebody approve once more after the decision.
	Late bool
	// Wait is how long they think.
	Wait time.Duration
}

// Options say what a world is like.
type Options struct {
	// Binary is the built bot; see Build.
	Binary string
	// Network is the chat network; the world closes it.
	Network Network
	// Store is the value of COUNTERSIGN_STORE, "" for bbolt. Bots is how many there are; 0 is 1, and more need a Store.
	Store string
	Bots  int
	// Data, when set, is the directory in which each bot's data directory is made, in the place of one of the test.
	Data string
	// Target is the configuration of the target in YAML's flow style; "" is this machine without terminals.
	Target string
	// More are further lines of the configuration.
	More string
	// Env is added to every bot's environment.
	Env []string
	// Decide says what people do about the card of a message; nil approves.
	Decide func(id string) Verdict
	// NoPeople leaves the cards alone until People is called.
	NoPeople bool
	// Counter, when set, is the directory in which commands write, in the place of one of the test.
	Counter string
}

// World is a running world. Its methods may be called from any goroutine.
type World struct {
	tb    testing.TB
	o     Options
	Net   Network
	Model *model.Server
	// ModelLink is between the bots and the model.
	ModelLink *network.Proxy
	Bots      []*Bot
	Counter   string
	instance  string
	home      string // of the bots' account

	ctx    context.Context //nolint:containedctx // the life of the world's people
	wg     sync.WaitGroup
	people sync.Once
	n      atomic.Int64

	mu      sync.Mutex
	threads []string
	said    []invariants.Said
	votes   []invariants.Vote
	last    map[string][]Shown // of threads that cannot be read at the moment
	busy    map[string]bool    // cards that somebody deals with
	decided map[string]int     // presses of a card that were answered
}

// instances keeps the names of worlds in one process apart.
var instances atomic.Int64

// New makes a world and starts its bots; it ends with the test, which fails when the
// bots leave their promises broken: see Finish.
func New(tb testing.TB, o Options) *World {
	tb.Helper()
	buildtest.Sources(tb)
	w := &World{tb: tb, o: o, Net: o.Network, Counter: o.Counter, last: map[string][]Shown{}, busy: map[string]bool{}, decided: map[string]int{}}
	if w.Counter == "" {
		w.Counter = tb.TempDir()
	}
	w.home = tb.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.instance = fmt.Sprintf("f%x-%d", os.Getpid(), instances.Add(1))
	tb.Cleanup(func() {
		cancel()
		w.wg.Wait()
		for _, b := range w.Bots {
			b.Resume()
			b.Kill()
		}
		w.Net.Close()
		if w.ModelLink != nil {
			w.ModelLink.Close()
		}
		if w.Model != nil {
			w.Model.Close()
		}
		for _, socket := range []string{"", ".err"} {
			_ = exec.Command("tmux", "-L", "countersign-"+w.instance+socket, "kill-server").Run()
		}
	})
	if n, ok := w.Net.(*Web); ok {
		n.Bind(func() []*Bot { return w.Bots })
	}
	var err error
	if w.Model, err = model.New(w.Counter); err != nil {
		tb.Fatal(err)
	}
	if w.ModelLink, err = network.New(w.Model.Address()); err != nil {
		tb.Fatal(err)
	}
	for i := range max(1, o.Bots) {
		w.Bots = append(w.Bots, w.newBot(i))
	}
	return w
}

func (w *World) newBot(i int) *Bot {
	w.tb.Helper()
	dir := w.tb.TempDir()
	data := filepath.Join(dir, "data")
	if w.o.Data != "" {
		data = filepath.Join(w.o.Data, fmt.Sprint("data", i))
	}
	target := w.o.Target
	if target == "" {
		// What was planned by one replica is run by another: to both it has to be one machine.
		target = fmt.Sprintf("{kind: local, tmux: false, dir: %q, approvers: [oncall]}", w.home)
	}
	config := fmt.Sprintf("%s\ntargets:\n  local: %s\ngroups:\n  oncall: {%s}\n%s\n", w.Net.More(), target, w.Net.Groups(), w.o.More)
	path := filepath.Join(dir, "bot.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	b := &Bot{Name: fmt.Sprint("bot", i), Dir: dir, binary: w.o.Binary}
	b.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "TMPDIR=" + os.TempDir(), "COUNTERSIGN_CONFIG=" + path, "COUNTERSIGN_DATA_DIR=" + data,
		"COUNTERSIGN_LISTEN=127.0.0.1:0", "COUNTERSIGN_INSTANCE=" + w.instance, "OPENAI_API_KEY=sk-test-not-a-key", "OPENAI_MODEL=scripted",
		"OPENAI_BASE_URL=http://" + w.ModelLink.Address() + "/v1",
	}, w.Net.Env()...)
	if w.o.Store != "" {
		b.env = append(b.env, "COUNTERSIGN_STORE="+w.o.Store)
	}
	b.env = append(b.env, w.o.Env...)
	w.wg.Go(func() { b.keep(w.ctx) })
	return b
}

// Instance is COUNTERSIGN_INSTANCE, which is in the names of what the bots leave on
// their targets.
func (w *World) Instance() string { return w.instance }

// Bot is the first bot.
func (w *World) Bot() *Bot { return w.Bots[0] }

// Start starts all bots with env, waits until the network reaches
// them, and lets people look at cards.
func (w *World) Start(env ...string) {
	w.tb.Helper()
	for _, b := range w.Bots {
		if err := b.Start(w.ctx, env...); err != nil && (len(env) == 0 || !errors.Is(err, errDied)) {
			w.tb.Fatalf("%s: %v\n%s", b.Name, err, b.Log())
		}
	}
	w.Until("the network reaches the bot", w.Net.Connected)
	if !w.o.NoPeople {
		w.People()
	}
}

// People lets people decide about cards from now on.
func (w *World) People() {
	w.people.Do(func() { w.wg.Go(w.watchCards) })
}

// patience bounds everything that is waited for. The machine may be busy.
const patience = 90 * time.Second

// Until waits for something and fails the test when it does not come.
func (w *World) Until(what string, ok func() bool) {
	w.tb.Helper()
	if !w.wait(patience, ok) {
		w.tb.Fatalf("not in time: %s\n%s", what, w.Story())
	}
}

func (w *World) wait(limit time.Duration, ok func() bool) bool {
	t := time.NewTicker(25 * time.Millisecond)
	defer t.Stop()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) || w.ctx.Err() != nil {
			return false
		}
		<-t.C
	}
	return true
}

// clock is the format of times in a story.
const clock = "15:04:05.000"

// Story is what a person needs to understand a failure: what was seen, and the bots'
// logs.
func (w *World) Story() string {
	var s strings.Builder
	seen := w.Seen()
	for _, m := range seen.Said {
		fmt.Fprintf(&s, "said %s in %s at %s, accepted %v\n", m.ID, m.Thread, m.Sent.Format(clock), !m.Accepted.IsZero())
	}
	for _, v := range seen.Votes {
		fmt.Fprintf(&s, "vote of %s on %s at %s: approve %v, may %v\n", v.Person, v.On, v.Sent.Format(clock), v.Approve, v.Valid)
	}
	fmt.Fprintf(&s, "no answer yet %v, effects %v\n", invariants.Silent(seen), seen.Effects)
	for _, m := range seen.Said {
		if told := w.Model.Told(m.ID); told != "" {
			fmt.Fprintf(&s, "the model was told of %s: %.600q\n", m.ID, told)
		}
	}
	for _, p := range seen.Posts {
		fmt.Fprintf(&s, "post %s %v at %s, changed %s, open %v answers %v asks %q: %.300q\n", p.Thread, p.Keys, p.At.Format(clock), p.Changed.Format(clock),
			p.Open, p.Answers, p.Asks, p.Text)
	}
	for _, b := range w.Bots {
		log := b.Log()
		fmt.Fprintf(&s, "--- %s\n%s\n", b.Name, log[max(0, len(log)-20000):])
	}
	return s.String()
}

// id names a message.
func (w *World) id() string { return fmt.Sprintf("j%d-%d", os.Getpid()%1000, w.n.Add(1)) }

// sayTime bounds a message, with the network's retries.
const sayTime = 90 * time.Second

// Open begins a thread with a message; n chooses the channel. thread is "" when the
// message was not accepted: a bot that has not heard of a thread need not answer what
// is said there later without a mention.
func (w *World) Open(who Person, n int, do bool) (thread, id string) {
	id = w.id()
	m := invariants.Said{ID: id, Sent: time.Now()}
	ctx, cancel := context.WithTimeout(w.ctx, sayTime)
	defer cancel()
	thread, err := w.Net.Open(ctx, who, n, model.Ask(do, id))
	if thread == "" {
		return "", id
	}
	if err == nil {
		m.Accepted = time.Now()
	}
	m.Thread = thread
	w.mu.Lock()
	defer w.mu.Unlock()
	w.threads = append(w.threads, thread)
	w.said = append(w.said, m)
	if err != nil {
		return "", id
	}
	return thread, id
}

// Say says something in a thread.
func (w *World) Say(who Person, thread string, do bool) (id string) {
	id = w.id()
	m := invariants.Said{Thread: thread, ID: id, Sent: time.Now()}
	ctx, cancel := context.WithTimeout(w.ctx, sayTime)
	defer cancel()
	if err := w.Net.Say(ctx, who, thread, model.Ask(do, id)); err == nil {
		m.Accepted = time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, m)
	return id
}

// Word says a word of the bot's own (status, go on) that asks for no job.
func (w *World) Word(who Person, thread, text string) error {
	ctx, cancel := context.WithTimeout(w.ctx, sayTime)
	defer cancel()
	return w.Net.Say(ctx, who, thread, text)
}

// Threads are all threads so far.
func (w *World) Threads() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.threads)
}

// Cards are the cards of a thread by the message whose command they are about.
func (w *World) Cards(thread string) map[string]Shown {
	out := map[string]Shown{}
	shown, err := w.Net.Thread(thread)
	if err != nil {
		return out
	}
	for _, m := range shown {
		if id := model.Asks(m.Text); m.Card && id != "" {
			out[id] = m
		}
	}
	return out
}

// watchCards lets people decide about what they see, until the world ends.
func (w *World) watchCards() {
	t := time.NewTicker(40 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-t.C:
		}
		for _, thread := range w.Threads() {
			for id, m := range w.Cards(thread) {
				if _, _, open := approve(m); !open {
					continue
				}
				w.mu.Lock()
				busy := w.busy[id]
				w.busy[id] = true
				w.mu.Unlock()
				if !busy {
					w.wg.Go(func() { w.decide(thread, id, m) })
				}
			}
		}
	}
}

// decide plays one try of the people to decide; when the card is still open they try
// again.
func (w *World) decide(thread, id string, m Shown) {
	defer func() {
		w.mu.Lock()
		w.busy[id] = false
		w.mu.Unlock()
	}()
	v := Verdict{}
	if w.o.Decide != nil {
		v = w.o.Decide(id)
	}
	w.pause(v.Wait)
	button, request, _ := approve(m)
	if v.Stranger {
		_ = w.press(Mallory, thread, id, m, button)
	}
	var wg sync.WaitGroup
	if v.Deny {
		w.vote(Bob, id, false, true)
		wg.Go(func() { _ = w.Word(Bob, thread, "deny "+request+" not today") })
	} else {
		for i := range min(max(1, v.Clickers), len(Deciders())) {
			wg.Go(func() { _ = w.press(Deciders()[i], thread, id, m, button) })
		}
	}
	wg.Wait()
	// Whoever wants to be sure presses again, but no faster than people do.
	closed := w.wait(2*time.Second, func() bool { _, _, open := approve(w.Cards(thread)[id]); return !open })
	if closed && v.Late {
		w.vote(Carol, id, true, !v.Deny) // after a denial it must not count
		_ = w.Word(Carol, thread, "approve "+request)
	}
}

func (w *World) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// Press lets somebody press the button of a card that approves.
func (w *World) Press(who Person, thread, id string) error {
	m := w.Cards(thread)[id]
	button, _, ok := approve(m)
	if !ok {
		return errors.New("the card is not open")
	}
	return w.press(who, thread, id, m, button)
}

// Deny lets somebody deny a card, in words.
func (w *World) Deny(who Person, thread, id string) {
	_, request, ok := approve(w.Cards(thread)[id])
	if !ok {
		return
	}
	w.vote(who, id, false, true)
	_ = w.Word(who, thread, "deny "+request+" not today")
}

func (w *World) press(who Person, thread, id string, m Shown, b Button) error {
	w.vote(who, id, true, who != Mallory)
	ctx, cancel := context.WithTimeout(w.ctx, 15*time.Second)
	defer cancel()
	err := w.Net.Press(ctx, who, thread, m, b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.decided[id]++
	}
	return err
}

func (w *World) vote(who Person, id string, yes, valid bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.votes = append(w.votes, invariants.Vote{On: id, Person: string(who), Approve: yes, Valid: valid, Sent: time.Now()})
}

// Effects are the runs of commands so far.
func (w *World) Effects() []invariants.Effect {
	files, err := os.ReadDir(w.Counter)
	if err != nil {
		return nil
	}
	var out []invariants.Effect
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(w.Counter, f.Name()))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			out = append(out, invariants.Effect{ID: strings.TrimSpace(line)})
		}
	}
	return out
}

// Seen is all that can be seen now.
func (w *World) Seen() invariants.Seen {
	w.mu.Lock()
	s := invariants.Seen{Said: slices.Clone(w.said), Votes: slices.Clone(w.votes)}
	w.mu.Unlock()
	for _, thread := range w.Threads() {
		shown, err := w.Net.Thread(thread)
		w.mu.Lock()
		if err != nil {
			shown = w.last[thread]
		}
		w.last[thread] = shown
		w.mu.Unlock()
		for _, m := range shown {
			s.Posts = append(s.Posts, post(thread, m))
		}
	}
	s.Effects = w.Effects()
	return s
}

func post(thread string, m Shown) invariants.Post {
	p := invariants.Post{Thread: thread, Keys: m.Keys, At: m.At, Changed: m.Changed, Text: m.Text}
	if m.Card {
		p.Asks = model.Asks(m.Text)
		_, _, p.Open = approve(m)
		return p
	}
	for id, o := range model.Reports(m.Text) {
		if p.Answers == nil {
			p.Answers = map[string]invariants.Outcome{}
		}
		p.Answers[id] = invariants.Outcome(o)
	}
	p.Half = model.BreaksOff(m.Text)
	p.Failure = strings.Contains(m.Text, "say `go on`") || strings.Contains(m.Text, "Say `go on`") ||
		slices.ContainsFunc(m.Keys, func(k string) bool { return strings.HasPrefix(k, "end/") })
	return p
}

// Settle waits until everything that was accepted has its end.
func (w *World) Settle() {
	w.tb.Helper()
	w.Until("every accepted message has its end", func() bool {
		s := w.Seen()
		return len(invariants.Silent(s)) == 0 && len(invariants.Settled(s)) == 0
	})
}

// Finish waits until everything that was accepted has its end, lets every bot end by
// SIGTERM and come back once more, which must repeat nothing, and then holds what was
// seen against all rules. The audit chain has to verify.
func (w *World) Finish() invariants.Seen {
	w.tb.Helper()
	w.Settle()
	w.quiet(200 * time.Millisecond)
	for _, b := range w.Bots {
		if err := b.End(30 * time.Second); err != nil {
			w.tb.Errorf("%s: %v\n%s", b.Name, err, w.Story())
		}
	}
	for _, b := range w.Bots {
		if err := b.Start(w.ctx); err != nil {
			w.tb.Fatalf("%s does not come back: %v\n%s", b.Name, err, w.Story())
		}
	}
	w.Until("the network reaches the bot again", w.Net.Connected)
	w.quiet(700 * time.Millisecond)
	w.Settle()
	return w.Verify()
}

// quiet waits until nothing changed for a time.
func (w *World) quiet(d time.Duration) {
	last, since := "", time.Now()
	w.wait(patience, func() bool {
		now := fmt.Sprint(w.Seen().Posts)
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= d
	})
}

// Verify ends the bots and holds what was seen against all rules.
func (w *World) Verify() invariants.Seen {
	w.tb.Helper()
	w.Seen() // a console shows nothing without its bot
	for _, b := range w.Bots {
		b.Kill()
	}
	seen := w.Seen()
	broken := invariants.Check(seen)
	for _, v := range broken {
		w.tb.Error(v)
	}
	for _, s := range w.Net.Stray() {
		w.tb.Errorf("a message of the bot stands outside a thread: %s", s)
	}
	audit := w.Bot()
	if out, err := audit.Run(w.ctx, "audit", "verify"); err != nil {
		w.tb.Errorf("the audit chain: %v", err)
	} else {
		audit.Note("%s", strings.TrimSpace(out))
	}
	if w.tb.Failed() {
		w.tb.Log(w.Story())
	}
	return seen
}

// Outcomes counts what the answers of a world say, and as "gave up" the turns that
// ended with a sentence in the place of an answer.
func Outcomes(s invariants.Seen) map[invariants.Outcome]int {
	out := map[invariants.Outcome]int{}
	for _, p := range s.Posts {
		if p.Failure {
			out["gave up"]++
		}
		for o := range maps.Values(p.Answers) {
			out[o]++
		}
	}
	return out
}
