package slackfake

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestHelloNamesTheAppAndCountsConnections(t *testing.T) {
	s, _ := world(t, Config{})
	first, second := dial(t, s).next(), dial(t, s).next()
	if first["type"] != "hello" || pick(first, "connection_info.app_id") != "A1" || first["num_connections"] != 1.0 {
		t.Errorf("the first hello is %v", first)
	}
	if second["num_connections"] != 2.0 || pick(second, "debug_info.approximate_connection_time") == nil {
		t.Errorf("the second hello is %v", second)
	}
}

func TestATicketOpensOneConnection(t *testing.T) {
	s, ctx := world(t, Config{})
	u := mustOK(t, form(t, s, "apps.connections.open")).str("url")
	if c, _, err := websocket.Dial(ctx, u, nil); err != nil {
		t.Fatal(err)
	} else {
		defer func() { _ = c.CloseNow() }()
	}
	_, resp, err := websocket.Dial(ctx, u, nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("a used ticket was taken: %v", err)
	}
}

func TestTheEleventhConnectionIsSentAway(t *testing.T) {
	s, ctx := world(t, Config{})
	for range maxSockets {
		dial(t, s).next()
	}
	p := dial(t, s)
	if f := p.next(); f["type"] != "disconnect" || f["reason"] != "too_many_websockets" {
		t.Fatalf("got %v", f)
	}
	<-p.gone
	if err := s.Wait(ctx, func() bool { return s.Sockets() == maxSockets }); err != nil {
		t.Fatal(err)
	}
}

func TestAnEventIsDeliveredOnceWhenItIsAcknowledged(t *testing.T) {
	s, ctx := world(t, Config{AckTimeout: patient})
	got := dial(t, s).serve(nil)
	<-got
	ts, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi <@UBOT>", Mention: true})
	if err != nil {
		t.Fatal(err)
	}
	types := map[any]any{}
	for range 2 {
		f := <-got
		if f["type"] != "events_api" || f["retry_attempt"] != 0.0 || f["accepts_response_payload"] != false {
			t.Errorf("the envelope is %v", f)
		}
		if pick(f, "payload.event.ts") != ts || pick(f, "payload.event.channel") != "C1" || pick(f, "payload.event.user") != "U1" {
			t.Errorf("the event is %v", f)
		}
		types[pick(f, "payload.event.type")] = pick(f, "payload.event_id")
	}
	if len(types) != 2 || types["message"] == types["app_mention"] || types["app_mention"] == nil {
		t.Errorf("a mention in a channel is two events with two ids, got %v", types)
	}
	if n := len(s.Deliveries()); n != 2 || s.Lost() != 0 || s.Pending() != 0 {
		t.Errorf("%d deliveries, %d lost, %d pending", n, s.Lost(), s.Pending())
	}
}

