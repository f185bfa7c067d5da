package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "countersign/"

// inside lists, for each of our packages, which others of ours it may import: "x" is that
// package, "x/..." it and all below. The longest row that names a package or something
// above it counts, and what no row names may import nothing of ours. Packages that serve
// tests are free; nobody else imports them.
var inside = map[string]string{
	"adapters/chat":         "",
	"adapters/chat/scribe":  "adapters/chat adapters/chat/lanes",
	"adapters/chat/face":    "adapters/chat adapters/chat/visible",
	"adapters/slack":        "adapters/chat/... adapters/slack/... internal/redact",
	"adapters/discord":      "adapters/chat/... adapters/discord/... internal/redact",
	"console/api":           "adapters/chat",
	"console":               "adapters/chat/... console/... internal/publicnet internal/redact store", // nobody else keeps that network's messages
	"adapters/chat/network": "adapters/chat",

	"agent":            "adapters/chat agent/... approvals approvals/card approvals/deed approvals/risk internal/failpoint store store/queue tools tools/output tools/plan tools/truncate",
	"agent/history":    "adapters/chat agent/llm approvals store",
	"agent/llm":        "",
	"agent/llm/openai": "agent/llm",
	"agent/prompt":     "",
	"agent/report":     "adapters/chat/... agent/history agent/llm approvals approvals/audit approvals/passkey internal/redact store store/keyring",
	"agent/role":       "approvals/risk tools tools/delegate",
	"agent/spend":      "agent/llm store",
	"agent/taint":      "internal/bash approvals/risk",
	"agent/tokens":     "",
	"agent/workflow":   "internal/bash internal/condition internal/edits",

	"alerts":        "adapters/chat/... alerts/... internal/redact store/...",
	"alerts/hook":   "alerts/notice internal/redact",
	"alerts/notice": "",

	"approvals":                  "adapters/chat approvals/passkey approvals/risk store",
	"approvals/passkey":          "",
	"approvals/passkey/register": "approvals/passkey",
	"approvals/passkey/registry": "adapters/chat approvals/passkey approvals/passkey/register store",
	"approvals/audit":            "internal/redact store",
	"approvals/argv":             "internal/bash",
	"approvals/card":             "adapters/chat approvals approvals/deed approvals/risk",
	"approvals/deed":             "approvals approvals/argv approvals/risk",
	"approvals/gate":             "adapters/chat approvals/... internal/failpoint store store/aging store/outbox store/queue",
	"approvals/oncall":           "adapters/chat adapters/chat/network approvals approvals/policy approvals/risk internal/redact internal/rest store store/mem",
	"approvals/tickets":          "approvals internal/redact internal/rest store store/mem",
	"approvals/policy":           "adapters/chat adapters/chat/network approvals approvals/risk internal/condition",
	"approvals/risk":             "internal/bash approvals/secretfile",
	"approvals/secretfile":       "",

	"store":       "",
	"store/aging": "store", "store/keyring": "store", "store/migrate": "store", "store/replica": "store",
	"store/bolt":     "store store/internal/tree",
	"store/mem":      "store store/internal/tree",
	"store/outbox":   "store store/aging",
	"store/postgres": "store store/internal/tree",
	"store/queue":    "store store/aging",

	"tools": "approvals approvals/argv approvals/risk internal/edits internal/publicnet internal/redact store tools targets/backend targets/backend/approved targets/backend/door tools/foreign tools/truncate", // and each family below
	// Machines know no tool, and terminals no machine of a kind.
	"targets/backend": "targets/backend/internal/warrant",
	// Nothing starts a process but these two, and the kit of tests.
	"targets/backend/door":             "targets/backend targets/backend/internal/warrant",
	"targets/backend/approved":         "approvals targets/backend targets/backend/door targets/backend/internal/warrant",
	"targets/backend/internal/warrant": "",
	"targets/follow":                   "targets/backend",
	"targets/local":                    "targets/backend targets/backend/door targets/follow targets/lock targets/lock/helper",
	"targets/lock":                     "targets/backend targets/lock targets/rehearsal",
	"targets/rehearsal":                "targets/backend targets/backend/door",
	"targets/receipt":                  "targets/backend targets/backend/door",
	"targets/remote":                   "targets/backend targets/follow targets/lock targets/lock/helper",
	"targets/ssh":                      "targets/certificate/stream targets/backend targets/follow targets/remote",
	"targets/container":                "targets/backend targets/backend/door targets/local targets/remote",
	"targets/tmux":                     "internal/bash targets/backend targets/backend/door",
	"targets/record":                   "store",
	"targets/session":                  "internal/failpoint store targets/tmux",
	// What signs knows signatures and nothing of the bot, and what runs on hosts neither.
	"proof/signer":               "approvals/passkey proof/signer/enroll targets/certificate",
	"proof/signer/client":        "targets/certificate",
	"proof/signer/enroll":        "targets/certificate",
	"proof/signer/page":          "targets/certificate",
	"targets/certificate/stream": "targets/certificate",
	"proof/signer/runner":        "targets/certificate/stream targets/certificate targets/backend targets/lock",
	"targets/certificate":        "",
	// Families that use another one.
	"tools/code":        "approvals approvals/risk tools targets/backend targets/backend/door tools/code/wire tools/truncate",
	"tools/code/parser": "tools/code/wire",
	"tools/code/wire":   "",
	"tools/delegate":    "approvals approvals/risk tools tools/plan",
	"tools/hostkey":     "approvals approvals/risk store tools targets/backend targets/ssh",
	"tools/impact":      "internal/bash approvals approvals/argv approvals/risk targets/backend targets/receipt targets/rehearsal",
	"tools/outside":     "approvals approvals/risk tools tools/files",
	"tools/output":      "approvals approvals/risk store store/aging tools tools/truncate",
	"tools/process":     "approvals approvals/risk store tools targets/backend targets/backend/approved targets/backend/door tools/shell",
	"tools/shell":       "internal/bash approvals approvals/risk internal/failpoint tools targets/backend targets/backend/approved targets/lock targets/session tools/shell/... targets/tmux tools/truncate",
	"tools/terminal":    "approvals approvals/risk tools targets/backend targets/session targets/tmux",
	"tools/truncate":    "",

	// What the operator says is of the shapes that those who use it declare.
	"config/address": "config",
	"internal/bash":  "",
	// The commands that look after a bot, and the doctor: beside the bot, and below the program.
	"cli/admin":            "adapters/chat console/api agent/report agent/spend approvals approvals/audit approvals/gate approvals/oncall approvals/policy approvals/risk bot bot/desk bot/machines bot/threads config/address cli config internal/redact config/rules config/storage cli/words store store/bolt store/keyring store/mem store/migrate store/outbox store/postgres store/queue store/replica proof/witness/ask proof/witness/cosign proof/witness/keys tools tools/budget tools/files tools/gitcmd tools/hostkey tools/output adapters/chat/network",
	"proof/verifier":       "approvals/passkey proof/witness/cosign",
	"proof/witness":        "proof/witness/ask proof/witness/cosign proof/witness/keys",
	"proof/witness/ask":    "proof/witness/cosign",
	"proof/witness/keys":   "proof/witness/cosign",
	"proof/witness/cosign": "",
	"client":               "",
	"client/mcpserver":     "client",
	"client/account":       "cli/words",
	"client/hook":          "adapters/chat/visible client client/account",
	"cli/remote":           "adapters/chat adapters/chat/visible client client/account cli config console/api client/hook client/mcpserver cli/words targets/record",
	"cli/manual":           "docs config cli/words",
	"cli/setup":            "adapters/chat/network config internal/redact cli/words",
	"cli/doctor":           "adapters/chat adapters/chat/network agent/llm agent/llm/openai agent/workflow alerts alerts/notice approvals approvals/oncall approvals/policy approvals/risk approvals/tickets bot/console bot/machines bot/networks bot/threads bot/toolbox bot/webhooks config/address config bot/observe internal/redact config/rules config/storage cli/words proof/signer/enroll store store/bolt store/migrate store/postgres targets/backend targets/backend/door targets/container targets/receipt targets/rehearsal targets/ssh targets/tmux tools tools/hostkey tools/mcp",
	"cli/words":            "",
	"bot/steady":           "",
	"cli":                  "config internal/edits cli/words",
	"config/storage":       "config store store/bolt store/migrate store/postgres",
	"config":               "approvals/secretfile proof/witness/cosign console/spelling agent/role agent/spend alerts approvals approvals/oncall approvals/passkey approvals/policy approvals/risk approvals/tickets internal/edits internal/redact tools/mcp tools/outside tools/output tools/shell adapters/chat/network",
	"cli/incident":         "targets/backend targets/backend/door",
	"bot/observe/otlp":     "",
	"bot/observe":          "bot/observe/otlp adapters/chat agent/history agent/llm approvals approvals/risk",
	"internal/rest":        "internal/redact",
	"config/rules":         "adapters/chat approvals approvals/policy approvals/risk config",
	"cli/toolsdoc":         "tools",

	// The bot itself. What it is made of knows neither it nor each other more than this.
	"bot":           "adapters/chat console console/tlsfile agent agent/history agent/llm agent/llm/openai agent/tokens agent/workflow alerts alerts/hook alerts/notice approvals approvals/audit approvals/card approvals/gate approvals/oncall approvals/passkey approvals/passkey/registry approvals/policy approvals/risk approvals/tickets bot/calls bot/comments bot/console store/courier bot/desk bot/handover bot/health bot/machines bot/networks bot/oneshot bot/replicas bot/stream bot/threads bot/toolbox bot/webhooks config/address config client/mcpserver bot/observe internal/redact config/rules bot/steady config/storage targets/certificate store store/keyring store/mem store/postgres store/queue targets/record tools/code tools/hostkey tools/mcp tools/output",
	"bot/console":   "adapters/chat console console/api console/connlimit console/oidc console/tlsfile console/webpush approvals/audit approvals/passkey/... bot/machines bot/replicas internal/condition config internal/redact config/rules store",
	"bot/desk":      "adapters/chat console/api agent agent/history agent/llm agent/prompt agent/report agent/role agent/spend agent/workflow alerts approvals approvals/audit bot/machines bot/threads internal/redact store store/queue targets/backend targets/record targets/session targets/tmux tools tools/delegate tools/files tools/outside tools/output",
	"bot/health":    "console/connlimit approvals approvals/audit bot/replicas store",
	"bot/networks":  "adapters/chat adapters/discord adapters/slack bot/replicas bot/threads config internal/failpoint config/rules store store/outbox store/queue adapters/chat/network internal/redact",
	"bot/calls":     "adapters/chat console/api agent approvals store store/aging tools",
	"bot/webhooks":  "adapters/chat approvals/audit store/courier bot/link internal/redact store",
	"store/courier": "store",
	"bot/comments":  "adapters/chat approvals approvals/audit approvals/tickets store/courier store",
	"bot/handover":  "adapters/chat alerts approvals approvals/policy store store/mem",
	"bot/stream":    "approvals/audit store/courier internal/redact store",
	"bot/oneshot":   "adapters/chat approvals approvals/card approvals/gate store tools",
	"bot/replicas":  "adapters/chat config store store/outbox store/postgres store/queue store/replica",
	"bot/threads":   "adapters/chat agent agent/history agent/role approvals approvals/gate approvals/policy approvals/risk bot/machines config config/rules store store/queue tools",
	"bot/toolbox":   "adapters/chat console/api agent/history agent/llm agent/role agent/spend agent/workflow approvals approvals/risk bot/machines bot/threads config internal/redact config/rules store tools tools/budget tools/clock tools/delegate tools/mcp tools/output tools/outside tools/past tools/plan tools/plugin tools/router tools/web",
	"bot/machines":  "adapters/chat approvals approvals/risk config internal/failpoint approvals/secretfile proof/signer/client targets/certificate store targets/backend targets/backend/approved targets/backend/door targets/container targets/local targets/receipt targets/record targets/rehearsal targets/session targets/ssh targets/tmux tools tools/code tools/files tools/gitcmd tools/hostkey tools/impact tools/process tools/search tools/shell tools/shell/named tools/terminal",

	"cmd/bot":                 "adapters/chat adapters/chat/network adapters/discord adapters/discord/gateway adapters/slack console agent/llm/openai/openaitest approvals/passkey approvals/policy bot bot/console config/address cli/admin cli cli/remote config cli/doctor cli/incident cli/manual internal/redact config/rules cli/setup cli/toolsdoc cli/words proof/signer targets/backend targets/backend/door targets/local targets/lock/helper targets/ssh tools tools/code tools/hostkey proof/verifier proof/witness", // the demo's model is scripted
	"cmd/countersign-hook":    "client/hook",
	"cmd/countersign-lock":    "targets/backend targets/lock targets/lock/helper",
	"cmd/countersign-runner":  "proof/signer/runner",
	"cmd/countersign-signer":  "proof/signer proof/signer/page",
	"cmd/countersign-verify":  "proof/verifier",
	"cmd/countersign-witness": "proof/witness",
	"cmd/countersign-parser":  "tools/code/parser tools/code/wire",
	"examples/network":        "adapters/chat adapters/chat/scribe",
	"examples/target":         "targets/backend targets/remote",
	"examples":                "approvals approvals/risk store tools targets/...",
}

