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
				Name: "code_analyzer", Description: "Reads code closely and says what it does, where it is wrong, and how sure that is. It changes and runs nothing.",
				Additional: slices.Concat(indexer, []string{"read", "grep", "ls", "git_log", "git_diff", "read_output"}),
				ReadOnly:   true, Steps: lookSteps,
			},
			When:    []string{"For \"why does this happen\", \"is this safe\", \"what breaks if I change it\" about code whose place is known.", "To have a change looked through before it is proposed."},
			Not:     []string{"When it is not known where the code is: sub_agent_code_explorer.", "When a test run would settle it: run the test."},
			Differs: []string{"sub_agent_code_analyzer explains and judges; sub_agent_code_explorer finds and maps; sub_agent_code_writer changes."},
			Examples: []string{
				"In /srv/checkout, internal/pay/retry.go: can a payment be sent twice when the gateway answers after the deadline? Give the lines.",
				"Look through the staged changes in /srv/api for errors that are dropped and locks that are not released.",
			},
		},
		{
			Role: Role{
				Name: "code_explorer", Description: "Finds its way around a code base: where something is, how the parts hang together. It changes nothing.",
				Additional: slices.Concat(indexer, []string{"read", "grep", "find", "ls", "git_log", "git_status", "read_output"}),
				ReadOnly:   true, Steps: lookSteps,
			},
			When:    []string{"To find where something is done in a code base that you do not know, when that takes many searches.", "To get a map of a repository: entry points, packages, who calls whom."},
			Not:     []string{"For one word or one file: grep, find and read are faster.", "To judge whether code is right: sub_agent_code_analyzer."},
			Differs: []string{"sub_agent_code_explorer finds and maps; sub_agent_code_analyzer explains and judges; sub_agent_code_writer changes."},
			Examples: []string{
				"In /srv/checkout: where are retries of payments decided, and which settings reach that place? Report path:line.",
				"Map /srv/api: entry points, background jobs, and what each writes to the database.",
			},
		},
		{
			Role: Role{
				Name: "code_writer", Description: "Makes one change in a code base, with tests, and reports what it did. Each change and each command that is no mere look is asked for in the thread.",
				Additional: []string{
					"read", "grep", "find", "ls", "indexer_search_code", "indexer_extract_symbols", "edit", "write_file", "create_file", "apply_patch",
					"run_shell", "git_status", "git_diff", "git_log", "read_output",
				},
				Steps: workSteps,
			},
			When:    []string{"For a change in code that is decided and clear, and takes more than an edit or two."},
			Not:     []string{"While it is open what should change: find that out first, or ask.", "For a setting in one file: edit."},
			Differs: []string{"sub_agent_code_writer changes code and runs its tests; sub_agent_shell_executor runs commands on a machine."},
			Examples: []string{
				"In /srv/checkout: give the client in internal/pay/client.go a deadline of 5 seconds per attempt, add a test, run go test ./internal/pay.",
			},
		},
		{
			Role: Role{
				Name: "researcher", Description: "Searches the web, reads pages and says what is known, with addresses. It touches no machine of ours.",
				Additional: []string{"web_search", "web_search_answer", "web_fetch", "web_extract", "read_output", "time"},
				Steps:      lookSteps,
			},
			When:    []string{"For a question that takes several searches and pages: a known problem, what a release changed, how two products compare."},
			Not:     []string{"For one page whose address is known: web_fetch.", "For anything about our own machines: it is not on the web."},
			Differs: []string{"sub_agent_researcher reads what strangers wrote; sub_agent_code_explorer reads our code. Searches and addresses leave the house, so give it no names or data of ours."},
			Examples: []string{
				"Does PostgreSQL 17.2 have a known problem with logical replication slots growing after a failover? Which version fixes it?",
			},
		},
		{
			Role: Role{
				Name: "shell_executor", Description: "Carries out a series of commands on a machine, in terminals and in the background, and watches them to the end. What changes something is asked for in the thread.",
				Additional: slices.Concat(tmux, background, []string{"run_shell", "read_file", "read_output", "time"}),
				Steps:      workSteps,
			},
			When:    []string{"For a series of commands whose output would flood the thread: a long build, a migration by the book, a search through many logs."},
			Not:     []string{"For a few commands: run_shell.", "When each next command is a decision that people should take part in."},
			Differs: []string{"sub_agent_shell_executor works through commands and reports; propose_plan has people approve a list of calls at once; run_bash_background starts one command."},
			Examples: []string{
				"On web-1: build /srv/app with make release, watch it, and report the first error with 20 lines around it, or the size of the result.",
			},
		},
	}
	for i := range all {
		r := &all[i].Role
		r.Preset, r.Prompt, r.Tokens, r.builtin = "none", promptOf(r.Name), taskTokens, true
	}
	return all
}
