package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/local"
)

const (
	// queryTimeout bounds a query to an engine's command line.
	queryTimeout = 30 * time.Second
	// textMax bounds the text of sh -lc: Linux allows 128 KiB for one argument
	// (MAX_ARG_STRLEN).
	textMax = 127 << 10
)

// commandRunner runs the engines' command lines on this machine.
type commandRunner struct {
	t    *local.Target
	path string
	vars []string // besides the default environment
}

func newCommandRunner(c Config) *commandRunner {
	p := &commandRunner{t: local.New(local.Options{Dir: "/"}), path: c.Path}
	if c.DockerHost != "" {
		p.vars = append(p.vars, "DOCKER_HOST="+c.DockerHost)
	}
	if c.RuntimeDir != "" {
		p.vars = append(p.vars, "XDG_RUNTIME_DIR="+c.RuntimeDir)
	}
	return p
}

func (p *commandRunner) start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	caps, err := p.t.Probe(ctx)
	if err != nil {
		return nil, err
	}
	for _, kv := range backend.Environ(caps) {
		if strings.HasPrefix(kv, "PATH=") {
			kv = "PATH=" + p.path
		}
		s.Env = append(s.Env, kv)
	}
	s.Env = append(s.Env, p.vars...)
	s.Dir = "/"
	return door.Start(ctx, p.t, door.Plumbing, nil, s)
}

// output runs a program to its end and returns its output.
func (p *commandRunner) output(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var out, errOut bytes.Buffer
	proc, err := p.start(ctx, backend.Spec{Argv: argv, Stdout: &out, Stderr: &errOut})
	if err != nil {
		return "", err
	}
	res, err := proc.Wait()
	switch {
	case err != nil:
		return "", err
	case res.Killed:
		return "", fmt.Errorf("%s did not answer: %w", argv[0], ctx.Err())
	case res.Code != 0:
		return "", &programError{program: argv[0], code: res.Code, text: strings.TrimSpace(errOut.String())}
	}
	return out.String(), nil
}

// programError is the output of a program that failed.
type programError struct {
	program string
	code    int
	text    string
}

func (e *programError) Error() string {
	return fmt.Sprintf("%s ended with %d and said %q", e.program, e.code, e.text[:min(len(e.text), 500)])
}

// cli is an engine used through its command line.
type cli struct {
	p           *commandRunner
	program     string // the program's name
	name, about string
}

// findProgram checks that a command line reports a version of docker or podman.
func findProgram(ctx context.Context, p *commandRunner, program string) (*cli, error) {
	out, err := p.output(ctx, program, "--version")
	if err != nil {
		return nil, err
	}
	return &cli{p: p, program: program, name: programName(program, out), about: programVersion(out)}, nil
}

func (c *cli) String() string {
	if c.about == "" {
		return c.name + ", by its command line"
	}
	return c.name + " " + c.about + ", by its command line"
}

func (c *cli) hasty() bool { return c.name == "podman" }

func (c *cli) close() error { return nil }

// inspectFormat puts the time last, for podman prints it with spaces.
const inspectFormat = `{{.Id}} {{.State.Running}} {{.State.Paused}} {{.State.StartedAt}}`

func (c *cli) inspect(ctx context.Context, ref string) (state, error) {
	out, err := c.p.output(ctx, c.program, "container", "inspect", "--format", inspectFormat, ref)
	if err != nil {
		var said *programError
		if errors.As(err, &said) && strings.Contains(strings.ToLower(said.text), "no such container") {
			return state{}, errMissing
		}
		return state{}, err
	}
	if strings.TrimSpace(out) == "" {
		// Something imitates docker and cannot inspect containers. Commands then use the name, and
		// the target's ID proves nothing.
		return state{running: true}, nil
	}
	return parseInspect(out)
}

var idForm = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// parseInspect parses one line of inspectFormat.
func parseInspect(out string) (state, error) {
	fields := strings.SplitN(strings.TrimSpace(out), " ", 4)
	if len(fields) != 4 || !idForm.MatchString(fields[0]) || strings.Contains(fields[3], "\n") {
		return state{}, fmt.Errorf("the command line answers %q where a container's state was asked for", out[:min(len(out), 200)])
	}
	running, err := strconv.ParseBool(fields[1])
	paused, err2 := strconv.ParseBool(fields[2])
	if err := errors.Join(err, err2); err != nil {
		return state{}, fmt.Errorf("the command line answers with a state that is none: %w", err)
	}
	return state{id: fields[0], running: running, paused: paused, started: fields[3]}, nil
}

// exec runs "docker exec [-i] ID sh -lc TEXT", or podman's "--interactive". It uses the container's
// id, because the name may have moved.
func (c *cli) exec(ctx context.Context, id, user string, argv []string, stdin io.Reader, stdout, stderr io.Writer) (session, error) {
	text := command(argv)
	if len(text) > textMax {
		return nil, fmt.Errorf("the command is longer than the %d bytes that %s can be given at once; put it into a file", textMax, c.program)
	}
	full := []string{c.program, "exec"}
	if stdin != nil {
		full = append(full, stdinFlag(c.program))
	}
	if user != "" {
		full = append(full, "--user", user)
	}
	full = append(full, id, "sh", "-lc", text)
	p, err := c.p.start(context.WithoutCancel(ctx), backend.Spec{
		Argv: full, Stdin: stdin, Stdout: stdout, Stderr: stderr, Grace: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return &cliSession{p: p, program: c.program, over: make(chan struct{})}, nil
}

func stdinFlag(program string) string {
	if program == "podman" {
		return "--interactive"
	}
	return "-i"
}

// command returns a program and its arguments as POSIX shell text that execs the program.
func command(argv []string) string {
	var b strings.Builder
	b.WriteString("exec")
	for _, a := range argv {
		b.WriteString(" '")
		b.WriteString(strings.ReplaceAll(a, "'", `'\''`))
		b.WriteString("'")
	}
	return b.String()
}

// drainTime is how long an abandoned command line may take to exit. It exits once the program has,
// and then podman still cleans up its records.
const drainTime = 500 * time.Millisecond

// cliSession is a program started through a command line.
type cliSession struct {
	p       backend.Process
	program string
	once    sync.Once
	over    chan struct{} // closed when the command line has ended
}

func (s *cliSession) close() {
	s.once.Do(func() {
		go func() {
			timer := time.NewTimer(drainTime)
			defer timer.Stop()
			select {
			case <-s.over:
			case <-timer.C:
				s.p.Kill()
			}
		}()
	})
}

func (s *cliSession) wait(context.Context) (bool, error) {
	defer close(s.over)
	res, err := s.p.Wait()
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", backend.ErrLost, err)
	case res.Signal != "" && !res.Killed:
		return false, fmt.Errorf("%s was ended by SIG%s: %w", s.program, res.Signal, backend.ErrLost)
	case res.Code == 126 || res.Code == 127:
		return false, errors.New("its shell could not be started; the image needs sh")
	}
	return res.Code == 0, nil
}
