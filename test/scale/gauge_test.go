//go:build linux

package scale

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
)

// gauges are counters at one moment.
type gauges struct {
	at       time.Time
	dbs      []postgres.Stats
	replicas []time.Duration // processor time
	server   time.Duration
	network  time.Duration // of this process
	stale    time.Duration // of all replicas together, see sight
	wal      int64         // bytes
}

// gauge reads the counters of all processes.
func (f *fleet) gauge() gauges {
	g := gauges{at: time.Now(), network: cpu(os.Getpid(), false)}
	for _, r := range f.all(order{Do: "look"}, "sight") {
		if r.Sight != nil {
			g.dbs = append(g.dbs, r.Sight.Stats)
			g.stale += r.Sight.Stale
		}
	}
	for _, pid := range f.pids() {
		g.replicas = append(g.replicas, cpu(pid, false))
	}
	if boss := postmaster(f.tb, f.url); boss > 0 {
		g.server = cpu(boss, true)
		for _, pid := range children(boss) {
			g.server += cpu(pid, false)
		}
	}
	g.wal = ask(f.tb, f.url, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`)
	return g
}

func (f *fleet) pids() (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.replicas {
		if p != nil {
			pids = append(pids, p.cmd.Process.Pid)
		}
	}
	return pids
}

// ask is the one number that a query answers.
func ask(tb testing.TB, url, sql string) (n int64) {
	tb.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// postmaster is the process that all of the server's come from.
func postmaster(tb testing.TB, url string) int {
	tb.Helper()
	writer := ask(tb, url, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'`)
	if fields := statOf(int(writer)); len(fields) > 1 {
		n, _ := strconv.Atoi(fields[1])
		return n
	}
	return 0
}

// statOf are the fields of a process's stat after its name: state, parent, ...
func statOf(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil // it ended
	}
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
}

// tick is what the kernel counts processor time in (USER_HZ).
const tick = 10 * time.Millisecond

// cpu is the processor time of a process, with that of children which ended if gone.
func cpu(pid int, gone bool) (d time.Duration) {
	fields := statOf(pid)
	to := 13
	if gone {
		to = 15
	}
	for i := 11; i < to && i < len(fields); i++ {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		d += time.Duration(n) * tick
	}
	return d
}

func children(of int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if fields := statOf(pid); len(fields) > 1 && fields[1] == strconv.Itoa(of) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memory is a field of a file of a process's directory, in bytes.
func memory(pid int, file, field string) (n int64) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ = strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return n << 10
}

// sizes are bytes.
type sizes struct {
	resident []int64 // of each replica
	server   int64   // what its processes share is counted once
}

func (f *fleet) sizes() (s sizes) {
	for _, pid := range f.pids() {
		s.resident = append(s.resident, memory(pid, "status", "VmRSS"))
	}
	if boss := postmaster(f.tb, f.url); boss > 0 {
		for _, pid := range append(children(boss), boss) {
			s.server += memory(pid, "smaps_rollup", "Pss")
		}
	}
	return s
}

// quantile is the q-th part of durations, in milliseconds; 0 of none.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return float64(d[min(int(q*float64(len(d))), len(d)-1)].Microseconds()) / 1000
}

// three are the quantiles that the tables show.
func three(d []time.Duration) string {
	if len(d) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s / %s / %s", short(quantile(d, .5)), short(quantile(d, .95)), short(quantile(d, .99)))
}

func short(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// rates are what a stretch of load came to, each second and each turn.
type rates struct {
	turns, commits, retries   float64 // a second; retries of a hundred tries
	perTurn                   float64 // commits
	replicas, server, network float64 // milliseconds of processor a turn
	cores                     float64 // of replicas and server
	wal                       float64 // KiB a turn
	stale                     float64 // seconds
}

func (s spell) rates() (r rates) {
	d := s.to.at.Sub(s.from.at).Seconds()
	turns := float64(s.turns)
	var commits, conflicts uint64
	for i := range s.to.dbs {
		commits += s.to.dbs[i].Commits - s.from.dbs[i].Commits
		conflicts += s.to.dbs[i].Conflicts - s.from.dbs[i].Conflicts
	}
	var own time.Duration
	for i := range s.to.replicas {
		own += s.to.replicas[i] - s.from.replicas[i]
	}
	server := s.to.server - s.from.server
	r.turns, r.commits, r.perTurn = turns/d, float64(commits)/d, float64(commits)/turns
	r.retries = 100 * float64(conflicts) / float64(max(conflicts+commits, 1))
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / turns }
	r.replicas, r.server, r.network = ms(own), ms(server), ms(s.to.network-s.from.network)
	r.cores = (own + server).Seconds() / d
	r.stale = (s.to.stale - s.from.stale).Seconds()
	r.wal = float64(s.to.wal-s.from.wal) / 1024 / turns
	return r
}

// slowCommit makes every commit that writes wait, as a synchronous standby or a disk far
// away does: a trigger that runs last in the transaction, when its rows are written.
func slowCommit(tb testing.TB, s *pgtest.Server, d time.Duration) {
	tb.Helper()
	s.Exec(tb, fmt.Sprintf(`CREATE OR REPLACE FUNCTION countersign.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(%f); RETURN NULL; END'`, d.Seconds()))
	s.Exec(tb, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON countersign.receipt DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.n > 0) EXECUTE FUNCTION countersign.slow()`)
}
