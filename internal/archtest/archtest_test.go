package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "countersign/"

// leaves import nothing of ours.
var leaves = []string{
	"adapters/chat", "adapters/chat/markdown", "agent/llm", "agent/prompt", "tools/backend",
	"approvals/risk", "store", "internal/redact", "internal/failpoint",
}

// only lists which of our packages a package (and those below it) may import;
// packages that no row covers are free.
var only = map[string][]string{
	"adapters/chat/chattest":       {"adapters/chat"},
	"adapters/slack":               {"adapters/chat", "adapters/chat/markdown", "adapters/slack", "internal/redact"},
	"adapters/slack/slackfake":     {"adapters/slack/slackfake"},
	"adapters/discord":             {"adapters/chat", "adapters/chat/markdown", "adapters/discord", "internal/redact"},
	"adapters/discord/discordfake": {"adapters/discord/discordfake"},
	"adapters/web":                 {"adapters/chat", "adapters/chat/markdown", "store", "internal/redact", "adapters/web"},
	"agent/llm/openai":             {"agent/llm"},
	"store":                        {"store"},
	"tools/backend":                {"tools/backend"},
	"tools/tmux":                   {"tools/backend"},
	"alerts":                       {"alerts", "adapters/chat", "store", "internal/redact"},
	"alerts/notice":                {"alerts/notice"},
	"approvals":                    {"approvals", "store", "adapters/chat", "internal/failpoint", "internal/redact"},
}

// forbidden lists what a package must never import, with the reason.
var forbidden = map[string]map[string]string{
	"agent": {
		"adapters/web": "the engine knows no network", "adapters/slack": "the engine knows no network", "tools/backend": "the engine knows no machine",
		"tools/tmux": "the engine knows no terminal", "store/bolt": "the engine knows no database",
		"approvals/gate": "the engine declares the gate that it needs",
	},
	"tools":     {"agent": "tools know no conversation", "approvals/gate": "tools cannot open their own gate", "adapters": "tools know no network"},
	"approvals": {"tools": "approvals judge actions, not tools", "agent": "approvals know no conversation"},
}

// outside lists packages from elsewhere that only these of ours may import.
var outside = map[string][]string{
	"os/exec":                           {"tools/backend/local", "tools/foreign"},
	"golang.org/x/crypto/ssh":           {"tools/backend/ssh"},
	"github.com/sashabaranov/go-openai": {"agent/llm/openai"},
	"github.com/slack-go/slack":         {"adapters/slack"},
	"github.com/gorilla/websocket":      {"adapters/slack/slackfake"}, // not the library of the client that it checks
	"github.com/bwmarrin/discordgo":     {"adapters/discord"},
	"github.com/jackc/pgx/v5":           {"store/postgres"},
	"go.etcd.io/bbolt":                  {"store/bolt"},
	"cel.dev/cel-go":                    {"approvals/policy"},
	"log":                               {},
}

var badNames = []string{"util", "utils", "common", "helpers", "types", "models", "core", "manager"}

type pkg struct {
	imports map[string]string // path -> file
	doc     bool
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
	return strings.HasSuffix(base, "test") && base != "archtest"
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
			if allowed, ok := outside[im]; ok && !slices.ContainsFunc(allowed, func(a string) bool { return under(path, a) }) && !isTestKit(path) {
				t.Errorf("%s (%s) imports %s, which only %v may", path, file, im, allowed)
			}
			ours, ok := strings.CutPrefix(im, module)
			if !ok {
				continue
			}
			checkOurs(t, path, file, ours)
		}
	}
}

func checkOurs(t *testing.T, path, file, im string) {
	t.Helper()
	if slices.Contains(leaves, path) {
		t.Errorf("%s (%s) imports %s, but imports nothing of ours", path, file, im)
	}
	if isTestKit(path) {
		return
	}
	best := ""
	for dir := range only {
		if under(path, dir) && len(dir) > len(best) {
			best = dir
		}
	}
	if best != "" && !slices.ContainsFunc(only[best], func(a string) bool { return under(im, a) }) {
		t.Errorf("%s (%s) imports %s; below %s only %v may be imported", path, file, im, best, only[best])
	}
	for dir, rules := range forbidden {
		if !under(path, dir) {
			continue
		}
		for bad, why := range rules {
			if under(im, bad) && !under(path, bad) {
				t.Errorf("%s (%s) imports %s: %s", path, file, im, why)
			}
		}
	}
	for _, fake := range []string{"adapters/slack/slackfake", "adapters/discord/discordfake"} {
		if under(im, fake) && !under(path, fake) {
			t.Errorf("%s (%s) imports %s, which only tests may", path, file, im)
		}
	}
	if im == "cmd/bot" || (under(im, "internal/incident") && !under(path, "cmd")) {
		t.Errorf("%s (%s) imports %s", path, file, im)
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
