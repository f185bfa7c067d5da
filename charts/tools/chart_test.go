package tools

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// pod is a pod of the chart, whatever makes it.
type pod struct {
	name   string
	labels map[string]string
	spec   corev1.PodSpec
}

func pods(r release) []pod {
	var out []pod
	for _, s := range all[*appsv1.StatefulSet](r) {
		out = append(out, pod{"StatefulSet " + s.Name, s.Spec.Template.Labels, s.Spec.Template.Spec})
	}
	for _, d := range all[*appsv1.Deployment](r) {
		out = append(out, pod{"Deployment " + d.Name, d.Spec.Template.Labels, d.Spec.Template.Spec})
	}
	for _, p := range all[*corev1.Pod](r) {
		out = append(out, pod{"Pod " + p.Name, p.Labels, p.Spec})
	}
	return out
}

func containers(s corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(s.InitContainers), s.Containers...)
}

// The Pod Security Standard "restricted", and what the chart promises beyond it.
// https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
// D-05: the pods of the chart keep to the standard "restricted".
func TestPodsKeepToTheRestrictedStandard(t *testing.T) {
	for _, r := range releases(t) {
		list := pods(r)
		if len(list) == 0 {
			t.Errorf("%s has no pods", r.name)
		}
		for _, p := range list {
			at := r.name + ": " + p.name
			s := p.spec
			if s.HostNetwork || s.HostPID || s.HostIPC || (s.ShareProcessNamespace != nil && *s.ShareProcessNamespace) {
				t.Errorf("%s shares namespaces", at)
			}
			sc := s.SecurityContext
			if sc == nil || !yes(sc.RunAsNonRoot) || sc.SeccompProfile == nil || sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Fatalf("%s: the pod's security context is not restricted: %+v", at, sc)
			}
			if len(sc.Sysctls) > 0 {
				t.Errorf("%s sets sysctls", at)
			}
			if openshift := strings.HasPrefix(r.name, "openshift"); openshift != (sc.RunAsUser == nil) || openshift != (sc.FSGroup == nil) {
				t.Errorf("%s: user %v, fsGroup %v: both belong to the platform on OpenShift, and there only", at, sc.RunAsUser, sc.FSGroup)
			}
			if sc.RunAsUser != nil && *sc.RunAsUser == 0 {
				t.Errorf("%s runs as root", at)
			}
			if sc.FSGroupChangePolicy == nil || *sc.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch {
				t.Errorf("%s lets each start open the store's files to the group", at)
			}
			for _, v := range s.Volumes {
				src := v.VolumeSource
				if src.ConfigMap == nil && src.Secret == nil && src.EmptyDir == nil && src.PersistentVolumeClaim == nil && src.Projected == nil {
					t.Errorf("%s: the volume %s is of a kind that is not restricted", at, v.Name)
				}
				if src.Secret != nil && (src.Secret.DefaultMode == nil || *src.Secret.DefaultMode != 0o440) {
					t.Errorf("%s: the secrets of the volume %s are not of mode 0440", at, v.Name)
				}
			}
			for _, c := range containers(s) {
				restricted(t, at+": "+c.Name, c)
			}
			needsToken := len(all[*rbacv1.Role](r)) > 0
			if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken != needsToken {
				t.Errorf("%s: a token is mounted exactly when rights were asked for", at)
			}
		}
	}
}

func restricted(t *testing.T, at string, c corev1.Container) {
	t.Helper()
	sc := c.SecurityContext
	switch {
	case sc == nil:
		t.Errorf("%s has no security context", at)
		return
	case sc.Privileged != nil && *sc.Privileged, sc.AllowPrivilegeEscalation == nil, *sc.AllowPrivilegeEscalation:
		t.Errorf("%s can get privileges", at)
	case !yes(sc.ReadOnlyRootFilesystem):
		t.Errorf("%s can write its image", at)
	case sc.Capabilities == nil, !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}), len(sc.Capabilities.Add) > 0:
		t.Errorf("%s has capabilities", at)
	case sc.RunAsNonRoot != nil && !*sc.RunAsNonRoot, sc.RunAsUser != nil && *sc.RunAsUser == 0:
		t.Errorf("%s may run as root", at)
	case sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount:
		t.Errorf("%s has another /proc", at)
	case sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined:
		t.Errorf("%s has no seccomp profile", at)
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			t.Errorf("%s takes a port of the node", at)
		}
	}
}

