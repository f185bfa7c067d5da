package discordfake

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Intents that the server knows (docs: "Gateway", list of intents).
const (
	IntentGuilds         = 1 << 0
	IntentGuildMembers   = 1 << 1
	IntentGuildPresences = 1 << 8
	IntentGuildMessages  = 1 << 9
	IntentDirectMessages = 1 << 12
	IntentMessageContent = 1 << 15

	intentsPrivileged = IntentGuildMembers | IntentGuildPresences | IntentMessageContent
	// intentsAll are the bits that mean something.
	intentsAll = 1<<17 - 1 | 1<<20 | 1<<21 | 1<<24 | 1<<25
)

// Close codes of the gateway (docs: "Opcodes and Status Codes").
const (
	CloseUnknownError     = 4000
	CloseUnknownOpcode    = 4001
	CloseDecodeError      = 4002
	CloseNotAuthenticated = 4003
	CloseAuthFailed       = 4004
	CloseAlreadyAuthed    = 4005
	CloseInvalidSeq       = 4007
	CloseRateLimited      = 4008
	CloseSessionTimedOut  = 4009
	CloseInvalidShard     = 4010
	CloseShardingRequired = 4011
	CloseInvalidVersion   = 4012
	CloseInvalidIntents   = 4013
	CloseDisallowedIntent = 4014
)

const (
	opDispatch     = 0
	opHeartbeat    = 1
	opIdentify     = 2
	opResume       = 6
	opReconnect    = 7
	opInvalid      = 9
	opHello        = 10
	opHeartbeatAck = 11

	maxPayload = 4096 // bytes that a client may send in one event (docs: "Gateway", sending events)
	writeWait  = 5 * time.Second
	// zlibFrom is the size in bytes from which dispatches are compressed for a session that asked for it. The docs say only that
	// some are.
	zlibFrom = 256
	// maxBacklog bounds the events that are kept for a session; a client that resumes from before them gets op 9.
	maxBacklog = 5000
)

// GatewayFault is what the server does in the place of accepting an IDENTIFY or RESUME: it closes with a code, or sends an op.
type GatewayFault struct {
	// Close is a close code; 0 sends Op.
	Close int
	// Op is 7 (Reconnect) or 9 (Invalid Session, whose d is Resumable).
	Op        int
	Resumable bool
	// Silent does nothing at all: the client waits.
	Silent bool
}

// Open is one connection that was opened, or one that was refused.
type Open struct {
	// Resume says that it came by resume_gateway_url.
	Resume  bool
	Version int
	Refused bool
	At      time.Time
}

// Session is a gateway session as tests see it.
type Session struct {
	ID            string
	Shard, Shards int
	Intents       int
	// Seq is the number of the last event. Connected says that it has a connection at the moment.
	Seq       int
	Connected bool
}

type session struct {
	id       string
	shard    [2]int
	intents  int
	compress bool
	seq      int
	dropped  int // sequence of the newest event that is not kept any more
	backlog  [][]byte
	conn     *conn
	lostAt   time.Time
	began    time.Time
}

// conn is one gateway connection. Its reader goroutine is the HTTP handler's; a second one writes what is queued, in order.
type conn struct {
	id      int
	ws      *websocket.Conn
	version int
	ctx     context.Context //nolint:containedctx // Of the connection: its reader and its writer end with it.
	cancel  context.CancelFunc

	qmu   sync.Mutex
	queue []frame
	wake  chan struct{}

	// These are guarded by Server.mu.
	session *session
	sent    []time.Time
	beat    time.Time
	ended   int  // the close code that the server sent
	deaf    bool // nothing that comes is looked at any more
}

type frame struct {
	data   []byte
	zlib   bool
	close  int
	reason string
}

