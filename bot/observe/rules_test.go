package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"countersign/agent/llm"
	"countersign/approvals/audit"
	"countersign/approvals/risk"
)

// Files for those who run the bot. They are beside the chart, which embeds them.
var (
	alertsFile    = filepath.Join("..", "..", "charts", "countersign", "files", "alerts.yaml")
	dashboardFile = filepath.Join("..", "..", "charts", "countersign", "files", "dashboard.json")
	pageFile      = filepath.Join("..", "..", "docs", "metrics-alerts.md")
	recordFile    = filepath.Join("..", "..", "bot", "health", "metrics.go")
)

// known is what there is: metric, label, values. Labels without values may have any.
type known map[string]map[string][]string

// free are the labels whose values depend on the configuration, or on what happens.
var free = []string{"model", "tool", "adapter", "version", "revision", "goversion", "anchor", "hash", "le", "quantile"}

// exposed counts everything in every way there is and reads the registry, so that it has each
// metric with each value that its labels can have.
func exposed(t *testing.T) known {
	t.Helper()
	k := known{}
	for _, f := range families(t) {
		names := []string{f.GetName()}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
		}
		for _, name := range names {
			k[name] = labels(f)
			if strings.HasSuffix(name, "_bucket") {
				k[name]["le"] = nil
			}
		}
	}
	for _, r := range record(t) {
		k[r.name] = r.labels
	}
	// What Prometheus makes itself of each target.
	k["up"] = map[string][]string{}
	for name := range k {
		k[name]["job"], k[name]["instance"] = nil, nil
	}
	return k
}

// labels are those of a metric with the values that they can have.
func labels(f *dto.MetricFamily) map[string][]string {
	k := map[string][]string{}
	for _, one := range f.GetMetric() {
		for _, l := range one.GetLabel() {
			if name := l.GetName(); slices.Contains(free, name) {
				k[name] = nil
			} else if !slices.Contains(k[name], l.GetValue()) {
				k[name] = append(k[name], l.GetValue())
			}
		}
	}
	return k
}

// families are the metrics of the registry, each counted in every way there is.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	o, _ := observer(t, Config{
		Models: []string{"m"}, KnownTool: func(string) bool { return true },
		Adapters: func() map[string]error { return map[string]error{"slack": nil} },
		OnCall: func() map[string]time.Duration {
			return map[string]time.Duration{"oncall(pagerduty P123, level 1)": time.Second}
		},
		Lag: func(context.Context) (map[string]time.Duration, error) {
			return map[string]time.Duration{"otlp collector:4318": 3 * time.Second}, nil
		},
		Queue: func(context.Context) (int, error) { return 1, nil },
	})
	m := o.metrics
	for _, r := range append(endReasons(), "what comes next year") {
		m.turnEnded(turnEnded{reason: r, at: at(2), turn: &turn{began: at(1)}})
	}
	for _, out := range []string{modelOK, modelStopped, modelTimeout, modelTooLong, modelLimited, modelUnauthorized, modelRefused, modelServer, modelSilent, modelOther} {
		m.modelCalled("m", out, time.Second, time.Second, 1, llm.Usage{In: 1, Out: 1, Cached: 1, Reasoning: 1}, 1)
	}
	for _, out := range outcomes() {
		m.toolRan("run_shell", out, time.Second)
		if out != Left { // of runs only
			m.toolEnded("run_shell", out)
		}
	}
	for _, l := range []risk.Level{risk.Unknown, risk.Read, risk.Low, risk.Medium, risk.High, risk.Critical} {
		for _, d := range append(decisions(), "what comes next year") {
			m.waitEnded(levelLabel(l.String()), d, time.Second)
		}
	}
	reg := prometheus.NewRegistry()
	if err := o.Register(reg); err != nil {
		t.Fatal(err)
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// described is a metric of the record of decisions.
type described struct {
	name, help string
	labels     map[string][]string
}

// record are the metrics of the record of decisions, which the program itself has. It can't be
// imported, so they are read from its source.
func record(t *testing.T) (all []described) {
	t.Helper()
	src, err := parser.ParseFile(token.NewFileSet(), recordFile, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(src, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 {
			return true
		}
		if fn, ok := call.Fun.(*ast.SelectorExpr); !ok || fn.Sel.Name != "NewDesc" {
			return true
		}
		d := described{name: text(call.Args[0]), help: text(call.Args[1]), labels: map[string][]string{}}
		if list, ok := call.Args[2].(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				label := text(e)
				d.labels[label] = nil
				if label == "what" {
					d.labels[label] = append(audit.Known(), "other")
				}
			}
		}
		all = append(all, d)
		return true
	})
	if !slices.ContainsFunc(all, func(d described) bool { return d.name == "countersign_approvals_total" && d.labels["what"] != nil }) {
		t.Fatalf("%s describes %d metrics, and countersign_approvals_total with its label must be one: this test reads the wrong file", recordFile, len(all))
	}
	return all
}

