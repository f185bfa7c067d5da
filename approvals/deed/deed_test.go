package deed

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"countersign/approvals"
	"countersign/approvals/risk"
)

//go:embed testdata/deeds.tsv
var golden string

// judged returns the deed of a command as the gate has it: with the risk engine's effects.
func judged(command string) string {
	var effects []string
	for _, e := range risk.Classify(command).Effects {
		effects = append(effects, string(e))
	}
	return Headline(approvals.Action{Kind: approvals.KindShell, Bytes: []byte(command)}, effects)
}

func commands(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(golden) {
		want, command, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("no tab in %q", line)
		}
		out[strings.ReplaceAll(command, `\n`, "\n")] = want
	}
	return out
}

func TestCommandsHaveTheirDeed(t *testing.T) {
	kinds := map[string]bool{}
	for command, want := range commands(t) {
		if got := judged(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
		if want != Unknown {
			kinds[want] = true
		}
	}
	if len(kinds) < 60 {
		t.Errorf("%d deeds", len(kinds))
	}
}

// A deed tells all of a text: another command behind it, whatever joins them, changes it.
func TestNothingHidesBehindADeed(t *testing.T) {
	for command, want := range commands(t) {
		for _, tail := range []string{"\nrm -rf /srv/x", "; rm -rf /srv/x", " && rm -rf /srv/x", " || rm -rf /srv/x", " | sh", " &\nrm -rf /srv/x", " $(rm -rf /srv/x)", " `rm -rf /srv/x`", " > /etc/passwd"} {
			if got := judged(command + tail); got == want && got != Unknown && !strings.HasPrefix(command+tail, "#") {
				if strings.HasPrefix(want, "Run a command in ") || strings.HasPrefix(want, "Run a command on ") {
					continue // the words behind ssh are the command there, whatever they are
				}
				t.Errorf("%q: %q", command+tail, got)
			}
		}
	}
}

// An effect that the engine found and the sentence doesn't tell makes the deed unknown.
func TestADeedTellsEveryEffect(t *testing.T) {
	for command, effects := range map[string][]string{
		"gzip x":                  {"write", "network"},
		"systemctl restart nginx": {"service", "exec"},
		"rm x":                    {"delete", "unknown"},
		"mkdir x":                 {"write", "a-new-effect"},
		"rm x && mkdir y":         {"delete", "write", "privesc"},
		"find /x -delete":         {"delete", "exec"},
		"df > x":                  {"write", "exec"},
	} {
		if got := Headline(approvals.Action{Kind: approvals.KindShell, Bytes: []byte(command)}, effects); got != Unknown {
			t.Errorf("%q with %v: %q", command, effects, got)
		}
	}
}

func TestToolsHaveTheirDeed(t *testing.T) {
	diff := "diff /srv/nginx.conf /srv/nginx.conf\n--- /srv/nginx.conf\n+++ /srv/nginx.conf\n@@ -1,2 +1,4 @@\n a\n-b\n+c\n++d\n+-e\n"
	for want, a := range map[string]approvals.Action{
		"Change nginx.conf (+3 −1)":                       {Tool: "edit", Kind: approvals.KindChange, Path: "/srv/nginx.conf", Preview: diff, Whole: true},
		"Change nginx.conf":                               {Tool: "write_file", Kind: approvals.KindChange, Path: "/srv/nginx.conf", Preview: diff},
		"Create a.txt":                                    {Tool: "write_file", Kind: approvals.KindChange, Path: "/srv/a.txt", Files: map[string]string{"/srv/a.txt": "absent"}},
		"Change 2 files (+6 −2)":                          {Tool: "apply_patch", Kind: approvals.KindChange, Paths: []string{"/a", "/b"}, Preview: diff + diff, Whole: true},
		"Change one (+3 −1)":                              {Tool: "apply_patch", Kind: approvals.KindChange, Paths: []string{"/one"}, Preview: diff, Whole: true},
		"Delete a.txt":                                    {Tool: "delete_file", Kind: approvals.KindChange, Path: "/srv/a.txt"},
		"Delete a file":                                   {Tool: "delete_file", Kind: approvals.KindChange, Path: "/srv/a\u202etxt"},
		"Undo a change to a.txt":                          {Tool: "undo", Kind: approvals.KindChange, Paths: []string{"/srv/a.txt"}},
		"Type into vim":                                   {Tool: "send-keys", Kind: approvals.KindKeys, Foreground: "vim", Bytes: []byte("type \"x\"\n")},
		"Type into the terminal":                          {Tool: "send-keys", Kind: approvals.KindKeys, Bytes: []byte("type \"x\"\n")},
		"Interrupt what runs in the terminal":             {Tool: "send-keys", Kind: approvals.KindKeys, Bytes: []byte("press C-c\n")},
		"Close a terminal session and everything in it":   {Tool: "tmux-kill-session", Kind: approvals.KindChange},
		"Run 3 steps":                                     {Tool: "propose_plan", Kind: approvals.KindChange, Steps: make([]approvals.Action, 3)},
		"Use the tool create_issue":                       {Tool: "create_issue", Kind: approvals.KindChange, Args: json.RawMessage(`{}`)},
		"Use a tool":                                      {Tool: "create issue, harmless", Kind: approvals.KindChange},
		"Run a program":                                   {Tool: "execute_code", Kind: approvals.KindChange, Bytes: []byte("print(1)")},
		"Trust the SSH key":                               {Tool: "trust_host_key", Kind: approvals.KindChange},
		"Stop a background process":                       {Tool: "interrupt_background_process", Kind: approvals.KindChange},
		"Raise a spending cap":                            {Tool: "extend_budget", Kind: approvals.KindChange},
		"Trust a tool's new definition":                   {Tool: "trust_mcp_tool", Kind: approvals.KindChange},
		"Trust the tool mcp_tickets_search as it is now":  {Tool: "trust_mcp_tool", Kind: approvals.KindChange, Args: json.RawMessage(`{"tool":"mcp_tickets_search"}`)},
		"Open a terminal session":                         {Tool: "tmux-create-session", Kind: approvals.KindChange},
		"Open a terminal":                                 {Tool: "tmux-create-pane", Kind: approvals.KindChange},
		"Close a terminal and what runs in it":            {Tool: "tmux-kill-pane", Kind: approvals.KindChange},
		"Run a command":                                   {Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("rm x\u202e")},
		"Delete /srv/a and everything in it, then stop b": {Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("rm -r /srv/a; systemctl stop b")},
	} {
		var effects []string
		if a.Kind == approvals.KindShell {
			for _, e := range risk.Classify(string(a.Bytes)).Effects {
				effects = append(effects, string(e))
			}
		}
		if got := Headline(a, effects); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestARowThatCannotBeReadIsRefused(t *testing.T) {
	for _, line := range []string{"rm", "rm | Delete", "| x | y | z", "a | b | c | d | e"} {
		if _, _, err := parseRow(line); err == nil {
			t.Errorf("%q was read", line)
		}
	}
	if len(rows()) < 60 {
		t.Errorf("%d programs", len(rows()))
	}
}

// FuzzDeed: whatever the text, the deed is one short printable line, and another command
// behind the text changes it.
func FuzzDeed(f *testing.F) {
	for command := range commands(f) {
		f.Add(command)
	}
	f.Fuzz(func(t *testing.T, command string) {
		got := judged(command)
		if len(got) > 250 || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) || r > 0x7f }) {
			t.Errorf("%q: %q", command, got)
		}
		more := command + "\nmkfs.ext4 /dev/sda1"
		if !strings.Contains(command, "\\") && !strings.Contains(command, "<<") && got != Unknown && judged(more) == got {
			t.Errorf("%q and more: %q", command, got)
		}
	})
}
