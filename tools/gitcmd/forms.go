package gitcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"countersign/approvals/risk"
	"countersign/tools"
)

const (
	// shownLines is how many lines of a read's output a card shows.
	shownLines = 20
	defaultLog = 20
	maxLog     = 200
)

func text(description string) tools.Property {
	return tools.Property{Type: "string", MinLength: 1, MaxLength: maxName, Description: description}
}

func flag(description string) tools.Property {
	return tools.Property{Type: "boolean", Default: false, Description: description}
}

// definitions returns the twelve tools.
func definitions() []def {
	place := tools.Property{Type: "string", MinLength: 1, MaxLength: 4096,
		Description: "Repository, or a file or directory in it: then only that. Default: the target's directory."}
	remote := tools.Property{Type: "string", Default: "origin", MinLength: 1, MaxLength: maxName, Description: "Configured remote."}
	return []def{
		{name: "git_status", level: risk.Read, build: status, props: map[string]tools.Property{
			"short": flag("One line a file."),
		}},
		{name: "git_diff", level: risk.Read, part: true, build: diff, props: map[string]tools.Property{
			"staged": flag("Show staged changes."),
			"ref":    text("Commit, A..B or A...B."),
			"path":   place, "stat": flag("Only sizes of changes."),
		}},
		{name: "git_log", level: risk.Read, part: true, build: logCommits, props: map[string]tools.Property{
			"max_count": {Type: "integer", Default: defaultLog, Minimum: 1, Maximum: maxLog, Description: "Most commits."},
			"ref":       text("First commit, or A..B; default HEAD."),
			"path":      place, "oneline": flag("One line a commit."),
		}},
		{name: "git_branch", level: risk.Read, build: branch, props: map[string]tools.Property{
			"name":   text("Branch to create or delete; default: list."),
			"start":  text("First commit of a new branch; default HEAD."),
			"all":    flag("List remote branches too."),
			"delete": flag("Delete the branch."),
			"force":  flag("Delete even unmerged commits."),
		}},
		{name: "git_checkout", level: risk.Medium, build: checkout, need: []string{"branch"}, props: map[string]tools.Property{
			"branch": text("Branch, tag or commit."),
			"create": flag("Create it at HEAD first."),
		}},
		{name: "git_add", level: risk.Medium, build: add, need: []string{"files"}, props: map[string]tools.Property{
			"files": {Type: "array", MaxItems: maxFiles, Items: &tools.Property{Type: "string", MinLength: 1, MaxLength: 4096},
				Description: "Relative to path; \".\" is everything."},
		}},
		{name: "git_commit", level: risk.Medium, build: commit, need: []string{"message"}, props: map[string]tools.Property{
			"message": {Type: "string", Pattern: `\S`, MaxLength: 8192, Description: "Commit message."},
		}},
		{name: "git_push", level: risk.High, build: push, props: map[string]tools.Property{
			"remote": remote, "branch": text("Default: the current one."),
			"force": flag("Overwrite the remote branch; its own commits are lost."),
		}},
		{name: "git_pull", level: risk.Medium, build: pull, props: map[string]tools.Property{
			"remote": remote, "branch": text("Default: the current one's name."),
		}},
		{name: "git_merge", level: risk.High, build: merge, need: []string{"branch"}, props: map[string]tools.Property{
			"branch": text("Branch, tag or commit."),
		}},
		{name: "git_stash", level: risk.Read, build: stash, props: map[string]tools.Property{
			"action": {Type: "string", Enum: []string{"push", "list", "pop", "apply", "drop"}, Default: "push",
				Description: "push stores, list shows, pop restores and forgets, apply restores, drop deletes."},
			"index":             {Type: "integer", Default: 0, Minimum: 0, Maximum: 9999, Description: "0 is the newest."},
			"message":           {Type: "string", Pattern: `\S`, MaxLength: maxName, Description: "Title, for push."},
			"include_untracked": flag("Push untracked files too."),
		}},
		{name: "git_reset", level: risk.High, build: reset, props: map[string]tools.Property{
			"ref":  {Type: "string", Default: "HEAD", MinLength: 1, MaxLength: maxName, Description: "Target commit."},
			"mode": {Type: "string", Enum: []string{"soft", "mixed", "hard"}, Default: "mixed", Description: "soft keeps stage and files, mixed files, hard nothing."},
		}},
	}
}

