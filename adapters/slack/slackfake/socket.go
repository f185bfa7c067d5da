package slackfake

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// maxAckPayload is the size in bytes from which Slack drops a Socket Mode response without a word (slack-go's
	// socketmode.Client refuses to send one for that reason).
	maxAckPayload = 20 * 1024
	// writeWait bounds the write of one frame, so that a client that does not read cannot hold the server.
	writeWait = 5 * time.Second
	// disconnectGrace is how long a connection stays open after it was asked to leave; Slack warns about ten seconds ahead.
	disconnectGrace = 10 * time.Second
	// connectionTime is the usual approximate_connection_time of a hello frame, in seconds; with debug_reconnects=true in the
	// URL it is 360 (docs: "Using Socket Mode").
	connectionTime      = 18060
	debugConnectionTime = 360
)

// socket is one Socket Mode connection. Its reader goroutine is the HTTP handler's; the write lock orders the writers.
type socket struct {
	id   int
	conn *websocket.Conn
	wmu  sync.Mutex
	told bool // asked to leave; guarded by Server.mu
}

func (k *socket) write(data []byte) error {
	k.wmu.Lock()
	defer k.wmu.Unlock()
	if err := k.conn.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	return k.conn.WriteMessage(websocket.TextMessage, data)
}

func (k *socket) close(code int) {
	msg := websocket.FormatCloseMessage(code, "")
	_ = k.conn.WriteControl(websocket.CloseMessage, msg, time.Now().Add(writeWait))
	_ = k.conn.Close()
}

// openConnection answers apps.connections.open: a URL with a ticket that is good for one connection.
func (s *Server) openConnection(*request) reply {
	if s.paused {
		return fail("internal_error")
	}
	ticket := secretToken()
	s.tickets[ticket] = true
	q := url.Values{"ticket": {ticket}, "app_id": {s.cfg.AppID}}
	return ok(map[string]any{"url": "ws" + strings.TrimPrefix(s.base, "http") + "/link/?" + q.Encode()})
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	known := s.tickets[q.Get("ticket")]
	delete(s.tickets, q.Get("ticket"))
	s.mu.Unlock()
	if !known {
		http.Error(w, "this ticket is unknown or was used: ask apps.connections.open for a new URL", http.StatusForbidden)
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	conn.SetReadLimit(1 << 22)
	k := &socket{conn: conn}

	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = conn.Close()
		return
	}
	if len(s.sockets) >= maxSockets {
		s.mu.Unlock()
		_ = k.write(disconnectFrame("too_many_websockets"))
		k.close(websocket.CloseNormalClosure)
		return
	}
	s.wg.Add(1) // A hijacked connection is not the HTTP server's any more, so Close waits for it here.
	defer s.wg.Done()
	s.seq++
	k.id = s.seq
	n, life := len(s.sockets)+1, connectionTime
	if q.Get("debug_reconnects") == "true" {
		life = debugConnectionTime
	}
	hello, _ := json.Marshal(map[string]any{
		"type": "hello", "num_connections": n,
		"debug_info":      map[string]any{"host": "applink-1", "build_number": 1, "approximate_connection_time": life},
		"connection_info": map[string]any{"app_id": s.cfg.AppID},
	})
	// The hello goes out before the connection can be picked, so nothing overtakes it.
	k.wmu.Lock()
	s.sockets[k.id] = k
	s.bump()
	s.mu.Unlock()
	_ = conn.SetWriteDeadline(time.Now().Add(writeWait))
	err = conn.WriteMessage(websocket.TextMessage, hello)
	k.wmu.Unlock()
	if err == nil {
		s.readSocket(k)
	}

	s.mu.Lock()
	delete(s.sockets, k.id)
	s.bump()
	s.mu.Unlock()
	_ = conn.Close()
}

// readSocket takes acknowledgements until the connection ends, and pings meanwhile.
func (s *Server) readSocket(k *socket) {
	stop := make(chan struct{})
	var pinger sync.WaitGroup
	defer pinger.Wait()
	defer close(stop)
	if s.cfg.PingInterval > 0 {
		pinger.Go(func() { s.ping(k, stop) })
	}
	for {
		_, data, err := k.conn.ReadMessage()
		if err != nil {
			return
		}
		s.mu.Lock()
		deaf := s.deaf
		s.mu.Unlock()
		var a struct {
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		if deaf || len(data) >= maxAckPayload || json.Unmarshal(data, &a) != nil {
			continue
		}
		s.acknowledge(a.EnvelopeID, a.Payload)
	}
}

func (s *Server) ping(k *socket, stop <-chan struct{}) {
	// The first ping goes out at once: clients start to count from the connection.
	t := time.NewTicker(s.cfg.PingInterval)
	defer t.Stop()
	for {
		s.mu.Lock()
		silent := s.silent
		s.mu.Unlock()
		if !silent && k.conn.WriteControl(websocket.PingMessage, []byte("slackfake"), time.Now().Add(writeWait)) != nil {
			return
		}
		select {
		case <-t.C:
		case <-stop:
			return
		}
	}
}

// pick returns one open connection at random, nil when there is none. The caller holds mu.
func (s *Server) pick() *socket {
	if len(s.sockets) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(s.sockets))
	return s.sockets[ids[rand.IntN(len(ids))]] //nolint:gosec // Which connection gets an event is no secret.
}

func disconnectFrame(reason string) []byte {
	b, _ := json.Marshal(map[string]any{
		"type": "disconnect", "reason": reason, "debug_info": map[string]any{"host": "applink-1"},
	})
	return b
}

// Sockets returns how many Socket Mode connections are open.
func (s *Server) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

func (s *Server) allSockets() []*socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.sockets))
}

// DisconnectAll sends a disconnect frame to all connections. Reasons are "warning" and "refresh_requested" (the connection still
// works for ten seconds, then the server closes it), and "link_disabled" and "too_many_websockets" (closed at once).
func (s *Server) DisconnectAll(reason string) { s.disconnect(s.allSockets(), reason) }

// DisconnectOne is DisconnectAll for the connection that was opened first, of those that were not asked to leave yet.
func (s *Server) DisconnectOne(reason string) {
	s.mu.Lock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.sockets)), func(k *socket) bool { return k.told })
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *socket) int { return a.id - b.id })
	s.disconnect(all[:min(1, len(all))], reason)
}

func (s *Server) disconnect(sockets []*socket, reason string) {
	for _, k := range sockets {
		_ = k.write(disconnectFrame(reason))
		if reason != "warning" && reason != "refresh_requested" {
			k.close(websocket.CloseNormalClosure)
			continue
		}
		s.mu.Lock()
		k.told = true
		s.start(func() {
			t := time.NewTimer(disconnectGrace)
			defer t.Stop()
			select {
			case <-t.C:
				k.close(websocket.CloseNormalClosure)
			case <-s.ctx.Done():
			}
		})
		s.mu.Unlock()
	}
}

// Deafen makes all connections useless without closing them: they stay open and pings go on, but nothing is delivered, and what
// the app sends is thrown away. Events run into their retries meanwhile.
func (s *Server) Deafen(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = on
	s.bump()
}

// StopPings keeps pings back while it is on, as a network does that has lost a connection without telling either side.
func (s *Server) StopPings(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
}

// Cut breaks all connections below WebSocket, with a TCP reset and no close frame.
func (s *Server) Cut() {
	for _, k := range s.allSockets() {
		if tcp, ok := k.conn.NetConn().(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = k.conn.NetConn().Close()
	}
}

// PauseSockets makes apps.connections.open fail while it is on. Open connections stay.
func (s *Server) PauseSockets(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
	s.bump()
}
