// Package image checks the container image: the Dockerfile against rules, and the image
// that podman builds of it, at work as README.md says to run it.
//
// It pulls and pushes nothing. The images that the build begins with are made here, of
// Debian's packages and the machine's own Go, so what a registry's images would bring
// with them is not checked.
package image

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// instruction is one instruction of a Dockerfile, its lines joined.
type instruction struct {
	line int
	name string // in capitals
	args string
}

// file is a Dockerfile: what stands before the first FROM, and the stages.
type file struct {
	globals []instruction
	stages  []stage
}

type stage struct {
	from, name   string
	instructions []instruction
}

// last is the last instruction of a name in a stage, or none.
func (s stage) last(name string) (instruction, bool) {
	for _, in := range slices.Backward(s.instructions) {
		if in.name == name {
			return in, true
		}
	}
	return instruction{}, false
}

var known = []string{
	"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL", "STOPSIGNAL",
	"USER", "VOLUME", "WORKDIR",
}

// parse reads a Dockerfile: comments, continued lines, stages. It knows no parser
// directives and no here-documents, and refuses what it does not know.
func parse(text string) (file, error) {
	var f file
	var cur instruction
	n := 0
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		n++
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue // also between continued lines
		}
		if cur.name == "" {
			name, args, _ := strings.Cut(line, " ")
			cur = instruction{line: n, name: strings.ToUpper(name)}
			line = strings.TrimSpace(args)
			if !slices.Contains(known, cur.name) {
				return f, fmt.Errorf("line %d: %s is no instruction that this parser knows", n, name)
			}
		}
		more := strings.HasSuffix(line, `\`)
		cur.args += strings.TrimSuffix(line, `\`)
		if more {
			continue
		}
		switch {
		case cur.name == "FROM":
			words := strings.Fields(cur.args)
			s := stage{}
			switch {
			case len(words) == 1:
				s.from = words[0]
			case len(words) == 3 && strings.EqualFold(words[1], "as"):
				s.from, s.name = words[0], words[2]
			default:
				return f, fmt.Errorf("line %d: FROM %s is not understood", cur.line, cur.args)
			}
			f.stages = append(f.stages, s)
		case len(f.stages) == 0:
			f.globals = append(f.globals, cur)
		default:
			s := &f.stages[len(f.stages)-1]
			s.instructions = append(s.instructions, cur)
		}
		cur = instruction{}
	}
	if cur.name != "" {
		return f, fmt.Errorf("line %d: %s is continued and does not go on", cur.line, cur.name)
	}
	if len(f.stages) == 0 {
		return f, fmt.Errorf("there is no FROM")
	}
	return f, nil
}

var (
	numericUser = regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`)
	reference   = regexp.MustCompile(`^[a-z0-9./_-]+:([A-Za-z0-9._-]+)(@sha256:[0-9a-f]{64})?$`)
	secretName  = regexp.MustCompile(`(?i)\b[A-Z0-9_]*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_KEY|PRIVATE)[A-Z0-9_]*\b`)
	piped       = regexp.MustCompile(`(curl|wget)\b.*\|\s*(ba|da)?sh\b`)
	setErr      = regexp.MustCompile(`^set -[a-z]*e`)
)

// judge says what is wrong with a Dockerfile.
func judge(f file) []string {
	var wrong []string
	say := func(in instruction, format string, a ...any) {
		wrong = append(wrong, fmt.Sprintf("line %d: ", in.line)+fmt.Sprintf(format, a...))
	}
	defaults := map[string]instruction{}
	for _, in := range f.globals {
		if in.name != "ARG" {
			say(in, "%s before the first FROM", in.name)
			continue
		}
		name, _, _ := strings.Cut(in.args, "=")
		defaults[name] = in
	}
	names := map[string]bool{}
	for i, s := range f.stages {
		judgeFrom(s, names, defaults, say)
		for _, in := range s.instructions {
			judgeAny(in, names, say)
		}
		if s.name != "" {
			names[s.name] = true
		}
		if i == len(f.stages)-1 {
			wrong = append(wrong, judgeFinal(s)...)
		}
	}
	return wrong
}

type complaint func(in instruction, format string, a ...any)

func judgeFrom(s stage, names map[string]bool, defaults map[string]instruction, say complaint) {
	if names[s.from] {
		return
	}
	in, ok := defaults[strings.TrimSuffix(strings.TrimPrefix(s.from, "${"), "}")]
	if !ok || !strings.HasPrefix(s.from, "${") {
		say(instruction{}, "FROM %s: an image is an argument, so that it can be named by digest or come from elsewhere", s.from)
		return
	}
	_, image, _ := strings.Cut(in.args, "=")
	switch m := reference.FindStringSubmatch(image); {
	case m == nil:
		say(in, "%s names no version", in.args)
	case m[1] == "latest":
		say(in, "%s is another image each month", in.args)
	}
}