func status(_ context.Context, _ *repo, a args) (invocation, error) {
	argv := []string{"git", "--no-pager", "status", "--ignore-submodules=dirty"}
	if a.Short {
		argv = append(argv, "--short")
	}
	return invocation{argv: argv, level: risk.Read, worktree: true}, nil
}

// limitScope limits a read to the part of the repository that the call names.
func (r *repo) limitScope(f *invocation) error {
	f.argv = append(f.argv, "--")
	if r.part == "" {
		return nil
	}
	if err := fileName("path", r.part); err != nil {
		return err
	}
	f.argv = append(f.argv, r.part)
	f.file = path.Join(r.dir, r.part)
	return nil
}

func diff(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.Read, worktree: !a.Staged}
	f.argv = []string{"git", "--no-pager", "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty"}
	if a.Staged {
		f.argv = append(f.argv, "--cached")
	}
	if a.Stat {
		f.argv = append(f.argv, "--stat")
	}
	if a.Ref != "" {
		revs, err := splitRange("ref", a.Ref)
		if err != nil {
			return f, err
		}
		if len(revs) == 2 {
			if a.Staged {
				return f, tools.Invalid(`"staged" and two commits exclude each other; leave one out`)
			}
			f.worktree = false
		}
		for _, rev := range revs {
			if _, err := r.commit(ctx, "ref", rev); err != nil {
				return f, err
			}
		}
		f.argv = append(f.argv, a.Ref)
	}
	return f, r.limitScope(&f)
}

func logCommits(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.Read}
	style := "--pretty=medium"
	if a.Oneline {
		style = "--oneline"
	}
	f.argv = []string{"git", "--no-pager", "log", "--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", "--no-patch",
		"--max-count=" + strconv.Itoa(max(a.MaxCount, 1)), style}
	if a.Ref != "" {
		revs, err := splitRange("ref", a.Ref)
		if err != nil {
			return f, err
		}
		for _, rev := range revs {
			if _, err := r.commit(ctx, "ref", rev); err != nil {
				return f, err
			}
		}
		f.argv = append(f.argv, a.Ref)
	}
	err := r.limitScope(&f)
	f.file = "" // a log shows no file content
	return f, err
}

func branch(ctx context.Context, r *repo, a args) (invocation, error) {
	if a.Name == "" {
		if a.Delete || a.Force || a.Start != "" {
			return invocation{}, tools.Invalid(`"delete", "force" and "start" need a "name"; leave them out to list branches`)
		}
		f := invocation{argv: []string{"git", "--no-pager", "branch", "--list", "--no-color", "-vv"}, level: risk.Read}
		if a.All {
			f.argv = append(f.argv, "--all")
		}
		return f, nil
	}
	if err := refName("name", a.Name); err != nil {
		return invocation{}, err
	}
	switch {
	case a.All:
		return invocation{}, tools.Invalid(`"all" is for a list, and a "name" makes or deletes a branch; leave one out`)
	case a.Delete && a.Start != "":
		return invocation{}, tools.Invalid(`"start" is for a new branch; leave it out to delete one`)
	case a.Force && !a.Delete:
		return invocation{}, tools.Invalid(`"force" is for "delete" only; leave it out`)
	case !a.Delete:
		f := invocation{argv: []string{"git", "branch", a.Name}, level: risk.Medium, hooks: []string{"reference-transaction"}}
		if a.Start == "" {
			_, _, err := r.head(ctx)
			return f, err
		}
		f.argv = append(f.argv, a.Start)
		_, err := r.commit(ctx, "start", a.Start)
		return f, err
	}
	f := invocation{argv: []string{"git", "branch", "-d", a.Name}, level: risk.High, hooks: []string{"reference-transaction"}}
	sha, err := r.commit(ctx, "name", "refs/heads/"+a.Name)
	if err != nil {
		return f, err
	}
	if _, _, err := r.head(ctx); err != nil {
		return f, err
	}
	f.preview = []string{"Deletes the branch " + a.Name + ", which is at " + sha + "."}
	if a.Force {
		f.argv[2] = "-D"
		f.preview = append(f.preview, "FORCED: it is deleted even if nothing else has its commits.")
	}
	err = f.addSection(ctx, r, "Commits that HEAD has not:", "log", "--oneline", "--max-count=100", sha, "--not", "HEAD", "--")
	return f, err
}

