package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"
	"pgregory.net/rapid"
)

// rawServer accepts connections in memory and writes raw bytes on each after its
// handshake.
func rawServer(write func(c net.Conn, gone <-chan struct{})) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			in := bufio.NewReader(theirs)
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			gone := make(chan struct{})
			go func() { defer close(gone); _, _ = io.Copy(io.Discard, in) }()
			sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			_, _ = fmt.Fprintf(theirs, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
				base64.StdEncoding.EncodeToString(sum[:]))
			write(theirs, gone)
		}()
		return ours, nil
	}
}

// The opcodes of RFC 6455, section 5.2, and the bit that ends a message.
const (
	frameContinuation = 0x0
	frameText         = 0x1
	frameClose        = 0x8
	framePing         = 0x9
	frameFin          = 0x80
)

// serverFrame encodes a frame of the server's.
func serverFrame(first byte, body []byte) []byte {
	frame := []byte{first}
	switch n := len(body); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	return append(frame, body...)
}

// rawConnection resumes a session on one connection and returns why that ended, and
// the texts of the messages that it handed over.
func rawConnection(t testing.TB, dial func(context.Context, string, string) (net.Conn, error)) (got []string, why error) {
	t.Helper()
	var mu sync.Mutex
	var texts []string
	s, err := New(Config{
		Token: "tok-en", APIURL: "http://discord.test", Dial: dial,
		Events: func(_ context.Context, _ int, e any) {
			if m, ok := e.(*discordgo.MessageCreate); ok {
				mu.Lock()
				texts = append(texts, m.Content)
				mu.Unlock()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sh := newShard(t.Context(), t.Context(), s, 0, 1)
	c := &connection{shard: sh, session: &session{id: "1"}, step: returning}
	err = c.run(t.Context(), "ws://discord.test")
	sh.lanes.close()
	return texts, err
}

// TestMessagesAreReadWhole: however the network and the sender cut them.
func TestMessagesAreReadWhole(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var raw bytes.Buffer
		raw.Write(serverFrame(frameFin|frameText, []byte(`{"op":10,"d":{"heartbeat_interval":41250}}`)))
		var want []string
		for i := range rapid.IntRange(0, 6).Draw(r, "messages") {
			text := strings.Repeat(rapid.StringMatching(`[a-z]{1,8}`).Draw(r, "text"), rapid.SampledFrom([]int{0, 1, 20, 300, 9000}).Draw(r, "times"))
			want = append(want, text)
			body := fmt.Appendf(nil, `{"op":0,"s":%d,"t":"MESSAGE_CREATE","d":{"id":"1","channel_id":"10","content":"%s","author":{"id":"7"}}}`, i+1, text)
			for first := byte(frameText); ; first = frameContinuation {
				n := rapid.IntRange(0, len(body)).Draw(r, "fragment")
				if rapid.Bool().Draw(r, "ping") {
					raw.Write(serverFrame(frameFin|framePing, []byte("p")))
				}
				if n == len(body) {
					raw.Write(serverFrame(frameFin|first, body))
					break
				}
				raw.Write(serverFrame(first, body[:n]))
				body = body[n:]
			}
		}
		raw.Write(serverFrame(frameFin|frameClose, binary.BigEndian.AppendUint16(nil, 4009)))
		size := rapid.IntRange(1, 5000).Draw(r, "piece")
		got, err := rawConnection(t, rawServer(func(c net.Conn, gone <-chan struct{}) {
			for piece := range slices.Chunk(raw.Bytes(), size) {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
			<-gone
		}))
		if closed, ok := errors.AsType[*closedError](err); !ok || closed.code != 4009 || !slices.Equal(got, want) {
			r.Fatalf("%v: %d messages, want %d", err, len(got), len(want))
		}
	})
}

// FuzzConnection: whatever Discord sends, a connection ends with an error and hands
// over nothing that is incomplete.
func FuzzConnection(f *testing.F) {
	hello := serverFrame(frameFin|frameText, []byte(`{"op":10,"d":{"heartbeat_interval":41250}}`))
	f.Add([]byte("\x81\x02{}\x88\x02\x0f\xa9"))
	f.Add(hello)
	f.Add(slices.Concat(hello, serverFrame(frameFin|frameText, []byte(`{"op":0,"s":1,"t":"MESSAGE_CREATE","d":{"id":"1","channel_id":"2","content":"x","author":{"id":"3"}}}`))))
	f.Add(slices.Concat(hello, serverFrame(frameFin|frameText, []byte(`{"op":0,"s":2,"t":"RESUMED"}`)), serverFrame(frameFin|frameText, []byte(`{"op":1}`))))
	f.Add(serverFrame(frameFin|frameText, []byte(`{"op":9,"d":true}`)))
	f.Add([]byte("\x01\x01{\x89\x00\x80\x01}"))
	f.Add([]byte("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\x88\x01x"))
	f.Add([]byte("\x82\x02{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := rawConnection(t, rawServer(func(c net.Conn, _ <-chan struct{}) { _, _ = c.Write(data) })); err == nil {
			t.Error("it ended without a reason")
		}
	})
}

// hangingConn is a connection whose writes hang after the handshake, and whose end
// hangs.
type hangingConn struct {
	net.Conn
	release chan struct{}
	writes  atomic.Int64
}

func (c *hangingConn) Write(p []byte) (int, error) {
	if c.writes.Add(1) > 1 {
		<-c.release
	}
	return c.Conn.Write(p)
}

func (c *hangingConn) Close() error { <-c.release; return c.Conn.Close() }

// TestAConnectionThatHangsIsGivenUp: not even a network whose connections can neither
// be written to nor closed holds up the shard. It runs in real time: the library holds
// a lock meanwhile, and a bubble's time stands still while somebody waits for a lock.
func TestAConnectionThatHangsIsGivenUp(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	dial := rawServer(func(c net.Conn, gone <-chan struct{}) {
		_, _ = c.Write(serverFrame(frameFin|frameText, []byte(`{"op":10,"d":{"heartbeat_interval":20}}`)))
		_, _ = c.Write(serverFrame(frameFin|frameText, []byte(`{"op":0,"s":1,"t":"RESUMED"}`)))
		<-gone
	})
	done := make(chan error, 1)
	go func() {
		_, err := rawConnection(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &hangingConn{Conn: c, release: release}, err
		})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, errUnacknowledged) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits")
	}
}

