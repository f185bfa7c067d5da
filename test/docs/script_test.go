package docs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// step is one statement of a script, which has one exit status.
type step struct {
	line int // in the document
	text string
	exit int  // the status that it should have
	runs bool // it is "bot run" or "bot demo", which go on until somebody ends them
	demo bool
	verb int // where in the text its program's name begins
}

// exitComment is how a document says that a command fails.
var exitComment = regexp.MustCompile(`(?m)\s# exit (\d+)\b`)

// steps cuts a sh block into its statements.
func steps(b block) ([]step, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(b.text), "")
	if err != nil {
		return nil, err
	}
	var list []step
	for i, st := range file.Stmts {
		from, to := int(st.Pos().Offset()), len(b.text)
		if i+1 < len(file.Stmts) {
			to = int(file.Stmts[i+1].Pos().Offset())
		}
		s := step{line: b.line + int(st.Pos().Line()) - 1, text: b.text[from:to]}
		if m := exitComment.FindStringSubmatch(s.text); m != nil {
			s.exit, _ = strconv.Atoi(m[1])
		}
		if call, ok := st.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			if args, ok := botArgs(words(call, b.text)); ok && len(args) > 0 && !slices.Contains(args, "--help") {
				s.runs, s.demo = args[0] == "run" || args[0] == "demo", args[0] == "demo"
				s.verb = int(call.Args[0].Pos().Offset()) - from
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// words are the words of a command, without quotes around a whole word.
func words(call *syntax.CallExpr, src string) []string {
	var list []string
	for _, w := range call.Args {
		s := src[w.Pos().Offset():w.End().Offset()]
		if len(s) > 1 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
			s = s[1 : len(s)-1]
		}
		list = append(list, s)
	}
	return list
}

// wrappers are programs that call another one, which their arguments name.
var wrappers = []string{"sudo", "env", "exec", "nohup", "timeout", "kubectl", "docker", "podman", "time", "watch"}

// subcommand is what can follow the program's name.
var subcommand = regexp.MustCompile(`^(--(help|version)|audit|backup|classify|completion|config|demo|discord|docs|doctor|export|healthz|init|login|logout|logs|exec|request|calls|mcp|hook|attach|replay|approvals|send|sessions|show|threads|tokens|upgrade|verify|policy|restore|run|signer|slack|store|target|tools?|version|web|witness)$`)

// botArgs are the arguments that a command gives the bot.
func botArgs(words []string) ([]string, bool) {
	if len(words) > 2 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/bot" {
		return words[3:], true
	}
	if len(words) > 0 && words[0] == "./demo" {
		return append([]string{"demo"}, words[1:]...), true
	}
	for i, w := range words {
		named := w == "countersign" && i+1 < len(words) && subcommand.MatchString(words[i+1]) // not a user, a package or a directory
		if (path.Base(w) == "bot" || named) && (i == 0 || words[i-1] != "-u" && words[i-1] != "-c") {
			return words[i+1:], true
		}
		if i == 0 && !slices.Contains(wrappers, w) {
			return nil, false
		}
	}
	return nil, false
}

// commands are all simple commands of a block, also those within others.
func commands(b block) (list [][]string, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(b.text), "")
	if err != nil {
		return nil, err
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			list = append(list, words(call, b.text))
		}
		return true
	})
	return list, nil
}

// static checks a sh block without running it: its syntax, and that what it calls of
// this repository is there.
func static(t testing.TB, m *manual, b block) []fault {
	t.Helper()
	bash := exec.Command("bash", "-n")
	bash.Stdin = strings.NewReader(b.text)
	if out, err := bash.CombinedOutput(); err != nil {
		return []fault{b.fault("bash does not take the block: %s", strings.TrimSpace(string(out)))}
	}
	list, err := commands(b)
	if err != nil {
		return []fault{b.fault("the block cannot be parsed: %v", err)}
	}
	var faults []fault
	for _, words := range list {
		if args, ok := botArgs(words); ok {
			for _, wrong := range m.check(t, args) {
				faults = append(faults, b.fault("%s", wrong))
			}
			continue
		}
		if len(words) > 1 && words[0] == "go" && words[1] == "test" {
			for _, wrong := range testFaults(words[2:]) {
				faults = append(faults, b.fault("%s", wrong))
			}
		}
		if dir, _, ok := strings.Cut(words[0], "/"); ok && dir != "" && dir != "." && dir != ".." && !strings.ContainsAny(dir, "$~") {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(words[0]))); err != nil {
				faults = append(faults, b.fault("there is no program %s in the repository", words[0]))
			}
		}
	}
	return faults
}