// addSection adds the output of a read to the card.
func (f *invocation) addSection(ctx context.Context, r *repo, title string, words ...string) error {
	more, err := r.show(ctx, title, shownLines, words...)
	f.preview = append(f.preview, more...)
	return err
}

func checkout(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.Medium, hooks: []string{"post-checkout", "reference-transaction", "post-index-change"}}
	if _, _, err := r.head(ctx); err != nil {
		return f, err
	}
	if a.Create {
		f.argv = []string{"git", "checkout", "-b", a.Branch}
		return f, refName("branch", a.Branch)
	}
	f.argv = []string{"git", "checkout", a.Branch, "--"}
	if err := revision("branch", a.Branch); err != nil {
		return f, err
	}
	// A branch precedes a tag of the same name, and a branch that only the remote has is created.
	for _, rev := range []string{"refs/heads/" + a.Branch, a.Branch, "refs/remotes/origin/" + a.Branch} {
		sha, ok, err := r.resolve(ctx, rev+"^{commit}")
		if err != nil {
			return f, err
		}
		if !ok {
			continue
		}
		r.files["revision "+rev] = "commit " + sha
		return f, f.addSection(ctx, r, "Goes to:", "log", "--oneline", "--max-count=1", sha, "--")
	}
	return f, tools.Failed("there is no branch, tag or commit %s in the repository at %s; list them with git_branch, or make it with "+
		"\"create\"", tools.Quote(a.Branch), r.dir)
}

func add(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{argv: []string{"git", "add", "--"}, level: risk.Medium, literal: true, hooks: []string{"post-index-change"}}
	if len(a.Files) == 0 {
		return f, tools.Invalid(`"files" is empty; name what to stage, "." for all below path`)
	}
	for _, name := range a.Files {
		if err := fileName("files", name); err != nil {
			return f, err
		}
		f.argv = append(f.argv, name)
	}
	if _, err := r.staged(ctx); err != nil {
		return f, err
	}
	return f, r.addChanges(ctx, &f, "What differs there now:", a.Files)
}

// addChanges shows the changes in the working tree, unless reading them would run filters.
func (r *repo) addChanges(ctx context.Context, f *invocation, title string, names []string) error {
	if len(r.filters) > 0 {
		f.preview = append(f.preview, "What differs in the files is not shown: to look would run the filters that the repository names.")
		return nil
	}
	return f.addSection(ctx, r, title, append([]string{"status", "--short", "--ignore-submodules=dirty", "--"}, names...)...)
}

func commit(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{argv: []string{"git", "commit", "-m", a.Message}, level: risk.Medium}
	f.hooks = []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "reference-transaction", "post-index-change"}
	if strings.ContainsRune(a.Message, 0) {
		return f, tools.Invalid(`"message" holds a NUL byte, which no commit can; remove it`)
	}
	if _, _, err := r.head(ctx); err != nil {
		return f, err
	}
	n, err := r.staged(ctx)
	if err != nil {
		return f, err
	}
	if err := r.bindMerge(ctx, &f); err != nil {
		return f, err
	}
	if n == 0 && len(f.preview) == 0 {
		return f, tools.Failed("nothing is staged in the repository at %s, so there is nothing to commit; stage files with git_add first", r.dir)
	}
	return f, f.addSection(ctx, r, "What is staged:", "diff", "--cached", "--stat", "--no-ext-diff", "--no-textconv", "--no-color",
		"--submodule=short", "--ignore-submodules=dirty", "--")
}

// bindMerge binds a commit to the merge that it would finish.
func (r *repo) bindMerge(ctx context.Context, f *invocation) error {
	sha, ok, err := r.resolve(ctx, "MERGE_HEAD^{commit}")
	if err != nil || !ok {
		return err
	}
	r.files[r.git+"/MERGE_HEAD"] = "commit " + sha
	f.preview = append(f.preview, "Finishes the merge of "+sha+".")
	return nil
}