func (k *conn) push(f frame) {
	k.qmu.Lock()
	k.queue = append(k.queue, f)
	k.qmu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// cut ends the connection without a close frame.
func (k *conn) cut() {
	k.cancel()
	_ = k.ws.CloseNow()
}

// write is the goroutine that owns the sending side.
func (k *conn) write() {
	for {
		select {
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
		k.qmu.Lock()
		q := k.queue
		k.queue = nil
		k.qmu.Unlock()
		for _, f := range q {
			if f.close != 0 {
				_ = k.ws.Close(websocket.StatusCode(f.close), f.reason)
				return
			}
			kind, data := websocket.MessageText, f.data
			if f.zlib {
				var b bytes.Buffer
				z := zlib.NewWriter(&b)
				_, _ = z.Write(data)
				_ = z.Close() // Into memory: cannot fail.
				kind, data = websocket.MessageBinary, b.Bytes()
			}
			ctx, cancel := context.WithTimeout(k.ctx, writeWait)
			err := k.ws.Write(ctx, kind, data)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

func payload(op int, d any, seq int, name string) []byte {
	p := object{"op": op, "d": d, "s": nil, "t": nil}
	if op == opDispatch {
		p["s"], p["t"] = seq, name
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("discordfake: an event cannot be JSON: " + err.Error())
	}
	return b
}

func (s *Server) allConns() []*conn {
	ids := slices.Sorted(maps.Keys(s.conns))
	out := make([]*conn, 0, len(ids))
	for _, id := range ids {
		out = append(out, s.conns[id])
	}
	return out
}

// control sends an op that is not an event. The caller holds mu.
func (s *Server) control(k *conn, op int, d any) {
	if !s.silent && k.ended == 0 {
		k.push(frame{data: payload(op, d, 0, "")})
	}
}

// hangUp closes a connection with a code after what is queued; 0 cuts it. The caller holds mu.
func (s *Server) hangUp(k *conn, code int, reason string) {
	if code == 0 {
		k.deaf = true
		k.cut()
		return
	}
	if k.ended == 0 {
		k.ended, k.deaf = code, true
		k.push(frame{close: code, reason: reason})
	}
	// docs ("Opcodes and Status Codes"): after these a new session has to be started, or none.
	switch code {
	case CloseAuthFailed, CloseInvalidSeq, CloseSessionTimedOut, CloseInvalidShard, CloseShardingRequired, CloseInvalidVersion,
		CloseInvalidIntents, CloseDisallowedIntent:
		if k.session != nil {
			delete(s.sessions, k.session.id)
			k.session = nil
		}
	}
}

func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	version, _ := strconv.Atoi(q.Get("v"))
	s.mu.Lock()
	s.opens++
	o := Open{Resume: strings.HasPrefix(r.URL.Path, "/resume"), Version: version, At: time.Now()}
	refused := s.refuse > 0
	if refused {
		s.refuse--
	}
	o.Refused = refused
	s.opensLog = append(s.opensLog, o)
	s.bump()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed, refused:
		http.Error(w, "the gateway is not available", http.StatusServiceUnavailable)
		return
	case q.Get("compress") != "", q.Get("encoding") == "etf":
		http.Error(w, "discordfake speaks JSON without transport compression: leave compress out and use encoding=json", http.StatusBadRequest)
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	ws.SetReadLimit(1 << 20)
	k := &conn{ws: ws, version: version, wake: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		k.cut()
		return
	}
	s.wg.Add(1) // A hijacked connection is not the HTTP server's any more, so Close waits for it here.
	defer s.wg.Done()
	s.seq++
	k.id, k.beat = s.seq, time.Now()
	s.conns[k.id] = k
	s.control(k, opHello, object{"heartbeat_interval": s.cfg.Heartbeat.Milliseconds(), "_trace": []string{"discordfake"}})
	if version != 9 && version != 10 {
		// docs: the query should say the version; what is served without one is deprecated, so nothing is served here.
		s.hangUp(k, CloseInvalidVersion, "Invalid API version.")
	}
	s.bump()
	s.mu.Unlock()

	var writer sync.WaitGroup
	writer.Go(k.write)
	code := s.read(k)
	s.mu.Lock()
	delete(s.conns, k.id)
	if ses := k.session; ses != nil && ses.conn == k {
		ses.conn, ses.lostAt = nil, s.now()
		// docs ("Gateway", initiating a disconnect): a client that closes with 1000 or 1001 ends its session.
		if k.ended == 0 && !k.deaf && (code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway) {
			delete(s.sessions, ses.id)
		}
	}
	s.bump()
	s.mu.Unlock()
	k.cut()
	writer.Wait()
}

// read takes what the client sends until the connection ends, and returns the client's close code. It also watches the heartbeat.
func (s *Server) read(k *conn) websocket.StatusCode {
	// The docs say only that the connection is closed when heartbeats stop, and that a resume follows; here that is after two
	// intervals, with 4000.
	watch := time.AfterFunc(2*s.cfg.Heartbeat, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hangUp(k, CloseUnknownError, "No heartbeat came.")
	})
	defer watch.Stop()
	for {
		_, data, err := k.ws.Read(k.ctx)
		if err != nil {
			return websocket.CloseStatus(err)
		}
		var p struct {
			Op *int            `json:"op"`
			D  json.RawMessage `json:"d"`
		}
		bad := len(data) > maxPayload || json.Unmarshal(data, &p) != nil || p.Op == nil
		s.mu.Lock()
		if !k.deaf {
			now := s.now()
			k.sent = slices.DeleteFunc(k.sent, func(t time.Time) bool { return now.Sub(t) >= sendWindow })
			k.sent = append(k.sent, now)
			switch {
			case len(k.sent) > s.cfg.SendLimit:
				s.hangUp(k, CloseRateLimited, "Rate limited.")
			case bad:
				s.hangUp(k, CloseDecodeError, "Error while decoding payload.")
			default:
				if *p.Op == opHeartbeat {
					watch.Reset(2 * s.cfg.Heartbeat)
				}
				s.op(k, *p.Op, p.D)
			}
		}
		s.bump()
		s.mu.Unlock()
	}
}

// op handles one op of a client. The caller holds mu.
func (s *Server) op(k *conn, op int, d json.RawMessage) {
	switch op {
	case opHeartbeat:
		s.control(k, opHeartbeatAck, nil)
	case opIdentify:
		s.identify(k, d)
	case opResume:
		s.resume(k, d)
	case 3, 4, 8, 31: // Presence, voice, members, sounds: nothing that this server plays.
		if k.session == nil {
			s.hangUp(k, CloseNotAuthenticated, "Not authenticated.")
		}
	default:
		s.hangUp(k, CloseUnknownOpcode, "Unknown opcode.")
	}
}

// fail does what a fault says. The caller holds mu.
func (s *Server) fail(k *conn, f GatewayFault) {
	switch {
	case f.Silent:
	case f.Close != 0:
		s.hangUp(k, f.Close, "")
	case f.Op == opReconnect:
		s.control(k, opReconnect, nil)
	default:
		s.control(k, opInvalid, f.Resumable)
	}
}

func (s *Server) identify(k *conn, d json.RawMessage) {
	if k.session != nil {
		s.hangUp(k, CloseAlreadyAuthed, "Already authenticated.")
		return
	}
	var id struct {
		Token      *string        `json:"token"`
		Properties map[string]any `json:"properties"`
		Compress   bool           `json:"compress"`
		Shard      []int          `json:"shard"`
		Intents    *int           `json:"intents"`
	}
	if json.Unmarshal(d, &id) != nil || id.Token == nil || id.Properties == nil {
		s.hangUp(k, CloseDecodeError, "Error while decoding payload.")
		return
	}
	// Clients send the token with and without "Bot " (discordgo, discord.js); both log in at Discord.
	if strings.TrimPrefix(*id.Token, "Bot ") != s.token {
		s.hangUp(k, CloseAuthFailed, "Authentication failed.")
		return
	}
	now := s.now()
	s.identifies = append(s.identifies, now)
	if s.remaining() < 0 {
		// docs ("Gateway", identifying): all sessions are ended and the token is reset.
		s.token, s.reset = secret(), true
		s.sessions = map[string]*session{}
		for _, c := range s.allConns() {
			c.session = nil
			s.hangUp(c, CloseAuthFailed, "Authentication failed.")
		}
		return
	}
	if len(s.onIdentify) > 0 {
		f := s.onIdentify[0]
		s.onIdentify = s.onIdentify[1:]
		s.fail(k, f)
		return
	}
	shard := [2]int{0, 1}
	if id.Shard != nil {
		if len(id.Shard) != 2 || id.Shard[1] < 1 || id.Shard[0] < 0 || id.Shard[0] >= id.Shard[1] {
			s.hangUp(k, CloseInvalidShard, "Invalid shard.")
			return
		}
		shard = [2]int{id.Shard[0], id.Shard[1]}
	}
	switch {
	case id.Intents == nil || *id.Intents&^intentsAll != 0:
		s.hangUp(k, CloseInvalidIntents, "Invalid intent(s).")
		return
	case *id.Intents&intentsPrivileged&^s.cfg.Privileged != 0:
		s.hangUp(k, CloseDisallowedIntent, "Disallowed intent(s).")
		return
	}
	ses := &session{id: secret(), shard: shard, intents: *id.Intents, compress: id.Compress, began: now}
	guilds := []*guild{}
	for _, gid := range slices.Sorted(maps.Keys(s.guilds)) {
		if g := s.guilds[gid]; !g.gone && onShard(gid, shard) {
			guilds = append(guilds, g)
		}
	}
	if len(guilds) > maxShardGuilds {
		s.hangUp(k, CloseShardingRequired, "Sharding required.")
		return
	}
	if s.cfg.IdentifyWindow > 0 {
		key := shard[0] % s.cfg.MaxConcurrency
		if at, ok := s.perKey[key]; ok && now.Sub(at) < s.cfg.IdentifyWindow {
			s.control(k, opInvalid, false) // docs: "Gateway", rate limiting
			return
		}
		s.perKey[key] = now
	}
	k.session, ses.conn = ses, k
	s.sessions[ses.id] = ses
	unavailable := []any{}
	for _, g := range guilds {
		unavailable = append(unavailable, object{"id": g.id, "unavailable": true})
	}
	ready := object{
		"v": k.version, "user": s.selfJSON(), "guilds": unavailable, "session_id": ses.id, "resume_gateway_url": s.resumeURL(),
		"application": object{"id": s.cfg.AppID, "flags": s.applicationFlags()}, "private_channels": []any{},
		"presences": []any{}, "relationships": []any{}, "session_type": "normal", "user_settings": object{},
		"guild_join_requests": []any{}, "geo_ordered_rtc_regions": []any{}, "_trace": []string{"discordfake"},
	}
	if id.Shard != nil {
		ready["shard"] = shard
	}
	s.send(ses, "READY", ready)
	if ses.intents&IntentGuilds != 0 {
		for _, g := range guilds {
			s.send(ses, "GUILD_CREATE", s.guildCreate(g)(ses))
		}
	}
}

func (s *Server) resume(k *conn, d json.RawMessage) {
	if k.session != nil {
		s.hangUp(k, CloseAlreadyAuthed, "Already authenticated.")
		return
	}
	var r struct {
		Token     string `json:"token"`
		SessionID string `json:"session_id"`
		Seq       *int   `json:"seq"`
	}
	if json.Unmarshal(d, &r) != nil || r.Seq == nil {
		s.hangUp(k, CloseDecodeError, "Error while decoding payload.")
		return
	}
	s.resumes++
	if strings.TrimPrefix(r.Token, "Bot ") != s.token {
		s.hangUp(k, CloseAuthFailed, "Authentication failed.")
		return
	}
	if len(s.onResume) > 0 {
		f := s.onResume[0]
		s.onResume = s.onResume[1:]
		if !f.Resumable && f.Op == opInvalid {
			delete(s.sessions, r.SessionID)
		}
		s.fail(k, f)
		return
	}
	ses := s.sessions[r.SessionID]
	s.expire()
	switch {
	case ses == nil || s.sessions[r.SessionID] == nil || *r.Seq < ses.dropped:
		delete(s.sessions, r.SessionID)
		s.control(k, opInvalid, false)
		return
	case *r.Seq > ses.seq:
		s.hangUp(k, CloseInvalidSeq, "Invalid seq.")
		delete(s.sessions, r.SessionID)
		return
	}
	if old := ses.conn; old != nil {
		old.session = nil // The newer connection has the session now; the docs do not say what the older one sees.
		s.hangUp(old, CloseUnknownError, "Resumed elsewhere.")
	}
	k.session, ses.conn = ses, k
	for i, data := range ses.backlog {
		if ses.dropped+i+1 > *r.Seq {
			s.transmit(ses, data)
		}
	}
	s.send(ses, "RESUMED", object{"_trace": []string{"discordfake"}})
}

// expire forgets sessions whose connection was lost too long ago. The caller holds mu.
func (s *Server) expire() {
	for id, ses := range s.sessions {
		if ses.conn == nil && s.now().Sub(ses.lostAt) > s.cfg.ResumeWindow {
			delete(s.sessions, id)
		}
	}
}

// remaining is what is left of the identify budget. The caller holds mu.
func (s *Server) remaining() int {
	day := s.now().Add(-24 * time.Hour)
	s.identifies = slices.DeleteFunc(s.identifies, func(t time.Time) bool { return t.Before(day) })
	return s.cfg.SessionLimit - len(s.identifies)
}

func onShard(guildID string, shard [2]int) bool {
	n, err := strconv.ParseUint(guildID, 10, 64)
	if err != nil {
		return shard[0] == 0
	}
	return int((n>>22)%uint64(shard[1])) == shard[0] //nolint:gosec // The number of shards is positive, what is left is below it.
}

// event is something that happened. guild "" goes to shard 0 only (docs: "Gateway", sharding). A channel limits it to sessions of a
// bot that can see that channel. Events about channels themselves have none: GUILD_CREATE has all channels (docs), so these do too.
type event struct {
	name    string
	guild   string
	channel *channel
	intents int // all of them are needed
	render  func(*session) any
}

// dispatch sends an event to the sessions that get it. The caller holds mu.
func (s *Server) dispatch(e event) {
	s.expire()
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		ses := s.sessions[id]
		switch {
		case e.guild == "" && ses.shard[0] != 0, e.guild != "" && !onShard(e.guild, ses.shard):
			continue
		case ses.intents&e.intents != e.intents:
			continue
		case e.channel != nil && !s.can(e.channel, s.cfg.BotID, PermViewChannel):
			continue
		}
		s.send(ses, e.name, e.render(ses))
	}
	s.bump()
}

// send gives a session its next event. The caller holds mu.
func (s *Server) send(ses *session, name string, d any) {
	s.checkEvent(name, d)
	s.sendUnchecked(ses, name, d)
}

func (s *Server) sendUnchecked(ses *session, name string, d any) {
	ses.seq++
	data := payload(opDispatch, d, ses.seq, name)
	ses.backlog = append(ses.backlog, data)
	if len(ses.backlog) > maxBacklog {
		ses.backlog = ses.backlog[1:]
		ses.dropped++
	}
	s.transmit(ses, data)
}

func (s *Server) transmit(ses *session, data []byte) {
	if k := ses.conn; k != nil && !s.silent && k.ended == 0 {
		k.push(frame{data: data, zlib: ses.compress && len(data) >= zlibFrom})
	}
}

// Connections returns how many gateway connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Sessions returns the sessions that are alive, oldest first.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	all := slices.SortedFunc(maps.Values(s.sessions), func(a, b *session) int { return a.began.Compare(b.began) })
	var out []Session
	for _, k := range all {
		out = append(out, Session{
			ID: k.id, Shard: k.shard[0], Shards: k.shard[1], Intents: k.intents, Seq: k.seq, Connected: k.conn != nil,
		})
	}
	return out
}

// Online returns how many sessions have a connection: those that are READY or RESUMED.
func (s *Server) Online() int {
	n := 0
	for _, k := range s.Sessions() {
		if k.Connected {
			n++
		}
	}
	return n
}

// WaitOnline waits until n sessions are READY or RESUMED.
func (s *Server) WaitOnline(ctx context.Context, n int) error {
	return s.Wait(ctx, func() bool { return s.Online() >= n })
}

// Opens returns all connections to the gateway so far, also those that were refused.
func (s *Server) Opens() []Open {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.opensLog)
}