// outside lists who may import what from elsewhere: a package or module, and our packages
// with all below. What is not listed nobody may import, apart from packages that serve
// tests and, but for what begins processes, the standard library.
var outside = map[string]string{
	"log":     "", // slog
	"os/exec": "targets/local targets/lock tools/foreign cmd/countersign-lock cli/remote proof/signer/runner examples/target",

	"cel.dev/cel-go":                       "internal/condition",
	"code.dny.dev/ssrf":                    "internal/publicnet",
	"github.com/CycloneDX/cyclonedx-go":    "deploy/sbom",
	"github.com/JohannesKaufmann":          "tools/web",
	"github.com/PuerkitoBio/goquery":       "tools/web",
	"github.com/bluekeyes/go-gitdiff":      "tools/files",
	"github.com/bwmarrin/discordgo":        "adapters/discord",
	"github.com/coder/websocket":           "adapters/discord/gateway adapters/slack console cli/remote",
	"github.com/containerd/errdefs":        "targets/container",
	"github.com/coreos/go-oidc/v3":         "console/oidc",
	"github.com/go-jose/go-jose/v4":        "console/oidc",
	"github.com/elastic/go-seccomp-bpf":    "targets/lock",
	"github.com/emersion/go-ical":          "approvals/oncall",
	"github.com/teambition/rrule-go":       "approvals/oncall",
	"github.com/go-enry/go-enry/v2":        "tools/code/gen",
	"github.com/google/jsonschema-go":      "tools",
	"github.com/google/uuid":               "deploy/sbom",
	"github.com/jackc/pgx/v5":              "store/postgres",
	"github.com/go-webauthn/webauthn":      "approvals/passkey approvals/passkey/register",
	"github.com/kelseyhightower/envconfig": "config",
	"github.com/kevinburke/ssh_config":     "targets/ssh",
	"github.com/moby/moby":                 "targets/container",
	"github.com/modelcontextprotocol":      "cli/remote client/mcpserver tools/mcp",
	"github.com/pkg/sftp":                  "targets/ssh",
	"github.com/prometheus/client_golang":  "bot/observe bot/health",
	"github.com/rogpeppe/go-internal":      "client/hook tools/files tools/mcp",
	"github.com/santhosh-tekuri":           "tools",
	"github.com/sashabaranov/go-openai":    "agent/llm/openai",
	"github.com/skeema/knownhosts":         "targets/ssh",
	"github.com/slack-go/slack":            "adapters/slack",
	"github.com/smacker/go-tree-sitter":    "tools/code/parser",
	"github.com/spf13/cobra":               "cmd/bot cli/admin cli cli/remote cli/doctor cli/manual cli/setup proof/signer proof/verifier proof/witness",
	"github.com/spf13/pflag":               "cli",
	"github.com/yuin/goldmark":             "adapters/chat/markdown console/display cli/manual",
	"go.etcd.io/bbolt":                     "store/bolt",
	"go.opentelemetry.io":                  "bot/observe",
	"go.yaml.in/yaml/v3":                   "proof/signer proof/witness agent/role agent/spend agent/workflow approvals/policy cmd/bot config tools/impact cli/admin cli/remote cli/manual",
	"golang.org/x/crypto/ssh":              "proof/signer targets/ssh",
	"golang.org/x/mod/sumdb":               "approvals/audit cli/admin proof/verifier proof/witness",
	"golang.org/x/net":                     "tools/web",
	"golang.org/x/oauth2":                  "console/oidc",
	"golang.org/x/sync":                    "adapters/slack bot cmd/bot store/courier targets/ssh cli/doctor",
	"golang.org/x/sys":                     "cli/doctor bot/steady proof/signer/runner store/bolt targets tools/code tools/foreign tools/process",
	"golang.org/x/term":                    "cmd/bot cli/remote cli/setup",
	"golang.org/x/text":                    "adapters/chat/markdown console console/spelling tools",
	"golang.org/x/time":                    "console",
	"google.golang.org/protobuf":           "bot/observe/otlp",
	"mvdan.cc/sh/v3":                       "agent/taint agent/workflow approvals internal/bash targets/tmux tools",
}