// bindRemote binds the action to the addresses of a remote, as the run's settings resolve them. A
// password in an address is not shown, but changing it changes the action.
func (r *repo) bindRemote(ctx context.Context, f *invocation, name string, push bool) error {
	if err := remoteName(name); err != nil {
		return err
	}
	words := []string{"remote", "get-url", "--all"}
	if push {
		words = append(words, "--push")
	}
	out, ok, err := r.readWithEnv(ctx, r.runEnv, append(words, name)...)
	if err != nil {
		return err
	}
	if !ok {
		return tools.Failed("the repository at %s has no remote %s; list them with run_shell and git remote -v", r.dir, tools.Quote(name))
	}
	for i, u := range strings.Split(strings.TrimSpace(out), "\n") {
		shown := maskPassword(u)
		state := "the address " + shown
		if shown != u {
			sum := sha256.Sum256([]byte(u))
			state += ", SHA-256 " + hex.EncodeToString(sum[:])
		}
		r.files[fmt.Sprintf("remote %s, address %d", name, i+1)] = state
		f.preview = append(f.preview, fmt.Sprintf("%s is %s", name, shown))
	}
	return nil
}

// maskPassword returns an address without its password.
func maskPassword(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return u
	}
	host, tail, slash := strings.Cut(rest, "/")
	at := strings.LastIndexByte(host, '@')
	if at < 0 {
		return u
	}
	user, _, secret := strings.Cut(host[:at], ":")
	if !secret {
		if scheme == "ssh" || scheme == "git+ssh" || scheme == "ssh+git" {
			return u // only a user name; with other schemes it may be a token
		}
		user = "***"
	} else {
		user += ":***"
	}
	u = scheme + "://" + user + host[at:]
	if slash {
		u += "/" + tail
	}
	return u
}

// currentBranch returns the named branch, or the current one if none is named.
func (r *repo) currentBranch(ctx context.Context, named string) (branch string, err error) {
	branch, _, err = r.head(ctx)
	if err != nil {
		return "", err
	}
	if named != "" {
		return named, refName("branch", named)
	}
	if branch == "" {
		return "", tools.Failed("HEAD of the repository at %s is on no branch; name one with \"branch\"", r.dir)
	}
	return branch, refName("branch", branch)
}

func push(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.High, hooks: []string{"pre-push", "reference-transaction"}}
	name, err := r.currentBranch(ctx, a.Branch)
	if err != nil {
		return f, err
	}
	if err := r.bindRemote(ctx, &f, a.Remote, true); err != nil {
		return f, err
	}
	sha, err := r.commit(ctx, "branch", "refs/heads/"+name)
	if err != nil {
		return f, err
	}
	// Push the commit rather than the branch name: exactly what was shown.
	f.argv = []string{"git", "push", "--no-follow-tags", a.Remote, sha + ":refs/heads/" + name}
	if a.Force {
		f.argv = []string{"git", "push", "--force", "--no-follow-tags", a.Remote, sha + ":refs/heads/" + name}
		f.preview = append(f.preview, "FORCED: the branch "+name+" at "+a.Remote+" is overwritten, and commits that only it has are lost there.")
	}
	f.preview = append(f.preview, "Pushes "+name+" at "+sha+".")
	was, ok, err := r.resolve(ctx, "refs/remotes/"+a.Remote+"/"+name+"^{commit}")
	if err != nil {
		return f, err
	}
	if !ok {
		f.preview = append(f.preview, "As far as is known here, "+a.Remote+" has no such branch.")
		return f, f.addSection(ctx, r, "Commits that go, the last first:", "log", "--oneline", "--max-count=200", sha, "--not", "--remotes="+a.Remote, "--")
	}
	if err := f.addSection(ctx, r, "Commits that go, by what was known of "+a.Remote+" last:", "log", "--oneline", "--max-count=200",
		was+".."+sha, "--"); err != nil || !a.Force {
		return f, err
	}
	return f, f.addSection(ctx, r, "Commits that "+a.Remote+" loses, by what was known of it last:", "log", "--oneline", "--max-count=200", sha+".."+was, "--")
}

