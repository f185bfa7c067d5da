package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const storeFile = "COUNTERSIGN_STORE_FILE"

func variable(c corev1.Container, name string) (corev1.EnvVar, int) {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return corev1.EnvVar{}, i
	}
	return c.Env[i], i
}

// A StatefulSet has one replica, a file on a volume of its own and no database; a Deployment
// has a database and nothing that two pods cannot have at once.
func TestReplicasShareADatabaseAndNothingElse(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range releases(t) {
		b := bot(t, r)
		seen[b.kind] = true
		c := b.pod.Spec.Containers[0]
		url, at := variable(c, storeFile)
		if b.set != nil {
			if b.replicas > 1 || at >= 0 {
				t.Errorf("%s: %d replicas would open one file, or the file is not used: %v", r.name, b.replicas, url)
			}
			continue
		}
		mounted := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(url.Value, m.MountPath+"/") })
		if at < 0 || mounted < 0 || !c.VolumeMounts[mounted].ReadOnly {
			t.Fatalf("%s: the file of the database's URL is %q, which nothing mounts for reading", r.name, url.Value)
		}
		for _, v := range b.pod.Spec.Volumes {
			if v.Name == c.VolumeMounts[mounted].Name {
				if v.Secret == nil || len(v.Secret.Items) != 1 || c.VolumeMounts[mounted].MountPath+"/"+v.Secret.Items[0].Path != url.Value {
					t.Errorf("%s: the volume %s does not have the file %s alone", r.name, v.Name, url.Value)
				}
			}
			if v.PersistentVolumeClaim == nil {
				continue
			}
			// The chart makes no claim that pods share, and each pod has its own directory on it.
			if r.objects["PersistentVolumeClaim "+v.PersistentVolumeClaim.ClaimName] != nil {
				t.Errorf("%s: the pods share a claim of the chart's", r.name)
			}
			name, before := variable(c, "COUNTERSIGN_POD_NAME")
			dir, after := variable(c, "COUNTERSIGN_DATA_DIR")
			if before < 0 || after < before || name.ValueFrom == nil || name.ValueFrom.FieldRef == nil || name.ValueFrom.FieldRef.FieldPath != "metadata.name" ||
				!strings.HasSuffix(dir.Value, "/$(COUNTERSIGN_POD_NAME)") {
				t.Errorf("%s: the pods share the directory %s", r.name, dir.Value)
			}
			for _, m := range c.VolumeMounts {
				if m.Name == v.Name && !strings.HasPrefix(dir.Value, m.MountPath+"/") {
					t.Errorf("%s: the directory %s is not on the claim at %s", r.name, dir.Value, m.MountPath)
				}
			}
		}
		s := b.deployment.Spec.Strategy.RollingUpdate
		if s == nil || s.MaxUnavailable.IntValue()+s.MaxSurge.IntValue() != 1 {
			t.Fatalf("%s: an update goes by %+v", r.name, s)
		}
		// The bot has two sockets, and Slack gives an app ten.
		if _, sockets := variable(c, "SLACK_APP_TOKEN_FILE"); sockets >= 0 && 2*(int(b.replicas)+s.MaxSurge.IntValue()) > 10 {
			t.Errorf("%s: %d replicas and %d more during an update want more sockets than Slack gives", r.name, b.replicas, s.MaxSurge.IntValue())
		}
		for _, svc := range all[*corev1.Service](r) {
			if svc.Spec.SessionAffinity != "" && svc.Spec.SessionAffinity != corev1.ServiceAffinityNone {
				t.Errorf("%s: the Service %s ties people to a replica", r.name, svc.Name)
			}
		}
	}
	if !seen["StatefulSet"] || !seen["Deployment"] {
		t.Errorf("the files of ci render %v, and should render both", seen)
	}
}

