package observe

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/risk"
)

// scrapeLimit bounds how long counting the queue may take for a scrape.
const scrapeLimit = 5 * time.Second

// Buckets, in seconds. Those of model calls are the advice of the conventions; people
// take longer than programs.
func callBuckets() []float64 {
	return []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
}
func firstBuckets() []float64 {
	return []float64{0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80}
}
func toolBuckets() []float64  { return []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800} }
func humanBuckets() []float64 { return []float64{1, 5, 15, 30, 60, 120, 300, 900, 3600, 14400, 86400} }

// Values of labels that stand for what is not in a list.
const (
	unknownTool  = "unknown"
	otherModel   = "other"
	otherOutcome = "other"
)

// maxTools bounds the tools that are labels: a foreign server may change its list for
// ever.
const maxTools = 500

// Directions of [Observer.Labels].
const (
	modelLower  = "model_lower"
	modelHigher = "model_higher"
	modelSame   = "same"
)

type metrics struct {
	models []string
	tools  bounded

	turns, tokens, toolCalls, cost, retries, labels, held *prometheus.CounterVec
	turnTime, modelTime, firstTime, toolTime, waits       *prometheus.HistogramVec
	others                                                []prometheus.Collector
}

func newMetrics(cfg Config) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		models: slices.Clone(cfg.Models),
		tools:  bounded{known: cfg.KnownTool, seen: map[string]bool{}},

		turns: counter("countersign_turns_total", "Turns that ended, by how.", "outcome"),
		turnTime: seconds("countersign_turn_duration_seconds", "From the first message of a turn to its end, waiting for people included. Turns whose beginning the bot doesn't know don't count.",
			humanBuckets(), "outcome"),
		tokens: counter("gen_ai_client_token_usage_total",
			"Tokens as the provider counts them. Cached ones are a part of input, reasoning a part of output: don't add all four.", "type", "model"),
		modelTime: seconds("gen_ai_client_operation_duration_seconds", "Model calls with all their retries.", callBuckets(), "model", "outcome"),
		firstTime: seconds("gen_ai_client_operation_time_to_first_chunk_seconds",
			"From the request to the first text of the reply that counts. Replies without text have none.", firstBuckets(), "model"),
		retries: counter("countersign_model_retries_total", "Replies that were started again.", "model"),
		cost: counter("countersign_model_cost_usd_total", "What replies cost in US dollars, as the provider says or, where it doesn't, "+
			"by the price table.", "model"),
		toolCalls: counter("countersign_tool_calls_total", "Tool calls that have a result, by how they ended. Failed ones include those that couldn't be planned, were refused by "+
			"the policy, or were never decided. Skipped ones were answered without running, unknown ones may or may not have happened.", "tool", "outcome"),
		toolTime: seconds("countersign_tool_duration_seconds", "Runs of tools, without planning and waiting.", toolBuckets(), "tool", "outcome"),
		waits: seconds("countersign_approval_wait_seconds", "From asking people to their decision. What is settled had no vote: a standing grant, the next step of a "+
			"plan, or the policy.", humanBuckets(), "level", "decision"),
		labels: counter("countersign_label_mismatch_total",
			"Actions with a risk label of the model, by how it compares with the analyzer's. Lower is a lower risk, a change that isn't "+
				"named, or raised privileges that aren't.", "direction"),
		held: counter("countersign_reads_held_total", "Commands that were proven to only read and tried to change something, which "+
			"their lock refused. Each is a wrong proof.", "tool"),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "countersign_build_info", Help: "The program that runs. Always 1."},
		[]string{"version", "revision", "goversion"})
	build.WithLabelValues(orUnknown(cfg.Version), orUnknown(cfg.Revision), runtime.Version()).Set(1)
	m.others = []prometheus.Collector{
		build, newScrape(cfg),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	// What can be counted is there from the start, so that a first event is an increase.
	for _, r := range endReasons() {
		m.turns.WithLabelValues(string(r))
	}
	for _, d := range []string{modelLower, modelHigher, modelSame} {
		m.labels.WithLabelValues(d)
	}
	m.held.WithLabelValues("run_shell")
	for _, model := range m.models {
		m.retries.WithLabelValues(model)
		m.cost.WithLabelValues(model)
	}
	return m
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// Register adds all metrics to a registry, with those of the process and of Go. An error
// names the metric that is there already.
func (o *Observer) Register(reg prometheus.Registerer) error {
	m := o.metrics
	all := []prometheus.Collector{m.turns, m.turnTime, m.tokens, m.modelTime, m.firstTime, m.retries, m.cost, m.toolCalls, m.toolTime, m.waits, m.labels, m.held}
	for _, c := range append(all, m.others...) {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("observe: a metric cannot be registered: %w", err)
		}
	}
	return nil
}

func endReasons() []history.EndReason {
	return []history.EndReason{history.EndDone, history.EndStopped, history.EndLimit, history.EndFailed}
}

func (m *metrics) turnEnded(f turnEnded) {
	outcome := string(f.reason)
	if !slices.Contains(endReasons(), f.reason) {
		outcome = otherOutcome
	}
	m.turns.WithLabelValues(outcome).Inc()
	if f.turn != nil {
		m.turnTime.WithLabelValues(outcome).Observe(max(0, f.at.Sub(f.turn.began)).Seconds())
	}
}

func (m *metrics) toolEnded(tool string, outcome Outcome) {
	m.toolCalls.WithLabelValues(m.tools.label(tool), string(outcome)).Inc()
}