// judgeAny holds in every stage.
func judgeAny(in instruction, names map[string]bool, say complaint) {
	switch in.name {
	case "ADD":
		say(in, "ADD unpacks and fetches; use COPY")
	case "VOLUME":
		say(in, "VOLUME makes a volume that nobody asked for")
	case "SHELL":
		say(in, "SHELL changes what RUN means")
	case "COPY":
		for w := range strings.FieldsSeq(in.args) {
			if from, ok := strings.CutPrefix(w, "--from="); ok && !names[from] {
				say(in, "COPY --from=%s: there is no such stage before", from)
			}
		}
	case "ENV", "ARG":
		if m := secretName.FindString(in.args); m != "" {
			say(in, "%s stays in the image for everybody who has it", m)
		}
	case "WORKDIR":
		if !strings.HasPrefix(in.args, "/") {
			say(in, "WORKDIR %s depends on the one before", in.args)
		}
	case "RUN":
		judgeRun(in, say)
	}
}

func judgeRun(in instruction, say complaint) {
	if strings.Contains(in.args, ";") && !setErr.MatchString(in.args) {
		say(in, "a failure in the middle is not noticed; begin with set -eu")
	}
	if piped.MatchString(in.args) {
		say(in, "it runs what a server sends")
	}
	if strings.Contains(in.args, "sudo") {
		say(in, "sudo has no place in an image")
	}
	if !strings.Contains(in.args, "apt-get install") {
		return
	}
	for _, need := range []string{"apt-get update", "--no-install-recommends", " -y", "rm -rf /var/lib/apt/lists/*"} {
		if !strings.Contains(in.args, need) {
			say(in, "apt-get install without %q in the same step", need)
		}
	}
}

// judgeFinal holds for the image that people run.
func judgeFinal(s stage) []string {
	var wrong []string
	say := func(format string, a ...any) { wrong = append(wrong, "the last stage: "+fmt.Sprintf(format, a...)) }
	switch in, _ := s.last("USER"); {
	case in.args == "":
		say("it has no USER, so it is root's")
	case !numericUser.MatchString(in.args):
		say("USER is %s; Kubernetes cannot see that a name is not root: give numbers, and not 0", in.args)
	}
	for _, name := range []string{"ENTRYPOINT", "CMD", "HEALTHCHECK"} {
		in, ok := s.last(name)
		if !ok {
			say("it has no %s", name)
			continue
		}
		if len(argv(in)) == 0 {
			say("%s is no list, so a shell stands between it and its signals", name)
		}
	}
	if in, _ := s.last("STOPSIGNAL"); in.args != "SIGTERM" {
		say("STOPSIGNAL is %q, and the bot ends well on SIGTERM", in.args)
	}
	labels, _ := s.last("LABEL")
	for _, l := range []string{"title", "description", "licenses", "version", "revision", "source"} {
		if !strings.Contains(labels.args, "org.opencontainers.image."+l+"=") {
			say("it has no label org.opencontainers.image.%s", l)
		}
	}
	return wrong
}

// argv is the list of an ENTRYPOINT, CMD or HEALTHCHECK; nil when it is text for a shell.
func argv(in instruction) []string {
	text := in.args
	if in.name == "HEALTHCHECK" {
		_, text, _ = strings.Cut(text, "CMD ")
	}
	var out []string
	if json.Unmarshal([]byte(strings.TrimSpace(text)), &out) != nil {
		return nil
	}
	return out
}

