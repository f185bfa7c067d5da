package gitcmd

import (
	"encoding/json"
	"fmt"
	"slices"

	"countersign/approvals/risk"
	"countersign/tools"
)

// Shape returns what a call does as far as its arguments tell, without a repository: the command of
// a change, or "" for a read, and its level. Where the repository decides the rest (the pushed
// commit, the current branch), a name stands in. A read counts as a read even though a repository
// with filters turns it into a change. Omitted arguments get their defaults. ok is false for other
// tools.
func Shape(name string, raw json.RawMessage) (text string, level risk.Level, ok bool, err error) {
	i := slices.IndexFunc(definitions(), func(d def) bool { return d.name == name })
	if i < 0 {
		return "", risk.Unknown, false, nil
	}
	a := args{Remote: "origin", Action: "push", Mode: "mixed"}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a); err != nil {
			return "", risk.Unknown, true, tools.Invalid("%v", err)
		}
	}
	argv, level := a.shape(name)
	if argv == nil {
		return "", level, true, nil
	}
	text, err = quoted(argv)
	return text, level, true, err
}

// shape returns the argv of a change, nil for a read, and the level.
func (a args) shape(name string) ([]string, risk.Level) {
	on := "HEAD"
	if a.Branch != "" {
		on = "refs/heads/" + a.Branch
	}
	switch name {
	case "git_add":
		return append([]string{"git", "add", "--"}, a.Files...), risk.Medium
	case "git_commit":
		return []string{"git", "commit", "-m", a.Message}, risk.Medium
	case "git_checkout":
		if a.Create {
			return []string{"git", "checkout", "-b", a.Branch}, risk.Medium
		}
		return []string{"git", "checkout", a.Branch, "--"}, risk.Medium
	case "git_branch":
		switch {
		case a.Name == "":
			return nil, risk.Read
		case a.Delete && a.Force:
			return []string{"git", "branch", "-D", a.Name}, risk.High
		case a.Delete:
			return []string{"git", "branch", "-d", a.Name}, risk.High
		case a.Start != "":
			return []string{"git", "branch", a.Name, a.Start}, risk.Medium
		}
		return []string{"git", "branch", a.Name}, risk.Medium
	case "git_push":
		argv := []string{"git", "push"}
		if a.Force {
			argv = append(argv, "--force")
		}
		return append(argv, "--no-follow-tags", a.Remote, on+":"+on), risk.High
	case "git_pull":
		return []string{"git", "pull", "--no-rebase", "--no-edit", "--no-recurse-submodules", a.Remote, on}, risk.Medium
	case "git_merge":
		return []string{"git", "merge", "--no-edit", a.Branch}, risk.High
	case "git_stash":
		argv := []string{"git", "stash", a.Action}
		switch a.Action {
		case "list":
			return nil, risk.Read
		case "push":
			if a.Untracked {
				argv = append(argv, "--include-untracked")
			}
			if a.Message != "" {
				argv = append(argv, "-m", a.Message)
			}
			return argv, risk.Medium
		case "drop":
			return append(argv, fmt.Sprintf("stash@{%d}", a.Index)), risk.High
		}
		return append(argv, fmt.Sprintf("stash@{%d}", a.Index)), risk.Medium
	case "git_reset":
		ref := a.Ref
		if ref == "" {
			ref = "HEAD"
		}
		return []string{"git", "reset", "--" + a.Mode, ref, "--"}, risk.High
	}
	return nil, risk.Read // git_status, git_diff, git_log
}