var writeMetrics = flag.Bool("update", false, "write the list of metrics in docs/metrics.md")

// TestTheListOfMetricsIsCurrent: the table in the document is what the bot exposes.
func TestTheListOfMetricsIsCurrent(t *testing.T) {
	var rows []string
	row := func(name, kind, help string, labels map[string][]string) {
		var of []string
		for _, l := range slices.Sorted(maps.Keys(labels)) {
			values := slices.Sorted(slices.Values(labels[l]))
			of = append(of, strings.TrimSuffix("`"+l+"`: "+strings.Join(values, ", "), ": "))
		}
		if name == "countersign_approvals_total" {
			of = []string{"`what`"} // the audit record's own list, which is long
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", name, kind, strings.Join(of, "; "), help))
	}
	for _, f := range families(t) {
		if name := f.GetName(); !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			row(name, strings.ToLower(f.GetType().String()), f.GetHelp(), labels(f))
		}
	}
	for _, d := range record(t) {
		kind := "gauge"
		if strings.HasSuffix(d.name, "_total") {
			kind = "counter"
		}
		row(d.name, kind, d.help, d.labels)
	}
	slices.Sort(rows)
	const head = "| metric | type | labels | what it counts |\n|---|---|---|---|\n"
	path := filepath.Join("..", "..", "docs", "metrics.md")
	page := string(read(t, path))
	before, rest, ok := strings.Cut(page, head)
	if !ok {
		t.Fatalf("%s has no table that begins with %s", path, head)
	}
	_, after, _ := strings.Cut(rest, "\n\n")
	want := before + head + strings.Join(rows, "\n") + "\n\n" + after
	if want == page {
		return
	}
	if !*writeMetrics {
		t.Fatalf("%s is not what the bot exposes; run go test ./bot/observe -run ListOfMetrics -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// text is the value of a string in source, "" for anything else.
func text(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

// matcher is one comparison of a label in a selector.
type matcher struct{ label, op, value string }

// selector is one metric that an expression reads.
type selector struct {
	metric   string
	matchers []matcher
}

// query is what an expression names. It is no parser of PromQL: whether Prometheus
// understands the expression is tested beside the chart, with Prometheus' own.
type query struct {
	selectors []selector
	groups    []string // labels of by, on, ignoring and so on
}

var (
	lexemes = regexp.MustCompile(`^(?:\s+|"(?:[^"\\]|\\.)*"|\$?[A-Za-z_:][A-Za-z0-9_:]*|[0-9][0-9a-z.]*|=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},\[\]])`)
	window  = regexp.MustCompile(`^(?:[0-9]+[smhdw]|\$__(?:rate_interval|interval|range))$`)

	operators = []string{"and", "or", "unless", "bool", "offset"}
	groupings = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	functions = []string{
		"sum", "min", "max", "avg", "count", "topk", "rate", "increase", "changes", "absent", "time", "last_over_time", "max_over_time",
		"min_over_time", "histogram_quantile",
	}
)

func readQuery(expr string) (query, error) {
	var words []string
	for rest := expr; rest != ""; {
		w := lexemes.FindString(rest)
		if w == "" {
			return query{}, fmt.Errorf("%q is nothing that this test knows", rest)
		}
		rest = rest[len(w):]
		if strings.TrimSpace(w) != "" {
			words = append(words, w)
		}
	}
	var q query
	peek := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	until := func(i int, end string) (inside []string, next int, err error) {
		for ; i < len(words); i++ {
			if words[i] == end {
				return inside, i + 1, nil
			}
			inside = append(inside, words[i])
		}
		return nil, 0, fmt.Errorf("there is no %s", end)
	}
	open := 0
	for i := 0; i < len(words); {
		w := words[i]
		switch {
		case w == "(":
			open, i = open+1, i+1
		case w == ")":
			open, i = open-1, i+1
			if open < 0 {
				return query{}, errors.New("there is a ) too many")
			}
		case w == "[":
			inside, next, err := until(i+1, "]")
			if err != nil {
				return query{}, err
			}
			if !window.MatchString(strings.Join(inside, "")) {
				return query{}, fmt.Errorf("%q is no window of time", inside)
			}
			i = next
		case w == "{":
			return query{}, errors.New("there is a selector without a metric")
		case slices.Contains(groupings, w):
			if peek(i+1) != "(" {
				return query{}, fmt.Errorf("%s has no labels", w)
			}
			inside, next, err := until(i+2, ")")
			if err != nil {
				return query{}, err
			}
			for _, l := range inside {
				if l != "," {
					q.groups = append(q.groups, l)
				}
			}
			i = next
		case slices.Contains(operators, w):
			i++
		case slices.Contains(functions, w) && (peek(i+1) == "(" || slices.Contains(groupings, peek(i+1))):
			i++
		case regexp.MustCompile(`^[A-Za-z_:]`).MatchString(w):
			s := selector{metric: w}
			i++
			if peek(i) == "{" {
				inside, next, err := until(i+1, "}")
				if err != nil {
					return query{}, err
				}
				for ; len(inside) > 0; inside = inside[min(len(inside), 4):] {
					if len(inside) < 3 || len(inside) > 3 && inside[3] != "," {
						return query{}, fmt.Errorf("the selector of %s has %q", w, inside)
					}
					value, err := strconv.Unquote(inside[2])
					if err != nil {
						return query{}, fmt.Errorf("%q is no value", inside[2])
					}
					s.matchers = append(s.matchers, matcher{inside[0], inside[1], value})
				}
				i = next
			}
			q.selectors = append(q.selectors, s)
		default: // numbers, arithmetic, comparisons, commas
			i++
		}
	}
	if open != 0 {
		return query{}, errors.New("there is a ( too many")
	}
	if len(q.selectors) == 0 {
		return query{}, errors.New("it reads no metric")
	}
	return q, nil
}

// faults are what a query names and the bot does not have.
func (k known) faults(expr string) []string {
	q, err := readQuery(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	labels := map[string]bool{}
	for _, s := range q.selectors {
		has, ok := k[s.metric]
		if !ok {
			out = append(out, fmt.Sprintf("there is no metric %s", s.metric))
			continue
		}
		for l := range has {
			labels[l] = true
		}
		for _, m := range s.matchers {
			values, ok := has[m.label]
			if !ok {
				out = append(out, fmt.Sprintf("%s has no label %s", s.metric, m.label))
				continue
			}
			if values == nil {
				continue
			}
			wanted := []string{m.value}
			if strings.HasSuffix(m.op, "~") {
				wanted = strings.Split(m.value, "|")
			}
			for _, v := range wanted {
				if !slices.Contains(values, v) {
					out = append(out, fmt.Sprintf("the label %s of %s is never %q, only %q", m.label, s.metric, v, values))
				}
			}
		}
	}
	for _, g := range q.groups {
		if !labels[g] {
			out = append(out, fmt.Sprintf("no metric of it has the label %s", g))
		}
	}
	return out
}

func TestTheReaderOfQueriesSeesMistakes(t *testing.T) {
	k := exposed(t)
	for _, tt := range []struct{ rule, expr, want string }{
		{"a metric that is not there", `countersign_turn_total`, "there is no metric countersign_turn_total"},
		{"a histogram without its suffix", `countersign_tool_duration_seconds`, "there is no metric"},
		{"a label that is not there", `countersign_turns_total{result="failed"}`, "has no label result"},
		{"a value that is not there", `countersign_turns_total{outcome="error"}`, `is never "error"`},
		{"one value of several", `sum(rate(countersign_turns_total{outcome=~"failed|error"}[5m]))`, `is never "error"`},
		{"a value that is excluded", `countersign_turns_total{outcome!="fine"}`, `is never "fine"`},
		{"a run's value at a result", `countersign_tool_calls_total{outcome="left"}`, `is never "left"`},
		{"a value of the record", `countersign_approvals_total{what="glass"}`, `is never "glass"`},
		{"a second metric", `countersign_queue_depth / nothing`, "there is no metric nothing"},
		{"a group", `sum by (thread) (countersign_queue_depth)`, "the label thread"},
		{"a bucket as a label elsewhere", `countersign_queue_depth{le="1"}`, "has no label le"},
		{"a function", `deriv(countersign_queue_depth[5m])`, "there is no metric deriv"},
		{"a window", `rate(countersign_turns_total[5 minutes])`, "no window"},
		{"what is not closed", `sum(countersign_queue_depth`, "( too many"},
		{"what is closed twice", `countersign_queue_depth)`, ") too many"},
		{"what is not closed in a selector", `countersign_turns_total{outcome="failed"`, "there is no }"},
		{"no metric", `1 > 0`, "no metric"},
		{"a selector alone", `{job="x"}`, "without a metric"},
		{"what is no PromQL", `countersign_queue_depth ; drop`, "nothing that this test knows"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := strings.Join(k.faults(tt.expr), "; "); !strings.Contains(got, tt.want) {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
	fine := `histogram_quantile(0.9, sum by (job, le) (rate(countersign_tool_duration_seconds_bucket{tool="a b",outcome=~"ok|left"}[5m]))) > 1.5
		and on (job) up == 0 unless on (job) countersign_queue_depth offset 1h`
	if f := k.faults(fine); len(f) > 0 {
		t.Errorf("a query without mistakes has %q", f)
	}
}

type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert  string `yaml:"alert"`
	Expr   string `yaml:"expr"`
	For    string `yaml:"for"`
	Labels struct {
		Severity string `yaml:"severity"`
	} `yaml:"labels"`
	Annotations struct {
		Summary     string `yaml:"summary"`
		Description string `yaml:"description"`
	} `yaml:"annotations"`
}

func TestAlertsAskForWhatThereIs(t *testing.T) {
	k := exposed(t)
	raw := read(t, alertsFile)
	page := string(read(t, pageFile))
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	var all rules
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("there is more than one document: %v", err)
	}
	names, groups := map[string]bool{}, map[string]bool{}
	for _, g := range all.Groups {
		if g.Name == "" || groups[g.Name] || len(g.Rules) == 0 {
			t.Errorf("the group %q has no name, no rules, or is there twice", g.Name)
		}
		groups[g.Name] = true
		for _, r := range g.Rules {
			t.Run(r.Alert, func(t *testing.T) {
				if !regexp.MustCompile(`^Countersign[A-Z][A-Za-z]+$`).MatchString(r.Alert) || names[r.Alert] {
					t.Errorf("the name %q is there twice, or not like CountersignDown", r.Alert)
				}
				names[r.Alert] = true
				for _, f := range k.faults(r.Expr) {
					t.Errorf("%s\n%s", f, r.Expr)
				}
				if r.For != "" && !window.MatchString(r.For) {
					t.Errorf("%q is no time to wait", r.For)
				}
				if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels.Severity) {
					t.Errorf("the severity is %q", r.Labels.Severity)
				}
				said := k.annotation(t, r, r.Annotations.Summary)
				if !strings.HasSuffix(said, ".") || strings.Count(said, ". ") > 0 || len(said) > 120 {
					t.Errorf("the summary is not one short sentence: %q", said)
				}
				if said := k.annotation(t, r, r.Annotations.Description); len(said) < 40 || !strings.HasSuffix(said, ".") {
					t.Errorf("the description does not say what to do: %q", said)
				}
				if !strings.Contains(page, "`"+r.Alert+"`") {
					t.Errorf("%s does not name it", pageFile)
				}
			})
		}
	}
	for _, m := range regexp.MustCompile("`(Countersign[A-Z][A-Za-z]+)`").FindAllStringSubmatch(page, -1) {
		if !names[m[1]] {
			t.Errorf("%s names the alert %s, which is not there", pageFile, m[1])
		}
	}
}

// annotation fills a template in as Prometheus does. Labels that the query takes away are not
// there.
func (k known) annotation(t *testing.T, r rule, source string) string {
	t.Helper()
	q, err := readQuery(r.Expr)
	if err != nil {
		return source // said already
	}
	labels := map[string]string{}
	if aggregates := regexp.MustCompile(`^\s*(?:histogram_quantile\([0-9.]+, )?(?:sum|min|max|count) by \(([a-z, ]*)\)`).FindStringSubmatch(r.Expr); aggregates != nil {
		for l := range strings.SplitSeq(aggregates[1], ", ") {
			if l != "le" {
				labels[l] = "some-" + l
			}
		}
	} else if !strings.HasPrefix(r.Expr, "absent(") {
		for l := range k[q.selectors[0].metric] {
			labels[l] = "some-" + l
		}
	}
	human := func(v any) string { return fmt.Sprint(v) }
	tmpl, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"humanize": human, "humanize1024": human, "humanizeDuration": human, "humanizePercentage": human,
	}).Parse("{{$labels := .Labels}}{{$value := .Value}}" + source)
	if err != nil {
		t.Errorf("the annotation is no template: %v", err)
		return source
	}
	var b strings.Builder
	if err := tmpl.Execute(&b, map[string]any{"Labels": labels, "Value": 12.5}); err != nil {
		t.Errorf("the annotation uses what the alert does not have: %v", err)
	}
	return b.String()
}

type dashboard struct {
	ID            *int   `json:"id"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name       string          `json:"name"`
			Type       string          `json:"type"`
			Definition string          `json:"definition"`
			Datasource json.RawMessage `json:"datasource"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int             `json:"id"`
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Datasource  json.RawMessage `json:"datasource"`
	Grid        struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Datasource json.RawMessage `json:"datasource"`
		Expr       string          `json:"expr"`
		RefID      string          `json:"refId"`
		Instant    bool            `json:"instant"`
		Range      bool            `json:"range"`
	} `json:"targets"`
	Panels []panel `json:"panels"`
}

func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	k := exposed(t)
	raw := read(t, dashboardFile)
	var d dashboard
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if d.ID != nil || d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
		t.Errorf("id, uid, title or schemaVersion are %v, %q, %q, %d", d.ID, d.UID, d.Title, d.SchemaVersion)
	}
	variables := []string{"__rate_interval", "__interval", "__range"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			byVariable(t, "the variable "+v.Name, v.Datasource)
			m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if m == nil {
				t.Errorf("the variable %s is %q", v.Name, v.Definition)
			} else if _, ok := k[m[1]][m[2]]; !ok {
				t.Errorf("%s has no label %s", m[1], m[2])
			}
		}
	}
	for _, want := range []string{"datasource", "instance"} {
		if !slices.Contains(variables, want) {
			t.Errorf("there is no variable %s", want)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllSubmatch(raw, -1) {
		if !slices.Contains(variables, string(m[1])) && string(m[1]) != "__all" {
			t.Errorf("the variable %s is used and not there", m[1])
		}
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			if p.ID <= 0 || ids[p.ID] {
				t.Errorf("the id %d is none, or there twice", p.ID)
			}
			ids[p.ID] = true
			g := p.Grid
			if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
				t.Fatalf("its place %+v is not within 24 columns", g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("it covers %q at column %d, line %d", other, x, y)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Title == "" || len(p.Panels) > 0 {
				t.Error("it has no title, or panels inside, which this test does not look at")
			}
			if p.Type == "row" {
				if g.W != 24 || len(p.Targets) > 0 {
					t.Error("a row is 24 columns wide and shows nothing")
				}
				return
			}
			if !slices.Contains([]string{"timeseries", "stat", "table", "state-timeline"}, p.Type) || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("it is a %q; it has no description, no unit, or shows nothing", p.Type)
			}
			byVariable(t, "the panel", p.Datasource)
			refs := map[string]bool{}
			for _, target := range p.Targets {
				byVariable(t, "a target", target.Datasource)
				if target.RefID == "" || refs[target.RefID] || target.Instant == target.Range {
					t.Errorf("the target %q is there twice, or is neither or both of now and over time", target.RefID)
				}
				refs[target.RefID] = true
				for _, f := range k.faults(target.Expr) {
					t.Errorf("%s\n%s", f, target.Expr)
				}
				q, err := readQuery(target.Expr)
				if err != nil {
					continue // said already
				}
				for _, s := range q.selectors {
					if !slices.Contains(s.matchers, matcher{"instance", "=~", "$instance"}) {
						t.Errorf("%s is not of the bots that were chosen\n%s", s.metric, target.Expr)
					}
				}
			}
		})
	}
}

// byVariable checks that people choose the source of data.
func byVariable(t *testing.T, what string, raw json.RawMessage) {
	t.Helper()
	var ds struct{ Type, UID string }
	if err := json.Unmarshal(raw, &ds); err != nil || ds.Type != "prometheus" || ds.UID != "${datasource}" {
		t.Errorf("the source of %s is %s, want the variable", what, raw)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
