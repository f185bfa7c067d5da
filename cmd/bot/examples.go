package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"countersign/adapters/chat/network"
	"countersign/cli"
)

// examples are what the help of each command shows, side by side.
var examples = map[string]string{ //nolint:gosec // no credentials
	"run": `  bot run --config /etc/countersign/countersign.yaml
  COUNTERSIGN_LISTEN=10.0.0.5:8700 bot run --insecure-http`,
	"init": `  bot init
  OPENAI_API_KEY=... bot init --model gpt-5-mini --person alice --host web-1`,
	"docs": `  bot docs
  bot docs two approvers
  bot docs policy-rules#match`,
	"demo": `  bot demo
  bot demo --ssh you@web-1`,
	"tool": `  bot tool run_shell '{"command": "uptime", "risk": "low", "mutation": false, "privesc": false, "why": "look"}'
  bot tool read_file '{"path": "/etc/hosts"}' --target web-1`,
	"tools": `  bot tools
  bot tools --preset full --json`,
	"classify": `  printf 'df -h\nrm -rf /srv\n' | bot classify
  bot classify --jsonl --dir /srv <commands.jsonl`,
	"config print": `  bot config print --config new.yaml`,
	"login": `  bot login alice
  bot login 'https://bot.example.com/#code=...'
  bot login --print --scope read 'https://bot.example.com/#code=...'`,
	"threads": `  bot threads --find nginx -o json`,
	"show":    `  bot show web:0123456789ab -f`,
	"exec": `  bot exec web-1 -- df -h /
  bot exec web-1 -- systemctl restart nginx`,
	"mcp":              `  claude mcp add countersign -- bot mcp`,
	"hook":             `  bot hook install claude-code`,
	"hook claude-code": `  bot hook claude-code <event.json`,
	"hook codex":       `  bot hook codex <event.json`,
	"hook gemini-cli":  `  bot hook gemini-cli <event.json`,
	"hook opencode":    `  bot hook opencode <event.json`,
	"request": `  bot request web-1 -- systemctl restart nginx
  bot request --wait --key deploy-42 web-1 -- systemctl restart nginx`,
	"calls":             `  bot calls`,
	"calls wait":        `  bot calls wait mfrggzdfmztwq2lk`,
	"calls withdraw":    `  bot calls withdraw mfrggzdfmztwq2lk`,
	"hook install":      `  bot hook install claude-code`,
	"send":              `  bot send --wait what is wrong with web-1`,
	"approvals":         `  bot approvals -o json`,
	"approvals list":    `  bot approvals list`,
	"approvals show":    `  bot approvals show 7v9fctk7sg`,
	"approvals approve": `  bot approvals approve 7v9fctk7sg`,
	"approvals deny":    `  bot approvals deny 7v9fctk7sg --reason 'after the release'`,
	"sessions":          `  bot sessions`,
	"attach": `  bot attach web:0123456789ab
  bot attach web:0123456789ab web-1:web-0123456789ab --take`,
	"replay": `  bot replay web:0123456789ab
  bot replay web:0123456789ab local-20260301-1 --speed 4`,
	"logs": `  bot logs -f
  bot logs --find nginx -o json`,
	"tokens": `  bot tokens
  bot tokens --of alice`,
	"tokens list":    `  bot tokens list -o yaml`,
	"tokens end":     `  bot tokens end 0123456789ab`,
	"tokens revoke":  `  bot tokens revoke 0123456789ab`,
	"logout":         `  bot logout`,
	"web login":      `  bot web login alice --url https://bot.example.com`,
	"version":        `  bot version`,
	"healthz":        `  bot healthz --ready`,
	"slack manifest": `  bot slack manifest --name Oncall`,
	"discord invite": `  bot discord invite 123456789012345678`,
	"doctor": `  bot doctor
  bot doctor --live C0123456789`,
	"policy explain": `  bot policy explain --target web-1 --user web:alice 'systemctl restart nginx'`,
	"policy test":    `  bot policy test policy/*.yaml`,
	"policy replay":  `  bot policy replay --policy new.yaml --since 7d`,
	"audit verify": `  bot audit verify
  bot audit verify record.jsonl`,
	"audit export": `  bot audit export --since 30d >record.jsonl`,
	"export":       `  bot export web:0123456789ab --out incident.zip`,
	"forget": `  bot forget web:0123456789ab
  bot forget --person web:anna`,
	"verify": `  bot verify incident.zip
  bot verify --key web:alice=3f9a0c61d2b4 incident.zip`,
	"signer init":   `  bot signer init /etc/countersign-signer`,
	"signer check":  `  bot signer check`,
	"signer run":    `  bot signer run --config /etc/countersign-signer/signer.yaml`,
	"signer rotate": `  bot signer rotate`,
	"signer enroll": `  bot signer enroll web-1 >enroll.sh`,
	"witness init":  `  bot witness init witness.example.com /etc/countersign-witness`,
	"witness run":   `  bot witness run --config /etc/countersign-witness/witness.yaml`,
	"upgrade":       `  bot upgrade --check`,
	"backup":        `  bot backup countersign-2026-03-01.tar`,
	"restore": `  bot restore countersign-2026-03-01.tar
  bot restore --database`,
	"store check": `  bot store check
  bot store check countersign-2026-03-01.tar`,
	"store compact": `  bot store compact`,
	"store prune":   `  bot store prune`,
	"store migrate": `  bot store migrate --from bolt --to postgres --dry-run`,
}