// small are programs that somebody should be able to read in one sitting, with what they import of ours.
var small = map[string]int{"cmd/countersign-signer": 1500, "cmd/countersign-witness": 1500, "cmd/countersign-verify": 1500}

var badNames = []string{"util", "utils", "common", "helpers", "types", "models", "core", "manager"}

type pkg struct {
	imports map[string]string // path -> file
	doc     bool
	lines   int
	inits   []string
}

func load(t *testing.T) map[string]*pkg {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*pkg{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		p := out[rel]
		if p == nil {
			p = &pkg{imports: map[string]string{}}
			out[rel] = p
		}
		p.doc = p.doc || f.Doc != nil
		p.lines += strings.Count(string(src), "\n")
		for _, im := range f.Imports {
			name, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			p.imports[name] = filepath.Base(path)
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				p.inits = append(p.inits, filepath.Base(path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// isTestKit reports whether a package only serves tests of others.
func isTestKit(path string) bool {
	base := path[strings.LastIndex(path, "/")+1:]
	return path != "test/archtest" && strings.HasSuffix(base, "test") || strings.HasSuffix(base, "fake") || under(path, "test/faults")
}

func TestHouseRules(t *testing.T) {
	for path, p := range load(t) {
		if !p.doc {
			t.Errorf("%s has no package comment: say what it is for, then what it does not do", path)
		}
		if len(p.inits) > 0 {
			t.Errorf("%s has an init function in %v: pass things in instead", path, p.inits)
		}
		if slices.Contains(badNames, path[strings.LastIndex(path, "/")+1:]) {
			t.Errorf("%s: the name says nothing", path)
		}
		for im, file := range p.imports {
			if why := fault(path, im); why != "" {
				t.Errorf("%s (%s) imports %s: %s", path, file, im, why)
			}
		}
	}
}

// row is the longest key of a table that names a path or something above it.
func row(table map[string]string, path string) (key string, found bool) {
	for k := range table {
		if under(path, k) && len(k) >= len(key) {
			key, found = k, true
		}
	}
	return key, found
}

// fault says why a package must not import another one; "" if it may.
func fault(path, im string) string {
	if isTestKit(path) {
		return ""
	}
	ours, ok := strings.CutPrefix(im, module)
	if !ok {
		key, listed := row(outside, im)
		if first, _, _ := strings.Cut(im, "/"); !strings.Contains(first, ".") && key != im {
			return "" // the standard library
		}
		switch {
		case !listed:
			return "it stands in no row of outside"
		case !slices.ContainsFunc(strings.Fields(outside[key]), func(a string) bool { return under(path, a) }):
			return "only these may: " + outside[key]
		}
		return ""
	}
	key, _ := row(inside, path)
	if isTestKit(ours) && !slices.Contains(strings.Fields(inside[key]), ours) {
		return "it only serves tests"
	}
	for a := range strings.FieldsSeq(inside[key]) {
		if dir, below := strings.CutSuffix(a, "/..."); ours == a || below && under(ours, dir) {
			return ""
		}
	}
	return "what is below " + key + " may import only " + inside[key]
}

// doors lists every function that starts a process on a target, and by what right: the purposes of package
// door, or "approved".
var doors = map[string]string{
	"bot/machines Machine.rules":            "Read",       // what "rehearse: off" leaves on
	"bot/machines Set.Preview":              "Prediction", // asks first whether it may
	"bot/machines looker.rehearse":          "Rehearsal",  // by targets/rehearsal
	"bot/machines looker.start":             "purpose",    // of the next two
	"bot/machines looker.Read":              "Read",
	"bot/machines looker.Simulate":          "Prediction",
	"bot/machines ways.Begin":               "approved", // the timer that people approved
	"bot/machines ways.script":              "Plumbing",
	"cmd/bot startIncident":                 "Plumbing",
	"examples/tools/bash_tool server.run":   "Plumbing", // what the bot asked people about before
	"cli/doctor targetCheck.ways":           "Look",
	"cli/doctor targetCheck.look":           "Plumbing",
	"cli/incident Start":                    "Plumbing", // the demo's service
	"targets/container commandRunner.start": "Plumbing",
	"targets/local Target.tmuxVersion":      "Look",
	"targets/receipt After":                 "Look",
	"targets/receipt Prepare":               "Look",
	"targets/rehearsal Run":                 "Rehearsal",
	"targets/rehearsal Try":                 "Plumbing",
	"targets/tmux Pane.flushNotices":        "Plumbing",
	"targets/tmux Server.run":               "Plumbing",
	"targets/tmux dial":                     "Plumbing",
	"tools/code program.build":              "Plumbing",
	"tools/code reader.readTar":             "Look",
	"tools/code start":                      "Plumbing",
	"tools/gitcmd suite.start":              "Look",
	"tools/gitcmd tool.run":                 "approved",
	"tools/process Prune":                   "Plumbing",
	"tools/process starter.launch":          "approved",
	"tools/process stopper.run":             "approved",
	"tools/process suite.look":              "Look",
	"tools/shell call.run":                  "approved",
}

// Who starts processes is known, and nobody does it past the door.
func TestEveryStartOfAProcessIsListed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for path, p := range load(t) {
		if isTestKit(path) || p.imports[module+"targets/backend"] == "" || under(path, "targets/backend") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, path, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := path + " " + funcName(fn)
				ast.Inspect(fn, func(n ast.Node) bool {
					by, past := start(n)
					if by != "" && !slices.Contains(found[name], by) {
						found[name] = append(found[name], by)
					}
					if past && !under(path, "targets") {
						t.Errorf("%s starts a process past the door: use packages door or approved", name)
					}
					return true
				})
			}
		}
	}
	for name, by := range found {
		slices.Sort(by)
		if got := strings.Join(by, " "); got != doors[name] {
			t.Errorf("%s starts processes by %q, and %q is listed", name, got, doors[name])
		}
	}
	for name := range doors {
		if found[name] == nil {
			t.Errorf("%s is listed and starts nothing", name)
		}
	}
}

// start says by what right a node starts a process, or names a purpose; past that it calls Target.Start itself.
func start(n ast.Node) (by string, past bool) {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "door" && slices.Contains([]string{"Read", "Rehearsal", "Prediction", "Look", "Plumbing"}, n.Sel.Name) {
			return n.Sel.Name, false
		}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "Start" {
			return "", false
		}
		x, _ := f.X.(*ast.Ident)
		switch {
		case x != nil && x.Name == "door" && len(n.Args) == 5:
			if purpose, ok := n.Args[2].(*ast.Ident); ok {
				return purpose.Name, false
			}
		case x != nil && x.Name == "approved":
			return "approved", false
		case len(n.Args) == 2:
			return "", true
		}
	}
	return "", false
}

// funcName is the name of a function, with its receiver's type.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return types.ExprString(typ) + "." + fn.Name.Name
}

