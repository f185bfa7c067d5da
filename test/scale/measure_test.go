//go:build linux

package scale

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"countersign/store"
	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
)

const (
	warm = 5 * time.Second
	// reserve is how many stored threads are kept for what needs threads of its own.
	reserve    = 2000
	held       = 250 // threads that a replica has at work when it is killed
	noticed    = 60  // owners that have to notice something
	counted    = 40  // turns of each kind whose transactions are counted
	commitWait = 2 * time.Millisecond
)

// campaign is one run of TestMeasure.
type campaign struct {
	t      *testing.T
	out    io.Writer
	server *pgtest.Server
	url    string
	rows   *stored
	most   int // active threads
	stored int // threads that are stored now, without the reserve
	used   int // of the reserve
	rate   float64
}

// TestMeasure measures; it takes a quarter of an hour, and an idle machine.
func TestMeasure(t *testing.T) {
	if !*big {
		t.Skip("measures only with -scale.run")
	}
	c := &campaign{t: t, out: os.Stdout, rate: *rate}
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c.out = io.MultiWriter(os.Stdout, f)
	}
	do := func(part string) bool { return slices.Contains(strings.Split(*parts, ","), part) }
	stores, actives := numbers(t, *stores), numbers(t, *actives)
	c.most = slices.Max(actives)
	c.say("%s, %d processors, load %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), load())
	conf := []string{"shared_buffers = " + *buffers, "max_wal_size = 4GB", "checkpoint_timeout = 15min", "autovacuum_naptime = 10s"}
	if statements() {
		conf = append(conf, "shared_preload_libraries = 'pg_stat_statements'", "pg_stat_statements.track = none")
	}
	c.server = pgtest.New(t, conf...)
	c.url = c.server.URL("")
	c.rows = played(t)
	c.rows.fill(t, c.url, 0, 1)
	c.say("PostgreSQL %d, shared_buffers %s; a lone commit takes %s ms (p50 / p95 / p99)", ask(t, c.url, `SELECT current_setting('server_version_num')::bigint`)/10000, *buffers, three(c.lone()))
	c.say("a stored thread: %d entries, %d rows", c.rows.entries, len(c.rows.own)+len(c.rows.hashed))

	var cols []column
	for _, n := range stores {
		per := c.grow(n)
		if do("stored") {
			cols = append(cols, c.loaded(fmt.Sprint(n), c.most, true, per))
		}
	}
	if do("stored") {
		c.table(fmt.Sprintf("%d active, stored beside them", c.most), cols)
	}
	if do("active") {
		c.pacing()
		cols = nil
		for _, n := range actives {
			cols = append(cols, c.loaded(fmt.Sprint(n), n, false, 0))
		}
		c.table(fmt.Sprintf("%d stored, active of them", c.stored), cols)
	}
	if do("delay") {
		slowCommit(t, c.server, commitWait)
		was := c.rate
		c.rate = 0 // a share of what is possible then
		c.table(fmt.Sprintf("%d stored, %d active", c.stored, c.most), []column{c.loaded(fmt.Sprintf("each commit waits %v", commitWait), c.most, true, 0)})
		c.rate = was
		c.server.Exec(t, `DROP FUNCTION countersign.slow CASCADE`)
	}
	if do("burst") {
		c.burst(actives)
	}
	if do("hints") {
		c.hints()
	}
	if do("takeover") {
		c.takeover()
	}
	if do("commits") {
		c.commits()
	}
	if do("profile") {
		c.profile()
	}
	c.say("\nload at the end: %s", load())
}

func (c *campaign) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func numbers(t *testing.T, list string) (all []int) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%q is no list of numbers", list)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func load() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

func statements() bool {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/lib/pg_stat_statements.so")
	return len(found) > 0
}

