package discordfake

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestAPrivateThreadIsSeenByItsMembers(t *testing.T) {
	p := play(t, Config{})
	th := p.good(p.do("POST", "/channels/"+p.ch+"/threads", `{"name":"secret"}`)).str("id")
	if c, st, there := p.ThreadOf(th); !there || c.Type != TypePrivateThread || st.Owner != p.BotID() {
		t.Fatalf("the thread is %+v %+v", c, st)
	}
	if _, err := p.Say(p.ann, th, "x"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a stranger wrote: %v", err)
	}
	p.JoinThread(p.ann, th)
	must2(t)(p.Say(p.ann, th, "x"))
	p.AddMember(p.guild, p.ben, p.AddRole(p.guild, Role{Permissions: PermManageThreads}))
	must2(t)(p.Say(p.ben, th, "y"))
	// A private thread is not among the public archived ones.
	p.Archive(th, true)
	if l := p.good(p.do("GET", "/channels/"+p.ch+"/threads/archived/public", nil)); l.at("threads").len() != 0 {
		t.Errorf("archived threads are %v", l.v)
	}
	p.RemoveMember(p.guild, p.ann)
	if p.Permissions(th, p.ann) != 0 {
		t.Error("who left the guild still sees the thread")
	}
}

func TestALockedThreadTakesNothingOfTheBot(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	th := must2(t)(p.StartThread(p.ann, p.ch, "", "t"))
	m := p.good(p.post(th, card)).str("id")
	for _, c := range []struct {
		archived bool
		code     int
	}{{false, 160005}, {true, 50083}} {
		p.Archive(th, c.archived)
		p.Lock(th, true)
		ctx, cancel := context.WithCancel(p.ctx)
		pressed := make(chan error, 1)
		go func() {
			_, err := p.Press(ctx, p.ann, th, m, "yes")
			pressed <- err
		}()
		d := a.want("INTERACTION_CREATE")
		r := p.as("", "POST", "/v10/interactions/"+d.str("id")+"/"+d.str("token")+"/callback", answer(AnswerMessage, object{"content": "x"}))
		if r.code() != c.code {
			t.Errorf("archived %v: %d %s, want code %d", c.archived, r.status, r.raw, c.code)
		}
		cancel()
		if err := <-pressed; !errors.Is(err, context.Canceled) {
			t.Errorf("the press gave %v", err)
		}
	}
}

func TestIDsCarryTheirTime(t *testing.T) {
	p := play(t, Config{})
	one := p.ID()
	p.Advance(time.Hour)
	two := p.ID()
	if d := Created(two).Sub(Created(one)); d < time.Hour || d > time.Hour+time.Minute || !less(one, two) {
		t.Errorf("%s and %s are %s apart", one, two, d)
	}
	if !Created("x").IsZero() || !less("9", "10") {
		t.Error("what is no snowflake has a time, or the order is that of text")
	}
}

func TestManyInteractionsLeaveNoGoroutine(t *testing.T) {
	p, a, m := asked(t, Config{})
	p.bot(a, func(val) any { return answer(AnswerDeferredUpdate, nil) })
	press := func(n int) {
		for range n {
			if _, err := p.Press(p.ctx, p.ann, p.ch, m, "yes"); err != nil {
				t.Fatal(err)
			}
		}
	}
	press(20)
	before := runtime.NumGoroutine()
	press(500)
	deadline, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > before+2 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d goroutines before, %d after 500 presses", before, runtime.NumGoroutine())
		}
	}
}

func TestASessionKeepsOnlySoMuch(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.DropConnections(0)
	a.code()
	for range maxBacklog + 10 {
		mustDo(t, p.Inject(p.guild, "X", []byte(`{}`)))
	}
	if e := p.resumeWith(a, 1).wantOp(opInvalid); string(e.D) != "false" {
		t.Errorf("op 9 says %s", e.D)
	}
}