// TestTheSteps: what Discord sends out of turn ends the connection, and only one
// IDENTIFY or RESUME goes out on each.
func TestTheSteps(t *testing.T) {
	for from, to := range map[step]map[signal]step{
		opening:     {signalHello: identifying},
		returning:   {signalHello: resuming},
		identifying: {signalEvent: identifying, signalReady: live},
		resuming:    {signalEvent: resuming, signalResumed: live},
		live:        {signalEvent: live},
	} {
		for _, s := range []signal{signalHello, signalReady, signalResumed, signalEvent} {
			c := &connection{step: from}
			err := c.advance(s)
			if want, ok := to[s]; ok != (err == nil) || ok && c.step != want || !ok && c.step != from {
				t.Errorf("%s when %s: %s, %v", s, from, c.step, err)
			}
		}
	}
}

// TestARedirectIsNotFollowed: the token would go where it leads.
func TestARedirectIsNotFollowed(t *testing.T) {
	srv := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer srv.Close()
	s, err := New(Config{Token: "tok-en", Events: func(context.Context, int, any) {}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")); err == nil || err.Error() != "the gateway answered 302 Found" {
		t.Error(err)
	}
}

// What Discord adds to messages must not keep them away.
func TestAMessageCountsWithoutItsUnknownParts(t *testing.T) {
	const said = `"id":"1","channel_id":"2","author":{"id":"4","username":"ann"},"type":19,"content":"restart it","mentions":[{"id":"5"}],"attachments":[{"id":"6","filename":"a"}]`
	const row = `{"type":1,"components":[{"type":2,"style":1,"label":"Go","custom_id":"x"}]}`
	for name, more := range map[string]string{
		"none":                                  ``,
		"a reply to a message with a component": `,"message_reference":{"message_id":"7"},"referenced_message":{"id":"7","channel_id":"2","author":{"id":"8"},"components":[{"type":99}]}`,
		"a reply to a reply to one":             `,"referenced_message":{"id":"7","referenced_message":{"id":"9","components":[{"type":99}]}}`,
		"a reply to what is broken":             `,"referenced_message":{"id":7,"components":"x"}`,
		"a forwarded message with a component":  `,"message_snapshots":[{"message":{"components":[{"type":99}]}}]`,
		"a component":                           `,"components":[{"type":99},null,` + row + `]`,
		"a component in a component":            `,"components":[{"type":17,"components":[{"type":99}]},` + row + `]`,
		"components that are none":              `,"components":"x"`,
		"an embed":                              `,"embeds":[{"title":7},{"title":"CPU"}]`,
		"a sticker":                             `,"sticker_items":[{"id":7}]`,
		"a poll":                                `,"poll":{"question":"x"}`,
		"who used a command":                    `,"interaction_metadata":{"type":"x"}`,
		"an activity":                           `,"activity":{"type":"x"},"application":7,"thread":7,"flags":"x","reactions":{}`,
	} {
		for _, kind := range []string{"MESSAGE_CREATE", "MESSAGE_UPDATE"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				event, key, err := decode(kind, []byte("{"+said+more+"}"))
				var m *discordgo.Message
				switch e := event.(type) {
				case *discordgo.MessageCreate:
					m = e.Message
				case *discordgo.MessageUpdate:
					m = e.Message
				}
				if err != nil || key != "2" || m == nil {
					t.Fatalf("%v, key %q, %v", event, key, err)
				}
				if m.Content != "restart it" || m.Author.Username != "ann" || m.Type != discordgo.MessageTypeReply || len(m.Mentions) != 1 || len(m.Attachments) != 1 {
					t.Errorf("it says %+v", m)
				}
				if known := strings.Contains(more, row); known != (len(m.Components) == 1) {
					t.Errorf("its components are %v", m.Components)
				}
				if known := strings.Contains(more, "CPU"); known != (len(m.Embeds) == 1) {
					t.Errorf("its embeds are %v", m.Embeds)
				}
				if known := strings.Contains(more, "poll"); known != (m.Poll != nil) {
					t.Errorf("its poll is %v", m.Poll)
				}
			})
		}
	}
	t.Run("nor does the card of a press", func(t *testing.T) {
		event, _, err := decode("INTERACTION_CREATE", []byte(`{"id":"1","channel_id":"2","type":3,"token":"t","application_id":"5","member":{"user":{"id":"4"}},"data":{"custom_id":"c","component_type":2},
			"message":{"id":"6","author":{"id":"9"},"content":"card","components":[{"type":99},`+row+`],"referenced_message":{"components":[{"type":99}]}}}`))
		i, ok := event.(*discordgo.InteractionCreate)
		if err != nil || !ok || i.Message.Content != "card" || len(i.Message.Components) != 1 {
			t.Errorf("%+v, %v", event, err)
		}
	})
}

