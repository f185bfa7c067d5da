package impact

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"countersign/approvals/argv"
	"countersign/test/needstest"
)

// The flags of programs as they define them: "s,name" has a value, "name!" is a switch, and "name=x" has the value x
// without "=" (NoOptDefVal): the next word is none of its own.
const (
	kubectlFlags = "n,namespace context cluster kubeconfig s,server token user username password profile profile-output as as-group as-uid as-user-extra cache-dir certificate-authority client-certificate client-key " +
		"tls-server-name request-timeout v,v vmodule log-flush-frequency disable-compression! insecure-skip-tls-verify! match-server-version! warnings-as-errors! kuberc"
	manifestFlags = kubectlFlags + " f,filename k,kustomize R,recursive! dry-run=unchanged validate=strict cascade=background field-manager field-validation force! force-conflicts! server-side! grace-period " +
		"o,output overwrite! openapi-patch! prune! prune-allowlist l,selector show-managed-fields! template timeout wait! all! allow-missing-template-keys! save-config! edit! raw windows-line-endings! subresource record!"
	getFlags  = kubectlFlags + " l,selector field-selector A,all-namespaces! ignore-not-found! no-headers! o,output"
	helmFlags = "n,namespace kube-context kubeconfig kube-apiserver kube-as-user kube-as-group kube-ca-file kube-token kube-tls-server-name kube-insecure-skip-tls-verify! registry-config repository-cache repository-config debug! burst-limit qps max o,output revision"
	boxFlags  = "c,context H,host D,debug! l,log-level tls! tlscacert tlscert tlskey tlsverify! config f,format s,size! type"
)

// flagSet is the library that these programs read their arguments with.
func flagSet(table string) *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	for d := range strings.FieldsSeq(table) {
		short, name, ok := strings.Cut(d, ",")
		if !ok {
			short, name = "", d
		}
		if n, is := strings.CutSuffix(name, "!"); is {
			f.BoolP(n, short, false, "")
			continue
		}
		name, def, may := strings.Cut(name, "=")
		f.VarP(&values{}, name, short, "")
		if may {
			f.Lookup(name).NoOptDefVal = def
		}
	}
	return f
}

// values are all values of a flag.
type values struct{ all []string }

func (v *values) Set(s string) error {
	v.all = append(v.all, s)
	return nil
}
func (v *values) String() string { return strings.Join(v.all, "\n") }
func (*values) Type() string     { return "text" }

// flagsSet are the names of the flags that arguments set.
func flagsSet(f *pflag.FlagSet) (names []string) {
	f.Visit(func(x *pflag.Flag) { names = append(names, x.Name) })
	return names
}

// checkSimulation reads a simulation as its program does, and says why it may be none.
func checkSimulation(s Simulation) string {
	words := s.Argv()
	switch words[0] {
	case "kubectl":
		f := flagSet(manifestFlags)
		if err := f.Parse(words[1:]); err != nil {
			return err.Error()
		}
		for _, name := range flagsSet(f) {
			switch name {
			case "dry-run":
				if f.Lookup(name).Value.String() != "server" { // the only one
					return "it is no dry run"
				}
			case "namespace", "context", "cluster", "filename", "field-manager", "validate", "server-side", "force-conflicts":
			default:
				return "it has --" + name
			}
		}
		if !f.Changed("dry-run") || len(f.Args()) != 1 || !slices.Contains([]string{"apply", "create", "replace"}, f.Arg(0)) || !s.Server() {
			return "it is no dry run of a manifest"
		}
	case "apt-get":
		if words[len(words)-1] != "--simulate" || s.Server() {
			return "it is no simulation"
		}
		for _, w := range words[1:] {
			if w[0] == '-' && strings.ContainsAny(w, "=:") || w == "-o" || w == "-c" || w == "--" {
				return "it has " + w
			}
		}
	default:
		return "nothing is known of it"
	}
	return ""
}

// checkRead reads a text that asks a cluster, or an engine, as its program does, and says what it should not have.
func checkRead(text string) string {
	text = strings.TrimPrefix(text, "cd -- /srv/app/ && ")
	cmd, ok := argv.Parse(text)
	if !ok || !cmd.Literal || len(cmd.Argv) == 0 {
		return ""
	}
	var words []string
	for _, w := range cmd.Argv {
		words = append(words, w.Text)
	}
	var table, may string
	switch words[0] {
	case "kubectl":
		table, may = getFlags, "namespace context cluster selector field-selector all-namespaces ignore-not-found no-headers output"
	case "helm":
		table, may = helmFlags, "namespace kube-context max"
	case "docker":
		if slices.Contains(words, "compose") {
			return ""
		}
		table, may = boxFlags, "context format"
	default:
		return ""
	}
	f := flagSet(table)
	if err := f.Parse(words[1:]); err != nil {
		return err.Error()
	}
	for _, name := range flagsSet(f) {
		if !slices.Contains(strings.Fields(may), name) {
			return "it has --" + name
		}
	}
	return ""
}

