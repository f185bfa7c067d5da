package worldtest

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

	"countersign/test/faults/network"
)

// Postgres is a PostgreSQL server with a synchronous standby, each in a directory of
// its own and behind a link, which go with the test.
type Postgres struct {
	primary, standby *server
	// Links are to the primary and the standby.
	Links []*network.Proxy
}

type server struct {
	bin, dir string
	port     int
	cred     *syscall.Credential // initdb and postgres refuse to run as root
	cmd      *exec.Cmd
	exited   chan struct{}
	said     *bytes.Buffer
}

var errNoServer = errors.New("needs PostgreSQL's initdb, postgres and pg_basebackup, on the PATH or in /usr/lib/postgresql")

// NewPostgres starts the pair. Without PostgreSQL the test is skipped; under CI it
// fails.
func NewPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	p := &Postgres{}
	tb.Cleanup(func() {
		for _, l := range p.Links {
			l.Close()
		}
		for _, s := range []*server{p.standby, p.primary} {
			if s != nil {
				s.kill()
				_ = os.RemoveAll(s.dir)
			}
		}
	})
	err := p.start(ctx)
	switch {
	case errors.Is(err, errNoServer) && os.Getenv("CI") != "true":
		tb.Skip(err)
	case err != nil:
		tb.Fatal(err)
	}
	return p
}

func (p *Postgres) start(ctx context.Context) (err error) {
	if p.primary, err = blankServer(); err != nil {
		return err
	}
	s := p.primary
	if err := s.run(ctx, "initdb", "-D", s.data(), "-U", "admin", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"); err != nil {
		return err
	}
	hba := "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString("\nmax_connections = 200\nshared_buffers = 64MB\nwal_level = replica\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if p.standby, err = blankServer(); err != nil {
		return err
	}
	if err := p.standby.run(ctx, "pg_basebackup", "-D", p.standby.data(), "-R", "-c", "fast", "-d",
		fmt.Sprintf("host=127.0.0.1 port=%d user=admin application_name=second", s.port)); err != nil {
		return err
	}
	if err := p.standby.start(ctx); err != nil {
		return err
	}
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = 'second'`, `SELECT pg_reload_conf()`} {
		if _, err := s.ask(ctx, sql); err != nil {
			return err
		}
	}
	for {
		n, err := s.ask(ctx, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`)
		if err != nil {
			return err
		}
		if n == "1" {
			break
		}
		rest(ctx, 20*time.Millisecond)
	}
	for _, s := range []*server{p.primary, p.standby} {
		l, err := network.New(fmt.Sprintf("127.0.0.1:%d", s.port))
		if err != nil {
			return err
		}
		p.Links = append(p.Links, l)
	}
	return nil
}

// URL names both servers, and a schema.
func (p *Postgres) URL(schema string) string {
	return fmt.Sprintf("postgres://admin@%s,%s/postgres?sslmode=disable&search_path=%s", p.Links[1].Address(), p.Links[0].Address(), schema)
}

// FailOver kills the primary, as a machine that loses its power does, and promotes the
// standby.
func (p *Postgres) FailOver(ctx context.Context) error {
	p.primary.kill()
	return p.standby.run(ctx, "pg_ctl", "promote", "-D", p.standby.data(), "-w")
}

// Crash kills the primary and starts it again.
func (p *Postgres) Crash(ctx context.Context) error {
	p.primary.kill()
	return p.primary.start(ctx)
}

func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a)) }) // newest first
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append([]string{path}, found...)
		}
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		if !slices.ContainsFunc([]string{"postgres", "pg_ctl", "pg_basebackup", "psql"}, func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err != nil
		}) {
			return dir, nil
		}
	}
	return "", errNoServer
}

func blankServer() (*server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &server{bin: bin}
	if s.dir, err = os.MkdirTemp("", "cs-faults-pg-"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return nil, err
			}
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(s.dir, int(uid), int(gid)); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	return s, l.Close()
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "LC_ALL=C", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *server) run(ctx context.Context, name string, args ...string) error {
	if out, err := s.command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// ask is the one value that a query answers.
func (s *server) ask(ctx context.Context, sql string) (string, error) {
	out, err := s.command(ctx, "psql", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "admin", "-d", "postgres", "-Atqc", sql).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", sql, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *server) start(ctx context.Context) error {
	s.cmd = s.command(context.WithoutCancel(ctx), "postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir)
	s.said = &bytes.Buffer{}
	s.cmd.Stderr = s.said
	if err := s.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.exited = exited
	cmd := s.cmd
	go func() { _ = cmd.Wait(); close(exited) }()
	for {
		if _, err := s.ask(ctx, "SELECT 1"); err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("PostgreSQL ended: %s", s.said)
		case <-ctx.Done():
			return ctx.Err()
		default:
			rest(ctx, 30*time.Millisecond)
		}
	}
}

// kill ends the postmaster and all of its children at once, so that no backend gets to
// finish what it does.
func (s *server) kill() {
	if s.cmd == nil || s.cmd.Process == nil || !alive(s.exited) {
		return
	}
	pid := s.cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // makes no new ones
	family := append(childrenOf(pid), pid)
	for _, p := range family {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	<-s.exited
	for _, p := range family { // until they let go of the shared memory
		for i := 0; i < 5000 && running(p); i++ {
			rest(context.Background(), time.Millisecond)
		}
	}
}

func childrenOf(pid int) []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, parent := stat(child); parent == pid {
			all = append(all, child)
		}
	}
	return all
}

// running says that a process is there and no zombie.
func running(pid int) bool {
	state, _ := stat(pid)
	return state != "" && state != "Z" && state != "X"
}

func stat(pid int) (state string, parent int) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(raw), ") ") // after the name
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