// FuzzDecode: whatever an event holds, what comes out can be used without
// looking for nil.
func FuzzDecode(f *testing.F) {
	for _, kind := range []string{"MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "INTERACTION_CREATE", "GUILD_CREATE", "THREAD_CREATE", "CHANNEL_DELETE", "NOTHING"} {
		f.Add(kind, []byte(`{"id":"1","channel_id":"2","guild_id":"3","author":{"id":"4"},"type":3,"token":"t","application_id":"5","member":{"user":{"id":"4"}},"data":{"custom_id":"c","component_type":2},"message":{"id":"6"}}`))
		f.Add(kind, []byte(`null`))
	}
	f.Add("INTERACTION_CREATE", []byte(`{"id":"1","type":2,"token":"t","application_id":"5","user":{"id":"4"},"data":{"id":"1","name":"ops","resolved":{"users":{"1":null}}}}`))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		event, key, err := decode(kind, data)
		if event == nil {
			return
		}
		if err != nil || key == "" {
			t.Fatalf("%T with key %q and error %v", event, key, err)
		}
		switch e := event.(type) {
		case *discordgo.MessageCreate:
			_ = e.ID + e.ChannelID + e.Author.ID
		case *discordgo.MessageUpdate:
			_ = e.ID + e.Author.ID
		case *discordgo.InteractionCreate:
			who := e.User
			if e.Member != nil {
				who = e.Member.User
			}
			_ = who.ID
			switch e.Type {
			case discordgo.InteractionMessageComponent:
				_ = e.MessageComponentData().CustomID + e.Message.ID
			case discordgo.InteractionModalSubmit:
				_ = e.ModalSubmitData().CustomID
			case discordgo.InteractionApplicationCommand, discordgo.InteractionApplicationCommandAutocomplete:
				_ = e.ApplicationCommandData().Name
			default:
				t.Errorf("type %d", e.Type)
			}
		case *discordgo.GuildCreate:
			_ = e.ID
		case *discordgo.ThreadCreate:
			_ = e.ID
		}
	})
}

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(3, 5)
		hold := make(chan struct{})
		var mu sync.Mutex
		var ran []string
		add := func(key, name string) bool {
			return l.add(key, func() { <-hold; mu.Lock(); ran = append(ran, name); mu.Unlock() })
		}
		for i, want := range []bool{true, true, true, false} {
			if got := add("a", fmt.Sprint("a", i)); got != want {
				t.Errorf("a%d: %v", i, got)
			}
		}
		if !add("b", "b0") || !add("c", "c0") || add("d", "d0") {
			t.Error("the total is not what it should be")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := l.awaitRoom(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		close(hold)
		if err := l.awaitRoom(t.Context()); err != nil {
			t.Error(err)
		}
		l.close()
		if l.waiting() != 0 || add("a", "late") {
			t.Error("it is not closed")
		}
		ran = slices.DeleteFunc(ran, func(s string) bool { return s[0] != 'a' })
		if !slices.Equal(ran, []string{"a0", "a1", "a2"}) {
			t.Error(ran)
		}
	})
}

