package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// given is what the reader of a document has before its first block.
type given struct {
	// bare: no model is configured; everybody else has one, as somebody who runs the bot.
	bare    bool
	prepare func(t testing.TB, r *reader) error // nil is nothing
}

// givens are by document; who is not here reads with a model and without a running bot.
var givens = map[string]given{
	"README.md":                  {bare: true},
	"docs/first-five-minutes.md": {bare: true},
	"docs/console-network.md":    {prepare: func(_ testing.TB, r *reader) error { return r.script("bot run\n") }},
	"docs/backup.md":             {prepare: func(_ testing.TB, r *reader) error { return r.script("bot run\n") }},
	"docs/alert-scripts.md": {prepare: func(_ testing.TB, r *reader) error {
		return r.script(`export GENERIC_HOOK_SECRET=a-secret-of-the-generic-hook
echo 'alerts: {hooks: {generic: {secret_env: GENERIC_HOOK_SECRET}}, default: {channel: web}}' >bot.yaml
export COUNTERSIGN_CONFIG=bot.yaml
bot run
`)
	}},
	"docs/archive-check.md": {prepare: exported},
}

// exported makes incident.zip, of a thread in which a command was proposed, and sets HASH
// to the hash of an anchor in it: one is made when the bot starts again.
func exported(t testing.TB, r *reader) error {
	if err := r.script(`echo '{targets: {local: {kind: local, approvers: [oncall]}}, groups: {oncall: {web: [you]}}}' >bot.yaml
export COUNTERSIGN_CONFIG=bot.yaml
bot run
`); err != nil {
		return err
	}
	link, err := r.do(step{text: "bot login you\n"}, "")
	if err != nil {
		return err
	}
	c, err := open(t.Context(), strings.Replace(strings.TrimSpace(link), usualListen, r.listen, 1))
	if err != nil {
		return err
	}
	thread, err := c.say(t.Context(), "please "+mutation)
	if err != nil {
		return err
	}
	if err := c.until(t.Context(), thread, message.asks); err != nil {
		return err
	}
	if err := r.interrupt(); err != nil {
		return err
	}
	if err := r.script("bot run\nuntil curl -fsS http://127.0.0.1:8700/metrics | grep -q '^countersign_audit_head{'; do sleep 0.1; done\n"); err != nil {
		return err
	}
	if err := r.interrupt(); err != nil {
		return err
	}
	return r.script("bot export " + thread + ` -o incident.zip
export HASH=$(unzip -p incident.zip audit.jsonl | sed -n 's/^{"anchor".*"hash":"\([0-9a-f]*\)"}$/\1/p' | head -n 1)
[ -n "$HASH" ]
`)
}

// script does what was done before the document.
func (r *reader) script(text string) error {
	list, err := steps(block{text: text})
	if err != nil {
		return err
	}
	for _, s := range list {
		if _, err := r.do(s, ""); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(s.text), err)
		}
	}
	return nil
}

// count is how many blocks there are of a sort.
type count map[string]int

func (c count) String() string {
	var parts []string
	for k, n := range c {
		parts = append(parts, fmt.Sprintf("%d %s", n, k))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// sortOf is what happens to a block.
func sortOf(blocks []block, i int) string {
	b := blocks[i]
	switch {
	case b.lang == "sh" && b.needs() != "":
		return "sh, not run: needs=" + b.needs()
	case b.lang == "sh" && b.marks["file"] != "":
		return "sh, a file"
	case b.lang == "sh":
		return "sh, run"
	case isOutput(blocks, i) && blocks[i-1].needs() == "":
		return "text, compared with what was printed"
	case b.lang == "text":
		return "text, read only"
	case b.lang == "yaml" && b.marks["kind"] == "":
		return "yaml, loaded as configuration"
	case b.lang == "yaml":
		return "yaml, kind=" + b.marks["kind"]
	case slices.Contains([]string{"json", "jsonl", "go", "python"}, b.lang):
		return b.lang + ", parsed"
	}
	return b.lang + ", read only"
}

// TestCommandBlocks does what the documents tell their readers to do. See the
// package's comment for what is checked of each block.
func TestCommandBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("to follow the documents takes a minute; without -short it is done")
	}
	missing(t, "tmux", "apt-get install tmux")
	missing(t, "curl", "apt-get install curl")
	missing(t, "unzip", "apt-get install unzip")
	docs, faults := documents(t)
	report(t, faults)
	all := count{}
	var m manual
	model := serveModel(t)
	t.Run("documents", func(t *testing.T) {
		for _, d := range docs {
			if len(d.blocks) == 0 {
				continue
			}
			for i := range d.blocks {
				all[sortOf(d.blocks, i)]++
			}
			t.Run(d.path, func(t *testing.T) {
				t.Parallel()
				config := ""
				scripts := false
				for _, b := range d.blocks {
					var faults []fault
					switch b.lang {
					case "sh":
						faults = static(t, &m, b)
						scripts = scripts || b.needs() == "" && b.marks["file"] == ""
					case "yaml":
						config, faults = yamlFaults(t, b, config)
					default:
						faults = codeFaults(t, b)
					}
					report(t, faults)
				}
				if !scripts || d.path != "README.md" && !needstest.Whole(t) {
					return
				}
				g := givens[d.path]
				var env []string
				if !g.bare {
					env = []string{"OPENAI_BASE_URL=" + model, "OPENAI_API_KEY=docs-no-key", "OPENAI_MODEL=scripted"}
				}
				r := newReader(t, model, env...)
				if g.prepare != nil {
					if err := g.prepare(t, r); err != nil {
						t.Fatalf("what %s presupposes cannot be made: %v", d.path, err)
					}
				}
				ran, faults := r.follow(d)
				report(t, faults)
				if err := r.interrupt(); err != nil {
					t.Errorf("%s: %v", d.path, err)
				}
				t.Logf("%s: %d blocks ran", d.path, ran)
			})
		}
	})
	t.Logf("blocks: %s", all)
}

// TestCommandsInSentences checks what the bot is told in the middle of a sentence or in
// a table: its subcommands and flags are there.
func TestCommandsInSentences(t *testing.T) {
	docs, _ := documents(t)
	var m manual
	n := 0
	for _, d := range docs {
		for _, c := range d.code {
			words := strings.Fields(strings.NewReplacer("[", " ", "]", " ", "|", " ", "(", " ", ")", " ").Replace(c.text))
			if len(words) < 2 || words[0] != "countersign" && words[0] != "./bot" {
				continue
			}
			n++
			for _, wrong := range m.check(t, words[1:]) {
				t.Error(faultAt(d.path, c.line, "`%s`: %s", c.text, wrong))
			}
		}
	}
	t.Logf("%d commands of the bot in sentences", n)
}
