package postgres

import (
	"context"
	"errors"
	"net"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	defaultSchema  = "countersign"
	oldest         = 140000           // server_version_num of PostgreSQL 14
	connectTimeout = 3 * time.Second  // for one host, when the URL names none
	maxLife        = 30 * time.Minute // of a connection, so that load spreads after a fail-over
	closeTimeout   = 2 * time.Second
)

// schemaName is what needs no quotes in SQL, at most the 63 bytes that
// PostgreSQL keeps of a name less what the notification channel adds.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,50}$`)

// parse reads the URL. Its errors hold nothing of it but the schema.
func parse(o Options) (*pgx.ConnConfig, string, error) {
	if o.URL == "" {
		return nil, "", errors.New("store: no database is named: give a URL such as postgres://user@host:5432/database")
	}
	cfg, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, "", errors.New("store: the database URL cannot be read: write it as postgres://user:password@host:5432/database, with characters such as / # ? % of the password percent-encoded, and see that the files that it names are there")
	}
	schema := defaultSchema
	if path, ok := cfg.RuntimeParams["search_path"]; ok {
		schema = path
		delete(cfg.RuntimeParams, "search_path") // all statements name the schema
	}
	if !schemaName.MatchString(schema) {
		return nil, "", errors.New("store: the search_path of the database URL must name one schema: use at most 51 small letters, digits and underscores")
	}
	cfg.RuntimeParams["application_name"] = "countersign/" + o.Replica
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	cfg.DialFunc = (&net.Dialer{
		Timeout: cfg.ConnectTimeout,
		// A server that vanished is noticed within half a minute also by a connection
		// that only listens.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}).DialContext
	if cfg.ValidateConnect == nil { // of several hosts, the one that takes writes
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return cfg, schema, nil
}

// pooled says that the URL is that of a pooler which gives each transaction
// another connection.
func pooled(cfg *pgx.ConnConfig) bool {
	return cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// session is one connection and the number of its last committed transaction.
type session struct {
	conn *pgx.Conn
	id   []byte
	n    int64
	gen  uint64
	born time.Time
}

// pool keeps connections that are not in use. How many there are is bounded by
// who may ask for one.
type pool struct {
	cfg *pgx.ConnConfig

	mu     sync.Mutex
	idle   []*session // the last one was used last
	open   int
	gen    uint64 // grows when a connection broke: older ones are not used again
	closed bool
}

// get returns a connection that nobody else has; it ends with put or drop.
func (p *pool) get(ctx context.Context) (*session, error) {
	for {
		p.mu.Lock()
		if len(p.idle) == 0 {
			break
		}
		s := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if s.gen == p.gen && time.Since(s.born) < maxLife && !s.conn.IsClosed() {
			p.mu.Unlock()
			return s, nil
		}
		p.open--
		p.mu.Unlock()
		closeConn(s.conn)
	}
	p.open++
	s := &session{id: randomID(), gen: p.gen, born: time.Now()}
	p.mu.Unlock()
	var err error
	if s.conn, err = connect(ctx, p.cfg); err != nil {
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// put gives a connection back that is outside of any transaction.
func (p *pool) put(s *session) {
	p.mu.Lock()
	if keep := !p.closed && s.gen == p.gen; keep {
		p.idle = append(p.idle, s)
		p.mu.Unlock()
		return
	}
	p.open--
	p.mu.Unlock()
	closeConn(s.conn)
}

// drop closes a connection in whatever state it is.
func (p *pool) drop(s *session) {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	closeConn(s.conn)
}

// suspect makes all connections that are open now be replaced before their next
// use.
func (p *pool) suspect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gen++
}

// ids are the idle connections that ever wrote.
func (p *pool) ids() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids [][]byte
	for _, s := range p.idle {
		if s.n > 0 {
			ids = append(ids, s.id)
		}
	}
	return ids
}

func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.open -= len(idle)
	p.mu.Unlock()
	for _, s := range idle {
		closeConn(s.conn)
	}
}

func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.Close(ctx)
}

// connect opens a connection and refuses a server that does not keep what it
// acknowledges: roles and databases may set that, so every connection is asked.
func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	var version int
	var commit, fsync string
	// The keepalives are for a machine that vanishes amid a commit: the locks of its
	// transaction would stay for hours otherwise.
	err = c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'), current_setting('fsync'),
		set_config('tcp_keepalives_idle', '10', false) || set_config('tcp_keepalives_interval', '5', false) || set_config('tcp_keepalives_count', '3', false)`).
		Scan(&version, &commit, &fsync, nil)
	switch {
	case err != nil:
	case version < oldest:
		err = &refusal{why: "the server is too old (" + c.PgConn().ParameterStatus("server_version") + "): use PostgreSQL 14 or newer"}
	case commit == "off":
		err = &refusal{why: "synchronous_commit is off, so the server acknowledges what a crash loses: set it to on for this role and database"}
	case fsync == "off":
		err = &refusal{why: "fsync is off, so a crash of the server's machine destroys the database: set it to on in postgresql.conf"}
	}
	if err != nil {
		closeConn(c)
		return nil, err
	}
	return c, nil
}