// pages are the documents about commands, by their first word, for their help and their errors.
// What the help says itself has none.
var pages = map[string]string{
	"run": "configuration", "init": "first-five-minutes", "demo": "first-five-minutes", "tool": "one-shot", "tools": "tools", "classify": "proof",
	"config": "configuration", "login": "sign-in", "web": "sign-in", "doctor": "doctor", "healthz": "operations",
	"policy": "policy", "audit": "audit", "export": "archive", "verify": "archive-check", "upgrade": "operations", "backup": "backup", "restore": "backup",
	"store": "store", "forget": "store", "threads": "command-line", "show": "command-line", "send": "command-line", "exec": "command-line", "request": "command-line", "calls": "command-line", "mcp": "other-agents", "hook": "agent-hooks",
	"approvals": "command-line", "sessions": "command-line", "attach": "command-line", "replay": "command-line", "logs": "command-line",
	"target": "signer", "signer": "signer", "witness": "witnesses", "tokens": "command-line", "logout": "command-line",
}

// groups are the parts of the list of commands.
var groups = []struct{ title, commands string }{
	{"Start:", "init run demo doctor config upgrade healthz version"},
	{"Conversations and approvals:", "threads show send approvals exec request calls"},
	{"Terminals:", "sessions attach replay"},
	{"Sign-in:", "login logout tokens web"},
	{"Agents and networks:", "mcp hook slack discord"},
	{"Policy and tools:", "policy classify tools tool"},
	{"Record and proof:", "logs audit export forget verify signer witness"},
	{"Store:", "backup restore store"},
	{"Help:", "docs completion help"},
}

// grouped puts the commands of the program into groups.
func grouped(c *cobra.Command) {
	for _, g := range groups {
		c.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, sub := range c.Commands() {
			if slices.Contains(strings.Fields(g.commands), sub.Name()) {
				sub.GroupID = g.title
			}
		}
	}
	c.SetHelpCommandGroupID("Help:")
	c.SetCompletionCommandGroupID("Help:")
}

// withExamples gives each command its examples and its document. path is of the commands above it.
func withExamples(c *cobra.Command, path string) {
	for _, sub := range c.Commands() {
		sub.Example = examples[path+sub.Name()]
		first, _, _ := strings.Cut(path+sub.Name(), " ")
		page := pages[first]
		if network.Of(first).Token != "" {
			page = first
		}
		if page != "" {
			cli.SetPage(sub, page)
			sub.Long = cmp.Or(sub.Long, sub.Short+".") + "\n\nRead more: bot docs " + page
		}
		withExamples(sub, path+sub.Name()+" ")
	}
}