// A list of what is forbidden forgets; this one of what is allowed must not.
func TestSmallProgramsAreSmall(t *testing.T) {
	all := load(t)
	for program, most := range small {
		seen := map[string]bool{}
		lines := 0
		var add func(name string)
		add = func(name string) {
			if seen[name] {
				return
			}
			seen[name] = true
			lines += all[name].lines
			for path := range all[name].imports {
				if own, ok := strings.CutPrefix(path, module); ok {
					add(own)
				}
			}
		}
		add(program)
		t.Logf("%s: %d lines", program, lines)
		if lines >= most {
			t.Errorf("%s has %d lines with what it imports of ours; at most %d can be read in one sitting", program, lines, most)
		}
	}
}

func TestAPlantedImportIsFound(t *testing.T) {
	for path, imports := range map[string][]string{
		"agent": {
			"countersign/adapters/discord", "countersign/console", "countersign/store/postgres", "countersign/store/bolt", "countersign/targets/backend",
			"countersign/targets/tmux", "countersign/approvals/gate", "countersign/approvals/policy", "countersign/cmd/bot", "countersign/bot/observe",
			"cel.dev/cel-go/cel", "github.com/jackc/pgx/v5/pgxpool", "golang.org/x/crypto/ssh/agent", "os/exec", "log", "github.com/spf13/cobra", "example.com/new",
		},
		"agent/history":        {"countersign/agent", "countersign/tools"},
		"adapters/slack":       {"countersign/adapters/discord", "countersign/agent", "countersign/store", "countersign/adapters/slack/slackfake", "countersign/adapters/chat/chattest"},
		"adapters/chat":        {"countersign/adapters/slack", "countersign/store"},
		"adapters/chat/scribe": {"countersign/adapters/discord", "countersign/adapters/chat/markdown", "countersign/store", "github.com/bwmarrin/discordgo"},
		"approvals":            {"countersign/tools", "countersign/approvals/gate", "countersign/agent"},
		"approvals/risk":       {"countersign/approvals", "countersign/internal/redact"},
		"store":                {"countersign/store/bolt", "countersign/agent"},
		"store/bolt":           {"countersign/store/postgres", "github.com/jackc/pgx/v5"},
		"tools/files":          {"countersign/tools/shell", "countersign/agent", "countersign/approvals/gate", "countersign/adapters/chat", "os/exec"},
		"targets/backend":      {"countersign/tools"},
		"targets/ssh":          {"countersign/targets/local", "countersign/tools"},
		"targets/tmux":         {"countersign/targets/ssh"},
		"internal/redact":      {"countersign/store"},
		"config/rules":         {"countersign/store", "countersign/approvals/gate", "countersign/bot/machines"},
		"internal/something":   {"countersign/store"},
		"cli/words":            {"countersign/config"},
		"cli":                  {"countersign/bot", "countersign/store"},
		"cli/admin":            {"countersign/cmd/bot", "countersign/cli/doctor", "countersign/agent", "countersign/console", "countersign/adapters/slack", "countersign/targets/tmux"},
		"cli/doctor":           {"countersign/cmd/bot", "countersign/cli/admin", "countersign/agent", "countersign/approvals/gate", "countersign/store/outbox"},
		"bot/machines":         {"countersign/agent", "countersign/bot", "countersign/bot/desk", "countersign/console", "countersign/approvals/policy", "countersign/approvals/gate", "countersign/store/postgres", "countersign/store/replica"},
		"bot":                  {"countersign/cmd/bot", "countersign/targets/tmux", "countersign/tools/shell", "countersign/adapters/slack", "countersign/adapters/discord", "github.com/spf13/cobra", "github.com/prometheus/client_golang/prometheus"},
		"bot/desk":             {"countersign/bot", "countersign/bot/toolbox", "countersign/bot/networks", "countersign/console", "countersign/adapters/slack", "countersign/approvals/gate", "countersign/config", "countersign/store/postgres"},
		"bot/console":          {"countersign/bot", "countersign/bot/desk", "countersign/agent", "countersign/adapters/slack", "countersign/approvals/gate"},
		"bot/health":           {"countersign/bot", "countersign/agent", "countersign/bot/machines"},
		"bot/networks":         {"countersign/bot", "countersign/bot/desk", "countersign/agent", "countersign/console"},
		"bot/replicas":         {"countersign/bot", "countersign/bot/machines", "countersign/agent", "countersign/store/bolt"},
		"bot/threads":          {"countersign/bot", "countersign/bot/desk", "countersign/bot/toolbox", "countersign/console"},
		"bot/toolbox":          {"countersign/bot", "countersign/bot/desk", "countersign/agent", "countersign/approvals/gate", "countersign/console"},
		"something":            {"countersign/store", "countersign/internal/redact"},
	} {
		for _, im := range imports {
			if fault(path, im) == "" {
				t.Errorf("%s may import %s", path, im)
			}
		}
	}
}

