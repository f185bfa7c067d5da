package container

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

// fakeEngine answers from a list; the last answer stays.
type fakeEngine struct {
	answers []any // state or error
	asked   []string
	s       *fakeSession
	execErr error
	execs   int
}

func (e *fakeEngine) String() string { return "fake 1 at nowhere" }
func (e *fakeEngine) hasty() bool    { return false }
func (e *fakeEngine) close() error   { return nil }

func (e *fakeEngine) inspect(_ context.Context, ref string) (state, error) {
	e.asked = append(e.asked, ref)
	a := e.answers[0]
	if len(e.answers) > 1 {
		e.answers = e.answers[1:]
	}
	if err, ok := a.(error); ok {
		return state{}, err
	}
	return a.(state), nil
}

func (e *fakeEngine) exec(context.Context, string, string, []string, io.Reader, io.Writer, io.Writer) (session, error) {
	e.execs++
	return e.s, e.execErr
}

// fakeSession ends at once, or when it is closed.
type fakeSession struct {
	clean  bool
	err    error
	closed chan struct{} // nil: ends at once
}

func (s *fakeSession) wait(context.Context) (bool, error) {
	if s.closed != nil {
		<-s.closed
	}
	return s.clean, s.err
}

func (s *fakeSession) close() {
	if s.closed != nil {
		select {
		case <-s.closed:
		default:
			close(s.closed)
		}
	}
}

func targetOf(t *testing.T, e *fakeEngine) *Target {
	t.Helper()
	tgt, err := New(Config{Container: "web"})
	if err != nil {
		t.Fatal(err)
	}
	tgt.eng = e
	return tgt
}

var up = state{id: fakeID, running: true, started: "monday"}

func openChannel(t *testing.T, e *fakeEngine) (remote.Channel, error) {
	t.Helper()
	return transport{targetOf(t, e)}.Open(t.Context(), []string{"true"}, nil, nil, nil)
}

func TestWhatAStreamsEndMeans(t *testing.T) {
	down, again := up, up
	down.running, again.started = false, "tuesday"
	broken := errors.New("connection refused")
	for _, tt := range []struct {
		name  string
		s     fakeSession
		after []any // what the engine says of the container afterwards
		lost  bool
		err   string // "" for none
	}{
		{name: "a clean end asks nothing", s: fakeSession{clean: true}, after: []any{broken}},
		{name: "a program that was killed, in a container that runs", after: []any{up}},
		{name: "the container stopped", after: []any{down}, lost: true, err: "it stopped meanwhile"},
		{name: "the engine learns of the stop a moment later", after: []any{up, up, down}, lost: true, err: "it stopped meanwhile"},
		{name: "the container was restarted", after: []any{again}, lost: true, err: "it was restarted meanwhile"},
		{name: "the container was removed", after: []any{errMissing}, lost: true, err: "it was removed meanwhile"},
		{name: "the engine is gone", s: fakeSession{err: backend.ErrLost}, after: []any{broken}, lost: true, err: "connection refused"},
		{name: "only the connection is gone", s: fakeSession{err: backend.ErrLost}, after: []any{up}, lost: true, err: "container web"},
		{name: "no shell", s: fakeSession{err: errors.New("the image needs sh")}, after: []any{up}, err: "the image needs sh"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{answers: append([]any{up}, tt.after...), s: &tt.s}
				ch, err := openChannel(t, e)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				err = ch.Wait()
				if errors.Is(err, backend.ErrLost) != tt.lost || (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("%v, want %q, lost %v", err, tt.err, tt.lost)
				}
				if time.Since(begin) > 2*settleTime {
					t.Errorf("it took %v", time.Since(begin))
				}
				for _, ref := range e.asked[1:] {
					if ref != fakeID {
						t.Errorf("asked for %q, which may be another container by now", ref)
					}
				}
			})
		})
	}
}

func TestAChannelThatIsGivenUpEndsSoonAndAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answers: []any{up, errMissing}, s: &fakeSession{err: backend.ErrLost, closed: make(chan struct{})}}
		ch, err := openChannel(t, e)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- ch.Wait() }()
		synctest.Wait()
		ch.Close()
		ch.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(e.asked) != 1 {
			t.Errorf("asked %d times", len(e.asked))
		}
	})
}

func TestNothingIsStartedInAContainerThatCannotBeUsed(t *testing.T) {
	stopped, paused, other := up, up, up
	stopped.running, paused.paused, other.id = false, true, strings.Repeat("f", 64)
	for _, tt := range []struct {
		name   string
		answer any
		want   string
	}{
		{"stopped", stopped, "the container web is not running; start it first"},
		{"paused", paused, "the container web is paused; unpause it first"},
		{"missing", errMissing, "there is no container web at fake 1 at nowhere; start it, or name another engine"},
		{"an engine that does not answer", errors.New("refused"), "the container web cannot be looked at: refused"},
		{"replaced", other, "container web was 0123456789ab and is now ffffffffffff: " + ErrReplaced.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &fakeEngine{answers: []any{up, tt.answer}, s: &fakeSession{clean: true}}
			tgt := targetOf(t, e)
			open := func() error {
				_, err := transport{tgt}.Open(t.Context(), []string{"true"}, nil, nil, nil)
				return err
			}
			if err := open(); err != nil {
				t.Fatal(err)
			}
			if err := open(); err == nil || err.Error() != tt.want || errors.Is(err, backend.ErrLost) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if e.execs != 1 {
				t.Errorf("%d programs were started", e.execs)
			}
		})
	}
}
