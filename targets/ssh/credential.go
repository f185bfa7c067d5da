package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
	"countersign/targets/certificate/stream"
	"countersign/targets/follow"
)

// Credentials gets the certificates of a target from the signer. Keys and certificates are lines of
// authorized_keys. It must be safe for concurrent use.
type Credentials interface {
	// Watch returns a certificate to look at the host.
	Watch(ctx context.Context, key string) (certificate string, err error)
	// Change returns the certificate for one run of what was approved, and its bytes.
	Change(ctx context.Context, approval, key string) (certificate string, action []byte, err error)
	// Follow returns a certificate to follow the run of an approval.
	Follow(ctx context.Context, approval, key string) (certificate string, err error)
}

// credential is how a target logs in that takes a certificate for each approval. Its key is in memory
// only, and worth nothing without a certificate.
type credential struct {
	from  Credentials
	runAs string // the account that approved commands run as
	key   xssh.Signer
}

func newCredential(from Credentials, runAs string) (*credential, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := xssh.NewSignerFromKey(private)
	return &credential{from: from, runAs: runAs, key: key}, err
}

// login makes the signer of a login from what get returns, when the host asks for it.
func (c *credential) login(get func(key string) (string, error)) func(func() bool) ([]xssh.Signer, error) {
	once := sync.OnceValues(func() ([]xssh.Signer, error) {
		text, err := get(string(xssh.MarshalAuthorizedKey(c.key.PublicKey())))
		if err != nil {
			return nil, err
		}
		key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(text))
		cert, ok := key.(*xssh.Certificate)
		if err != nil || !ok || cert.CertType != xssh.UserCert {
			return nil, errors.New("the signer answers with something else than a certificate")
		}
		s, err := xssh.NewCertSigner(cert, c.key)
		return []xssh.Signer{s}, err
	})
	return func(func() bool) ([]xssh.Signer, error) { return once() }
}

// watchHops are the hops of a connection that looks at the host.
func (t *Target) watchHops(ctx context.Context) []Hop {
	if t.credential == nil {
		return t.hops
	}
	hops := slices.Clone(t.hops)
	hops[len(hops)-1].login = t.credential.login(func(key string) (string, error) {
		return t.credential.from.Watch(ctx, key)
	})
	return hops
}

// Start implements backend.Target.
func (t *Target) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if s.Approval == "" {
		return t.Machine.Start(ctx, s)
	}
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	if t.credential == nil {
		return nil, fmt.Errorf("ssh: %s takes no credential for each approval", t.c.Name)
	}
	var action []byte
	frame := stream.Frame{}
	if at, ok := ctx.Deadline(); ok {
		frame.Limit = int((time.Until(at) + limitSlack).Seconds()) + 1
	}
	get := func(key string) (cert string, err error) {
		cert, action, err = t.credential.from.Change(ctx, s.Approval, key)
		return cert, err
	}
	p, first, err := t.startRun(ctx, s, get, func() (stream.Frame, []byte) { frame.Action = len(action); return frame, action })
	switch {
	case err != nil:
		return nil, err
	case first.Why != "":
		p.end()
		return nil, fmt.Errorf("%s: %s", t.c.Name, first.Why)
	}
	stop := context.AfterFunc(ctx, p.Kill)
	t.owned(func() { p.read(func() { stop() }) })
	return p, nil
}

// limitSlack is how much later than the bot the host itself ends a command.
const limitSlack = 5 * time.Second

// Follow implements backend.Witness.
func (t *Target) Follow(ctx context.Context, mark string, s backend.Spec) (backend.Process, error) {
	if t.credential == nil {
		return t.Machine.Follow(ctx, mark, s)
	}
	p, first, err := t.find(ctx, mark, s, stream.Frame{})
	switch {
	case err != nil:
		return nil, err
	case first.None || first.Why != "":
		p.end()
		return nil, fmt.Errorf("%s: there is no record of the run %s: %w", t.c.Name, mark, fs.ErrNotExist)
	}
	t.owned(func() { p.read(func() {}) })
	return p, nil
}

// Testify implements backend.Witness.
func (t *Target) Testify(ctx context.Context, mark string) (backend.Testimony, error) {
	if t.credential == nil {
		return t.Machine.Testify(ctx, mark)
	}
	p, e, err := t.find(ctx, mark, backend.Spec{}, stream.Frame{Peek: true})
	if err != nil {
		return backend.Testimony{}, err
	}
	p.end()
	return backend.Testimony{Began: e.Began, Ended: e.Ended, Code: e.Code, Running: !e.Began.IsZero() && e.Ended.IsZero() && !e.Lost}, nil
}

