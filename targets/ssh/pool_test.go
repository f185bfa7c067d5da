package ssh

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/targets/ssh/sshtest"
)

func TestAFailedDialIsNotTriedAgainAtOnce(t *testing.T) {
	boom := errors.New("boom")
	now := time.Unix(1000, 0)
	var b backoff
	if b.blocked(now) != nil {
		t.Error("blocked before a failure")
	}
	for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		b.fail(now, boom, 0.5)
		if err := b.blocked(now.Add(want - 1)); !errors.Is(err, boom) {
			t.Errorf("%d: %v", i, err)
		}
		if err := b.blocked(now.Add(want)); err != nil {
			t.Errorf("%d: still blocked after %v: %v", i, want, err)
		}
	}
	for _, jitter := range []float64{0, 0.999} {
		b := backoff{}
		b.fail(now, boom, jitter)
		if d := b.until.Sub(now); d < firstPause/2 || d > 3*firstPause/2 {
			t.Errorf("jitter %v: %v", jitter, d)
		}
	}
}

func TestInsideTheBackoffTheLastErrorComesAtOnce(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var dials atomic.Int32
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = c.Close()
		}
	}()
	c := config(s)
	c.Port = ln.Addr().(*net.TCPAddr).Port
	now := time.Now()
	c.Now = func() time.Time { return now }
	tgt := open(t, c)
	for range 5 {
		if _, err := run(t, tgt, "true"); err == nil {
			t.Fatal("no error")
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials", n)
	}
}

func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reads func(since time.Duration) int64 // bytes so far
		ping  func() error
		after time.Duration // when it gives up; 0 means never
	}{
		{"answers", func(time.Duration) int64 { return 0 }, func() error { return nil }, 0},
		{"silence", func(time.Duration) int64 { return 0 }, nil, 60 * time.Second},
		{"bytes but no answer", func(d time.Duration) int64 { return int64(d) }, nil, 0},
		{"bytes until a minute", func(d time.Duration) int64 { return int64(min(d, time.Minute)) }, nil, 105 * time.Second},
		{"an answer that comes late", func(time.Duration) int64 { return 0 }, func() error { <-time.After(40 * time.Second); return nil }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				quit, hang := make(chan struct{}), make(chan struct{})
				ping := tt.ping
				if ping == nil {
					ping = func() error { <-hang; return errors.New("closed") }
				}
				got := make(chan error, 1)
				go func() {
					got <- watch(quit, 15*time.Second, 3, func() int64 { return tt.reads(time.Since(began)) }, ping)
				}()
				select {
				case err := <-got:
					if !errors.Is(err, errSilent) || time.Since(began) != tt.after {
						t.Errorf("%v after %v", err, time.Since(began))
					}
				case <-time.After(time.Hour):
					if tt.after != 0 {
						t.Error("it does not give up")
					}
					close(quit)
					if err := <-got; err != nil {
						t.Error(err)
					}
				}
				close(hang)
				<-time.After(time.Minute)
			})
		})
	}
}
