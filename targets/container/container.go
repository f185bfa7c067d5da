// Package container is the target inside one container of a Docker-compatible engine (docker or
// podman): processes through the engine's API, or its command line if no socket answers, and files
// through the container's shell. targets/remote has the parts that all remote systems share.
//
// The container is found by name once and then bound by its id. Another container with the same
// name is refused, because approvals were meant for the first.
//
// The package does not start, stop, create or remove containers, and confines nothing: a command
// may do whatever the container's user may do. It does not support TLS or ssh:// to an engine
// (docker's command line does, through DOCKER_HOST).
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

// ErrReplaced means that the name now belongs to a container other than the bound one. Nothing was
// started.
var ErrReplaced = errors.New("the container was replaced by another one of the same name; open the target anew and ask again")

const (
	// idShown is how many digits of a container id are shown, as in docker.
	idShown = 12
	// checkTime bounds a query to an engine that has answered before.
	checkTime = 30 * time.Second
	// settleTime is how long an engine may take to notice that a container has exited after its
	// streams ended.
	settleTime = 200 * time.Millisecond
)

// Config names the container and its engine.
type Config struct {
	// Name is the target's name in the configuration, and part of its ID; "" means the container's
	// name.
	Name string
	// Container is the container's name or id.
	Container string
	// Engine is "docker", "podman", or the URL of a socket ("unix:///run/x.sock",
	// "tcp://127.0.0.1:2375"). Empty means docker first, then podman.
	Engine string
	// DockerHost is the value of DOCKER_HOST, or "". If set, docker is expected there and nowhere
	// else.
	DockerHost string
	// RuntimeDir is the value of XDG_RUNTIME_DIR, or "": it contains the socket of the user's own
	// podman.
	RuntimeDir string
	// Path is where the programs docker and podman are looked up; "" means backend.SearchPath.
	Path string
	// User is the user in the container, "name", "uid" or "user:group"; "" means the container's
	// own.
	User string
	// Dir is the absolute default directory in the container; "" means the user's home.
	Dir string
}

// Target is one container. It is safe for concurrent use.
type Target struct {
	*remote.Machine

	cfg   Config
	plan  searchPlan
	local *commandRunner

	connecting chan struct{} // held while connecting to the engine
	mu         sync.Mutex
	eng        engine
	id         string // of the container, "" until it is known
}

var (
	_ backend.Target  = (*Target)(nil)
	_ backend.Witness = (*Target)(nil)
)