// lone is what a transaction of one row takes when nothing else happens.
func (c *campaign) lone() (took []time.Duration) {
	db, err := postgres.Open(c.t.Context(), postgres.Options{URL: c.url, NoHints: true})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	for n := range uint64(300) {
		began := time.Now()
		if err := db.Update(c.t.Context(), func(tx store.Tx) error { tx.Set(store.Key("lone"), store.Key(n)); return nil }); err != nil {
			c.t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}

// grow stores threads until there are n beside the active ones, and returns what one takes
// in the database, in bytes.
func (c *campaign) grow(n int) (per int64) {
	had, want := c.stored, c.most+n
	if want <= had {
		return 0
	}
	before := ask(c.t, c.url, `SELECT pg_total_relation_size('countersign.kv')`)
	began := time.Now()
	if had == 0 { // the reserve comes first: its place stays
		c.rows.fill(c.t, c.url, 0, reserve)
	}
	c.rows.fill(c.t, c.url, reserve+had, reserve+want)
	c.stored = want
	took := time.Since(began)
	after := ask(c.t, c.url, `SELECT pg_total_relation_size('countersign.kv')`)
	added := want - had
	if had == 0 {
		added += reserve
	}
	c.server.Exec(c.t, `VACUUM ANALYZE countersign.kv`)
	c.server.Exec(c.t, `CHECKPOINT`)
	fmt.Fprintf(os.Stderr, "%d threads stored in %v\n", added, took.Round(100*time.Millisecond))
	return (after - before) / int64(added)
}

// fleet starts replicas as the flags say.
func (c *campaign) fleet(change func(*options)) *fleet {
	o := options{replicas: *replicas, writers: *writers, readers: *readers}
	if change != nil {
		change(&o)
	}
	f := startFleet(c.t, c.url, o)
	f.check()
	return f
}

func (c *campaign) active(f *fleet, n int) *cycle {
	return f.active(n, c.stored, *approved, reserve)
}

// spare are n stored threads that nobody used yet.
func (c *campaign) spare(n int) (first int) {
	first = c.used
	if c.used += n; c.used > reserve {
		c.t.Fatal("more threads are needed than were kept")
	}
	return first
}

// line is one figure of a column.
type line struct{ name, value string }

// column is what was measured under one load.
type column struct {
	name  string
	lines []line
}

func (c *column) add(name, format string, args ...any) {
	c.lines = append(c.lines, line{name, fmt.Sprintf(format, args...)})
}

// table shows columns side by side. All have the same lines.
func (c *campaign) table(what string, cols []column) {
	heads := []string{what}
	for _, col := range cols {
		heads = append(heads, col.name)
	}
	c.say("\n| %s |\n|%s", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for i, l := range cols[0].lines {
		cells := []string{l.name}
		for _, col := range cols {
			cells = append(cells, col.lines[i].value)
		}
		c.say("| %s |", strings.Join(cells, " | "))
	}
}

// loaded measures one column: saturation where that is asked for, and a paced load.
func (c *campaign) loaded(name string, n int, saturation bool, per int64) (col column) {
	f := c.fleet(nil)
	defer f.stop()
	threads := c.active(f, n)
	col.name = name
	if saturation {
		r := f.saturate(threads, *flight, warm, *lasting).rates()
		col.add("saturated: turns/s", "%.1f", r.turns)
		col.add("commits/s", "%.0f", r.commits)
		col.add("commits a turn", "%.1f", r.perTurn)
		col.add("of a hundred tries, retried", "%.1f", r.retries)
		col.add("CPU ms a turn, replicas + server", "%.1f + %.1f", r.replicas, r.server)
		col.add("WAL KiB a turn", "%.0f", r.wal)
		if c.rate == 0 {
			c.rate = r.turns * float64(*share) / 100
		}
	}
	pace := c.rate * float64(n) / float64(c.most) // each thread thinks as long, however many there are
	d := *lasting
	if *turnAll {
		d = max(d, time.Duration(float64(n)/pace*float64(time.Second)))
	}
	s := f.pace(threads, pace, warm, d)
	if s.late > 0 {
		fmt.Fprintf(os.Stderr, "%d turns could not begin: all threads were busy\n", s.late)
	}
	r := s.rates()
	size := f.sizes()
	col.add("paced: turns/s", "%.1f", r.turns)
	col.add("of a hundred tries, retried", "%.1f", r.retries)
	col.add("processors busy", "%.2f", r.cores)
	col.add("CPU ms a turn, replicas + server", "%.1f + %.1f", r.replicas, r.server)
	col.add("message accepted, ms", "%s", three(s.accept))
	col.add("message to reply, ms", "%s", three(s.answer))
	col.add("message to card, ms", "%s", three(s.card))
	col.add("click accepted, ms", "%s", three(s.press))
	col.add("click to run, ms", "%s", three(s.begin))
	col.add("memory of each replica, MB", "%s", megabytes(size.resident...))
	col.add("of the server, MB", "%s", megabytes(size.server))
	if per > 0 {
		col.add("a stored thread in the database, KB", "%.1f", float64(per)/1000)
	}
	f.check()
	fmt.Fprintf(os.Stderr, "%s: %v, load %s\n", name, col.lines, load())
	return col
}

func megabytes(n ...int64) string {
	var out []string
	for _, b := range n {
		out = append(out, fmt.Sprint(b>>20))
	}
	return strings.Join(out, ", ")
}

// pacing makes sure that the rate of the paced load is known.
func (c *campaign) pacing() {
	if c.rate == 0 {
		f := c.fleet(nil)
		defer f.stop()
		r := f.saturate(c.active(f, c.most), *flight, warm, *lasting).rates()
		c.rate = r.turns * float64(*share) / 100
		c.say("\nsaturated: %.1f turns/s, so the paced load has %.1f", r.turns, c.rate)
	}
}

func (c *campaign) burst(actives []int) {
	c.say("\n| active, all write at the same moment | accepted ms | all answered after s | turns/s | CPU ms a turn, replicas + server | of a hundred tries, retried | a replica too slow to be sure that it lives, s |\n|---|---|---|---|---|---|---|")
	for _, n := range actives {
		f := c.fleet(nil)
		s, took := f.burst(f.active(n, c.stored, 0, reserve))
		r := s.rates()
		c.say("| %d | %s | %.1f | %.1f | %.1f + %.1f | %.1f | %.1f |", n, three(s.accept), took.Seconds(), float64(s.turns)/took.Seconds(), r.replicas, r.server, r.retries, r.stale)
		f.stop()
	}
}

func (c *campaign) hints() {
	c.pacing()
	c.say("\n| a busy owner notices, ms (p50 / p95 / p99) | message at another replica | stop at another replica |\n|---|---|---|")
	f := c.fleet(nil)
	n := f.notice(c.spare(noticed), noticed, 1, true)
	c.say("| nothing else happens | %s | %s |", three(n.heard), three(n.stopped))
	var load sync.WaitGroup
	load.Go(func() { f.pace(c.active(f, c.most), c.rate, 0, 15*time.Second) })
	time.Sleep(warm)
	n = f.notice(c.spare(noticed), noticed, 2, true)
	load.Wait()
	f.check()
	c.say("| beside the paced load | %s | %s |", three(n.heard), three(n.stopped))
	f.stop()
	f = c.fleet(func(o *options) { o.noHints = true })
	n = f.notice(c.spare(noticed), noticed, 20, false)
	c.say("| without hints, by polls | when the step is over | %s |", three(n.stopped))
	f.check()
	f.stop()
}

func (c *campaign) takeover() {
	c.say("\n| a replica is killed in the middle of %d threads | first went on after s | half | last | all answered |\n|---|---|---|---|---|", held)
	f := c.fleet(nil)
	defer f.stop()
	for range 2 {
		went, answered := f.takeover(c.spare(2*held), held, 0)
		if f.check(); len(went) < held {
			c.t.Fatalf("only %d threads were at work at the replica", len(went))
		}
		c.say("| nothing else happens | %.2f | %.2f | %.2f | %.2f |", went[0].Seconds(), went[len(went)/2].Seconds(), went[len(went)-1].Seconds(), answered.Seconds())
		f.start(0)
		f.check()
	}
}

// byTime are the places whose transactions come with time and not with turns.
var byTime = []string{"replica.", "agent.Agent.ready", "outbox.run.collect", "outbox.Sender.Flush"}

// commits counts the transactions of turns that have a replica for themselves.
func (c *campaign) commits() {
	f := c.fleet(func(o *options) { o.replicas, o.ledger = 1, true })
	defer f.stop()
	for _, kind := range []byte{looks, cards} {
		first := c.spare(counted)
		<-f.say(f.talkOf(first), kind, 0).over
		time.Sleep(time.Second) // what comes after the answer
		f.books()
		for i := 1; i < counted; i++ {
			<-f.say(f.talkOf(first+i), kind, 0).over
		}
		time.Sleep(time.Second)
		what := map[byte]string{looks: "message, look, answer", cards: "message, look, card, click, change, answer"}[kind]
		c.ledger("a turn with nothing beside it: "+what, f.books(), counted-1, byTime)
	}
	f.check()
}

// books are the ledgers of all replicas in one, since the last time.
func (f *fleet) books() map[string]cost {
	all := map[string]cost{}
	for _, r := range f.all(order{Do: "look", Text: "books"}, "sight") {
		if r.Sight == nil {
			continue
		}
		for where, x := range r.Sight.Ledger {
			all[where] = all[where].plus(x)
		}
	}
	return all
}

// ledger is a table of a book, for each turn.
func (c *campaign) ledger(what string, book map[string]cost, turns int, without []string) {
	c.say("\n| %s | Updates | tries of them | commits | Views | exchanges with the server | rows written |\n|---|---|---|---|---|---|---|", what)
	line := func(name string, x cost) {
		n := float64(turns)
		c.say("| %s | %.2f | %.2f | %.2f | %.2f | %.1f | %.1f |", name, float64(x.Updates)/n, float64(x.Tries)/n, float64(x.Commits)/n, float64(x.Views)/n, float64(x.Trips)/n, float64(x.Rows)/n)
	}
	var sum cost
	for _, where := range slices.SortedFunc(maps.Keys(book), func(a, b string) int { return book[b].Trips - book[a].Trips }) {
		if slices.ContainsFunc(without, func(p string) bool { return strings.HasPrefix(where, p) }) {
			continue
		}
		line("`"+where+"`", book[where])
		sum = sum.plus(book[where])
	}
	line("**in all**", sum)
}

// profile says where the time goes at saturation: by transaction, of the replicas as
// profiles, of the server by statement.
func (c *campaign) profile() {
	f := c.fleet(func(o *options) { o.ledger = true })
	threads := c.active(f, c.most)
	f.books()
	s := f.saturate(threads, *flight, 0, *lasting)
	c.ledger(fmt.Sprintf("a turn at saturation, %.1f a second", s.rates().turns), f.books(), s.turns+f.collect().turns, nil)
	f.check()
	f.stop()
	f = c.fleet(nil)
	defer f.stop()
	threads = c.active(f, c.most)
	if statements() {
		c.server.Exec(c.t, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
		c.server.Exec(c.t, `ALTER SYSTEM SET pg_stat_statements.track = 'all'`)
		c.server.Exec(c.t, `SELECT pg_reload_conf()`)
	}
	if *profiles != "" {
		for n := range f.replicas {
			f.ask(n, order{Do: "profile", Text: filepath.Join(*profiles, fmt.Sprintf("replica%d.cpu", n)), On: true}, "profiled")
		}
	}
	if statements() {
		c.server.Exec(c.t, `SELECT pg_stat_statements_reset()`)
	}
	s = f.saturate(threads, *flight, 0, *lasting)
	if *profiles != "" {
		for n := range f.replicas {
			f.ask(n, order{Do: "profile"}, "profiled")
		}
	}
	r, turns := s.rates(), float64(s.turns+f.collect().turns)
	c.say("\nprofiled, saturated: %.1f turns/s, CPU ms a turn: replicas %.1f, server %.1f, the network's double %.1f", r.turns, r.replicas, r.server, r.network)
	if !statements() {
		return
	}
	c.say("\n| statement | calls a turn | mean ms | ms a turn | rows a call |\n|---|---|---|---|---|")
	conn, err := pgx.Connect(context.Background(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), `SELECT left(regexp_replace(query, '\s+', ' ', 'g'), 90), calls, mean_exec_time, total_exec_time, rows FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 16`)
	if err != nil {
		c.t.Fatal(err)
	}
	var query string
	var calls, n int64
	var mean, total float64
	if _, err := pgx.ForEachRow(rows, []any{&query, &calls, &mean, &total, &n}, func() error {
		c.say("| `%s` | %.1f | %.3f | %.2f | %.1f |", strings.ReplaceAll(query, "|", "\\|"), float64(calls)/turns, mean, total/turns, float64(n)/float64(calls))
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	c.server.Exec(c.t, `ALTER SYSTEM RESET pg_stat_statements.track`)
	c.server.Exec(c.t, `SELECT pg_reload_conf()`)
	f.check()
}