// strange are words that could mean something else where they stand.
var strange = []string{
	"--dry-run=none", "--dry-run", "none", "--dry-run=server", "--kubeconfig=/tmp/evil", "--kubeconfig", "/tmp/evil", "--server=http://evil", "-s", "-shttp://evil", "--token=x",
	"--validate", "--validate=--dry-run=none", "--validate=", "--validate=strict", "--cascade", "--cascade=--dry-run=none", "-f", "--filename", "-f=a.yaml", "-fa.yaml", "a.yaml", "-f--dry-run=none",
	"--field-manager", "--field-manager=--dry-run=none", "-n", "--namespace=x", "-n--kubeconfig=/tmp/evil", "-n=--kubeconfig=/tmp/evil", "--context", "--context=c1", "--context=", "--cluster=--server=evil", "c1",
	"-R", "--recursive", "--server-side", "--server-side=false", "--force-conflicts", "--timeout", "--timeout=1s", "--wait", "--", "-", "", "-o", "-o=yaml", "-l", "-lapp=x", "--all", "-H", "--host=evil", "-c",
	"--kube-context", "--kube-context=--kubeconfig=/tmp/evil", "--kube-apiserver=evil", "-i", "--set", "--set=a=b", "--version", "-v", "-t", "--time=1", "web", "deploy/web", "pods", "nginx", "-qq", "-y", "--purge", "-o=Dpkg::x",
	"APT::Get::Simulate=false", "--no-simulate", "--context=a,b", "a b", "$(id)", "'", "\"", "\\", "*",
}

// checkWords has a command of these words spoken of, and checks all that this asks.
func checkWords(t interface {
	Errorf(string, ...any)
	Fatalf(string, ...any)
}, words []string) (asked int) {
	text, ok := Commands(words)
	if !ok {
		return 0
	}
	var ran [][]string
	f := &fakeRunner{t: t, always: &reply{out: "Deployment web prod 3\n"}}
	s := simulator{f, "x created (server dry run)\n", &ran}
	Of(context.Background(), shell(text), proves, s)
	BackFrom(context.Background(), shell(text), proves, s)
	for _, command := range f.ran {
		if why := checkRead(command); why != "" {
			t.Fatalf("%s: %s: %s", text, why, command)
		}
	}
	return len(ran)
}

// Whatever the words of a command are, its program reads the simulation of it as one, and looks at nothing but
// what the table lets it name.
func TestASimulationIsReadAsOneWhateverTheCommandsWords(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		begin := rapid.SampledFrom([][]string{
			{"kubectl", "apply", "-f", "a.yaml"}, {"kubectl", "create", "-fa.yaml"}, {"kubectl", "replace", "--filename=a.yaml"}, {"kubectl", "scale", "deploy/web", "--replicas=1"}, {"kubectl"},
			{"kubectl", "delete", "pods"}, {"kubectl", "drain"}, {"helm", "upgrade", "web"}, {"helm", "uninstall", "web"}, {"docker", "stop"}, {"docker"}, {"apt-get", "install"}, {"apt-get", "-y", "remove", "nginx"},
		}).Draw(t, "begin")
		word := rapid.OneOf(rapid.SampledFrom(strange), rapid.StringMatching(`(--?[a-z-]{1,9}=?)?[ -~]{0,6}`))
		asked += checkWords(t, slices.Concat(begin, rapid.SliceOfN(word, 0, 6).Draw(t, "words")))
	})
	if asked == 0 {
		t.Error("none of the commands was simulated")
	}
}

func FuzzSimulations(f *testing.F) {
	for _, w := range strange {
		f.Add("kubectl\x00apply\x00-f\x00a.yaml\x00" + w)
		f.Add("apt-get\x00install\x00nginx\x00" + w)
		f.Add("helm\x00uninstall\x00web\x00" + w)
	}
	f.Fuzz(func(t *testing.T, words string) { checkWords(t, strings.Split(words, "\x00")) })
}

// The table of these tests is what the program itself says.
func TestTheFlagsOfKubectlAreThoseOfTheRealOne(t *testing.T) {
	needstest.Long(t)
	if _, err := exec.LookPath("kubectl"); err != nil {
		needstest.Missing(t, "kubectl is not there")
	}
	says := func(args ...string) string {
		out, _ := exec.CommandContext(t.Context(), "kubectl", args...).CombinedOutput()
		return string(out)
	}
	row := regexp.MustCompile(`(?m)^\s+(?:-(.), )?\s*--([a-z-]+)=(.*):$`)
	known, tried := flagSet(manifestFlags), map[string]bool{}
	for _, verb := range []string{"apply", "create", "replace"} {
		for _, m := range row.FindAllStringSubmatch(says(verb, "--help")+says("options"), -1) {
			short, name, def := m[1], m[2], m[3]
			flag := known.Lookup(name)
			if flag == nil {
				t.Errorf("%s: --%s isn't known", verb, name)
				continue
			}
			if isSwitch := def == "true" || def == "false"; flag.Shorthand != short || isSwitch != (flag.Value.Type() == "bool") {
				t.Errorf("%s: --%s is another one: %q", verb, name, m[0])
			}
			if tried[name] {
				continue
			}
			tried[name] = true
			// A flag that takes the next word takes the request for help.
			takes := !strings.Contains(says(verb, "--"+name, "--help"), "Usage:\n  kubectl "+verb)
			if takes != (flag.NoOptDefVal == "") {
				t.Errorf("%s: --%s takes the next word: %v", verb, name, takes)
			}
		}
	}
}