func yes(b *bool) bool { return b != nil && *b }

func TestSelectorsMeetTheirPods(t *testing.T) {
	for _, r := range releases(t) {
		bot := bot(t, r)
		in := labels.Set(bot.pod.Labels)
		match := func(what string, sel *metav1.LabelSelector, set labels.Set, want bool) {
			t.Helper()
			s, err := metav1.LabelSelectorAsSelector(sel)
			if err != nil {
				t.Fatal(err)
			}
			if s.Empty() || s.Matches(set) != want {
				t.Errorf("%s: the selector of the %s is %s and should match %v: %v", r.name, what, s, set, want)
			}
		}
		match(bot.kind, bot.selector, in, true)
		for _, s := range all[*corev1.Service](r) {
			match("Service", &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, in, true)
			for _, p := range all[*corev1.Pod](r) {
				match("Service", &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, p.Labels, false)
				match(bot.kind, bot.selector, p.Labels, false)
			}
			for _, port := range s.Spec.Ports {
				if !slices.ContainsFunc(bot.pod.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool { return c.Name == port.TargetPort.StrVal }) {
					t.Errorf("%s: the Service's port %s leads to no port of the bot", r.name, port.Name)
				}
			}
		}
		for _, b := range all[*policyv1.PodDisruptionBudget](r) {
			match("PodDisruptionBudget", b.Spec.Selector, in, true)
			if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() != 1 {
				t.Errorf("%s: the budget blocks drains, or lets several replicas go at once", r.name)
			}
		}
		for _, np := range all[*networkingv1.NetworkPolicy](r) {
			match("NetworkPolicy", &np.Spec.PodSelector, in, true)
			for _, p := range all[*corev1.Pod](r) {
				match("NetworkPolicy", &np.Spec.PodSelector, p.Labels, true)
			}
		}
		if bot.set != nil && r.objects["Service "+bot.set.Spec.ServiceName] == nil {
			t.Errorf("%s: the StatefulSet's Service %q is not there", r.name, bot.set.Spec.ServiceName)
		}
	}
}

func TestNamesAndLabelsAreOnesThatAClusterTakes(t *testing.T) {
	for _, r := range releases(t) {
		for key, o := range r.objects {
			if e := validation.IsDNS1123Subdomain(o.GetName()); len(e) > 0 || len(o.GetName()) > 63 {
				t.Errorf("%s: %s: %v", r.name, key, e)
			}
			if o.GetNamespace() != "ops" && !strings.Contains(o.GetName(), "-as-a-") {
				t.Errorf("%s: %s is in the namespace %q and not in the release's", r.name, key, o.GetNamespace())
			}
			for k, v := range o.GetLabels() {
				if e := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(e) > 0 {
					t.Errorf("%s: %s: label %s=%s: %v", r.name, key, k, v, e)
				}
			}
		}
	}
}