func TestReplicasKeepApartFromEachOther(t *testing.T) {
	seen := 0
	for _, r := range releases(t) {
		b := bot(t, r)
		if b.replicas < 2 {
			continue
		}
		seen++
		match := func(what string, sel *metav1.LabelSelector) {
			s, err := metav1.LabelSelectorAsSelector(sel)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Matches(labels.Set(b.pod.Labels)) {
				t.Errorf("%s: the %s does not look at the replicas: %s", r.name, what, s)
			}
			for _, p := range all[*corev1.Pod](r) {
				if s.Matches(labels.Set(p.Labels)) {
					t.Errorf("%s: the %s looks at the pod %s, too: %s", r.name, what, p.Name, s)
				}
			}
		}
		a := b.pod.Spec.Affinity
		if a == nil || a.PodAntiAffinity == nil || len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
			t.Fatalf("%s: nothing keeps the replicas on several nodes: %+v", r.name, a)
		}
		term := a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
		match("affinity", term.LabelSelector)
		if term.TopologyKey != corev1.LabelHostname || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			t.Errorf("%s: a cluster of few nodes could not run the replicas, or they keep apart by %s", r.name, term.TopologyKey)
		}
		if len(b.pod.Spec.TopologySpreadConstraints) != 1 {
			t.Fatalf("%s: nothing spreads the replicas over zones", r.name)
		}
		z := b.pod.Spec.TopologySpreadConstraints[0]
		match("spread", z.LabelSelector)
		if z.TopologyKey != corev1.LabelTopologyZone || z.WhenUnsatisfiable != corev1.ScheduleAnyway {
			t.Errorf("%s: the replicas are spread by %s, %s", r.name, z.TopologyKey, z.WhenUnsatisfiable)
		}
	}
	if seen == 0 {
		t.Error("no file of ci has several replicas")
	}
}

func TestTheDatabaseCanBeReached(t *testing.T) {
	for _, r := range releases(t) {
		if bot(t, r).deployment == nil {
			continue
		}
		open := false
		for _, np := range all[*networkingv1.NetworkPolicy](r) {
			for _, rule := range np.Spec.Egress {
				open = open || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntValue() == 5432 })
			}
		}
		if !open {
			t.Errorf("%s: the network policy closes the database's port", r.name)
		}
	}
}

