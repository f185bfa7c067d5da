package gitcmd_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools/gitcmd"
	"countersign/tools/toolstest"
)

func TestToolsKeepTheirPromises(t *testing.T) {
	b := newBench(t)
	b.sh(`git branch other; git tag v1; git checkout -q -b topic main~1; echo t > t.txt; git add t.txt; git commit -qm topic
git remote add backup ` + b.dir + `/remote.git; git branch x; git branch xx; git branch mainx
echo s >> a.txt; git stash -q; echo s2 >> a.txt; git stash -q; echo new > new.txt; git add new.txt; echo w >> a.txt; mkdir d; git init -q ` + b.dir + `/other; git -C ` + b.dir + `/other commit -q --allow-empty -m o
cp -a ` + b.repo + ` ` + b.dir + `/copy`)
	path := `"path":"` + b.repo + `"`
	elsewhere := func(more ...string) map[string]string {
		m := map[string]string{"path": `"` + b.dir + `/copy"`}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	cases := map[string][]toolstest.Case{
		"git_status": {{Name: "status", Args: `{` + path + `,"short":false}`, Other: elsewhere()}},
		"git_diff": {
			{Name: "tree", Args: `{` + path + `,"ref":"main","stat":false}`, Other: elsewhere("ref", `"other"`)},
			{Name: "staged", Args: `{` + path + `,"staged":true}`, Other: elsewhere()},
		},
		"git_log": {{Name: "log", Args: `{` + path + `,"max_count":5,"ref":"main","oneline":true}`, Other: elsewhere("ref", `"x..main"`)}},
		"git_branch": {
			{Name: "list", Args: `{` + path + `,"all":true}`, Other: elsewhere()},
			{Name: "make", Args: `{` + path + `,"name":"new","start":"main"}`, Other: elsewhere("start", `"v1"`)},
			{Name: "delete", Args: `{` + path + `,"name":"x","delete":true,"force":true}`, Other: elsewhere("delete", "true"), Hidden: []string{"delete"}},
		},
		"git_checkout": {{Name: "switch", Args: `{` + path + `,"branch":"main","create":false}`, Other: elsewhere("create", "false"), Hidden: []string{"create"}}},
		"git_add":      {{Name: "add", Args: `{` + path + `,"files":["a.txt"]}`, Other: elsewhere("files", `["."]`)}},
		"git_commit":   {{Name: "commit", Args: `{` + path + `,"message":"m"}`, Other: elsewhere()}},
		"git_push":     {{Name: "push", Args: `{` + path + `,"remote":"origin","branch":"main","force":true}`, Other: elsewhere("remote", `"backup"`)}},
		"git_pull":     {{Name: "pull", Args: `{` + path + `,"remote":"origin","branch":"main"}`, Other: elsewhere("remote", `"backup"`)}},
		"git_merge":    {{Name: "merge", Args: `{` + path + `,"branch":"main"}`, Other: elsewhere()}},
		"git_stash": {
			{Name: "push", Args: `{` + path + `,"action":"push","message":"m","include_untracked":true}`, Other: elsewhere("action", `"push"`), Hidden: []string{"action"}},
			{Name: "pop", Args: `{` + path + `,"action":"pop","index":0}`, Other: elsewhere("action", `"drop"`)},
		},
		"git_reset": {{Name: "reset", Args: `{` + path + `,"ref":"HEAD","mode":"mixed"}`, Other: elsewhere("ref", `"HEAD~1"`, "mode", `"hard"`)}},
	}
	if len(b.all) != 12 || len(cases) != 12 {
		t.Fatalf("%d tools, %d cases", len(b.all), len(cases))
	}
	for name, cs := range cases {
		t.Run(name, func(t *testing.T) { toolstest.Check(t, b.all[name], b.state, cs...) })
	}
}

// TestTheLevelFollowsTheArguments is decision 17.
func TestTheLevelFollowsTheArguments(t *testing.T) {
	b := newBench(t)
	b.sh("git branch other; echo x >> a.txt; git stash -q; echo y >> a.txt; git add a.txt")
	for _, tc := range []struct {
		row, tool, args string
		level           risk.Level
		kind            approvals.Kind
	}{
		{"X-09", "git_status", `{}`, risk.Read, approvals.KindObserve},
		{"X-10", "git_diff", `{}`, risk.Read, approvals.KindObserve},
		{"X-10", "git_diff", `{"staged":true}`, risk.Read, approvals.KindObserve},
		{"X-11", "git_log", `{}`, risk.Read, approvals.KindObserve},
		{"X-12 list", "git_branch", `{}`, risk.Read, approvals.KindObserve},
		{"X-12 create", "git_branch", `{"name":"new"}`, risk.Medium, approvals.KindShell},
		{"X-12 delete", "git_branch", `{"name":"other","delete":true}`, risk.High, approvals.KindShell},
		{"X-13", "git_checkout", `{"branch":"other"}`, risk.Medium, approvals.KindShell},
		{"X-14", "git_add", `{"files":["."]}`, risk.Medium, approvals.KindShell},
		{"X-15", "git_commit", `{"message":"m"}`, risk.Medium, approvals.KindShell},
		{"X-16", "git_push", `{}`, risk.High, approvals.KindShell},
		{"X-17", "git_pull", `{}`, risk.Medium, approvals.KindShell},
		{"X-18", "git_merge", `{"branch":"other"}`, risk.High, approvals.KindShell},
		{"X-19", "git_stash", `{}`, risk.Medium, approvals.KindShell},
		{"X-19 list", "git_stash", `{"action":"list"}`, risk.Read, approvals.KindObserve},
		{"X-19 pop", "git_stash", `{"action":"pop"}`, risk.Medium, approvals.KindShell},
		{"X-19 drop", "git_stash", `{"action":"drop"}`, risk.High, approvals.KindShell},
		{"X-20", "git_reset", `{}`, risk.High, approvals.KindShell},
	} {
		p := b.must(tc.tool, tc.args)
		if got := b.level(tc.tool, tc.args); got != tc.level || p.Action.Kind != tc.kind {
			t.Errorf("%s %s %s: %v, %s", tc.row, tc.tool, tc.args, got, p.Action.Kind)
		}
		if p.Action.User != "tester" || p.Action.Dir != b.repo {
			t.Errorf("%s: %+v", tc.row, p.Action)
		}
		// What is said of a call without a repository is what its plan says, but for names.
		text, level, ok, err := gitcmd.Shape(tc.tool, []byte(tc.args))
		if !ok || err != nil || level != tc.level || (text == "") != (tc.kind == approvals.KindObserve) {
			t.Errorf("%s %s %s: said without a repository: %q, %v, %v, %v", tc.row, tc.tool, tc.args, text, level, ok, err)
		}
		if planned := string(p.Action.Bytes); text != "" && text != planned {
			was, is := risk.Classify(planned), risk.Classify(text)
			if tc.tool != "git_push" && tc.tool != "git_pull" || was.Risk != is.Risk || !slices.Equal(was.Effects, is.Effects) {
				t.Errorf("%s: without a repository %q, planned %q", tc.row, text, planned)
			}
		}
		spec, _ := b.reg.Lookup(tc.tool)
		v := risk.Classify(string(p.Action.Bytes))
		judged := risk.Max(v.Risk, spec.Level)
		if tc.kind == approvals.KindShell && (v.Proves(string(p.Action.Bytes), false) || judged < risk.Medium) {
			t.Errorf("%s: the engine says %v of %s", tc.row, judged, p.Action.Bytes)
		}
		if judged < tc.level && tc.row != "X-19 drop" && tc.row != "X-12 delete" { // there the plan's own level has to say it
			t.Errorf("%s: %v of %s", tc.row, judged, p.Action.Bytes)
		}
	}
}

//
func TestNothingRunsBeforeItIsApproved(t *testing.T) {
	b := newBench(t)
	b.sh("git branch other; echo y >> a.txt; git add a.txt")
	before := b.state()
	for name, args := range map[string]string{
		"git_branch": `{"name":"new"}`, "git_commit": `{"message":"m"}`, "git_push": `{"force":true}`, "git_reset": `{"mode":"hard"}`,
	} {
		if _, err := b.must(name, args).Run(t.Context(), approvals.Permit{}, nil); err == nil {
			t.Errorf("%s runs", name)
		}
	}
	if b.state() != before {
		t.Error("something changed")
	}
}

//
func TestLooks(t *testing.T) {
	b := newBench(t)
	b.sh("mkdir was sub; git checkout -q -b gone; echo g > was/gone.txt; git add was; git commit -qm 'with gone'; git rm -q was/gone.txt; git commit -qm 'without gone'; git checkout -q main; rm -rf was")
	b.sh("git branch other; echo more >> a.txt; echo st > s.txt; git add s.txt; echo u > u.txt; git tag main-tag")
	before := b.state()
	for _, tc := range []struct{ tool, args, want, not string }{
		{"git_status", `{}`, "On branch main", "M a.txt"},
		{"git_status", `{"short":true}`, " M a.txt\nA  s.txt\n?? u.txt\n", ""},
		{"git_diff", `{}`, "+more", "s.txt"},
		{"git_diff", `{"staged":true}`, "+st", "+more"},
		{"git_diff", `{"ref":"HEAD~1..HEAD"}`, "+two", "+more"},
		{"git_diff", `{"ref":"HEAD~1...main","stat":true}`, "1 file changed", "+two"},
		{"git_diff", `{"file":"s.txt"}`, "", "a.txt"},
		{"git_diff", `{"path":"` + b.repo + `/a.txt"}`, "+more", ""},
		{"git_diff", `{"path":"` + b.repo + `","file":"a.txt"}`, "+more", ""},
		{"git_diff", `{"path":"` + b.repo + `"}`, "+more", ""},
		{"git_diff", `{"path":"` + b.repo + `/sub"}`, "", "+more"},
		{"git_log", `{"path":"` + b.repo + `/was/gone.txt","ref":"gone","oneline":true}`, "with gone", "second"},
		{"git_log", `{}`, "    second\n", ""},
		{"git_log", `{"oneline":true,"max_count":1}`, "second", "first"},
		{"git_log", `{"oneline":true,"ref":"main~1"}`, "first", "second"},
		{"git_log", `{"oneline":true,"file":"a.txt"}`, "first", "second"},
		{"git_branch", `{}`, "* main ", "remotes/origin"},
		{"git_branch", `{"all":true}`, "remotes/origin/main", ""},
		{"git_stash", `{"action":"list"}`, "", "stash"},
	} {
		got, out := b.run(tc.tool, tc.args)
		if code(got) != 0 || out.Result.Failed || !strings.Contains(got.Output, tc.want) || tc.not != "" && strings.Contains(got.Output, tc.not) {
			t.Errorf("%s %s: %s", tc.tool, tc.args, out.Text)
		}
	}
	if b.state() != before {
		t.Error("a look changed something")
	}
	if !slices.ContainsFunc(b.m.argvs(), func(s string) bool { return strings.Contains(s, "status --ignore-submodules=dirty --short") }) {
		t.Error("--short did not reach git")
	}
}

//
func TestABranchWithACommit(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct{ tool, args, text string }{
		{"git_branch", `{"name":"fix/a","start":"main~1"}`, "git branch fix/a 'main~1'"},
		{"git_checkout", `{"branch":"fix/a"}`, "git checkout fix/a --"},
		{"git_checkout", `{"branch":"fix/b","create":true}`, "git checkout -b fix/b"},
	} {
		p := b.must(tc.tool, tc.args)
		if string(p.Action.Bytes) != tc.text {
			t.Errorf("the card shows %s", p.Action.Bytes)
		}
		if got, out := b.runPlan(p); code(got) != 0 {
			t.Fatal(out.Text)
		}
	}
	b.sh("printf 'x\n' > 'with space.txt'; printf 'y\n' > -n; printf 'z\n' > '*'")
	if got, out := b.run("git_add", `{"files":["with space.txt","-n"]}`); code(got) != 0 {
		t.Fatal(out.Text)
	}
	if got, out := b.run("git_add", `{"files":["no-such-*"]}`); code(got) == 0 {
		t.Errorf("a pattern: %s", out.Text)
	}
	b.sh("rm '*'")
	p := b.must("git_commit", `{"message":"-F/etc/passwd it's\n\na body"}`)
	for _, want := range []string{"git commit -m ", "with space.txt", "2 files changed", "2 staged changes", "refs/heads/fix/b, commit " + b.rev("HEAD")} {
		if !strings.Contains(face(p.Action), want) {
			t.Errorf("the card lacks %q:\n%s", want, face(p.Action))
		}
	}
	if got, out := b.runPlan(p); code(got) != 0 {
		t.Fatal(out.Text)
	}
	if got := b.sh("git log -1 --format=%B; git status --short; git branch --show-current"); got != "-F/etc/passwd it's\n\na body\n\nfix/b\n" {
		t.Errorf("%q", got)
	}
	if _, err := b.plan("git_commit", `{"message":"again"}`); err == nil || !strings.Contains(err.Error(), "nothing is staged") {
		t.Errorf("%v", err)
	}
	if got, out := b.run("git_branch", `{"name":"fix/a","delete":true}`); code(got) != 0 || b.sh("git branch --list fix/a") != "" {
		t.Error(out.Text)
	}
}

//
func TestPushReachesTheRemote(t *testing.T) {
	b := newBench(t)
	remote := func() string { return strings.TrimSpace(sh(t, b.dir, "git -C remote.git rev-parse main")) }
	b.sh("git config push.default matching; git config remote.origin.push '+refs/*:refs/*'; git branch side; git tag -a -m t v9")
	head := b.rev("main")
	p := b.must("git_push", `{}`)
	for _, want := range []string{"git push --no-follow-tags origin " + head + ":refs/heads/main", "origin is " + b.dir + "/remote.git", "second"} {
		if !strings.Contains(face(p.Action), want) {
			t.Errorf("the card lacks %q:\n%s", want, face(p.Action))
		}
	}
	if strings.Contains(face(p.Action), "FORCED") {
		t.Error("the card speaks of force")
	}
	got, out := b.runPlan(p)
	if code(got) != 0 || remote() != head || !strings.Contains(got.Output, "-> main") { // stdout is empty, so stderr
		t.Fatalf("%s, the remote has %s", out.Text, remote())
	}
	if refs := sh(t, b.dir, "git -C remote.git for-each-ref --format='%(refname)'"); refs != "refs/heads/main\n" {
		t.Errorf("other refs were pushed as well: %s", refs)
	}
	b.sh("git reset -q --hard HEAD~1; echo 3 > c.txt; git add c.txt; git commit -qm third")
	if got, out = b.run("git_push", `{}`); code(got) == 0 || !out.Result.Failed || !strings.Contains(got.Output, "rejected") || remote() != head {
		t.Errorf("without force: %s", out.Text)
	}
	p = b.must("git_push", `{"force":true}`)
	for _, want := range []string{"git push --force ", "FORCED: the branch main at origin is overwritten", "origin loses", "second", "third"} {
		if !strings.Contains(face(p.Action), want) {
			t.Errorf("the card lacks %q:\n%s", want, face(p.Action))
		}
	}
	if got, out = b.runPlan(p); code(got) != 0 || remote() != b.rev("main") {
		t.Errorf("with force: %s", out.Text)
	}
}

//
func TestAPasswordIsNotShownAndStillBinds(t *testing.T) {
	b := newBench(t)
	b.sh("git remote set-url origin https://me:hunter2@example.invalid/x.git")
	p := b.must("git_push", `{}`)
	if f := face(p.Action); strings.Contains(f, "hunter2") || !strings.Contains(f, "https://me:***@example.invalid/x.git") {
		t.Error(f)
	}
	b.sh("git remote set-url origin https://me:hunter3@example.invalid/x.git")
	if again := b.must("git_push", `{}`); again.Action.Digest() == p.Action.Digest() {
		t.Error("another password gives the same digest")
	}
}

//
func TestPullBringsAndReportsConflicts(t *testing.T) {
	b := newBench(t)
	sh(t, b.dir, "git clone -q remote.git peer; cd peer; echo p > p.txt; git add p.txt; git commit -qm peer; git push -q origin main")
	b.sh("git config pull.rebase true")
	if got, out := b.run("git_pull", `{}`); code(got) != 0 || !strings.Contains(b.sh("git log --oneline --merges -1; ls"), "p.txt") {
		t.Fatal(out.Text)
	}
	sh(t, b.dir, "cd peer; echo theirs > a.txt; git commit -qam theirs; git push -q origin main")
	b.sh("echo ours > a.txt; git commit -qam ours")
	got, out := b.run("git_pull", `{}`)
	if code(got) == 0 || !slices.Equal(got.Conflicts, []string{"a.txt"}) || !strings.Contains(got.Notice, "conflicts in 1 file") || !out.Result.Failed {
		t.Errorf("%s", out.Text)
	}
}

//
func TestMergeReportsConflicts(t *testing.T) {
	b := newBench(t)
	b.sh("git checkout -q -b topic; echo t > a.txt; git commit -qam topic; git checkout -q main; echo m > a.txt; git commit -qam mine; git branch clean main~1; git checkout -q clean; echo c > c.txt; git add c.txt; git commit -qm clean; git checkout -q main")
	p := b.must("git_merge", `{"branch":"clean"}`)
	if f := face(p.Action); !strings.Contains(f, "into main") || !strings.Contains(f, "c.txt") {
		t.Error(f)
	}
	if got, out := b.runPlan(p); code(got) != 0 {
		t.Error(out.Text)
	}
	got, out := b.run("git_merge", `{"branch":"topic"}`)
	if code(got) != 1 || !slices.Equal(got.Conflicts, []string{"a.txt"}) || !strings.Contains(got.Output, "CONFLICT") || out.Result.Unknown {
		t.Errorf("%s", out.Text)
	}
	b.sh("echo both > a.txt; git add a.txt")
	if p = b.must("git_commit", `{"message":"merged"}`); !strings.Contains(p.Action.Preview, "Finishes the merge of "+b.rev("topic")) {
		t.Error(p.Action.Preview)
	}
}

//
func TestStash(t *testing.T) {
	b := newBench(t)
	b.sh("echo x >> a.txt; echo u > u.txt")
	if got, out := b.run("git_stash", `{"message":"half","include_untracked":true}`); code(got) != 0 || b.sh("git status --short") != "" {
		t.Fatal(out.Text)
	}
	if got, out := b.run("git_stash", `{"action":"list"}`); !strings.Contains(got.Output, "half") {
		t.Error(out.Text)
	}
	if got, out := b.run("git_stash", `{"action":"pop"}`); code(got) != 0 || b.sh("git status --short") != " M a.txt\n?? u.txt\n" {
		t.Error(out.Text)
	}
	if _, err := b.plan("git_stash", `{"action":"drop"}`); err == nil || !strings.Contains(err.Error(), "there is no stash@{0}") {
		t.Errorf("%v", err)
	}
}

//
func TestResetSaysWhatIsLost(t *testing.T) {
	b := newBench(t)
	b.sh("echo x >> a.txt")
	p := b.must("git_reset", `{"ref":"HEAD~1","mode":"hard"}`)
	for _, want := range []string{"git reset --hard 'HEAD~1' --", "HARD: changes that are not committed are thrown away", "M a.txt", "second"} {
		if !strings.Contains(strings.ReplaceAll(face(p.Action), "HEAD~1 --", "'HEAD~1' --"), want) {
			t.Errorf("the card lacks %q:\n%s", want, face(p.Action))
		}
	}
	if got, out := b.runPlan(p); code(got) != 0 || b.sh("git status --short; git log --format=%s") != "first\n" {
		t.Error(out.Text)
	}
}

//
func TestStderrWhereStdoutIsEmpty(t *testing.T) {
	b := newBench(t)
	b.sh("echo local >> b.txt; git branch other main~1")
	got, out := b.run("git_checkout", `{"branch":"other"}`)
	if code(got) == 0 || !out.Result.Failed || !strings.Contains(got.Output, "would be overwritten") {
		t.Errorf("%s", out.Text)
	}
}

//
func TestWithoutGit(t *testing.T) {
	for rule, before := range map[string]func(*backend.Spec) error{
		"no such program": func(s *backend.Spec) error { s.Argv[0] = "git-that-is-not-here"; return nil },
		"a shell says 127": func(s *backend.Spec) error {
			s.Argv = []string{"sh", "-c", "exit 127"}
			return nil
		},
	} {
		b := newBench(t)
		b.m.before = before
		if _, err := b.plan("git_status", `{}`); err == nil || !strings.Contains(err.Error(), "there is no git on local that the bot could start; install git") {
			t.Errorf("%s: %v", rule, err)
		}
	}
	for version, ok := range map[string]bool{"2.31.9": false, "1.99.0": false, "2.32.0": true, "3.0.0": true, "odd": false} {
		b := newBench(t)
		b.m.before = func(s *backend.Spec) error {
			if slices.Equal(s.Argv, []string{"git", "--version"}) {
				s.Argv = []string{"echo", "git version " + version}
			}
			return nil
		}
		if _, err := b.plan("git_status", `{}`); (err == nil) != ok {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestPlacesThatAreRefused(t *testing.T) {
	b := newBench(t, func(c *gitcmd.Config) { c.Private = func(p string) bool { return strings.Contains(p, "/private") } })
	sh(t, b.dir, "mkdir plain; git init -q private; mkdir shared; git init -q --separate-git-dir=private/hidden shared")
	for path, want := range map[string]string{
		b.dir + "/plain":      "not in a git repository",
		b.dir + "/none":       "cannot be",
		b.repo + "/a.txt":     "no directory",
		b.dir + "/private":    "private",
		b.dir + "/shared":     "private",
		b.dir + "/remote.git": "git does not use the repository",
	} {
		if _, err := b.plan("git_status", `{"path":"`+path+`"}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, top := range []string{"/", b.dir, b.repo} {
		sh(t, b.dir, "rm -rf evil repo/evil; git init -q evil; git -C evil config core.worktree "+top+"; cp -a evil repo/evil")
		for _, path := range []string{b.dir + "/evil", b.repo + "/evil"} {
			if _, err := b.plan("git_status", `{"path":"`+path+`"}`); err == nil || !strings.Contains(err.Error(), "says that its files are in") {
				t.Errorf("%s with its files in %s: %v", path, top, err)
			}
		}
	}
	b.sh("rm -rf evil; git worktree add -q ../tree; mkdir sub")
	for _, path := range []string{b.dir + "/tree", b.repo + "/sub"} {
		if got, out := b.run("git_status", `{"path":"`+path+`"}`); code(got) != 0 {
			t.Errorf("%s: %s", path, out.Text)
		}
	}
}

// book is a journal.
type book struct{ lines []string }

func (k *book) Began(_ context.Context, thread, call string) (string, error) {
	k.lines = append(k.lines, "began "+thread+" "+call)
	return "mark-1", nil
}

func TestChangesAreNoted(t *testing.T) {
	var k book
	b := newBench(t, func(c *gitcmd.Config) { c.Journal = &k })
	b.run("git_status", `{}`)
	if len(k.lines) != 0 {
		t.Errorf("a look is noted: %q", k.lines)
	}
	b.run("git_branch", `{"name":"new"}`)
	if want := []string{"began test:1 call_1"}; !slices.Equal(k.lines, want) {
		t.Errorf("%q", k.lines)
	}
}

func TestARunThatTakesTooLongIsKilled(t *testing.T) {
	b := newBench(t, func(c *gitcmd.Config) { c.MaxWait = 200 * time.Millisecond })
	b.sh(`printf '#!/bin/sh\nsleep 1000\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo s > s; git add s`)
	got, out := b.run("git_commit", `{"message":"m"}`)
	if got.ExitCode != nil || !out.Result.Failed || !strings.Contains(got.Notice, "did not end within 200ms and was killed") || strings.TrimSpace(b.sh("git log -1 --format=%s")) != "second" {
		t.Errorf("%s", out.Text)
	}
}

func TestALostConnectionIsUnknown(t *testing.T) {
	b := newBench(t)
	b.m.lose = "branch"
	got, out := b.run("git_branch", `{"name":"new"}`)
	if !out.Result.Unknown || !out.Result.Failed || got.ExitCode != nil || !strings.Contains(got.Notice, "may or may not have happened") {
		t.Errorf("%s", out.Text)
	}
}

func TestDrift(t *testing.T) {
	for _, tc := range []struct{ rule, tool, args, attack, want string }{
		{"HEAD moved", "git_commit", `{"message":"m"}`, "git commit -qm sneaked; echo z > z; git add z", "HEAD"},
		{"the branch changed", "git_commit", `{"message":"m"}`, "git checkout -q -b other", "HEAD"},
		{"something else was staged", "git_commit", `{"message":"m"}`, "echo evil > evil.sh; git add evil.sh", "index"},
		{"the same file with another content was staged", "git_commit", `{"message":"m"}`, "echo evil > s.txt; git add s.txt", "index"},
		{"a hook appeared", "git_commit", `{"message":"m"}`, "printf '#!/bin/sh\ntouch ran' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", "pre-commit"},
		{"the configuration names a program", "git_commit", `{"message":"m"}`, "git config core.editor x", "preview"},
		{"the remote changed", "git_push", `{}`, "git remote set-url origin /elsewhere", "remote origin"},
		{"the branch that goes moved", "git_push", `{}`, "git commit -qm more", "the text"},
		{"the branch that comes moved", "git_merge", `{"branch":"topic"}`, "git branch -f topic main~1", "revision topic"},
		{"the repository was swapped", "git_commit", `{"message":"m"}`, "cd ..; mv repo was; cp -a was repo", "directory"},
		{"the directory became a link", "git_commit", `{"message":"m"}`, "cd ..; mv repo was; ln -s was repo", "directory"},
		{"only .git was swapped", "git_commit", `{"message":"m"}`, "mv .git old; cp -a old .git; rm -r old", ".git/"},
		{"a filter appeared", "git_status", `{}`, "git config filter.x.clean 'touch ran'", "kind"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			b := newBench(t)
			b.sh("git branch topic; echo s > s.txt; git add s.txt; rm -f .git/hooks/*")
			p := b.must(tc.tool, tc.args)
			b.sh(tc.attack)
			before := b.state()
			_, out := b.runPlan(p)
			if out.Err == nil || !strings.Contains(out.Text, "git was not run") || !strings.Contains(out.Text, tc.want) {
				t.Errorf("it ran: %s", out.Text)
			}
			if b.state() != before {
				t.Error("something changed")
			}
		})
	}
}

// TestALookDoesNotSpoilAnApproval: what others look at meanwhile renews the index, and
// changes nothing of what is staged.
func TestALookDoesNotSpoilAnApproval(t *testing.T) {
	b := newBench(t)
	b.sh("echo s > s.txt; git add s.txt")
	p := b.must("git_commit", `{"message":"m"}`)
	b.sh("touch -d 2001-01-01 a.txt s.txt; git update-index --refresh; git status")
	if got, out := b.runPlan(p); code(got) != 0 {
		t.Error(out.Text)
	}
}

func TestTheDirectoryIsBoundToTheEnd(t *testing.T) {
	b := newBench(t)
	b.sh("echo s > s.txt; git add s.txt")
	p := b.must("git_commit", `{"message":"m"}`)
	b.m.before = func(s *backend.Spec) error {
		if len(s.Argv) > 1 && s.Argv[1] == "commit" { // after the last look
			return os.Rename(b.repo, b.repo+".was")
		}
		return nil
	}
	if _, out := b.runPlan(p); out.Err == nil || errors.Is(out.Err, fs.ErrInvalid) {
		t.Errorf("it ran: %s", out.Text)
	}
}