// What a pod names must be rendered, or come from whoever installs the chart.
func TestWhatPodsMountIsThere(t *testing.T) {
	given := []string{"countersign", "countersign-ssh", "countersign-kept", "countersign-plugins"}
	for _, r := range releases(t) {
		for _, p := range pods(r) {
			has := func(kind, name string) {
				if r.objects[kind+" "+name] == nil && !slices.Contains(given, name) {
					t.Errorf("%s: %s mounts the %s %s, which is not there", r.name, p.name, kind, name)
				}
			}
			for _, v := range p.spec.Volumes {
				switch {
				case v.ConfigMap != nil:
					has("ConfigMap", v.ConfigMap.Name)
				case v.Secret != nil:
					has("Secret", v.Secret.SecretName)
					s, _ := r.objects["Secret "+v.Secret.SecretName].(*corev1.Secret)
					for _, i := range v.Secret.Items {
						if s != nil && len(s.Data[i.Key]) == 0 {
							t.Errorf("%s: %s takes %s from a Secret that has it not", r.name, p.name, i.Key)
						}
					}
				case v.PersistentVolumeClaim != nil:
					has("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName)
				}
			}
			for _, c := range containers(p.spec) {
				seen := map[string]bool{}
				for _, e := range c.Env {
					if seen[e.Name] {
						t.Errorf("%s: %s sets %s twice", r.name, p.name, e.Name)
					}
					seen[e.Name] = true
				}
				for _, m := range c.VolumeMounts {
					if !slices.ContainsFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
						t.Errorf("%s: %s mounts %s, which is no volume of its pod", r.name, p.name, m.Name)
					}
				}
			}
		}
		for _, c := range all[*corev1.PersistentVolumeClaim](r) {
			if c.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: the claim %s goes with the release", r.name, c.Name)
			}
		}
	}
}

// No secret is a variable's value, an argument or part of the configuration.
func TestSecretsAreFilesOnly(t *testing.T) {
	for _, r := range releases(t) {
		secret := map[string]bool{}
		for _, s := range all[*corev1.Secret](r) {
			for name, v := range s.Data {
				secret[name] = true
				if len(v) == 0 {
					t.Errorf("%s: the secret %s is empty", r.name, name)
				}
			}
		}
		for _, p := range pods(r) {
			for _, c := range containers(p.spec) {
				for _, e := range c.Env {
					if secret[e.Name] || strings.Contains(e.Value, "made-up") {
						t.Errorf("%s: %s has the secret %s in its environment", r.name, p.name, e.Name)
					}
				}
			}
		}
		for _, c := range all[*corev1.ConfigMap](r) {
			for name, text := range c.Data {
				if strings.Contains(text, "made-up") {
					t.Errorf("%s: a secret is in the file %s", r.name, name)
				}
			}
		}
	}
}

