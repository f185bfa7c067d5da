//go:build linux

package scale

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// options say how a fleet is started.
type options struct {
	replicas         int
	writers, readers int // 0: the store's own numbers
	noHints, ledger  bool
}

// fleet is several replicas on one database, and the network before them: it has people
// write and press buttons, gives what they do to any replica, as Slack does, and checks
// that each message is answered once and in order.
type fleet struct {
	tb       testing.TB
	dir, url string
	id       string // begins the IDs of events and the names of replicas: fleets that follow each other count alike
	o        options

	mu       sync.Mutex
	rng      *rand.Rand
	replicas []*process // nil: it is dead
	runs     int
	talks    map[string]*talk // by thread
	turns    map[string]*turn // by tag
	posts    map[string]string
	expected map[string]chan report
	wrong    []string
	samples  samples
	stormy   bool // replicas die: a post may be seen again

	// done is told of each turn that is over.
	done func(*turn)
}

// process is a replica.
type process struct {
	n     int
	cmd   *exec.Cmd
	in    *lines
	stdin io.Closer
	gone  chan struct{} // closed when all that it said was read
	log   *tail
}

// talk is a thread that people use.
type talk struct {
	n              int
	thread         string
	sent, answered int   // messages
	open           *turn // the newest message; nil: nothing is waited for
}

// turn is one message and what comes of it.
type turn struct {
	talk *talk
	tag  string
	// at are the replicas that have not answered yet whether they took the message, and
	// clicking the one that has not answered the click.
	at       []int
	clicking int
	button   string

	began, took int64 // of the first delivery
	posted      int64 // the answer; 0: none yet, -1: none is wanted any more
	card        int64
	clicked     int64 // the beginning of the click
	ran         int64
	accepted    chan struct{} // closed then
	over        chan struct{} // closed when all of it has happened
}

// samples are what turns took.
type samples struct {
	accept, press       []time.Duration // until a replica had stored it
	answer, card, begin []time.Duration // message to reply, message to card, click to run
	turns               int
}

// newFleet is a fleet without a replica that lives.
func newFleet(tb testing.TB, url string, o options) *fleet {
	tb.Helper()
	return &fleet{
		tb: tb, dir: tb.TempDir(), url: url, o: o, rng: rand.New(rand.NewPCG(uint64(*seed), 7)),
		talks: map[string]*talk{}, turns: map[string]*turn{}, posts: map[string]string{}, expected: map[string]chan report{},
		id: fmt.Sprintf("%016x/", rand.Uint64()), replicas: make([]*process, o.replicas), done: func(*turn) {},
	}
}

// startFleet starts replicas, which end with the test.
func startFleet(tb testing.TB, url string, o options) *fleet {
	tb.Helper()
	f := newFleet(tb, url, o)
	tb.Cleanup(f.stop)
	var wg sync.WaitGroup
	for n := range o.replicas {
		wg.Go(func() { f.start(n) })
	}
	wg.Wait()
	return f
}

// start starts a replica and waits until it takes orders.
func (f *fleet) start(n int) {
	f.mu.Lock()
	f.runs++
	c := replicaConfig{
		URL: f.url, Name: fmt.Sprintf("%s%d/%d", f.id, n, f.runs), Dir: filepath.Join(f.dir, fmt.Sprint(f.runs)),
		Writers: f.o.writers, Readers: f.o.readers, NoHints: f.o.noHints, Ledger: f.o.ledger,
	}
	up := f.expectLocked("up", fmt.Sprint(n))
	f.mu.Unlock()
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), replicaVar+"="+string(raw))
	p := &process{n: n, cmd: cmd, gone: make(chan struct{}), log: &tail{}}
	cmd.Stderr = p.log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		panic(err)
	}
	p.in, p.stdin = &lines{w: stdin}, stdin
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.fail("replica %d: %v", n, err)
		return
	}
	f.mu.Lock()
	f.replicas[n] = p
	f.mu.Unlock()
	go func() {
		defer close(p.gone)
		in := bufio.NewScanner(stdout)
		in.Buffer(make([]byte, 64<<10), 8<<20)
		for in.Scan() {
			var r report
			if err := json.Unmarshal(in.Bytes(), &r); err != nil {
				f.fail("replica %d said %q", n, in.Text())
				return
			}
			f.take(n, r)
		}
	}()
	select {
	case <-up:
	case <-p.gone:
		f.fail("replica %d ended at its start: %s", n, p.log)
	case <-time.After(time.Minute):
		f.fail("replica %d does not start: %s", n, p.log)
	}
}