// Identifies returns how many IDENTIFYs with the right token came in the last 24 hours.
func (s *Server) Identifies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remaining()
	return len(s.identifies)
}

// Resumes returns how many RESUMEs came.
func (s *Server) Resumes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumes
}

// TokenReset says whether the identify budget was used up, so that Discord changed the token.
func (s *Server) TokenReset() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reset
}

// DropConnections closes all gateway connections with a code; 0 cuts them without a close frame. Sessions can be resumed unless the
// code says otherwise.
func (s *Server) DropConnections(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.allConns() {
		s.hangUp(k, code, "")
	}
	s.bump()
}

// Reconnect sends op 7 to all connections. The client is expected to leave.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.allConns() {
		s.control(k, opReconnect, nil)
	}
}

// InvalidateSessions sends op 9 to all connections, and forgets the sessions unless they stay resumable.
func (s *Server) InvalidateSessions(resumable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.allConns() {
		s.control(k, opInvalid, resumable)
		if !resumable && k.session != nil {
			delete(s.sessions, k.session.id)
			k.session = nil
		}
	}
	s.bump()
}

// RequestHeartbeats sends op 1 to all connections: the client is expected to answer with a heartbeat at once.
func (s *Server) RequestHeartbeats() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.allConns() {
		s.control(k, opHeartbeat, nil)
	}
}

