// Package container is the target inside one container of a Docker-compatible
// engine (docker or podman): processes by the engine's API, or by its command line
// where no socket answers, and files by the container's shell. What is the same on
// every system that is not this one is targets/remote's part.
//
// The container is found by its name once and bound by its id: after that another
// container of the same name is refused, because what people approved was meant for
// the first.
//
// It does not start, stop, make or remove containers, and it does not confine
// anything: a command may do what the container's user may do there. It does not
// speak TLS to an engine, nor ssh:// (docker's command line does, by DOCKER_HOST).
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

// ErrReplaced means that the name now belongs to another container than the one
// that the target was bound to. Nothing was started.
var ErrReplaced = errors.New("the container was replaced by another one of the same name; open the target anew and ask again")

const (
	// idShown is how much of a container's id people see, as docker prints it.
	idShown = 12
	// checkTime bounds the question what became of a container whose stream ended.
	checkTime = 10 * time.Second
	// settleTime is how long an engine may take to notice that a container has ended
	// after its streams have.
	settleTime = 200 * time.Millisecond
)

// Config says which container, and where to look for its engine.
type Config struct {
	// Name is the target's name in the bot's configuration, and part of its ID; empty
	// means the container's.
	Name string
	// Container is its name, or its id.
	Container string
	// Engine is "docker", "podman", or the URL of a socket ("unix:///run/x.sock",
	// "tcp://127.0.0.1:2375"). Empty means docker first, then podman.
	Engine string
	// DockerHost is the value of DOCKER_HOST, or "". When it is set, docker is
	// looked for there and nowhere else.
	DockerHost string
	// RuntimeDir is the value of XDG_RUNTIME_DIR, or "": below it is the socket of
	// the user's own podman.
	RuntimeDir string
	// Path is where docker and podman are looked up as programs; empty means
	// backend.SearchPath.
	Path string
	// User is the user in the container, "name", "uid" or "user:group"; empty means
	// the container's own.
	User string
	// Dir is the absolute default directory in the container; empty means the
	// user's home.
	Dir string
}

// Target is one container. It is safe for concurrent use.
type Target struct {
	*remote.Machine

	cfg   Config
	plan  searchPlan
	local *commandRunner

	connecting chan struct{} // held by the one who looks for the engine
	mu         sync.Mutex
	eng        engine
	id         string // of the container, "" until it is known
}

var (
	_ backend.Target  = (*Target)(nil)
	_ backend.Witness = (*Target)(nil)
)

// As engines allow them. So no name is taken for an option or for a path.
var (
	nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)
	userForm = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63})?$`)
)

// New returns the target. It connects at the first use; an error is a mistake in
// the configuration.
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
	t.Machine = remote.New(remote.Options{Transport: transport{t}, Name: "container " + c.Container, Dir: c.Dir})
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

// Check asks the engine whether the target's container is there and runs;
// [ErrReplaced] when its name is another one's now.
func (t *Target) Check(ctx context.Context) error {
	e, err := t.engine(ctx)
	if err != nil {
		return err
	}
	_, err = t.locate(ctx, e)
	return err
}

// Renew takes the container that has the name now for the target's own, after
// [ErrReplaced]. Its ID is another one, so nothing that was approved for the old one
// holds.
func (t *Target) Renew() {
	t.mu.Lock()
	t.id = ""
	t.mu.Unlock()
	t.Forget()
}

// Engine tells what is used, for people: "docker 20.10.24 at
// unix:///var/run/docker.sock" or "podman 4.3.1, by its command line". It looks for
// an engine if that was not done yet, but not for the container.
func (t *Target) Engine(ctx context.Context) (string, error) {
	e, err := t.engine(ctx)
	if err != nil {
		return "", err
	}
	return e.String(), nil
}

// Close ends the connections to the engine. What runs in the container stays, and
// so does the container.
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

// engine finds the engine once. A failure is not remembered.
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

// locate asks the engine for the container, binds the target to it, and refuses
// one that nothing can be started in.
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

// engine is what the target needs of docker or podman.
type engine interface {
	fmt.Stringer
	// inspect returns errMissing when there is no such container.
	inspect(ctx context.Context, ref string) (state, error)
	// exec starts a program in the container with that id. An error that wraps
	// backend.ErrLost means that it may have been started.
	exec(ctx context.Context, id, user string, argv []string, stdin io.Reader, stdout, stderr io.Writer) (session, error)
	// hasty tells that output is lost when a program ends before it has read its input.
	hasty() bool
	close() error
}

// drainScript runs a program, its arguments, and afterwards reads what is left of the
// input, for at most a second. Podman's conmon closes the connection when the
// first process ends; with input unread that resets it, and output on its way is gone
// (seen with podman 4.3.1 in 12 of 30 runs). setsid keeps the program the leader of a
// group of its own; without it there is only the haste.
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

// session is one started program, as an engine shows it.
type session interface {
	// wait waits for the end of the streams. clean means that the program is known
	// to have ended by itself.
	wait(ctx context.Context) (clean bool, err error)
	close()
}

// state is what an engine says about a container.
type state struct {
	id              string
	running, paused bool
	started         string // differs after every start of the container
}

var errMissing = errors.New("no such container")

func short(id string) string { return id[:min(len(id), idShown)] }

// transport is the target as remote.Machine needs it.
type transport struct{ t *Target }

// Open implements remote.Transport. The engines make every program that they exec
// the leader of a session of its own.
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
	// The end of ctx ends the opening only.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &channel{ctx: ctx, cancel: cancel, name: t.cfg.Container, eng: e, was: st, s: s}, nil
}

// Lasts implements remote.Lasting.
func (tr transport) Lasts() bool {
	tr.t.mu.Lock()
	defer tr.t.mu.Unlock()
	_, byProgram := tr.t.eng.(*cli)
	return tr.t.eng != nil && !byProgram
}

// channel is a session that knows what became of its container.
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
	// It ended in a way that the end of its container looks like. The engine may
	// learn of that a moment later.
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

// checkRunning tells that the container is no longer running as it was, or nil.
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