// stop ends all replicas as a service manager would, and shows what they complained of.
func (f *fleet) stop() {
	f.mu.Lock()
	all := slices.Clone(f.replicas)
	clear(f.replicas)
	f.mu.Unlock()
	for _, p := range all {
		if p != nil {
			_ = p.stdin.Close()
		}
	}
	for n, p := range all {
		if p == nil {
			continue
		}
		select {
		case <-p.gone:
		case <-time.After(30 * time.Second):
			_ = p.cmd.Process.Kill()
			f.tb.Errorf("replica %d did not end", n)
			<-p.gone
		}
		if err := p.cmd.Wait(); err != nil {
			f.tb.Errorf("replica %d: %v", n, err)
		}
		if said := p.log.String(); said != "" {
			f.tb.Logf("replica %d:\n%s", n, said)
		}
	}
}

// kill ends a replica at once. What it had not taken is sent to others again, as networks
// and people do.
func (f *fleet) kill(n int) (at int64) {
	f.mu.Lock()
	p := f.replicas[n]
	f.replicas[n] = nil
	f.stormy = true
	f.mu.Unlock()
	at = now()
	_ = p.cmd.Process.Kill()
	<-p.gone
	_ = p.cmd.Wait()
	f.mu.Lock()
	var again []func()
	for _, t := range f.turns {
		if i := slices.Index(t.at, n); i >= 0 {
			t.at = slices.Delete(t.at, i, i+1)
			again = append(again, func() { f.send(t, f.anyone()) })
		}
		if t.clicking == n {
			again = append(again, func() { f.click(t) })
		}
	}
	f.mu.Unlock()
	for _, do := range again {
		do()
	}
	return at
}

// anyone is a replica that lives.
func (f *fleet) anyone() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.anyoneLocked()
}

func (f *fleet) anyoneLocked() int {
	var alive []int
	for n, p := range f.replicas {
		if p != nil {
			alive = append(alive, n)
		}
	}
	if len(alive) == 0 {
		return 0 // the fleet was stopped; nobody hears it
	}
	return alive[f.rng.IntN(len(alive))]
}

func (f *fleet) order(n int, o order) {
	f.mu.Lock()
	p := f.replicas[n]
	f.mu.Unlock()
	if p != nil {
		_ = p.in.put(o) // one that was killed meanwhile takes none
	}
}

// ask gives an order to a replica and waits for what it reports.
func (f *fleet) ask(n int, o order, is string) report {
	o.ID = fmt.Sprintf("%s/%d/%d", is, n, now())
	got := f.expect(is, o.ID)
	f.order(n, o)
	return f.wait(got, is)
}

// all asks all replicas that live.
func (f *fleet) all(o order, is string) []report {
	var out []report
	for n := range f.replicas {
		f.mu.Lock()
		alive := f.replicas[n] != nil
		f.mu.Unlock()
		if alive {
			out = append(out, f.ask(n, o, is))
		}
	}
	return out
}

// expect returns where the next report of a kind comes to: about a thread, or with an ID.
func (f *fleet) expect(is, about string) <-chan report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expectLocked(is, about)
}

func (f *fleet) expectLocked(is, about string) <-chan report {
	c := make(chan report, 1)
	f.expected[is+" "+about] = c
	return c
}

func (f *fleet) wait(c <-chan report, what string) report {
	select {
	case r := <-c:
		if r.Error != "" {
			f.fail("%s: %s", what, r.Error)
		}
		return r
	case <-time.After(2 * time.Minute):
		f.fail("waited in vain for %s", what)
		return report{}
	}
}

func (f *fleet) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLocked(format, args...)
}

