package deed

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"countersign/approvals"
	"countersign/approvals/argv"
)

// tool returns the deed of an action that is not shell text, or "".
func tool(a approvals.Action) string {
	switch a.Tool {
	case "write_file", "write", "create_file", "edit":
		return change(a)
	case "apply_patch", "allow_edit":
		if len(a.Paths) > 1 {
			return fmt.Sprintf("Change %d files%s", len(a.Paths), counted(a))
		}
		return change(a)
	case "delete_file":
		return "Delete " + file(a)
	case "undo":
		return "Undo a change to " + file(a)
	case "send-keys":
		return keys(a)
	case "tmux-create-session":
		return "Open a terminal session"
	case "tmux-create-pane":
		return "Open a terminal"
	case "tmux-kill-session":
		return "Close a terminal session and everything in it"
	case "tmux-kill-pane":
		return "Close a terminal and what runs in it"
	case "interrupt_background_process":
		return "Stop a background process"
	case "execute_code":
		return "Run a program"
	case "trust_host_key":
		return "Trust the SSH key"
	case "trust_mcp_tool":
		return trustTool(a)
	case "extend_budget":
		return "Raise a spending cap"
	case "read_file", "read":
		return "Read " + file(a)
	case "ls":
		return "List a directory"
	case "find", "indexer_search_files":
		return "Find files"
	case "grep", "indexer_search_code":
		return "Search in files"
	case "capture-pane":
		return "Look at the terminal"
	case "search_history":
		return "Search this thread"
	case "read_output":
		return "Read an output"
	case "time":
		return "Tell the time"
	case "web_search":
		return "Search the web"
	case "fetch_url":
		return "Fetch a page"
	}
	return ""
}

// trustTool names the tool whose new definition is trusted.
func trustTool(a approvals.Action) string {
	var args struct{ Tool string }
	if json.Unmarshal(a.Args, &args) == nil && plainName.MatchString(args.Tool) {
		return "Trust the tool " + args.Tool + " as it is now"
	}
	return "Trust a tool's new definition"
}

// change returns the deed of a file's new content.
func change(a approvals.Action) string {
	name := a.Path
	if name == "" && len(a.Paths) == 1 {
		name = a.Paths[0]
	}
	verb := "Change "
	if a.Files[name] == approvals.Absent {
		verb = "Create "
	}
	return verb + file(a) + counted(a)
}

// file names the one file of an action.
func file(a approvals.Action) string {
	name := a.Path
	if name == "" && len(a.Paths) == 1 {
		name = a.Paths[0]
	}
	if name == "" {
		return "a file"
	}
	if s, ok := shown(argv.Word{Text: path.Base(name)}, true); ok {
		return s
	}
	return "a file"
}

// counted returns the lines that a whole diff adds and removes, " (+3 −1)", or "".
func counted(a approvals.Action) string {
	if !a.Whole {
		return ""
	}
	added, removed, header := 0, 0, true
	for l := range strings.Lines(a.Preview) {
		switch {
		case strings.HasPrefix(l, "diff "), strings.HasPrefix(l, "new file "):
			header = true
		case strings.HasPrefix(l, "@@"):
			header = false
		case header:
		case strings.HasPrefix(l, "+"):
			added++
		case strings.HasPrefix(l, "-"):
			removed++
		}
	}
	if added+removed == 0 {
		return ""
	}
	return fmt.Sprintf(" (+%d −%d)", added, removed)
}

// keys returns the deed of keystrokes.
func keys(a approvals.Action) string {
	switch {
	case a.Interrupts():
		return "Interrupt what runs in the terminal"
	case a.Foreground != "":
		if s, ok := shown(argv.Word{Text: a.Foreground}, true); ok {
			return "Type into " + s
		}
	}
	return "Type into the terminal"
}
