package role

import (
	"embed"
	"slices"
)

//go:embed prompts/*.md
var prompts embed.FS

// promptOf is the embedded prompt of a built-in role.
func promptOf(name string) string {
	b, err := prompts.ReadFile("prompts/" + name + ".md")
	if err != nil {
		panic("role: " + err.Error()) // a mistake in the program; every test says so
	}
	return string(b)
}

// changing are tools of level read whose calls can be more than looks: the level of a command
// is that of its text, and a branch can be listed or deleted. The two after them stand here so
// that no later level brings them back.
func changing() []string {
	return []string{"run_shell", "bash", "git_branch", "git_stash", "execute_code", "send-keys"}
}

// Builtin returns the built-in roles, sorted by name.
func Builtin() []Role {
	all := []Role{
		{
			Name: "architect", Description: "Thinks and plans with the team, without any tool.",
			Preset: "none",
		},
		{
			Name: "operator", Description: "For everything: questions, incidents and tasks, with all tools.",
			Preset: "full",
		},
		{
			Name: "oracle", Description: "Looks and explains, changes nothing, and runs no commands.",
			Preset: "full", Levels: []string{"read"}, Disabled: changing(), ReadOnly: true,
		},
		{
			Name: "seraph", Description: "Carries out a change that was decided, and proves it, with all tools.",
			Preset: "full",
		},
	}
	for i := range all {
		all[i].Prompt, all[i].builtin = promptOf(all[i].Name), true
	}
	return all
}

// limits of the built-in sub-agents: enough for a long task, and far from a whole turn.
const (
	lookSteps  = 30
	workSteps  = 40
	taskTokens = 250_000
)

// BuiltinSubAgents returns the built-in sub-agents, sorted by id.
func BuiltinSubAgents() []SubAgent {
	indexer := []string{
		"indexer_search_code", "indexer_search_files", "indexer_analyze_file", "indexer_extract_symbols", "indexer_get_metrics", "indexer_detect_language",
	}
	tmux := []string{"capture-pane", "send-keys", "tmux-create-session", "tmux-kill-session", "tmux-create-pane", "tmux-kill-pane"}
	background := []string{"run_bash_background", "get_background_status", "get_background_output", "interrupt_background_process"}
	all := []SubAgent{
		{
			Role: Role{
				Name: "code_analyzer", Description: "Reads code and reports what it does and where it is wrong. It changes nothing.",
				Additional: slices.Concat(indexer, []string{"read", "grep", "ls", "git_log", "git_diff", "read_output"}),
				ReadOnly:   true, Steps: lookSteps,
			},
			When:    []string{"To explain known code, judge its safety or review a change."},
			Not:     []string{"When the place is unknown: sub_agent_code_explorer."},
			Differs: []string{"It explains code; sub_agent_code_explorer finds it; sub_agent_code_writer changes it."},
			Examples: []string{
				"In /srv/shop/pay/retry.go: can a payment be sent twice? Give the lines.",
			},
		},
		{
			Role: Role{
				Name: "code_explorer", Description: "Finds where things are in a code base and how they connect. It changes nothing.",
				Additional: slices.Concat(indexer, []string{"read", "grep", "find", "ls", "git_log", "git_status", "read_output"}),
				ReadOnly:   true, Steps: lookSteps,
			},
			When:    []string{"To search or map code that you do not know."},
			Not:     []string{"For one word or file: grep, find."},
			Differs: []string{"It finds code; sub_agent_code_analyzer explains it; sub_agent_code_writer changes it."},
			Examples: []string{
				"In /srv/shop: where are payment retries decided? Report path:line.",
			},
		},
		{
			Role: Role{
				Name: "code_writer", Description: "Makes one change in a code base, with tests.",
				Additional: []string{
					"read", "grep", "find", "ls", "indexer_search_code", "indexer_extract_symbols", "edit", "write_file", "create_file", "apply_patch",
					"run_shell", "git_status", "git_diff", "git_log", "read_output",
				},
				Steps: workSteps,
			},
			When:    []string{"For a decided code change that takes several edits."},
			Not:     []string{"While it is open what should change. For one setting: edit."},
			Differs: []string{"It changes code and runs tests; sub_agent_shell_executor runs commands."},
			Examples: []string{
				"In /srv/shop: give pay/client.go a 5 s timeout, add a test, run go test ./pay.",
			},
		},
		{
			Role: Role{
				Name: "researcher", Description: "Searches the web and reports what is known, with addresses.",
				Additional: []string{"web_search", "web_search_answer", "web_fetch", "web_extract", "read_output", "time"},
				Steps:      lookSteps,
			},
			When:    []string{"For a question that takes several searches and pages."},
			Not:     []string{"For one known page: fetch_url or web_fetch."},
			Differs: []string{"It reads the web; sub_agent_code_explorer reads our code. Give it no internal names or data: searches go to outsiders."},
			Examples: []string{
				"Which PostgreSQL version fixes growing replication slots?",
			},
		},
		{
			Role: Role{
				Name: "shell_executor", Description: "Runs a series of commands on a machine and watches them to the end.",
				Additional: slices.Concat(tmux, background, []string{"run_shell", "read_file", "read_output", "time"}),
				Steps:      workSteps,
			},
			When:    []string{"For many commands with long output: a build, a migration, many logs."},
			Not:     []string{"For a few commands: run_shell."},
			Differs: []string{"It works through commands; propose_plan gets several calls approved at once."},
			Examples: []string{
				"On web-1: run make release in /srv/app and report the first error.",
			},
		},
	}
	for i := range all {
		r := &all[i].Role
		r.Preset, r.Prompt, r.Tokens, r.builtin = "none", promptOf(r.Name), taskTokens, true
	}
	return all
}