func (f *fleet) failLocked(format string, args ...any) {
	if len(f.wrong) < 50 {
		f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
	}
}

// check fails the test for all that was wrong.
func (f *fleet) check() {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.wrong {
		f.tb.Error(w)
	}
	if f.wrong = nil; f.tb.Failed() {
		for _, p := range f.replicas {
			if p != nil {
				f.tb.Logf("replica %d: %s", p.n, p.log)
			}
		}
		f.tb.FailNow()
	}
}

// talkOf is the talk in thread n.
func (f *fleet) talkOf(n int) *talk {
	f.mu.Lock()
	defer f.mu.Unlock()
	th := threadOf(n)
	if f.talks[th] == nil {
		f.talks[th] = &talk{n: n, thread: th}
	}
	return f.talks[th]
}

// say sends the talk's next message, to several replicas where at has several.
func (f *fleet) say(k *talk, kind byte, at ...int) *turn {
	f.mu.Lock()
	t := f.openLocked(k, kind)
	f.mu.Unlock()
	f.send(t, at...)
	return t
}

// openLocked begins a turn.
func (f *fleet) openLocked(k *talk, kind byte) *turn {
	k.sent++
	t := &turn{talk: k, tag: tagOf(k.n, k.sent, kind), clicking: -1, accepted: make(chan struct{}), over: make(chan struct{})}
	k.open = t
	f.turns[t.tag] = t
	return t
}

func (f *fleet) send(t *turn, at ...int) {
	f.mu.Lock()
	for i, n := range at {
		if f.replicas[n] == nil {
			at[i] = f.anyoneLocked()
		}
	}
	t.at = append(t.at, at...)
	f.mu.Unlock()
	for _, n := range at {
		f.order(n, order{Do: "deliver", ID: f.id + "m/" + t.tag, Thread: t.talk.thread, Text: question(t.tag)})
	}
}

// reaction is about how long people take to press a button, so that the sender has
// recorded the card before. They take longer; then nothing else would change.
const reaction = 100 * time.Millisecond

// click presses Approve on the turn's card, at any replica.
func (f *fleet) click(t *turn) {
	f.mu.Lock()
	t.clicking = f.anyoneLocked()
	n, button := t.clicking, t.button
	f.mu.Unlock()
	f.order(n, order{Do: "click", ID: f.id + "c/" + t.tag, Thread: t.talk.thread, Text: button})
}

// take takes in what a replica says.
func (f *fleet) take(n int, r report) {
	var after []func()
	f.mu.Lock()
	about := r.ID
	switch r.Is {
	case "up":
		about = fmt.Sprint(n)
	case "delivered":
		f.delivered(n, r)
	case "clicked":
		f.clicked(n, r)
	case "posted":
		after = f.posted(r)
	case "ran":
		about = r.Thread
		f.ran(r)
	case "ended", "heard":
		about = r.Thread
	}
	if c := f.expected[r.Is+" "+about]; c != nil {
		delete(f.expected, r.Is+" "+about)
		r.from = n
		c <- r
	}
	if tag := tagForm.FindString(r.Text + " " + r.ID); tag != "" {
		after = append(after, f.finish(tag)...)
	}
	f.mu.Unlock()
	for _, do := range after {
		do()
	}
}

func (f *fleet) turnOf(id string) *turn {
	t := f.turns[tagForm.FindString(id)]
	if t == nil {
		f.failLocked("nobody waits for %q: it was never said, or is over", id)
	}
	return t
}

func (f *fleet) delivered(n int, r report) {
	t := f.turnOf(r.ID)
	if t == nil {
		return
	}
	if i := slices.Index(t.at, n); i >= 0 {
		t.at = slices.Delete(t.at, i, i+1)
	}
	if r.Error != "" {
		f.failLocked("replica %d did not take %s: %s", n, t.tag, r.Error)
	}
	if t.began == 0 {
		t.began, t.took = r.At, r.Took
		f.samples.accept = append(f.samples.accept, time.Duration(r.Took))
		close(t.accepted)
	} else {
		t.began = min(t.began, r.At)
	}
}

