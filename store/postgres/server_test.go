package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"countersign/store"
	"countersign/test/needstest"
)

// server is a PostgreSQL server of the tests in a directory of its own.
type server struct {
	bin, dir string
	port     int
	cred     *syscall.Credential // initdb and postgres refuse to run as root
	process  *exec.Cmd
	exited   chan struct{}
}

// shared is the server of this test binary.
var shared struct {
	once sync.Once
	s    *server
	err  error
}

func TestMain(m *testing.M) {
	if os.Getenv(needstest.All) != "all" {
		if err := flag.Set("rapid.checks", "30"); err != nil { // of 100
			panic(err)
		}
	}
	code := m.Run()
	if shared.s != nil {
		shared.s.destroy()
	}
	os.Exit(code)
}

var errNoServer = errors.New("no PostgreSQL server programs were found")

// use returns the shared server. Without PostgreSQL the test is skipped, and
// fails under CI.
func use(tb testing.TB) *server {
	tb.Helper()
	shared.once.Do(func() { shared.s, shared.err = newServer() })
	need(tb, shared.err)
	return shared.s
}

func need(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case errors.Is(err, errNoServer) && os.Getenv("CI") != "true":
		tb.Skip("needs PostgreSQL's initdb and postgres, on the PATH or in /usr/lib/postgresql: apt-get install postgresql")
	case err != nil:
		tb.Fatal(err)
	}
}

// own starts another server, for tests that harm it.
func own(tb testing.TB, conf ...string) *server {
	tb.Helper()
	s, err := newServer(conf...)
	need(tb, err)
	tb.Cleanup(s.destroy)
	return s
}

// programs is a directory that has all of PostgreSQL's programs. What is on the
// PATH may be a link to some of them.
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
		if !slices.ContainsFunc([]string{"postgres", "pg_ctl", "pg_basebackup"}, func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err != nil
		}) {
			return dir, nil
		}
	}
	return "", errNoServer
}

func blank() (*server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &server{bin: bin}
	if s.dir, err = os.MkdirTemp("", "cs-pg-"); err != nil {
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
	s.port = l.Addr().(*net.TCPAddr).Port
	return s, l.Close()
}

func newServer(conf ...string) (*server, error) {
	s, err := blank()
	if err != nil {
		return nil, err
	}
	if err := s.run("initdb", "-D", s.data(), "-U", "admin", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"); err != nil {
		return nil, err
	}
	hba := "local all all trust\nhost all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return nil, err
	}
	if err := s.configure(append([]string{"max_connections = 200", "shared_buffers = 64MB", "deadlock_timeout = 200ms"}, conf...)...); err != nil {
		return nil, err
	}
	return s, s.start()
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) configure(lines ...string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "LC_ALL=C", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *server) run(name string, args ...string) error {
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// start runs the server and waits until it answers.
func (s *server) start() error {
	s.process = s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir)
	log := &bytes.Buffer{}
	s.process.Stderr = log
	if err := s.process.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.exited = exited
	process := s.process
	go func() { _ = process.Wait(); close(exited) }()
	for deadline := time.Now().Add(60 * time.Second); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := pgx.Connect(ctx, s.url(""))
		if err == nil {
			err = c.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the server ended: %s", log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w: %s", err, log)
		}
	}
}

// kill ends the postmaster and all of its children at once, so that no backend
// gets to finish what it does.
func (s *server) kill() {
	pid := s.process.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // makes no new ones
	family := append(childrenOf(pid), pid)
	for _, p := range family {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	<-s.exited
	for _, p := range family { // until they let go of the shared memory
		for running(p) {
			<-time.After(time.Millisecond)
		}
	}
}

// childrenOf reads them from /proc.
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
	_, rest, _ := strings.Cut(string(raw), ") ") // after the name
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func (s *server) destroy() {
	if s.process != nil {
		s.kill()
	}
	_ = os.RemoveAll(s.dir)
}

// url is for the schema, over loopback.
func (s *server) url(schema string) string {
	u := fmt.Sprintf("postgres://admin@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	if schema != "" {
		u += "&search_path=" + schema
	}
	return u
}

// schemaOf is a schema for a name.
func schemaOf(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("t%016x", h.Sum64())
}

var schemas struct {
	sync.Mutex
	n int
}

func freshSchema() string {
	schemas.Lock()
	defer schemas.Unlock()
	schemas.n++
	return fmt.Sprintf("s%d", schemas.n)
}

// openOn opens a schema with short waits.
func openOn(tb testing.TB, s *server, o Options) *DB {
	tb.Helper()
	if o.URL == "" {
		o.URL = s.url(freshSchema())
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	db, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// admin runs SQL beside the store.
func (s *server) admin(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	c, err := pgx.Connect(context.Background(), s.url(""))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func (s *server) ask(tb testing.TB, sql string, args ...any) (n int64) {
	tb.Helper()
	c, err := pgx.Connect(context.Background(), s.url(""))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return n
}

func update(tb testing.TB, db store.DB, fn func(tx store.Tx)) {
	tb.Helper()
	if err := db.Update(tb.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		tb.Fatalf("Update: %v", err)
	}
}

func view(tb testing.TB, db store.DB, fn func(tx store.Tx)) {
	tb.Helper()
	if err := db.View(tb.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		tb.Fatalf("View: %v", err)
	}
}

func number(tx store.Tx, key string) int {
	val, _ := tx.Get([]byte(key))
	n, _ := strconv.Atoi(string(val))
	return n
}

func setNumber(tx store.Tx, key string, n int) {
	tx.Set([]byte(key), strconv.AppendInt(nil, int64(n), 10))
}