func TestMetadataServicesStayClosed(t *testing.T) {
	denied := []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")}
	seen := 0
	for _, r := range releases(t) {
		for _, np := range all[*networkingv1.NetworkPolicy](r) {
			if !slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || !slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
				t.Errorf("%s: the network policy leaves a direction open", r.name)
			}
			for _, rule := range np.Spec.Ingress {
				if len(rule.Ports) == 0 {
					t.Errorf("%s: every port of the bot can be reached", r.name)
				}
			}
			for _, rule := range np.Spec.Egress {
				if len(rule.To) == 0 || len(rule.Ports) == 0 {
					t.Errorf("%s: a rule of egress lets everything out", r.name)
				}
				for _, to := range rule.To {
					if to.IPBlock == nil {
						continue
					}
					seen++
					block := netip.MustParsePrefix(to.IPBlock.CIDR)
					open := slices.DeleteFunc(slices.Clone(denied), func(a netip.Addr) bool { return !block.Contains(a) })
					for _, e := range to.IPBlock.Except {
						except := netip.MustParsePrefix(e)
						if !block.Contains(except.Addr()) || except.Bits() <= block.Bits() {
							t.Errorf("%s: %s does not lie within %s, which a cluster refuses", r.name, e, block)
						}
						open = slices.DeleteFunc(open, except.Contains)
					}
					if len(open) > 0 {
						t.Errorf("%s: %s lets the bot reach %v", r.name, block, open)
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no network policy was looked at")
	}
}

func TestProbesAndTimesAreThoseOfTheBot(t *testing.T) {
	for _, r := range releases(t) {
		s := bot(t, r)
		i := slices.IndexFunc(s.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "bot" })
		if i != 0 {
			t.Fatalf("%s: the first container is not the bot", r.name)
		}
		c := s.pod.Spec.Containers[0]
		for what, p := range map[string]*corev1.Probe{"/healthz startup": c.StartupProbe, "/healthz liveness": c.LivenessProbe, "/readyz readiness": c.ReadinessProbe} {
			path, _, _ := strings.Cut(what, " ")
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "http" {
				t.Errorf("%s: the probe %s is %+v", r.name, what, p)
			}
		}
		if c.Ports[0].Name != "http" || c.Ports[0].ContainerPort != 8700 {
			t.Errorf("%s: the console's port is %+v", r.name, c.Ports[0])
		}
		// Running steps 10 s, last messages 3 s, traces 5 s, plugins and servers about 11 s; a
		// replica also takes up to 3 s to leave the others.
		need := int64(29)
		if s.deployment != nil {
			need += 3
			if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil || len(c.Lifecycle.PreStop.Exec.Command) != 2 {
				t.Fatalf("%s: the pod ends before the cluster knows: %+v", r.name, c.Lifecycle)
			}
			wait, err := strconv.ParseInt(c.Lifecycle.PreStop.Exec.Command[1], 10, 64)
			if err != nil || wait < 1 {
				t.Errorf("%s: the pod ends before the cluster knows: %v", r.name, c.Lifecycle.PreStop.Exec.Command)
			}
			need += wait
		}
		if g := s.pod.Spec.TerminationGracePeriodSeconds; g == nil || *g < need {
			t.Errorf("%s: the bot has too little time to end in order: %v, and needs %d", r.name, g, need)
		}
	}
}

// TestTheBotTakesEachConfiguration runs the program over each file that is rendered for it.
func TestTheBotTakesEachConfiguration(t *testing.T) {
	list := releases(t)
	program := os.Getenv("CHART_BOT")
	if program == "" {
		t.Skip("CHART_BOT is not set; run charts/check with the path of a bot")
	}
	for _, r := range list {
		t.Run(r.name, func(t *testing.T) {
			checked := 0
			for _, c := range all[*corev1.ConfigMap](r) {
				text, ok := c.Data["countersign.yaml"]
				if !ok {
					continue
				}
				checked++
				file := filepath.Join(t.TempDir(), "countersign.yaml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), program, "config", "print")
				cmd.Env = []string{"HOME=" + t.TempDir(), "COUNTERSIGN_CONFIG=" + file}
				if bot(t, r).deployment != nil {
					url := filepath.Join(t.TempDir(), "url")
					if err := os.WriteFile(url, []byte("postgres://u:made-up@h/d\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					cmd.Env = append(cmd.Env, "COUNTERSIGN_STORE_FILE="+url)
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s\n%s", err, out, text)
				}
				if strings.Contains(string(out), "made-up") {
					t.Errorf("the bot shows the database's URL: %s", out)
				}
			}
			if checked != 1 {
				t.Fatalf("%d files of configuration are rendered, and should be one", checked)
			}
		})
	}
}

// rules is the file of alerts, as Prometheus reads it.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert  string `json:"alert"`
			Record string `json:"record"`
			Expr   string `json:"expr"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestEveryExpressionOfTheAlertsParses(t *testing.T) {
	b, err := os.ReadFile("../countersign/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f rules
	if err := yaml.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			n++
			if _, err := promQL.ParseExpr(r.Expr); err != nil {
				t.Errorf("%s: %s%s: %v in %s", g.Name, r.Alert, r.Record, err, r.Expr)
			}
		}
	}
	if n == 0 {
		t.Error("there are no rules")
	}
}

var (
	promQL = parser.NewParser(parser.Options{})
	// durations are the variables of Grafana that stand where PromQL has a duration; all
	// others of the dashboard stand within quotes.
	durations = regexp.MustCompile(`\$\{?__(rate_interval|interval|range)\}?`)
)

func TestEveryExpressionOfTheDashboardParses(t *testing.T) {
	b, err := os.ReadFile("../countersign/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if e, ok := v["expr"].(string); ok {
				n++
				if _, err := promQL.ParseExpr(durations.ReplaceAllString(e, "5m")); err != nil {
					t.Errorf("%v in %s", err, e)
				}
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(doc)
	if n == 0 {
		t.Error("there are no expressions")
	}
}