func (f *fleet) clicked(n int, r report) {
	t := f.turnOf(r.ID)
	if t == nil {
		return
	}
	t.clicking = -1
	if r.Error != "" {
		f.failLocked("replica %d, click for %s: %s", n, t.tag, r.Error)
	}
	t.clicked = r.At
	f.samples.press = append(f.samples.press, time.Duration(r.Took))
}

func (f *fleet) posted(r report) (after []func()) {
	if r.Button != "" {
		if r.Again && f.stormy && f.turns[r.Text] == nil {
			return nil // of a turn that is over
		}
		if t := f.turnOf(r.Text); t != nil && t.card == 0 {
			t.card, t.button = r.At, r.Button
			time.AfterFunc(reaction/2+time.Duration(f.rng.Int64N(int64(reaction))), func() { f.click(t) })
		}
		return after
	}
	if !strings.HasPrefix(r.Key, "reply/") {
		return nil // the card's other faces
	}
	name := r.Thread + " " + r.Key
	if text, twice := f.posts[name]; twice {
		if text != r.Text || !r.Again || !f.stormy {
			f.failLocked("%s was posted twice: %q, then %q", name, text, r.Text)
		}
		return nil
	}
	f.posts[name] = r.Text
	for tag := range strings.FieldsSeq(r.Text) {
		t := f.turnOf(tag)
		switch {
		case t == nil:
		case t.posted < 0:
			continue
		case t.posted != 0:
			f.failLocked("%s was answered twice", tag)
		case t.talk.thread != r.Thread:
			f.failLocked("%s was answered in %s", tag, r.Thread)
		case numberOf(tag) != t.talk.answered+1:
			f.failLocked("%s was answered after message %d of its thread", tag, t.talk.answered)
		}
		if t != nil {
			t.posted, t.talk.answered = r.At, numberOf(tag)
			after = append(after, f.finish(tag)...)
		}
	}
	return after
}

func (f *fleet) ran(r report) {
	t := f.turnOf(r.Text)
	if t == nil || kindOf(t.tag) != cards {
		return
	}
	if t.ran != 0 {
		f.failLocked("the change of %s ran twice", t.tag)
	}
	t.ran = r.At
}

// finish ends a turn when all of it has happened.
func (f *fleet) finish(tag string) []func() {
	t := f.turns[tag]
	if t == nil || t.posted <= 0 || t.began == 0 || len(t.at) > 0 || kindOf(tag) == cards && (t.clicked == 0 || t.ran == 0) {
		return nil
	}
	delete(f.turns, tag)
	// The messages of a thread are numbered, so a late report of an old one is found to be
	// unknown.
	s := &f.samples
	s.turns++
	if kindOf(tag) == cards {
		s.card = append(s.card, time.Duration(t.card-t.began))
		s.begin = append(s.begin, time.Duration(t.ran-t.clicked))
	} else {
		s.answer = append(s.answer, time.Duration(t.posted-t.began))
	}
	if t.talk.open == t {
		t.talk.open = nil
	}
	close(t.over)
	done := f.done
	return []func(){func() { done(t) }}
}

// collect returns the samples since the last time.
func (f *fleet) collect() samples {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.samples
	f.samples = samples{}
	return s
}

// forget gives up on turns that were only held, to be stopped.
func (f *fleet) forget(turns ...*turn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range turns {
		t.talk.open = nil
		t.posted = -1 // what is still said of it is not wrong
	}
}

// quiet waits until no turn is open.
func (f *fleet) quiet(within time.Duration) {
	f.tb.Helper()
	end := time.After(within)
	for {
		f.mu.Lock()
		var open []string
		for tag, t := range f.turns {
			if t.posted >= 0 {
				open = append(open, tag)
			}
		}
		bad := len(f.wrong) > 0
		f.mu.Unlock()
		if len(open) == 0 || bad {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-end:
			slices.Sort(open)
			f.fail("%d messages were not answered, among them %v", len(open), open[:min(len(open), 10)])
		}
		break
	}
	f.check()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 64<<10 {
		t.buf.Next(t.buf.Len() - 8<<10)
	}
	return t.buf.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("waited in vain until %s", what)
		}
	}
}
