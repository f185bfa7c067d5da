package postgres

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"countersign/test/needstest"
)

// TestAPoolerInTransactionMode needs pgbouncer; PostgreSQL's own
// programs are enough for all other tests.
func TestAPoolerInTransactionMode(t *testing.T) {
	needstest.Long(t)
	bin, err := exec.LookPath("pgbouncer")
	if err != nil { // Debian has it where only root's PATH leads
		bin, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		const said = "needs pgbouncer, on the PATH or in /usr/sbin: apt-get install pgbouncer"
		if os.Getenv("CI") == "true" {
			t.Fatal(said)
		}
		t.Skip(said)
	}
	s := use(t)
	dir, err := os.MkdirTemp(s.dir, "pooler-") //nolint:usetesting // the server's user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	conf := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\npool_mode = transaction\n"+
		"default_pool_size = 3\nmax_client_conn = 100\nauth_type = trust\nauth_file = %s\n", s.port, port, filepath.Join(dir, "users"))
	for name, text := range map[string]string{"conf": conf, "users": "\"admin\" \"\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s.cred != nil {
		if err := os.Chown(dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bin, filepath.Join(dir, "conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	url := fmt.Sprintf("postgres://admin@127.0.0.1:%d/postgres?sslmode=disable&default_query_exec_mode=exec&search_path=%s", port, freshSchema())
	a, b := openOn(t, s, Options{URL: url}), openOn(t, s, Options{URL: url})
	if a.hints != nil {
		t.Error("hints are on behind a pooler")
	}
	const rounds = 30
	var wg sync.WaitGroup
	for w := range 6 { // more than the pooler has connections
		wg.Go(func() {
			for range rounds {
				if err := add(t.Context(), []*DB{a, b}[w%2], fmt.Sprint("w", w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkCounters(t, a, 6, rounds)
	// The pooler hides from its clients that a server's connection went.
	s.admin(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid() AND application_name LIKE 'countersign/%'`)
	for w := range 6 {
		if err := add(t.Context(), a, fmt.Sprint("w", w)); err != nil {
			t.Error(err)
		}
	}
	checkCounters(t, b, 6, rounds+1)
}