// A bot is a job of Prometheus, so two bots may not share the name of one.
func TestAServiceMonitorMakesOneJobOfABot(t *testing.T) {
	seen := 0
	for _, r := range releases(t) {
		for _, m := range all[*monitoringv1.ServiceMonitor](r) {
			for _, e := range m.Spec.Endpoints {
				seen++
				if len(e.RelabelConfigs) != 1 || e.RelabelConfigs[0].TargetLabel != "job" || *e.RelabelConfigs[0].Replacement != m.Namespace+"/"+bot(t, r).name {
					t.Errorf("%s: the job is not the bot's: %+v", r.name, e.RelabelConfigs)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no file of ci has a ServiceMonitor")
	}
}

// What the chart says of connections is what the bot has: they are its defaults, which the
// program does not change.
func TestConnectionsAreThoseOfTheBot(t *testing.T) {
	for _, tt := range []struct {
		file, pattern string
		want          []string
	}{
		{"../../store/postgres/postgres.go", `o\.(?:Writers|Readers) = (\d+)`, []string{"4", "8"}}, // and two more: 14
		{"../../adapters/slack/slack.go", `cfg\.Sockets = (\d+)`, []string{"2"}},
	} {
		b, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range regexp.MustCompile(tt.pattern).FindAllStringSubmatch(string(b), -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s has %v, want %v; the chart counts on it in NOTES.txt, in a refusal, in the Deployment and in README.md", tt.file, got, tt.want)
		}
	}
}

// ofTheStore are the metrics that every replica reads from the store they share, so each has
// them whole. All others are of one process.
var ofTheStore = []string{
	"countersign_approvals_open", "countersign_approvals_total", "countersign_audit_anchor_lines_total", "countersign_audit_head",
	"countersign_queue_depth",
}

// ofAProcess say something about one process, which several replicas do not add up to.
var ofAProcess = regexp.MustCompile(`^(up|process_.*|go_.*|countersign_build_info)$`)

// fleetFaults are what is wrong in an expression when a bot has several replicas. What is read
// from the store is taken once, by a max over the instances of a job; what processes count is
// taken together, by a group that has no instance; only what is about a process has one.
func fleetFaults(expr string) []string {
	e, err := promQL.ParseExpr(durations.ReplaceAllString(expr, "5m"))
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		var groups []*parser.AggregateExpr // from the outermost one
		for _, p := range path {
			if a, ok := p.(*parser.AggregateExpr); ok {
				groups = append(groups, a)
			}
		}
		name := v.Name
		switch {
		case slices.Contains(ofTheStore, name):
			// Whatever is done to one instance, a max over all of them is the next thing.
			groups = slices.DeleteFunc(groups, func(a *parser.AggregateExpr) bool { return slices.Contains(a.Grouping, "instance") })
			if len(groups) == 0 {
				out = append(out, fmt.Sprintf("%s counts once for each replica", name))
			} else if last := groups[len(groups)-1]; last.Op != parser.MAX || last.Without || !slices.Contains(last.Grouping, "job") {
				out = append(out, fmt.Sprintf("%s is taken together by %s of %v, which is no max of a job", name, last.Op, last.Grouping))
			}
		case ofAProcess.MatchString(name), name == "countersign_adapter_connected":
		default:
			for _, a := range groups {
				if a.Without || slices.Contains(a.Grouping, "instance") {
					out = append(out, fmt.Sprintf("%s is looked at for each replica alone", name))
				}
			}
			if len(groups) == 0 {
				out = append(out, fmt.Sprintf("%s is looked at for each replica alone", name))
			}
		}
		return nil
	})
	return out
}

func TestFleetFaultsAreSeen(t *testing.T) {
	for expr, want := range map[string]string{
		`countersign_queue_depth > 100`:                                                                             "once for each replica",
		`sum(countersign_queue_depth)`:                                                                              "no max of a job",
		`sum by (job, instance) (increase(countersign_approvals_total[1h]))`:                                        "once for each replica",
		`sum(max by (job, instance) (countersign_queue_depth))`:                                                     "no max of a job",
		`max(countersign_queue_depth)`:                                                                              "no max of a job",
		`sum by (job, instance) (rate(countersign_turns_total[5m])) > 1`:                                            "for each replica alone",
		`rate(countersign_turns_total[5m]) > 1`:                                                                     "for each replica alone",
		`max by (job) (countersign_queue_depth) > 1 and countersign_approvals_open > 1`:                             "countersign_approvals_open counts once",
		`sum(max by (job) (sum by (job, instance) (increase(countersign_approvals_total[$__range]))))`:              "",
		`max by (job) (countersign_queue_depth) > max by (job) (countersign_queue_depth offset 1h)`:                 "",
		`sum by (job) (increase(countersign_turns_total[1d])) > 1`:                                                  "",
		`go_goroutines > 1 and on (job, instance) countersign_build_info`:                                           "",
		`countersign_adapter_connected{adapter!="slack"} == 0 or max by (job) (countersign_adapter_connected) == 0`: "",
	} {
		got := strings.Join(fleetFaults(expr), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s has %q, want %q", expr, got, want)
		}
	}
}

func TestTheAlertsHoldForSeveralReplicas(t *testing.T) {
	b, err := os.ReadFile("../countersign/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f rules
	if err := yaml.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			for _, fault := range fleetFaults(r.Expr) {
				t.Errorf("%s: %s in %s", r.Alert, fault, r.Expr)
			}
		}
	}
}

func TestTheDashboardHoldsForSeveralReplicas(t *testing.T) {
	b, err := os.ReadFile("../countersign/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			n++
			for _, fault := range fleetFaults(target.Expr) {
				t.Errorf("%s: %s in %s", p.Title, fault, target.Expr)
			}
		}
	}
	if n == 0 {
		t.Error("there are no expressions")
	}
}
