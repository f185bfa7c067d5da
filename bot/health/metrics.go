package health

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/bot/replicas"
	"countersign/store"
)

// scrapeLimit bounds how long the store may take for a scrape.
const scrapeLimit = 5 * time.Second

// Metrics serves the metrics in the Prometheus text format. It has a
// registry of its own: nothing that a library puts into the global one shows.
func Metrics(db store.DB, others *replicas.Member, more func(prometheus.Registerer) error) (http.Handler, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newRecordCollector(db))
	if others.Shared() {
		reg.MustRegister(newReplicaCollector(others))
	}
	if err := more(reg); err != nil {
		return nil, err
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4}), nil
}

// recordCollector reads the record of decisions at each scrape: nothing is counted
// in memory, so a restart loses no count and a transaction that is run twice or
// rolled back counts as often as it happened.
type recordCollector struct {
	db                       store.DB
	head, lines, total, open *prometheus.Desc
}

func newRecordCollector(db store.DB) *recordCollector {
	return &recordCollector{
		db:    db,
		head:  prometheus.NewDesc("countersign_audit_head", "The newest anchor of the audit record: its number, and the first 12 digits of its hash. Always 1.", []string{"anchor", "hash"}, nil),
		lines: prometheus.NewDesc("countersign_audit_anchor_lines_total", "Lines of the audit record that anchors cover.", nil, nil),
		total: prometheus.NewDesc("countersign_approvals_total", "Lines of the audit record, by what happened.", []string{"what"}, nil),
		open:  prometheus.NewDesc("countersign_approvals_open", "Requests that wait for a decision, or for what was approved to run and end.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *recordCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.head, c.lines, c.total, c.open} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *recordCollector) Collect(ch chan<- prometheus.Metric) {
	// The interface hands over no context.
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	var last audit.AnchorLine
	var counts map[string]uint64
	anchored, open := false, 0
	err := c.db.View(ctx, func(tx store.Tx) error {
		last, anchored = audit.Latest(tx)
		counts, open = audit.Counts(tx), len(approvals.Ledger{}.AllOpen(tx))
		return nil
	})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.head, err)
		return
	}
	if anchored {
		ch <- prometheus.MustNewConstMetric(c.head, prometheus.GaugeValue, 1, strconv.FormatUint(last.N, 10), last.Hash[:12])
	}
	ch <- prometheus.MustNewConstMetric(c.lines, prometheus.CounterValue, float64(last.Lines))
	other := uint64(0)
	for what, n := range counts {
		if !slices.Contains(audit.Known(), what) {
			other += n
		}
	}
	// Every name is there from the start, so that a first event is an increase.
	for _, what := range audit.Known() {
		ch <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(counts[what]), what)
	}
	ch <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(other), "other")
	ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(open))
}

// replicaCollector counts this process's share of a store that several use.
type replicaCollector struct {
	r                                           *replicas.Member
	alive, commits, conflicts, faults, resolved *prometheus.Desc
}

func newReplicaCollector(r *replicas.Member) *replicaCollector {
	return &replicaCollector{
		r:         r,
		alive:     prometheus.NewDesc("countersign_replicas", "Replicas that this one considers alive, itself included. With PostgreSQL only.", nil, nil),
		commits:   prometheus.NewDesc("countersign_store_commits_total", "Transactions of this replica that changed the database. With PostgreSQL only.", nil, nil),
		conflicts: prometheus.NewDesc("countersign_store_conflicts_total", "Attempts of this replica that ran again because another transaction came first. With PostgreSQL only.", nil, nil),
		faults:    prometheus.NewDesc("countersign_store_faults_total", "Attempts of this replica that failed because the database was unreachable. With PostgreSQL only.", nil, nil),
		resolved:  prometheus.NewDesc("countersign_store_lost_answers_total", "Commits of this replica whose answer was lost, by whether their result is known now. With PostgreSQL only.", []string{"outcome"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *replicaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.alive, c.commits, c.conflicts, c.faults, c.resolved} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *replicaCollector) Collect(ch chan<- prometheus.Metric) {
	alive := 0
	for _, m := range c.r.List() {
		if m.Alive {
			alive++
		}
	}
	s := c.r.Stats()
	ch <- prometheus.MustNewConstMetric(c.alive, prometheus.GaugeValue, float64(alive))
	for d, n := range map[*prometheus.Desc]uint64{c.commits: s.Commits, c.conflicts: s.Conflicts, c.faults: s.Faults} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	ch <- prometheus.MustNewConstMetric(c.resolved, prometheus.CounterValue, float64(s.Resolved), "found")
	ch <- prometheus.MustNewConstMetric(c.resolved, prometheus.CounterValue, float64(s.Unknown), "unknown")
}