// Prune implements backend.Witness. The runner deletes old records.
func (t *Target) Prune(ctx context.Context, prefix string, open []string) error {
	if t.credential == nil {
		return t.Machine.Prune(ctx, prefix, open)
	}
	return nil
}

// pendingLogin is a connection for an approved command that has come as far as the login: the
// certificate is asked for once it is known what for.
type pendingLogin struct {
	begun time.Time
	give  chan func(key string) (string, error)
	done  chan struct{} // closed when c or err is set
	c     *conn
	err   error
	stop  context.CancelFunc
}

const (
	// pendingFor is how long a login that was prepared waits for what it is for: sshd gives it two
	// minutes (LoginGraceTime). pendingUse is how old one may be when another is prepared.
	pendingFor = 100 * time.Second
	pendingUse = 80 * time.Second
)

// prepareLogin begins a connection for the next approved command, unless there is one.
func (t *Target) prepareLogin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ready != nil && time.Since(t.ready.begun) < pendingUse {
		return
	}
	if t.ready != nil {
		t.ready.stop()
	}
	ctx, stop := context.WithTimeout(t.life, pendingFor)
	p := &pendingLogin{begun: time.Now(), give: make(chan func(string) (string, error), 1), done: make(chan struct{}), stop: stop}
	t.ready = p
	t.wg.Go(func() {
		defer close(p.done)
		hops := t.runHops(nil)
		last := &hops[len(hops)-1]
		last.patience = pendingFor
		last.login = func(broken func() bool) ([]xssh.Signer, error) {
			select {
			case get := <-p.give:
				if broken() { // it waited for too long; nothing is asked for that can't be used
					return nil, errors.New("ssh: the host has left before the login")
				}
				return t.credential.login(get)(broken)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		p.c, p.err = t.connect(ctx, hops)
	})
}

// runHops are the hops of a connection for an approved command.
func (t *Target) runHops(get func(key string) (string, error)) []Hop {
	hops := slices.Clone(t.hops)
	last := &hops[len(hops)-1]
	last.User, last.login = t.credential.runAs, t.credential.login(get)
	return hops
}

// connectRun logs in with the certificate that get returns, over the connection that was prepared if
// there is one. get is called once at most.
func (t *Target) connectRun(ctx context.Context, get func(key string) (string, error)) (*conn, error) {
	t.mu.Lock()
	p := t.ready
	t.ready = nil
	t.mu.Unlock()
	asked := make(chan struct{})
	once := func(key string) (string, error) {
		close(asked)
		return get(key)
	}
	if p != nil {
		p.give <- once
		cut := context.AfterFunc(ctx, p.stop)
		<-p.done
		cut()
		p.stop() // which ends nothing any more
		select {
		case <-asked:
			return p.c, p.err
		default: // it was cut before the login
			if p.c != nil {
				p.c.close(errClosed)
			}
		}
	}
	return t.connect(ctx, t.runHops(get))
}

// owned runs what belongs to a connection of a run. Close waits for it.
func (t *Target) owned(run func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed { // its connection is closed, so this ends now
		go run()
		return
	}
	t.wg.Go(run)
}

// find connects to a run.
func (t *Target) find(ctx context.Context, mark string, s backend.Spec, f stream.Frame) (*runProcess, stream.Event, error) {
	get := func(key string) (string, error) { return t.credential.from.Follow(ctx, mark, key) }
	return t.startRun(ctx, s, get, func() (stream.Frame, []byte) { return f, nil })
}

// startRun logs in with the certificate that get returns, sends the runner what it needs, and returns what it
// says first. An error wraps backend.ErrLost if something may have begun.
func (t *Target) startRun(
	ctx context.Context, s backend.Spec, get func(key string) (string, error), send func() (stream.Frame, []byte),
) (_ *runProcess, first stream.Event, err error) {
	c, err := t.connectRun(ctx, get)
	if err != nil {
		return nil, first, fmt.Errorf("%s: %w", t.c.Name, err)
	}
	p := &runProcess{t: t, c: c, spec: s, killed: make(chan struct{}), over: make(chan struct{}), begin: time.Now()}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	p.left = context.AfterFunc(t.life, func() { c.close(errClosed) })
	t.owned(p.watch)
	cut := context.AfterFunc(ctx, func() { c.close(ctx.Err()) })
	defer cut()
	session, err := c.client.NewSession()
	if err != nil {
		return nil, first, fmt.Errorf("%s opens no session for an approved command: %w", t.c.Name, err)
	}
	session.Stderr = &p.said
	p.stdin, err = session.StdinPipe()
	if err != nil {
		return nil, first, err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, first, err
	}
	p.stdout = bufio.NewReaderSize(out, stream.MaxChunk)
	if err := session.Start("countersign"); err != nil { // what the certificate forces is run instead
		return nil, first, fmt.Errorf("%s doesn't run the command that its certificate forces: %w", t.c.Name, err)
	}
	frame, action := send()
	head, err := json.Marshal(frame)
	if err != nil {
		return nil, first, err
	}
	if _, err := p.stdin.Write(slices.Concat(head, []byte("\n"), action)); err != nil {
		return nil, first, fmt.Errorf("%s: %w: %w", t.c.Name, backend.ErrLost, err)
	}
	first, err = p.next()
	if err != nil {
		if said := strings.TrimSpace(p.said.String()); ctx.Err() == nil && notBegun(session.Wait(), said) {
			return nil, first, fmt.Errorf("%s: the host says: %s; enroll it again", t.c.Name, clip(said))
		}
		return nil, first, fmt.Errorf("%s: %w: %w", t.c.Name, backend.ErrLost, cmp.Or(ctx.Err(), err))
	}
	return p, first, nil
}

// notBegun reports whether a session ended because there is no runner, or it didn't take what it was
// sent: then nothing was begun.
func notBegun(end error, said string) bool {
	exit, ok := errors.AsType[*xssh.ExitError](end)
	return ok && (exit.ExitStatus() == 126 || exit.ExitStatus() == 127 || exit.ExitStatus() == 1 && strings.HasPrefix(said, "countersign-runner: "))
}

// clip bounds what a foreign program says in an error.
func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// runProcess is a run of an approved action, followed over a separate connection.
type runProcess struct {
	t      *Target
	c      *conn
	spec   backend.Spec
	stdin  io.WriteCloser
	stdout *bufio.Reader
	said   lockedBuffer
	begin  time.Time
	left   func() bool // releases the connection from the end of the target

	once   sync.Once
	killed chan struct{}
	over   chan struct{}
	res    backend.Result
	err    error
}

// watch closes the connection when the host no longer answers.
func (p *runProcess) watch() {
	if err := watch(p.over, p.t.c.Keepalive, p.t.c.Misses, p.c.wire.reads.Load, p.c.ping); err != nil {
		p.c.close(err)
	}
}

// end gives the connection up.
func (p *runProcess) end() {
	p.left()
	p.c.close(errClosed)
	p.once.Do(func() { close(p.killed) })
	select {
	case <-p.over:
	default:
		close(p.over)
	}
}

// next reads until the runner says something, and passes on what the run prints.
func (p *runProcess) next() (e stream.Event, err error) {
	buf := make([]byte, stream.MaxChunk)
	to := map[stream.Stream]io.Writer{stream.Out: p.spec.Stdout, stream.Err: p.spec.Stderr}
	for {
		kind, b, err := stream.ReadChunk(p.stdout, buf)
		if err != nil {
			return e, err
		}
		if kind == stream.Tell {
			err := json.Unmarshal(b, &e)
			return e, err
		}
		if w := to[kind]; w != nil {
			if _, err := w.Write(b); err != nil {
				to[kind] = nil // a writer that fails doesn't end the process
			}
		}
	}
}

// read owns the process until it has ended.
func (p *runProcess) read(done func()) {
	defer close(p.over)
	defer done()
	defer p.left()
	go func() {
		select {
		case <-p.killed:
			_, _ = io.WriteString(p.stdin, stream.Stop)
		case <-p.over:
		}
	}()
	e, err := p.next()
	p.c.close(errClosed)
	p.res.Duration = time.Since(p.begin)
	select {
	case <-p.killed:
		p.res.Killed = true
	default:
	}
	switch {
	case err != nil:
		p.err = fmt.Errorf("%s: %w: %w", p.t.c.Name, backend.ErrLost, err)
	case e.Lost:
		p.err = fmt.Errorf("%s: nothing tells how it ended: %w", p.t.c.Name, backend.ErrLost)
	default:
		p.res.Code, p.res.Signal = e.Code, follow.Signal(e.Code)
	}
}

// Wait implements backend.Process.
func (p *runProcess) Wait() (backend.Result, error) {
	<-p.over
	return p.res, p.err
}

// Kill implements backend.Process.
func (p *runProcess) Kill() { p.once.Do(func() { close(p.killed) }) }

// lockedBuffer keeps the beginning of what is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < 1<<10 {
		l.b.Write(b)
	}
	return len(b), nil
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