// testFaults says what is not there of what "go test" is asked for: packages, tests,
// benchmarks, and flags that tests define.
func testFaults(args []string) (wrong []string) {
	var packages []string
	names := map[string]string{} // what has to match, by the kind of function
	var own []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") {
			packages = append(packages, a)
			continue
		}
		flag, value, ok := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch flag {
		case "v", "race", "short":
			continue
		}
		if !ok && i+1 < len(args) {
			i++
			value = args[i]
		}
		switch flag {
		case "run":
			names["Test"] = value
		case "bench":
			names["Benchmark"] = value
		case "fuzz":
			names["Fuzz"] = value
		case "count", "benchtime", "timeout", "fuzztime", "tags", "cpu":
		default:
			own = append(own, flag)
		}
	}
	var src strings.Builder
	for _, p := range packages {
		text, err := tests(p)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		src.WriteString(text)
	}
	for _, kind := range []string{"Test", "Benchmark", "Fuzz"} {
		want := names[kind]
		if want == "" || want == "xxx" || want == "^$" {
			continue
		}
		first, _, _ := strings.Cut(want, "/")
		re, err := regexp.Compile(first)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%q is no pattern of names", want))
			continue
		}
		functions := regexp.MustCompile(`(?m)^func (`+kind+`\w*)\(`).FindAllStringSubmatch(src.String(), -1)
		if !slices.ContainsFunc(functions, func(f []string) bool { return re.MatchString(f[1]) }) {
			wrong = append(wrong, fmt.Sprintf("%s has no %s that %q matches", strings.Join(packages, " "), strings.ToLower(kind), want))
		}
	}
	for _, flag := range own {
		if !strings.Contains(src.String(), fmt.Sprintf("(%q, ", flag)) {
			wrong = append(wrong, fmt.Sprintf("no test of %s defines the flag -%s", strings.Join(packages, " "), flag))
		}
	}
	return wrong
}

// tests is the source of the tests of packages such as ./agent or ./agent/...
func tests(pattern string) (string, error) {
	dir, all := strings.CutSuffix(pattern, "/...")
	var src strings.Builder
	found := false
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && !all && filepath.Clean(name) != filepath.Join(root, filepath.FromSlash(dir)):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		found = true
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		src.Write(text)
		return err
	})
	if err != nil || !found {
		return "", fmt.Errorf("there is no package %s", pattern)
	}
	return src.String(), nil
}

func TestSteps(t *testing.T) {
	list, err := steps(block{line: 10, text: "export A=1 B=2   # why\n\nfalse # exit 1\nA=2 ./bot demo\ngo run ./cmd/bot run\ncat <<EOF\nx # exit 3\nEOF\necho a; ./bot run --help\n"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, fmt.Sprintf("%d %q %d %v %v %d", s.line, s.text, s.exit, s.runs, s.demo, s.verb))
	}
	want := []string{
		`10 "export A=1 B=2   # why\n\n" 0 false false 0`, `12 "false # exit 1\n" 1 false false 0`, `13 "A=2 ./bot demo\n" 0 true true 4`,
		`14 "go run ./cmd/bot run\n" 0 true false 0`, `15 "cat <<EOF\nx # exit 3\nEOF\n" 3 false false 0`, `18 "echo a; " 0 false false 0`, `18 "./bot run --help\n" 0 false false 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestBotArgs(t *testing.T) {
	for in, want := range map[string]string{
		"bot run": "run", "./bot doctor --live C1": "doctor --live C1", "/opt/countersign/bot doctor": "doctor", "go run ./cmd/bot demo": "demo", "./demo": "demo",
		"sudo env A=1 /opt/countersign/bot doctor": "doctor", "sudo -u bot env /opt/x/bot login you": "login you", "kubectl exec x -c bot -- bot version": "version",
		"go build -o bot ./cmd/bot": "none", "ls ./bot": "none", "echo bot run": "none",
	} {
		args, ok := botArgs(strings.Fields(in))
		if got := strings.Join(args, " "); ok && got != want || !ok && want != "none" {
			t.Errorf("%s: %q, %v", in, got, ok)
		}
	}
}

func TestWrongCommandsAreFaults(t *testing.T) {
	var m manual
	for text, want := range map[string]int{
		"bot run\n": 0, "bot sing\n": 1, "if true; then\n": 1, "echo $(bot sing)\n": 1, "systemctl stop x | bot classify --jsonl\n": 0, "bot classify --loud\n": 1,
		"go test ./agent -run xxx -bench Fold -count 4\n": 0, "go test ./agent -bench Moon\n": 1, "go test ./moon\n": 1, "go test ./approvals/... -run TestJudge\n": 0,
		"go test ./agent -run TestMoon\n": 1, "go test ./agent -moon 3\n": 1, "go test ./...\n": 0, "deploy/release.sh 1\n": 0, "deploy/moon.sh\n": 1, "A=1 ../x/y\n": 0,
	} {
		if got := static(t, &m, block{doc: "x.md", line: 1, text: text}); len(got) != want {
			t.Errorf("%q: %q, want %d faults", text, got, want)
		}
	}
}
