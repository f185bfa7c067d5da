package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"countersign/targets/backend"
)

// exitTime is how long an engine may say that a program runs after its streams have
// ended.
const exitTime = 2 * time.Second

// api is an engine behind its socket.
type api struct {
	c           *client.Client
	host        string
	name, about string
}

// dial connects to a socket and asks whether an engine answers there.
func dial(ctx context.Context, host string) (*api, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if _, err := c.Ping(soon, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	ctx, cancel = context.WithTimeout(ctx, checkTime) // it is one, perhaps a busy one
	defer cancel()
	a := &api{c: c, host: host, name: "docker"}
	if v, err := c.ServerVersion(ctx, client.ServerVersionOptions{}); err == nil {
		a.about = v.Version
		for _, part := range v.Components {
			if strings.Contains(strings.ToLower(part.Name), "podman") {
				a.name = "podman"
			}
		}
	}
	return a, nil
}

func (a *api) String() string {
	if a.about == "" {
		return a.name + " at " + a.host
	}
	return a.name + " " + a.about + " at " + a.host
}

func (a *api) hasty() bool { return a.name == "podman" }

func (a *api) close() error { return a.c.Close() }

func (a *api) inspect(ctx context.Context, ref string) (state, error) {
	res, err := a.c.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return state{}, errMissing
	}
	if err != nil {
		return state{}, err
	}
	st := state{id: res.Container.ID}
	if s := res.Container.State; s != nil {
		st.running, st.paused, st.started = s.Running, s.Paused, s.StartedAt
	}
	if st.id == "" {
		return state{}, errors.New("the engine names no id")
	}
	return st, nil
}

func (a *api) exec(ctx context.Context, id, user string, argv []string, stdin io.Reader, stdout, stderr io.Writer) (session, error) {
	created, err := a.c.ExecCreate(ctx, id, client.ExecCreateOptions{
		User: user, Cmd: argv,
		AttachStdin: stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("the engine does not start the command: %w", err)
	}
	att, err := a.c.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("the engine does not start the command: %w", err)
		}
		return nil, fmt.Errorf("the engine does not say whether it started the command: %w: %w", backend.ErrLost, err)
	}
	s := &apiSession{c: a.c, id: created.ID, hijacked: att.HijackedResponse, copied: make(chan struct{})}
	if stdin != nil {
		// It ends with the connection at the latest, once its reader returns.
		go func() {
			_, _ = io.Copy(s.hijacked.Conn, stdin)
			_ = s.hijacked.CloseWrite()
		}()
	}
	go func() {
		defer close(s.copied)
		s.err = demux(s.hijacked.Reader, stdout, stderr)
	}()
	return s, nil
}

// apiSession is a program whose streams come over a hijacked connection.
type apiSession struct {
	c        *client.Client
	id       string
	hijacked client.HijackedResponse
	once     sync.Once
	copied   chan struct{} // closed when err is set
	err      error
}

func (s *apiSession) close() { s.once.Do(s.hijacked.Close) }

func (s *apiSession) wait(ctx context.Context) (bool, error) {
	<-s.copied
	if s.err != nil {
		return false, fmt.Errorf("%w: %w", backend.ErrLost, s.err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	for deadline := time.Now().Add(exitTime); ; {
		res, err := s.c.ExecInspect(ctx, s.id, client.ExecInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return false, nil // engines forget what ran in a container that has ended
		case err != nil:
			return false, fmt.Errorf("the engine does not answer any more: %w: %w", backend.ErrLost, err)
		case res.Running && time.Now().After(deadline):
			return false, fmt.Errorf("the engine closed the streams of a command that runs: %w", backend.ErrLost)
		case res.Running:
		case res.ExitCode == 126 || res.ExitCode == 127:
			return false, errors.New("its shell could not be started; the image needs sh")
		default:
			return res.ExitCode == 0, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", backend.ErrLost, ctx.Err())
		case <-time.After(exitTime / 100):
		}
	}
}

// exited waits until the engine says that the program has ended, whoever holds its streams; false when that can't be
// known.
func (s *apiSession) exited(ctx context.Context) bool {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		res, err := s.c.ExecInspect(ctx, s.id, client.ExecInspectOptions{})
		if err != nil || !res.Running {
			return err == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.copied:
			return false // wait knows it
		case <-time.After(pause):
		}
	}
}

// demux takes the two streams of a program apart. A frame is one byte for the
// stream (0 or 1 output, 2 errors, 3 a message of the engine itself), three empty
// ones, four for the length in network order, and the bytes (Engine API, "Attach to
// a container", stream format). A writer that fails gets no more and does not keep
// the other one from its bytes; one that is slow does.
//
// An end between two frames is the end of the streams; anywhere else it is an error,
// and so is what is not a frame.
func demux(r io.Reader, stdout, stderr io.Writer) error {
	var head [8]byte
	buf := make([]byte, 32<<10)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		kind := head[0]
		left := int64(head[4])<<24 | int64(head[5])<<16 | int64(head[6])<<8 | int64(head[7])
		if kind > 3 || head[1] != 0 || head[2] != 0 || head[3] != 0 {
			return fmt.Errorf("the engine sent no frame but %q", head[:])
		}
		if kind == 3 {
			text, err := io.ReadAll(io.LimitReader(r, min(left, messageMax)))
			return fmt.Errorf("the engine says %q", cmp.Or(strings.TrimSpace(string(text)), fmt.Sprint(err)))
		}
		to := &stdout
		if kind == 2 {
			to = &stderr
		}
		for left > 0 {
			n, err := r.Read(buf[:min(left, int64(len(buf)))])
			if n > 0 && *to != nil {
				if _, err := (*to).Write(buf[:n]); err != nil {
					*to = nil
				}
			}
			left -= int64(n)
			if err != nil && left > 0 {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
		}
	}
}

// messageMax is how much of an engine's message is kept, in bytes.
const messageMax = 1000