// A row that nobody needs hides the next fault.
func TestEveryRowIsUsed(t *testing.T) {
	used := map[string]bool{}
	for path, p := range load(t) {
		if isTestKit(path) {
			continue
		}
		if key, ok := row(inside, path); ok {
			used[key] = true
		}
		for im := range p.imports {
			if key, ok := row(outside, im); ok {
				used[key] = true
			}
		}
	}
	for _, table := range []map[string]string{inside, outside} {
		for key := range table {
			if !used[key] && key != "log" {
				t.Errorf("nothing is in the row of %s", key)
			}
		}
	}
}

// every package of tools, approvals and the agent has tests of its own, or a suite
// that others run ("backend" has "backend/backendtest"). Packages that only serve tests
// need none.
func TestEveryModuleOfToolsHasTests(t *testing.T) {
	for path := range load(t) {
		if isTestKit(path) || !under(path, "tools") && !under(path, "approvals") && !under(path, "agent") {
			continue
		}
		found, err := filepath.Glob(filepath.Join("../..", filepath.FromSlash(path), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		suite := path + "/" + path[strings.LastIndex(path, "/")+1:] + "test"
		if _, err := os.Stat(filepath.Join("../..", filepath.FromSlash(suite))); len(found) == 0 && err != nil {
			t.Errorf("%s has no tests", path)
		}
	}
}