func TestWhatIsNotAcknowledgedComesAgainWithItsAttempt(t *testing.T) {
	s, ctx := world(t, Config{})
	p := dial(t, s)
	p.next()
	done := make(chan error, 1)
	go func() {
		_, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"})
		done <- err
	}()
	first := p.next()
	second := p.next()
	if second["envelope_id"] != first["envelope_id"] || second["retry_attempt"] != 1.0 || second["retry_reason"] != "timeout" {
		t.Errorf("the retry is %v", second)
	}
	third := p.next()
	p.ack(third, nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if third["retry_attempt"] != 2.0 {
		t.Errorf("the second retry is %v", third)
	}
}

func TestAfterTheLastRetryAnEventIsLost(t *testing.T) {
	for name, connected := range map[string]bool{"with a connection that does not acknowledge": true, "with no connection": false} {
		t.Run(name, func(t *testing.T) {
			s, ctx := world(t, Config{})
			if connected {
				dial(t, s).next()
			}
			_, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"})
			if !errors.Is(err, ErrLost) || s.Lost() != 1 {
				t.Fatalf("got %v, %d lost", err, s.Lost())
			}
			ds := s.Deliveries()
			if len(ds) != 4 || ds[3].Attempt != 3 || ds[0].Sent != connected || ds[0].Acked {
				t.Errorf("the attempts are %+v", ds)
			}
		})
	}
}

func TestAMessageSentWhileNoConnectionWasOpenComesAsARetry(t *testing.T) {
	s, ctx := world(t, Config{AckTimeout: patient, RetryDelays: []time.Duration{0, 300 * time.Millisecond, 5 * time.Second}})
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.Say(short, Message{User: "U1", Channel: "C1", Text: "hi"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	p := dial(t, s)
	p.next()
	f := p.next()
	if n, _ := f["retry_attempt"].(float64); n < 2 || f["retry_reason"] != "connection_failed" {
		t.Errorf("the envelope is %v", f)
	}
	p.ack(f, nil)
	if err := s.Wait(ctx, func() bool { return s.Pending() == 0 }); err != nil || s.Lost() != 0 {
		t.Fatal(err, s.Lost())
	}
}

func TestEachEventGoesToOneConnection(t *testing.T) {
	s, ctx := world(t, Config{NoEcho: true, AckTimeout: patient})
	a, b := dial(t, s).serve(nil), dial(t, s).serve(nil)
	<-a
	<-b
	const n = 40
	for range n {
		if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); err != nil {
			t.Fatal(err)
		}
	}
	// The acknowledgement is written before the frame is handed out, so all have been handed out when both counts add up.
	na, nb := 0, 0
	for na+nb < n {
		select {
		case <-a:
			na++
		case <-b:
			nb++
		case <-ctx.Done():
			t.Fatalf("%d and %d of %d came", na, nb, n)
		}
	}
	if na == 0 || nb == 0 {
		t.Errorf("one connection got everything: %d and %d", na, nb)
	}
}

func TestForgottenAcknowledgementsMeanARedelivery(t *testing.T) {
	s, ctx := world(t, Config{AckTimeout: time.Second})
	got := dial(t, s).serve(nil)
	<-got
	s.ForgetAck(1)
	if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); err != nil {
		t.Fatal(err)
	}
	a, b := <-got, <-got
	if pick(a, "payload.event_id") != pick(b, "payload.event_id") || b["retry_attempt"] != 1.0 {
		t.Errorf("got %v and %v", a, b)
	}
}

func TestAnAcknowledgementOf20KBIsDroppedSilently(t *testing.T) {
	s, ctx := world(t, Config{AckTimeout: time.Second, RetryDelays: []time.Duration{}})
	var size atomic.Int32
	size.Store(maxAckPayload)
	got := dial(t, s).serve(func(map[string]any) any { return map[string]any{"text": strings.Repeat("x", int(size.Load()))} })
	<-got
	if err := s.Command(ctx, "U1", "C1", "/ops", ""); !errors.Is(err, ErrNotAcknowledged) {
		t.Fatalf("got %v", err)
	}
	size.Store(15 * 1024)
	if err := s.Command(ctx, "U1", "C1", "/ops", ""); err != nil {
		t.Fatal(err)
	}
}

func TestInteractionsAndCommandsAreNotRetried(t *testing.T) {
	s, ctx := world(t, Config{})
	p := dial(t, s)
	p.next()
	if err := s.Command(ctx, "U1", "C1", "/ops", "now"); !errors.Is(err, ErrNotAcknowledged) {
		t.Fatalf("got %v", err)
	}
	if ds := s.Deliveries(); len(ds) != 1 || s.Lost() != 1 {
		t.Errorf("the attempts are %+v", ds)
	}
}

func TestADeafConnectionStaysOpenAndPings(t *testing.T) {
	s, ctx := world(t, Config{PingInterval: 5 * time.Millisecond})
	a := mustOK(t, form(t, s, "apps.connections.open"))
	pings := make(chan struct{}, 1000)
	conn, _, err := websocket.Dial(ctx, a.str("url"), &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
		select {
		case pings <- struct{}{}:
		default:
		}
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	go func() {
		for {
			if _, _, err := conn.Read(ctx); err != nil {
				return
			}
		}
	}()
	s.Deafen(true)
	if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	for range 5 {
		<-pings
	}
	if s.Sockets() != 1 {
		t.Error("the connection is gone")
	}
	for _, d := range s.Deliveries() {
		if d.Sent {
			t.Errorf("something was sent: %+v", d)
		}
	}
}

func TestDisconnectFrames(t *testing.T) {
	for reason, closes := range map[string]bool{"warning": false, "refresh_requested": false, "link_disabled": true, "too_many_websockets": true} {
		t.Run(reason, func(t *testing.T) {
			s, ctx := world(t, Config{AckTimeout: patient})
			p := dial(t, s)
			p.next()
			s.DisconnectAll(reason)
			if f := p.next(); f["type"] != "disconnect" || f["reason"] != reason {
				t.Fatalf("got %v", f)
			}
			if closes {
				<-p.gone
				return
			}
			// A connection that was only warned still gets events.
			got := p.serve(nil)
			if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); err != nil {
				t.Fatal(err)
			}
			<-got
		})
	}
}

func TestCutBreaksTheConnectionWithoutACloseFrame(t *testing.T) {
	s, ctx := world(t, Config{})
	p := dial(t, s)
	p.next()
	s.Cut()
	<-p.gone
	if err := s.Wait(ctx, func() bool { return s.Sockets() == 0 }); err != nil {
		t.Fatal(err)
	}
}

func TestPausedSocketsRefuseNewConnections(t *testing.T) {
	s, _ := world(t, Config{})
	s.PauseSockets(true)
	mustFail(t, form(t, s, "apps.connections.open"), "internal_error")
	s.PauseSockets(false)
	mustOK(t, form(t, s, "apps.connections.open"))
}

func TestWaitEndsWithItsContextAndWithTheServer(t *testing.T) {
	s, ctx := world(t, Config{})
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := s.Wait(short, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Wait(ctx, func() bool { return false }) }()
	s.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
