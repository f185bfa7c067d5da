package admin

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/discord"
	"countersign/adapters/slack"
	"countersign/approvals/policy"
	"countersign/config"
	"countersign/config/rules"
)

const policies = "../../docs/policies"

// askPolicy runs a subcommand as the operator of a configuration would.
func askPolicy(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("COUNTERSIGN_CONFIG", file)
	t.Setenv("COUNTERSIGN_DATA_DIR", t.TempDir())
	var out strings.Builder
	c := root()
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	cookbookBlock = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	policyExplain = regexp.MustCompile(`(?m)^countersign policy explain (.*?) ?'(.*)'$`)
)

// recipes are the pages of the cookbook, by the name of their policy.
func recipes(t *testing.T) (sections map[string]string) {
	t.Helper()
	sections = map[string]string{}
	pages, err := filepath.Glob("../../docs/cookbook-*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		s := readText(t, page)
		m := regexp.MustCompile(`countersign policy test docs/policies/([a-z-]+)\.test\.yaml`).FindStringSubmatch(s)
		if m == nil {
			t.Fatalf("the page %.40q does not say how to run its table", s)
		}
		if sections[m[1]] != "" {
			t.Fatalf("the policy %s has two pages", m[1])
		}
		sections[m[1]] = s
	}
	return sections
}

func TestTheCookbookHolds(t *testing.T) {
	page := recipes(t)
	files, err := filepath.Glob(policies + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(page) < 10 || len(files) != 2*len(page) {
		t.Fatalf("%d sections and %d files; each section has a policy and a table", len(page), len(files))
	}
	for name, section := range page {
		t.Run(name, func(t *testing.T) {
			file, table := filepath.Join(policies, name+".yaml"), filepath.Join(policies, name+".test.yaml")
			blocks := cookbookBlock.FindAllStringSubmatch(section, -1)
			shown := func(info, text string) bool {
				return slices.ContainsFunc(blocks, func(b []string) bool { return b[1] == info && b[2] == text })
			}
			if !shown("yaml", readText(t, file)) || !shown("yaml kind=policy-test", readText(t, table)) {
				t.Error("the page does not show the two files word for word")
			}
			for _, word := range []string{"**What happens.**", "**What it doesn't protect from.**"} {
				if !strings.Contains(section, word) {
					t.Errorf("the section lacks %s", word)
				}
			}
			rows, err := readTable(table)
			if err != nil {
				t.Fatal(err)
			}
			lanes := map[string]bool{}
			for _, r := range rows {
				lanes[r.Expect] = true
			}
			if len(rows) < 5 || len(lanes) < 2 {
				t.Errorf("%d rows, all of the lanes %v; show at least five, and what is different", len(rows), lanes)
			}
			out, err := askPolicy(t, file, "policy", "test", table)
			if err != nil || out != fmt.Sprintf("all %d rows hold\n", len(rows)) || !shown("", out) {
				t.Errorf("%v\n%s", err, out)
			}
			for _, m := range policyExplain.FindAllStringSubmatch(section, -1) {
				args := append([]string{"policy", "explain"}, strings.Fields(m[1])...)
				if out, err := askPolicy(t, file, append(args, m[2])...); err != nil || !shown("", out) {
					t.Errorf("%s: %v\n%s", m[0], err, out)
				}
			}
		})
	}
}

// TestEachPolicyOfTheCookbookMatters: without what it is about, its table misses, or,
// where it is about people and times, the answer of explain is another one.
func TestEachPolicyOfTheCookbookMatters(t *testing.T) {
	for name, section := range recipes(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(policies, name+".yaml")
			f, err := config.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range f.Policy.Rules {
				if len(r.Examples.Match) == 0 || len(r.Examples.NotMatch) == 0 {
					t.Errorf("the rule %s has no examples of what it matches and what not", r.Name)
				}
			}
			bare := f
			bare.Policy, bare.Channels = policy.Config{}, nil
			rules, err := rules.New(bare)
			if err != nil {
				t.Fatal(err)
			}
			c := root()
			c.SetContext(t.Context())
			rows, err := readTable(filepath.Join(policies, name+".test.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("COUNTERSIGN_CONFIG", path) // where tools are looked up
			t.Setenv("COUNTERSIGN_DATA_DIR", t.TempDir())
			k := &explainer{rules: rules, scratch: scratchOf(c), specs: map[string]toolLevel{}}
			for _, r := range rows {
				if why, err := k.mismatch(t.Context(), r); err != nil {
					t.Fatal(err)
				} else if why != "" {
					return
				}
			}
			m := policyExplain.FindStringSubmatch(section)
			if m == nil {
				t.Fatal("its table holds without it, and nothing is explained")
			}
			q := Question{Command: m[2], User: strings.Fields(m[1])[1], At: noon}
			in, d, err := k.judge(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(section, k.explain(in, d)) {
				t.Error("its table and its explanation hold without it")
			}
		})
	}
}

// TestThePagesOfTheNetworksNameWhatIsAskedFor: each permission with the reason that the
// manifest or the invitation gives, each event, each word of the slash command, each
// variable.
func TestThePagesOfTheNetworksNameWhatIsAskedFor(t *testing.T) {
	want := map[string][]string{"slack": {slack.SlashCommand}, "discord": {"/" + discord.CommandName}}
	for _, s := range slack.Scopes() {
		want["slack"] = append(want["slack"], "`"+s.Name+"`")
		if s.Need != slack.Optional {
			mention := "yes"
			if s.Need == slack.FollowUps {
				mention = "no"
			}
			want["slack"] = append(want["slack"], fmt.Sprintf("| `%s` | %s | %s |", s.Name, strings.ReplaceAll(s.Reason, slack.SlashCommand, "`"+slack.SlashCommand+"`"), mention))
		}
	}
	for _, e := range slack.Events() {
		want["slack"] = append(want["slack"], "`"+e.Name+"`")
	}
	for _, p := range discord.Permissions() {
		want["discord"] = append(want["discord"], fmt.Sprintf("%-26s %s", p.Name, p.Reason))
	}
	for _, name := range config.SecretNames {
		for network := range want {
			if strings.HasPrefix(name, strings.ToUpper(network)) {
				want[network] = append(want[network], name+"_FILE")
			}
		}
	}
	for _, word := range []string{"status", "approvals", "sessions", "run", "stop", "help"} {
		want["slack"] = append(want["slack"], "`"+slack.SlashCommand+" "+word)
		want["discord"] = append(want["discord"], "`/"+discord.CommandName+" "+word)
	}
	for network, list := range want {
		var page string
		for _, about := range []string{"", "-permissions", "-buttons", "-people"} {
			if network == "discord" && about == "-permissions" {
				continue // they are on its first page
			}
			page += readText(t, "../../docs/"+network+about+".md")
		}
		for _, w := range list {
			if !strings.Contains(page, w) {
				t.Errorf("no page about %s has %q", network, w)
			}
		}
	}
}
