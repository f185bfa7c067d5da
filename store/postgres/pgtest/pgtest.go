// Package pgtest runs a PostgreSQL server of its own for a test, from the programs
// that the machine has, in a directory that goes with the test.
//
// It listens on loopback and lets everybody in. It downloads nothing and never uses
// a server that is there already.
package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a running server. Its methods are for the goroutine of the test.
type Server struct {
	bin, dir string
	port     int
	cred     *syscall.Credential // initdb and postgres refuse to run as root
	process  *exec.Cmd
	exited   chan struct{}
}

// New starts a server, with lines of conf in its postgresql.conf, that is ended with
// the test. Without PostgreSQL the test is skipped; under CI it fails. It takes a
// second or two.
func New(tb testing.TB, conf ...string) *Server {
	tb.Helper()
	bin := programs()
	if bin == "" {
		const said = "needs PostgreSQL's initdb and postgres, on the PATH or in /usr/lib/postgresql: apt-get install postgresql"
		if os.Getenv("CI") == "true" {
			tb.Fatal(said)
		}
		tb.Skip(said)
	}
	s := &Server{bin: bin}
	tb.Cleanup(s.destroy)
	if err := s.make(conf); err != nil {
		tb.Fatal(err)
	}
	return s
}

// URL names the database, and the schema in it; "" is the usual one.
func (s *Server) URL(schema string) string {
	u := fmt.Sprintf("postgres://admin@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	if schema != "" {
		u += "&search_path=" + schema
	}
	return u
}

// Exec runs SQL beside the program under test.
func (s *Server) Exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	s.connected(tb, func(c *pgx.Conn) error {
		_, err := c.Exec(context.Background(), sql, args...)
		return err
	})
}

// Int is the one number that a query answers.
func (s *Server) Int(tb testing.TB, sql string, args ...any) (n int64) {
	tb.Helper()
	s.connected(tb, func(c *pgx.Conn) error { return c.QueryRow(context.Background(), sql, args...).Scan(&n) })
	return n
}

func (s *Server) connected(tb testing.TB, do func(*pgx.Conn) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	if err := do(c); err != nil {
		tb.Fatal(err)
	}
}

// Stop ends the server at once, as a crash of its machine would; Start starts it
// again.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	// SIGQUIT: every process ends without cleaning up, and recovery follows.
	_ = s.process.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		_ = s.process.Process.Kill()
		<-s.exited
	}
	s.process = nil
}

// Start runs the server and waits until it answers.
func (s *Server) Start() error {
	cmd := s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir)
	log := &bytes.Buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.process, s.exited = cmd, exited
	go func() { _ = cmd.Wait(); close(exited) }()
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			err = c.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			s.process = nil
			return fmt.Errorf("the server ended: %s", log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// programs is the directory of PostgreSQL's programs, "" without them. What is on the
// PATH may be a link to one of them.
func programs() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a)) }) // newest first
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append([]string{path}, found...)
		}
	}
	for _, path := range found {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
			return filepath.Dir(path)
		}
	}
	return ""
}

func (s *Server) make(conf []string) (err error) {
	if s.dir, err = os.MkdirTemp("", "cs-pg-"); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return err
			}
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uerr, gerr, os.Chown(s.dir, int(uid), int(gid))); err != nil {
			return err
		}
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	if out, err := s.command("initdb", "-D", s.data(), "-U", "admin", "-A", "trust", "-N", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(append([]string{"max_connections = 100", "shared_buffers = 32MB", "deadlock_timeout = 200ms"}, conf...), "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return s.Start()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "LC_ALL=C", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

// Tool runs one of PostgreSQL's programs, such as pg_dump, in a directory that the server's
// account may write. Its arguments should name the database by [Server.URL].
func (s *Server) Tool(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *Server) destroy() {
	s.Stop()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