func pull(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.Medium, hooks: []string{"pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-merge",
		"reference-transaction", "post-index-change"}}
	name, err := r.currentBranch(ctx, a.Branch)
	if err != nil {
		return f, err
	}
	if err := r.bindRemote(ctx, &f, a.Remote, false); err != nil {
		return f, err
	}
	f.argv = []string{"git", "pull", "--no-rebase", "--no-edit", "--no-recurse-submodules", a.Remote, "refs/heads/" + name}
	f.preview = append(f.preview, "Fetches and merges what "+name+" is there by then; nobody here knows yet what that is.")
	return f, nil
}

func merge(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{level: risk.High, hooks: []string{"pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-merge",
		"reference-transaction", "post-index-change"}}
	f.argv = []string{"git", "merge", "--no-edit", a.Branch}
	branch, _, err := r.head(ctx)
	if err != nil {
		return f, err
	}
	sha, err := r.commit(ctx, "branch", a.Branch)
	if err != nil {
		return f, err
	}
	if branch == "" {
		branch = "the detached HEAD"
	}
	f.preview = append(f.preview, "Merges "+a.Branch+" at "+sha+" into "+branch+".")
	if err := f.addSection(ctx, r, "Commits that come:", "log", "--oneline", "--max-count=200", "HEAD.."+sha, "--"); err != nil {
		return f, err
	}
	return f, f.addSection(ctx, r, "What they change:", "diff", "--stat", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "HEAD..."+sha, "--")
}

func stash(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{argv: []string{"git", "stash", a.Action}, level: risk.Medium, hooks: []string{"reference-transaction", "post-index-change"}}
	if a.Action != "push" && (a.Message != "" || a.Untracked) {
		return f, tools.Invalid(`"message" and "include_untracked" are for "push" only; leave them out`)
	}
	if a.Index != 0 && (a.Action == "push" || a.Action == "list") {
		return f, tools.Invalid(`"index" is for pop, apply and drop; leave it out`)
	}
	switch a.Action {
	case "list":
		f.argv, f.level = []string{"git", "--no-pager", "stash", "list", "--no-ext-diff", "--no-textconv", "--no-patch"}, risk.Read
		return f, nil
	case "push":
		if a.Untracked {
			f.argv = append(f.argv, "--include-untracked")
		}
		if a.Message != "" {
			if strings.ContainsRune(a.Message, 0) {
				return f, tools.Invalid(`"message" holds a NUL byte; remove it`)
			}
			f.argv = append(f.argv, "-m", a.Message)
		}
		if _, _, err := r.head(ctx); err != nil {
			return f, err
		}
		if _, err := r.staged(ctx); err != nil {
			return f, err
		}
		return f, r.addChanges(ctx, &f, "What differs now:", nil)
	}
	rev := fmt.Sprintf("stash@{%d}", a.Index)
	sha, ok, err := r.resolve(ctx, rev)
	if err != nil {
		return f, err
	}
	if !ok {
		return f, tools.Failed("there is no %s in the repository at %s; look with the action list", rev, r.dir)
	}
	r.files["revision "+rev] = "commit " + sha
	f.argv = append(f.argv, rev)
	if a.Action == "drop" {
		f.level = risk.High
		f.preview = append(f.preview, "THROWN AWAY: "+rev+" is put away nowhere else.")
	} else if _, _, err := r.head(ctx); err != nil {
		return f, err
	}
	return f, f.addSection(ctx, r, "It is:", "log", "--oneline", "--max-count=1", sha, "--")
}

func reset(ctx context.Context, r *repo, a args) (invocation, error) {
	f := invocation{argv: []string{"git", "reset", "--" + a.Mode, a.Ref, "--"}, level: risk.High, hooks: []string{"reference-transaction", "post-index-change"}}
	if _, _, err := r.head(ctx); err != nil {
		return f, err
	}
	sha, err := r.commit(ctx, "ref", a.Ref)
	if err != nil {
		return f, err
	}
	if _, err := r.staged(ctx); err != nil {
		return f, err
	}
	f.preview = append(f.preview, "Goes to "+sha+".")
	if err := f.addSection(ctx, r, "Commits that leave the branch:", "log", "--oneline", "--max-count=200", sha+"..HEAD", "--"); err != nil {
		return f, err
	}
	if a.Mode != "hard" {
		return f, nil
	}
	f.preview = append(f.preview, "HARD: changes that are not committed are thrown away, and nothing keeps them.")
	return f, r.addChanges(ctx, &f, "What differs now:", nil)
}