func dockerfile(t *testing.T) file {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheDockerfileKeepsTheRules(t *testing.T) {
	f := dockerfile(t)
	for _, w := range judge(f) {
		t.Error(w)
	}
	final := f.stages[len(f.stages)-1]
	if in, _ := final.last("EXPOSE"); in.args != "8700" {
		t.Errorf("EXPOSE is %q, not the console's port", in.args)
	}
	env, _ := final.last("ENV")
	for _, want := range []string{"HOME=/var/lib/countersign", "COUNTERSIGN_DATA_DIR=/var/lib/countersign/data", "COUNTERSIGN_LISTEN=0.0.0.0:8700"} {
		if !slices.Contains(strings.Fields(env.args), want) {
			t.Errorf("ENV has no %s: %s", want, env.args)
		}
	}
}

// Each rule of judge refuses what it is for, and a whole file without mistakes passes.
func TestTheRulesFindWhatTheyAreFor(t *testing.T) {
	const good = `
ARG BUILDER=golang:1.26-bookworm
ARG BASE=debian:bookworm-slim@sha256:0123456789012345678901234567890123456789012345678901234567890123
FROM ${BUILDER} AS build
RUN make
FROM ${BASE}
# why
RUN set -eu; \
    apt-get update; \
    # in between
    apt-get install -y --no-install-recommends tmux; \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /out/bot /usr/local/bin/bot
ENV HOME=/x
WORKDIR /x
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s CMD ["bot", "healthz"]
ENTRYPOINT ["bot"]
CMD ["run"]
LABEL org.opencontainers.image.title="a" org.opencontainers.image.description="b" org.opencontainers.image.licenses="c" \
 org.opencontainers.image.version="d" org.opencontainers.image.revision="e" org.opencontainers.image.source="f"
`
	for _, c := range []struct{ name, old, new, want string }{
		{name: "the good one passes"},
		{name: "latest", old: "golang:1.26-bookworm", new: "golang:latest", want: "another image each month"},
		{name: "no tag", old: "golang:1.26-bookworm", new: "golang", want: "names no version"},
		{name: "an image that is no argument", old: "FROM ${BASE}", new: "FROM debian:12", want: "an image is an argument"},
		{name: "a stage that is not there", old: "--from=build", new: "--from=built", want: "no such stage"},
		{name: "ADD of an address", old: "WORKDIR /x", new: "ADD https://example.com/x /x", want: "use COPY"},
		{name: "a secret in ENV", old: "ENV HOME=/x", new: "ENV SLACK_BOT_TOKEN=xoxb", want: "SLACK_BOT_TOKEN stays in the image"},
		{name: "a secret in ARG", old: "ENV HOME=/x", new: "ARG OPENAI_API_KEY", want: "OPENAI_API_KEY stays in the image"},
		{name: "a relative directory", old: "WORKDIR /x", new: "WORKDIR x", want: "depends on the one before"},
		{name: "a volume", old: "WORKDIR /x", new: "VOLUME /x", want: "nobody asked for"},
		{name: "no user", old: "USER 65532:65532", want: "it is root's"},
		{name: "a user's name", old: "USER 65532:65532", new: "USER bot", want: "give numbers"},
		{name: "root", old: "USER 65532:65532", new: "USER 0:0", want: "not 0"},
		{name: "a shell in front", old: `["bot"]`, new: "bot", want: "ENTRYPOINT is no list"},
		{name: "a health check by a shell", old: `CMD ["bot", "healthz"]`, new: "CMD bot healthz", want: "HEALTHCHECK is no list"},
		{name: "no health check", old: "HEALTHCHECK --interval=30s CMD [\"bot\", \"healthz\"]\n", want: "no HEALTHCHECK"},
		{name: "recommended packages", old: "--no-install-recommends ", want: "--no-install-recommends"},
		{name: "lists stay", old: "    rm -rf /var/lib/apt/lists/*", new: "    true", want: "rm -rf"},
		{name: "errors in the middle", old: "set -eu; ", want: "set -eu"},
		{name: "a server's script", old: "RUN make", new: "RUN curl https://example.com | sh", want: "what a server sends"},
		{name: "another signal", old: "SIGTERM", new: "SIGKILL", want: "STOPSIGNAL"},
		{name: "a label less", old: "org.opencontainers.image.revision", new: "revision", want: "image.revision"},
		{name: "an instruction that nobody knows", old: "RUN make", new: "MAINTAINER x", want: "no instruction"},
		{name: "an end that is none", old: `image.source="f"`, new: `image.source="f" \`, want: "does not go on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("the good file has no %q", c.old)
			}
			f, err := parse(strings.Replace(good, c.old, c.new, 1))
			var got []string
			if err != nil {
				got = []string{err.Error()}
			} else {
				got = judge(f)
			}
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("complaints: %q", got)
			case c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want):
				t.Errorf("complaints are %q, none with %q", got, c.want)
			}
		})
	}
}

// ignored are the rules of .dockerignore.
func ignored(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rules = append(rules, line)
		}
	}
	return rules
}

// kept are the paths that .dockerignore excepts.
func kept(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, r := range ignored(t) {
		if path, ok := strings.CutPrefix(r, "!"); ok {
			paths = append(paths, filepath.FromSlash(path))
		}
	}
	return paths
}

// What is sent to the build is a list of what it needs, and all of it exists.
func TestTheContextHoldsWhatTheProgramIsMadeOf(t *testing.T) {
	rules := ignored(t)
	if len(rules) == 0 || rules[0] != "*" {
		t.Errorf("the first rule is not *, so what lies around beside the source would be sent: %q", rules)
	}
	for _, path := range kept(t) {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf(".dockerignore keeps %s, which is not there: %v", path, err)
		}
		if strings.HasPrefix(path, ".") || path == "dist" || path == "data" {
			t.Errorf(".dockerignore keeps %s", path)
		}
	}
	// Every folder of ours that the programs of the image are built from.
	list := func(args ...string) []string {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	for _, pkg := range list("-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "countersign/cmd/bot", "countersign/cmd/countersign-parser") {
		folder, _, _ := strings.Cut(strings.TrimPrefix(pkg, "countersign/"), "/")
		if pkg != "countersign" && !slices.Contains(kept(t), folder) {
			t.Errorf(".dockerignore leaves out %s, which the program needs for %s", folder, pkg)
		}
	}
	for _, file := range list("-f", `{{join .GoFiles " "}} {{join .EmbedFiles " "}}`, "countersign") { // the root's own
		if !slices.ContainsFunc(kept(t), func(k string) bool { return file == k || strings.HasPrefix(file, k+"/") }) {
			t.Errorf(".dockerignore leaves out %s, which the program needs", file)
		}
	}
	for _, r := range []string{"**/*_test.go", "**/.env*"} {
		if !slices.Contains(rules, r) {
			t.Errorf(".dockerignore has no %s", r)
		}
	}
}