// TestOverTLS runs on a real network and in real time, directly and through a
// proxy.
func TestOverTLS(t *testing.T) {
	t.Run("directly", func(t *testing.T) {
		overTLS(t, func(*http.Request) (*url.URL, error) { return nil, nil })
	})
	t.Run("through a proxy", func(t *testing.T) {
		var tunnels atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != "Basic dTpw" {
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer there.Close()
			here, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer here.Close()
			tunnels.Add(1)
			_, _ = here.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
			go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
			_, _ = io.Copy(here, there)
		}))
		defer proxy.Close()
		u, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("u", "p")
		overTLS(t, func(*http.Request) (*url.URL, error) { return u, nil })
		if n := tunnels.Load(); n != 2 {
			t.Errorf("%d tunnels", n)
		}
	})
}

func overTLS(t *testing.T, proxy func(*http.Request) (*url.URL, error)) {
	t.Helper()
	p := newPlay(t, func(n int, c *talk) {
		switch m := c.hello(); {
		case m == nil:
		case n == 1:
			c.ready(n) // and ends at once
		case *m.Op == 6:
			c.say(2, "10", strings.Repeat("long ", 30_000))
			c.send(0, 3, "RESUMED", nil)
			<-c.gone
		}
	})
	srv := httptest.NewTLSServer(p)
	defer srv.Close()
	p.gate = "wss" + strings.TrimPrefix(srv.URL, "https")
	p.back = p.gate
	rest, err := NewREST(RESTConfig{Token: "tok-en", APIURL: srv.URL + "/api/v10", Transport: srv.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	up := make(chan State, 10)
	s, err := New(Config{
		REST: rest, Log: slog.New(slog.DiscardHandler),
		Events: func(_ context.Context, _ int, e any) {
			if m, ok := e.(*discordgo.MessageCreate); ok {
				got <- m.Content
			}
		},
		OnState: func(st State) { up <- st },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(srv.Certificate())
	s.proxy = proxy
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var phases []Phase
	for len(phases) == 0 || phases[len(phases)-1] != Resumed {
		select {
		case st := <-up:
			phases = append(phases, st.Phase)
		case <-time.After(30 * time.Second):
			t.Fatalf("it stays away: %v, %v", phases, s.Ready())
		}
	}
	if !slices.Equal(phases, []Phase{Connecting, Ready, Down, Resumed}) {
		t.Error(phases)
	}
	if text := <-got; len(text) != 150_000 {
		t.Errorf("%d bytes", len(text))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheTokenIsNotSentInTheClear(t *testing.T) {
	for base, want := range map[string]bool{"https://discord.com/api/v10": false, "http://127.0.0.1:1/api/v10": true} {
		s := &Supervisor{rest: &REST{base: base}}
		if _, err := s.address("ws://127.0.0.1:1"); (err == nil) != want {
			t.Errorf("%s: %v", base, err)
		}
		if _, err := s.address("wss://gateway.discord.gg"); err != nil {
			t.Error(err)
		}
		for _, bad := range []string{"", "https://x", "wss://", "::"} {
			if _, err := s.address(bad); err == nil {
				t.Errorf("%q is taken", bad)
			}
		}
	}
}