// What engines allow, so that no name can be taken for an option or a path.
var (
	nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)
	userForm = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63})?$`)
)

// New returns the target. It connects on first use; an error is a configuration mistake.
func New(c Config) (*Target, error) {
	if !nameForm.MatchString(c.Container) {
		return nil, fmt.Errorf("container: %q is not the name of a container; give one of letters, digits, '_', '.' and '-'", c.Container)
	}
	if c.User != "" && !userForm.MatchString(c.User) {
		return nil, fmt.Errorf("container: %q is not a user; give a name, a number or user:group", c.User)
	}
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	c.Path, c.Name = cmp.Or(c.Path, backend.SearchPath), cmp.Or(c.Name, c.Container)
	t := &Target{cfg: c, plan: p, local: newCommandRunner(c), connecting: make(chan struct{}, 1)}
	t.Machine = remote.New(remote.Options{Transport: transport{t}, Name: "container " + c.Container, Dir: c.Dir, Spares: true})
	return t, nil
}

// ID returns "container:NAME", and "container:NAME#ID" with the first 12 digits of
// the container's id once that is known.
func (t *Target) ID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id == "" {
		return "container:" + t.cfg.Name
	}
	return "container:" + t.cfg.Name + "#" + short(t.id)
}

// Check asks the engine whether the target's container exists and is running. It returns
// [ErrReplaced] if another container has the name.
func (t *Target) Check(ctx context.Context) error {
	e, err := t.engine(ctx)
	if err != nil {
		return err
	}
	_, err = t.locate(ctx, e)
	return err
}

// Renew binds the target to the container that has the name now, after [ErrReplaced]. The ID
// changes, so no earlier approval applies.
func (t *Target) Renew() {
	t.mu.Lock()
	t.id = ""
	t.mu.Unlock()
	t.Forget()
}

// Engine describes the engine for people: "docker 20.10.24 at unix:///var/run/docker.sock" or
// "podman 4.3.1, by its command line". It connects to an engine if necessary, but does not look for
// the container.
func (t *Target) Engine(ctx context.Context) (string, error) {
	e, err := t.engine(ctx)
	if err != nil {
		return "", err
	}
	return e.String(), nil
}

// Close closes the connections to the engine. The container and its processes keep running.
func (t *Target) Close() error {
	t.Machine.Close()
	t.mu.Lock()
	e := t.eng
	t.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.close()
}

// engine finds the engine once. A failure is not cached.
func (t *Target) engine(ctx context.Context) (engine, error) {
	select {
	case t.connecting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.connecting }()
	t.mu.Lock()
	e := t.eng
	t.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := discover(ctx, t.plan, t.local)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.eng = e
	t.mu.Unlock()
	return e, nil
}

// locate asks the engine for the container and binds the target to it. It refuses a container in
// which nothing can be started.
func (t *Target) locate(ctx context.Context, e engine) (state, error) {
	name := t.cfg.Container
	st, err := e.inspect(ctx, name)
	switch {
	case errors.Is(err, errMissing):
		return st, fmt.Errorf("there is no container %s at %s; start it, or name another engine", name, e)
	case err != nil:
		return st, fmt.Errorf("the container %s cannot be looked at: %w", name, err)
	}
	t.mu.Lock()
	t.id = cmp.Or(t.id, st.id)
	id := t.id
	t.mu.Unlock()
	switch {
	case st.id != id:
		return st, fmt.Errorf("container %s was %s and is now %s: %w", name, short(id), short(st.id), ErrReplaced)
	case st.paused:
		return st, fmt.Errorf("the container %s is paused; unpause it first", name)
	case !st.running:
		return st, fmt.Errorf("the container %s is not running; start it first", name)
	}
	return st, nil
}

// engine is the interface to docker or podman.
type engine interface {
	fmt.Stringer
	// inspect returns errMissing if there is no such container.
	inspect(ctx context.Context, ref string) (state, error)
	// exec starts a program in the container with that id. An error that wraps
	// backend.ErrLost means that it may have been started.
	exec(ctx context.Context, id, user string, argv []string, stdin io.Reader, stdout, stderr io.Writer) (session, error)
	// hasty reports whether output is lost when a program exits before it has read its input.
	hasty() bool
	close() error
}

// drainScript runs a program and afterwards reads the rest of the input, for at most a second.
// Podman's conmon closes the connection when the first process exits; unread input then resets it,
// and pending output is lost (seen with podman 4.3.1 in 12 of 30 runs). setsid keeps the program
// the leader of its own group; without setsid the output may be lost.
const drainScript = `command -v setsid >/dev/null 2>&1 || exec "$@"
exec 3<&0
setsid "$@" 3<&-
r=$?
cat <&3 >/dev/null 2>&1 &
c=$!
(sleep 1; kill "$c") >/dev/null 2>&1 3<&- &
k=$!
wait "$c"
kill "$k" 2>/dev/null
exit "$r"
`

// session is one started program.
type session interface {
	// wait waits for the end of the streams. clean means that the program is known to have exited.
	wait(ctx context.Context) (clean bool, err error)
	close()
}

// state is an engine's information about a container.
type state struct {
	id              string
	running, paused bool
	started         string // changes with every start of the container
}

var errMissing = errors.New("no such container")

func short(id string) string { return id[:min(len(id), idShown)] }

// transport implements remote.Transport for the target.
type transport struct{ t *Target }

// Open implements remote.Transport. The engines make every exec'd program the leader of its own
// session.
func (tr transport) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	t := tr.t
	e, err := t.engine(ctx)
	if err != nil {
		return nil, err
	}
	st, err := t.locate(ctx, e)
	if err != nil {
		return nil, err
	}
	if stdin != nil && e.hasty() {
		argv = append([]string{"sh", "-c", drainScript, "sh"}, argv...)
	}
	s, err := e.exec(ctx, cmp.Or(st.id, t.cfg.Container), t.cfg.User, argv, stdin, stdout, stderr)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", t.cfg.Container, err)
	}
	cctx, cancel := context.WithCancel(context.Background())
	return &channel{ctx: cctx, cancel: cancel, name: t.cfg.Container, eng: e, was: st, s: s}, nil
}

// Check implements remote.Checker.
func (tr transport) Check(ctx context.Context) error { return tr.t.Check(ctx) }

// Lasts implements remote.Lasting.
func (tr transport) Lasts() bool {
	tr.t.mu.Lock()
	defer tr.t.mu.Unlock()
	_, byProgram := tr.t.eng.(*cli)
	return tr.t.eng != nil && !byProgram
}

// channel is a session that checks its container when it ends. Its end is Close, and not that of the
// context in which it was opened.
type channel struct {
	ctx    context.Context //nolint:containedctx // its end is Close, which may come at any time
	cancel context.CancelFunc
	name   string
	eng    engine
	was    state
	s      session
}

// Close implements remote.Channel.
func (c *channel) Close() {
	c.cancel()
	c.s.close()
}

// Wait implements remote.Channel.
func (c *channel) Wait() error {
	defer c.s.close()
	clean, err := c.s.wait(c.ctx)
	if clean || c.ctx.Err() != nil {
		return nil // ended, or given up
	}
	ctx, cancel := context.WithTimeout(c.ctx, checkTime)
	defer cancel()
	if errors.Is(err, backend.ErrLost) {
		return fmt.Errorf("container %s: %w", c.name, cmp.Or(c.checkRunning(ctx), err))
	}
	// It ended as if its container had exited. The engine may learn of that a moment later.
	for deadline := time.Now().Add(settleTime); ; {
		if err := c.checkRunning(ctx); err != nil && c.ctx.Err() == nil {
			return fmt.Errorf("container %s: %w", c.name, err)
		}
		if time.Now().After(deadline) {
			break
		}
		select {
		case <-c.ctx.Done():
			return nil
		case <-time.After(settleTime / 8):
		}
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", c.name, err)
	}
	return nil
}

// Ended implements remote.Ending.
func (c *channel) Ended() <-chan struct{} {
	s, ok := c.s.(*apiSession)
	if !ok {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		if s.exited(c.ctx) {
			close(ended)
		}
	}()
	return ended
}

// checkRunning returns an error if the container is no longer running as it was.
func (c *channel) checkRunning(ctx context.Context) error {
	st, err := c.eng.inspect(ctx, cmp.Or(c.was.id, c.name))
	switch {
	case errors.Is(err, errMissing):
		return fmt.Errorf("it was removed meanwhile: %w", backend.ErrLost)
	case err != nil:
		return fmt.Errorf("the engine does not answer any more: %w: %w", backend.ErrLost, err)
	case !st.running:
		return fmt.Errorf("it stopped meanwhile: %w", backend.ErrLost)
	case st.started != c.was.started:
		return fmt.Errorf("it was restarted meanwhile: %w", backend.ErrLost)
	}
	return nil
}