func (m *metrics) toolRan(tool string, outcome Outcome, took time.Duration) {
	m.toolTime.WithLabelValues(m.tools.label(tool), string(outcome)).Observe(took.Seconds())
}

// decisions are the values of the label decision.
func decisions() []string {
	return []string{
		string(approvals.Approved), decisionSettled, string(approvals.Denied), string(approvals.Expired), string(approvals.Cancelled),
		string(approvals.Invalid), decisionEdited,
	}
}

func (m *metrics) waitEnded(level, decision string, took time.Duration) {
	if !slices.Contains(decisions(), decision) {
		decision = otherOutcome
	}
	m.waits.WithLabelValues(level, decision).Observe(took.Seconds())
}

// levelLabel keeps the label level to the levels there are.
func levelLabel(level string) string { return risk.ParseLevel(level).String() }

func (m *metrics) modelCalled(model, outcome string, took, first time.Duration, retries int, u llm.Usage, cost float64) {
	if !slices.Contains(m.models, model) {
		model = otherModel
	}
	m.modelTime.WithLabelValues(model, outcome).Observe(took.Seconds())
	if outcome == modelOK && first > 0 {
		m.firstTime.WithLabelValues(model).Observe(first.Seconds())
	}
	m.retries.WithLabelValues(model).Add(float64(retries))
	for kind, n := range map[string]int{"input": u.In, "output": u.Out, "cached": u.Cached, "reasoning": u.Reasoning} {
		if n > 0 {
			m.tokens.WithLabelValues(kind, model).Add(float64(n))
		}
	}
	if cost > 0 { // a counter panics when it is to sink
		m.cost.WithLabelValues(model).Add(cost)
	}
}

// Labels counts how the model's own labels of an action compare with what the engine
// found: lower when it named a lower risk, or left out a change that the engine cannot
// exclude, or raised privileges that it saw; higher the other way round; lower when it is
// both. Actions without labels do not count. The model knows three levels: the engine's
// read and low are its low; high, critical and not known are its high.
func (o *Observer) Labels(c approvals.Claim, engine approvals.Judgement) {
	if !c.Given {
		return
	}
	model, found := claimedRank(c.Risk), engineRank(risk.ParseLevel(engine.Risk))
	privileges := slices.Contains(engine.Effects, string(risk.EffectPrivesc))
	direction := modelSame
	switch {
	case model < found || !c.Mutation && !engine.ReadOnly || !c.Privesc && privileges:
		direction = modelLower
	case model > found || c.Mutation && engine.ReadOnly || c.Privesc && !privileges:
		direction = modelHigher
	}
	o.metrics.labels.WithLabelValues(direction).Inc()
}

func claimedRank(word string) int {
	switch word {
	case "", "low":
		return 1
	case "medium":
		return 2
	}
	return 3
}

func engineRank(l risk.Level) int {
	switch l {
	case risk.Read, risk.Low:
		return 1
	case risk.Medium:
		return 2
	default:
		return 3
	}
}

// bounded keeps a label to names that are known, and to maxTools of them.
type bounded struct {
	known func(string) bool

	mu   sync.Mutex
	seen map[string]bool
}

func (b *bounded) label(name string) string {
	if b.known == nil || !b.known(name) {
		return unknownTool
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.seen[name] {
		if len(b.seen) >= maxTools {
			return unknownTool
		}
		b.seen[name] = true
	}
	return name
}

// scrape reads, at each scrape, what is not counted.
type scrape struct {
	adapters        func() map[string]error
	queue           func(context.Context) (int, error)
	lag             func(context.Context) (map[string]time.Duration, error)
	onCall          func() map[string]time.Duration
	connected, deep *prometheus.Desc
	waits, age      *prometheus.Desc
}

func newScrape(cfg Config) *scrape {
	return &scrape{
		adapters: cfg.Adapters, queue: cfg.Queue, lag: cfg.Lag, onCall: cfg.OnCall,
		connected: prometheus.NewDesc("countersign_adapter_connected", "Whether a chat network can hear people: 1, else 0.", []string{"adapter"}, nil),
		deep:      prometheus.NewDesc("countersign_queue_depth", "Items that wait in the inboxes of threads.", nil, nil),
		waits:     prometheus.NewDesc("countersign_delivery_lag_seconds", "How long the oldest message that a webhook or a receiver of the stream has not taken waits.", []string{"receiver"}, nil),
		age:       prometheus.NewDesc("countersign_oncall_age_seconds", "How old the newest answer about who is on call is.", []string{"schedule"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.connected
	ch <- s.deep
	ch <- s.waits
	ch <- s.age
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	if s.adapters != nil {
		for name, err := range s.adapters() {
			up := 1.0
			if err != nil {
				up = 0
			}
			ch <- prometheus.MustNewConstMetric(s.connected, prometheus.GaugeValue, up, name)
		}
	}
	if s.onCall != nil {
		for schedule, age := range s.onCall() {
			ch <- prometheus.MustNewConstMetric(s.age, prometheus.GaugeValue, age.Seconds(), schedule)
		}
	}
	// The interface hands over no context.
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	if s.lag != nil {
		all, err := s.lag(ctx)
		if err != nil {
			ch <- prometheus.NewInvalidMetric(s.waits, err)
		}
		for receiver, lag := range all {
			ch <- prometheus.MustNewConstMetric(s.waits, prometheus.GaugeValue, lag.Seconds(), receiver)
		}
	}
	if s.queue == nil {
		return
	}
	n, err := s.queue(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(s.deep, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(s.deep, prometheus.GaugeValue, float64(n))
}