// Silence makes the gateway mute while it is on: connections stay open and new ones are accepted, but nothing is sent, no HELLO
// and no acknowledgement of heartbeats. Events are kept for sessions that resume.
func (s *Server) Silence(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
	s.bump()
}

// RefuseOpens makes the next n connections to the gateway fail with HTTP 503. A negative n refuses none any more.
func (s *Server) RefuseOpens(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = max(n, 0)
}

// FailIdentifies makes the next n IDENTIFYs with the right token end as the fault says. They count against the budget.
func (s *Server) FailIdentifies(n int, f GatewayFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.onIdentify = append(s.onIdentify, f)
	}
}

// FailResumes makes the next n RESUMEs end as the fault says. Op 9 that is not resumable also ends the session.
func (s *Server) FailResumes(n int, f GatewayFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.onResume = append(s.onResume, f)
	}
}

// ForgetSessions ends all sessions without telling anybody: the next RESUME gets op 9.
func (s *Server) ForgetSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.allConns() {
		k.session = nil
	}
	s.sessions = map[string]*session{}
	s.bump()
}

// Inject sends an event with any object to all sessions of a guild ("" means shard 0), unchecked: for events that are broken, or
// that this server does not play.
func (s *Server) Inject(guildID, name string, d json.RawMessage) error {
	if !json.Valid(d) {
		return fmt.Errorf("discordfake: the event %s is no JSON, and the gateway cannot carry it", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		if guildID == "" && ses.shard[0] == 0 || guildID != "" && onShard(guildID, ses.shard) {
			s.sendUnchecked(ses, name, d)
		}
	}
	s.bump()
	return nil
}
