package gateway

import (
	"bytes"
	"context"
	"crypto/x509"
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

// bytesConn is a connection that reads from what it holds.
type bytesConn struct {
	net.Conn
	in     io.Reader
	out    bytes.Buffer
	closed bool
}

func (c *bytesConn) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *bytesConn) Write(p []byte) (int, error)      { return c.out.Write(p) }
func (c *bytesConn) Close() error                     { c.closed = true; return nil }
func (c *bytesConn) SetWriteDeadline(time.Time) error { return nil }

// seer is a screen that keeps what it sees.
type seer struct {
	mu     sync.Mutex
	in     []string
	ops    []int
	code   int
	err    error
	refuse func(message []byte) ([]byte, error)
}

func (s *seer) incoming(m []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = append(s.in, string(m))
	if s.refuse != nil {
		return s.refuse(m)
	}
	return m, nil
}

func (s *seer) outgoing(op int) error {
	if op == 2 {
		return errUnpermitted
	}
	s.ops = append(s.ops, op)
	return nil
}
func (s *seer) closed(code int, _ string) { s.code = code }
func (s *seer) over(err error) {
	if s.err == nil {
		s.err = err
	}
}

const head101 = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

func serverFrame(first byte, body []byte) []byte {
	f := textFrame(body)
	f[0] = first
	return f
}

// TestMessagesAreSeenWhole: however the network and the sender cut them.
func TestMessagesAreSeenWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw bytes.Buffer
		raw.WriteString(head101)
		var want []string
		for range rapid.IntRange(0, 6).Draw(t, "messages") {
			body := []byte(strings.Repeat(rapid.StringN(1, 8, -1).Draw(t, "text"), rapid.SampledFrom([]int{0, 1, 20, 300, 9000}).Draw(t, "times")))
			want = append(want, string(body))
			for first := byte(opText); ; first = opContinuation {
				n := rapid.IntRange(0, len(body)).Draw(t, "fragment")
				if rapid.Bool().Draw(t, "ping") {
					raw.Write(serverFrame(0x80|opPing, []byte("p")))
				}
				if n == len(body) {
					raw.Write(serverFrame(0x80|first, body))
					break
				}
				raw.Write(serverFrame(first, body[:n]))
				body = body[n:]
			}
		}
		raw.Write(serverFrame(0x80|opClose, binary.BigEndian.AppendUint16(nil, 4009)))
		s := &seer{}
		size := rapid.IntRange(1, 5000).Draw(t, "piece")
		l := newLink(&bytesConn{in: &pieces{raw.Bytes(), size}}, s)
		got, err := io.ReadAll(l)
		if err != nil || s.code != 4009 || !slices.Equal(s.in, want) {
			t.Fatalf("%v, code %d: %d messages, want %d", err, s.code, len(s.in), len(want))
		}
		if !bytes.HasPrefix(got, []byte(head101)) {
			t.Fatal("the head did not pass")
		}
		// What passes is the same messages in one frame each.
		again := &seer{}
		if _, err := io.ReadAll(newLink(&bytesConn{in: bytes.NewReader(got)}, again)); err != nil || !slices.Equal(again.in, want) {
			t.Fatalf("what passed is something else: %v", err)
		}
	})
}

type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.data[:min(len(p.data), p.size)])
	p.data = p.data[n:]
	return n, nil
}

func TestWhatTheLibraryMaySend(t *testing.T) {
	masked := func(op byte, body string) []byte {
		f := maskedFrame(op, []byte(body))
		mask := []byte{1, 2, 3, 4}
		copy(f[2:6], mask)
		for i := range f[6:] {
			f[6+i] ^= mask[i%4]
		}
		return f
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		sent  []byte
		ends  bool
	}{
		{"a heartbeat passes", masked(opText, `{"op":1,"d":3}`), masked(opText, `{"op":1,"d":3}`), false},
		{"an identify without a permit ends the connection", masked(opText, `{"op":2,"d":{}}`), nil, true},
		{"a close that ends the session becomes one that does not", masked(opClose, "\x03\xe8"), closeFrame(closeResumable), false},
		{"another close keeps its code", masked(opClose, "\x03\xf4"), closeFrame(1012), false},
		{"a pong passes", masked(opPong, "p"), masked(opPong, "p"), false},
		{"a frame that is cut ends the connection", masked(opText, `{"op":1}`)[:9], nil, true},
		{"a message without an opcode ends it", masked(opText, `{}`), nil, true},
		{"a message in pieces ends it", append([]byte{opText}, masked(opText, `{"op":2}`)[1:]...), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &bytesConn{in: strings.NewReader(head101)}
			s := &seer{}
			l := newLink(c, s)
			if _, err := l.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if n, err := l.Write(tc.frame); n != len(tc.frame) || err != nil {
				t.Errorf("%d, %v: the library would end the connection in a second goroutine", n, err)
			}
			if !bytes.Equal(c.out.Bytes(), tc.sent) || c.closed != tc.ends || (s.err != nil) != tc.ends {
				t.Errorf("sent %q, closed %v, %v", c.out.Bytes(), c.closed, s.err)
			}
		})
	}
}

// FuzzLink: whatever the other side sends, a link neither panics nor gives the
// library a message that its screen has not seen.
func FuzzLink(f *testing.F) {
	f.Add([]byte(head101 + "\x81\x02{}\x88\x02\x0f\xa9"))
	f.Add([]byte("HTTP/1.1 503 Service Unavailable\r\n\r\nbody"))
	f.Add([]byte(head101 + "\x01\x01{\x89\x00\x80\x01}"))
	f.Add([]byte(head101 + "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		secret := []byte("never passes")
		s := &seer{refuse: func([]byte) ([]byte, error) { return secret, nil }}
		got, _ := io.ReadAll(newLink(&bytesConn{in: bytes.NewReader(data)}, s))
		if n := bytes.Count(got, secret); n < len(s.in) {
			t.Errorf("%d messages seen and %d passed", len(s.in), n)
		}
	})
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
		if err := l.room(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		close(hold)
		if err := l.room(t.Context()); err != nil {
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
