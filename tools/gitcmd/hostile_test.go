package gitcmd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/tools"
	"countersign/tools/gitcmd"
	"countersign/tools/toolstest"
)

// looks are all calls that run without being asked for.
var looks = []struct{ tool, args string }{
	{"git_status", `{}`}, {"git_status", `{"short":true}`},
	{"git_diff", `{}`}, {"git_diff", `{"staged":true}`}, {"git_diff", `{"stat":true}`}, {"git_diff", `{"ref":"HEAD"}`},
	{"git_diff", `{"ref":"HEAD~1..HEAD"}`}, {"git_diff", `{"file":"f.txt"}`},
	{"git_log", `{}`}, {"git_log", `{"oneline":true}`}, {"git_log", `{"file":"f.txt"}`},
	{"git_branch", `{}`}, {"git_branch", `{"all":true}`}, {"git_stash", `{"action":"list"}`},
}

// TestHostileRepository plants what makes a plain git run a program, and looks in every
// way that needs no approval. That the trap works at all is checked with plain git.
func TestHostileRepository(t *testing.T) {
	for _, tc := range []struct {
		rule, plant string
		plain       string // a command that falls into the trap
		asks        bool   // looks at the working tree must ask
	}{
		{rule: "core.fsmonitor", plant: `git config core.fsmonitor "$TRAP"`, plain: "git status"},
		{rule: "a hook", plant: `printf '#!/bin/sh\n%s\n' "$TRAP" > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change; touch -d 2001-01-01 a.txt`, plain: "git status"},
		{rule: "core.hooksPath", plant: `mkdir h; cp "$TRAP" h/post-index-change; git config core.hooksPath h; touch -d 2001-01-01 a.txt`, plain: "git status"},
		{rule: "diff.external", plant: `git config diff.external "$TRAP"`, plain: "git diff"},
		{rule: "a diff driver", plant: `git config diff.d.command "$TRAP"; echo '*.txt diff=d' > .git/info/attributes`, plain: "git diff"},
		{rule: "textconv", plant: `git config diff.d.textconv "$TRAP"; echo '*.txt diff=d' > .git/info/attributes`, plain: "git diff"},
		{rule: "gpg.program with log.showSignature", plant: `git config log.showSignature true; git config gpg.program "$TRAP"; signed`, plain: "git log"},
		{rule: "gpg.program with format.pretty", plant: `git config format.pretty '%G?'; git config gpg.program "$TRAP"; signed`, plain: "git log"},
		{rule: "an included file", plant: `printf '[core]\n\tfsmonitor = %s\n' "$TRAP" > .git/more; git config include.path more`, plain: "git status"},
		{rule: "a worktree's own file", plant: `git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$TRAP"`, plain: "git status"},
		{rule: "an alias", plant: `git config alias.status "!$TRAP"; git config alias.st "!$TRAP"`, plain: "git st"},
		{rule: "pagers", plant: `git config core.pager "$TRAP"; git config pager.status "$TRAP"; git config pager.log "$TRAP"; git config pager.diff "$TRAP"; git config pager.branch "$TRAP"`,
			plain: "script -qec 'git log' /dev/null"},
		{rule: "a submodule's monitor", plant: `submodule; git -C sub config core.fsmonitor "$TRAP"; git config diff.ignoreSubmodules none; git config status.submoduleSummary true; git config diff.submodule diff`, plain: "git status"},
		{rule: "a submodule's filter", plant: `submodule; git -C sub config filter.f.clean "$TRAP"; i=$(git -C sub rev-parse --absolute-git-dir)/info; mkdir -p $i; echo '* filter=f' > $i/attributes; echo ONE > sub/a.txt; git config diff.submodule diff`, plain: "git status"},
		{rule: "a partial clone that fetches", plant: `lazy; git config remote.origin.uploadpack "$TRAP </dev/null; exit 1;"`, plain: "git log --stat"},
		{rule: "a partial clone with ext::", plant: `lazy; git config protocol.ext.allow always; git config protocol.allow always; git config remote.origin.url "ext::$TRAP /dev/null"`, plain: "git log --stat"},
		{rule: "a partial clone over ssh", plant: `lazy; git config core.sshCommand "$TRAP </dev/null"; git config remote.origin.url ssh://h/x`, plain: "git log --stat"},
		{rule: "a partial clone with a helper for passwords", plant: `lazy; git config credential.helper "!$TRAP"; git config core.askPass "$TRAP"; git config remote.origin.url ssh://h/x; git config core.sshCommand "$TRAP </dev/null"`, plain: "git log --stat"},
		{rule: "filter.clean", plant: `git config filter.f.clean "$TRAP"; echo '*.txt filter=f' > .git/info/attributes`, plain: "git status", asks: true},
		{rule: "filter.process", plant: `git config filter.f.process "$TRAP"; echo '*.txt filter=f' > .git/info/attributes`, plain: "git status", asks: true},
		{rule: "filter.clean in an included file", plant: `printf '[filter "f.g h"]\n\tclean = %s\n' "$TRAP" > .git/more; git config include.path more; git config filter.f.clean "$TRAP"; echo '*.txt filter=f' > .git/info/attributes`, plain: "git status", asks: true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			trap, ran := b.dir+"/trap", b.dir+"/ran"
			script := "#!/bin/sh\necho \"$0 $*\" >> " + ran + "\n[ \"$1\" = /dev/null ] || cat 2>/dev/null\n"
			if err := os.WriteFile(trap, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			b.sh("rm -f .git/hooks/*; echo 1 > f.txt; git add f.txt; git commit -qm f; git branch other")
			b.sh("TRAP=" + trap + `
signed() { git commit-tree -p HEAD -m x HEAD^{tree} > /dev/null; printf 'tree %s\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\nx\n' "$(git rev-parse HEAD^{tree})" > ../c; git reset -q $(git hash-object -w -t commit ../c); git commit -q --allow-empty -m on; }
submodule() { git -c protocol.file.allow=always submodule --quiet add ` + b.dir + `/remote.git sub; git commit -qm sub; }
lazy() { git push -q origin main; cd ..; rm -rf repo; git -C remote.git config uploadpack.allowFilter true; git clone -q --no-checkout --filter=blob:none file://` + b.dir + `/remote.git repo; cd repo; git branch other; }
` + tc.plant)
			b.sh("echo changed > f.txt")
			_ = os.Remove(ran)
			if strings.HasPrefix(tc.plain, "script") {
				if _, err := exec.LookPath("script"); err != nil {
					tc.plain = ""
				}
			}
			if tc.plain != "" {
				b.sh("cp -a . ../copy; cd ../copy; timeout 10 " + tc.plain + " < /dev/null > ../out 2>&1 || true")
				if _, err := os.Stat(ran); err != nil {
					out, _ := os.ReadFile(b.dir + "/out")
					t.Errorf("the trap is none: %s", out)
				}
			}
			_ = os.Remove(ran)
			before := b.state()
			for _, l := range looks {
				p, err := b.plan(l.tool, l.args)
				if err != nil {
					if strings.Contains(err.Error(), "cannot name") || strings.Contains(err.Error(), "is no commit") {
						t.Errorf("%s %s: %v", l.tool, l.args, err)
					}
					continue
				}
				if p.Action.Kind != approvals.KindObserve {
					tree := l.tool == "git_status" || l.tool == "git_diff" && !strings.Contains(l.args, "staged") && !strings.Contains(l.args, "..")
					if !tc.asks || !tree {
						t.Errorf("%s %s asks", l.tool, l.args)
					}
					if risk.Classify(string(p.Action.Bytes)).ReadOnly || b.level(l.tool, l.args) != risk.Medium || !strings.Contains(p.Action.Preview, trap) {
						t.Errorf("%s %s: %+v", l.tool, l.args, p.Action)
					}
					continue
				}
				if tc.asks && l.tool == "git_status" {
					t.Error("git_status does not ask")
				}
				b.runPlan(p)
			}
			// Planning a change only looks as well.
			for _, c := range []struct{ tool, args string }{
				{"git_add", `{"files":["."]}`}, {"git_stash", `{}`}, {"git_reset", `{"mode":"hard"}`}, {"git_push", `{"branch":"other"}`},
				{"git_pull", `{}`}, {"git_merge", `{"branch":"other"}`}, {"git_checkout", `{"branch":"other"}`}, {"git_branch", `{"name":"other","delete":true}`}, {"git_commit", `{"message":"m"}`},
			} {
				_, _ = b.plan(c.tool, c.args)
			}
			if text, err := os.ReadFile(ran); err == nil {
				t.Errorf("it ran: %s", text)
			}
			if b.state() != before {
				t.Error("a look changed something")
			}
		})
	}
}

func TestTheCardNamesThePrograms(t *testing.T) {
	b := newBench(t)
	b.sh(`git config core.sshCommand 'evil --ssh'; git config remote.origin.receivepack "evil
fake: line"; printf '#!/bin/sh\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push`)
	p := b.must("git_push", `{}`)
	for _, want := range []string{`"core.sshcommand" = "evil --ssh"`, `"remote.origin.receivepack" = "evil\nfake: line"`, b.repo + "/.git/hooks/pre-push, its content"} {
		if !strings.Contains(face(p.Action), want) {
			t.Errorf("the card lacks %q:\n%s", want, face(p.Action))
		}
	}
}

func TestNoArgumentBecomesAnOption(t *testing.T) {
	b := newBench(t)
	b.sh("git update-ref refs/heads/--upload-pack=x HEAD; git update-ref refs/heads/-f HEAD")
	for _, tc := range []struct{ tool, args string }{
		{"git_diff", `{"ref":"--output=/tmp/x"}`}, {"git_diff", `{"ref":"main..--output=x"}`}, {"git_diff", `{"ref":"HEAD:a.txt"}`},
		{"git_log", `{"ref":"--output=x"}`}, {"git_log", `{"ref":"-G."}`}, {"git_log", `{"ref":"main..a..b"}`},
		{"git_branch", `{"name":"-D"}`}, {"git_branch", `{"name":"x","start":"--track"}`}, {"git_branch", `{"name":"--edit-description","delete":true}`},
		{"git_checkout", `{"branch":"-f"}`}, {"git_checkout", `{"branch":"--orphan","create":true}`},
		{"git_push", `{"remote":"--receive-pack=x"}`}, {"git_push", `{"branch":"--upload-pack=x"}`}, {"git_push", `{"remote":"ext::sh -c x"}`},
		{"git_push", `{"branch":"+main"}`}, {"git_push", `{"branch":"main:other"}`}, {"git_push", `{"remote":"/elsewhere"}`}, {"git_push", `{"remote":"nowhere"}`},
		{"git_pull", `{"remote":"--upload-pack=x"}`}, {"git_pull", `{"branch":"--upload-pack=x"}`}, {"git_merge", `{"branch":"-s"}`},
		{"git_reset", `{"ref":"--pathspec-from-file=x"}`}, {"git_reset", `{"ref":"HEAD --"}`}, {"git_merge", `{"branch":"main\u202e"}`},
	} {
		if p, err := b.plan(tc.tool, tc.args); err == nil {
			t.Errorf("%s %s: %s", tc.tool, tc.args, p.Action.Bytes)
		}
	}
}

// FuzzRefName: what is accepted is a name by git's own rules, and no option.
func FuzzRefName(f *testing.F) {
	for _, s := range []string{"main", "feature/login", "-f", "a..b", "a.lock", "a/.b", "@{-1}", "@", "é", "a\\b", "a\u202eb", "+x", "a@{b", "a.", "x/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if gitcmd.RefName(s) != nil || strings.ContainsRune(s, 0) {
			return
		}
		if strings.HasPrefix(s, "-") {
			t.Fatalf("%q is an option", s)
		}
		if out, err := exec.CommandContext(t.Context(), "git", "check-ref-format", "refs/heads/"+s).CombinedOutput(); err != nil {
			t.Fatalf("git refuses %q: %v %s", s, err, out)
		}
	})
}

// FuzzRevision: what is accepted is one word that git takes for no option, no range and
// no file in a commit.
func FuzzRevision(f *testing.F) {
	for _, s := range []string{"HEAD", "HEAD~2", "v1^{commit}", "main@{1}", "-x", "^main", "a..b", "HEAD:x", ":/x", "a b", "main@{upstream}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if gitcmd.Revision(s) != nil {
			return
		}
		if s == "" || strings.ContainsAny(s, ": \t\n\x00") || strings.Contains(s, "..") || s[0] == '-' || s[0] == '^' {
			t.Fatalf("%q", s)
		}
	})
}

func TestOverSSH(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	target, err := ssh.New(ssh.Config{Name: "web-1", Hop: ssh.Hop{Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}}, KnownHosts: []string{s.KnownHosts}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	reg, err := tools.NewRegistry(time.Now, gitcmd.New(gitcmd.Config{Target: target, User: s.User})...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sh := func(text string) {
		t.Helper()
		if out := shellOn(ctx, t, target, text); out != "" {
			t.Fatal(out)
		}
	}
	// The account's home outlives the test.
	dir := fmt.Sprintf("gitcmd-%d", time.Now().UnixNano())
	t.Cleanup(func() { _ = shellOn(context.WithoutCancel(ctx), t, target, "rm -rf "+dir) })
	at := `"path":"` + dir + `"`
	sh("cd && git init -q -b main " + dir + " && cd " + dir + " && git config user.name T && git config user.email t@example.com && echo 1 > 'a b.txt' && rm -f .git/hooks/*")
	run := func(name, args string) toolstest.Outcome {
		t.Helper()
		out := toolstest.Run(ctx, t, reg, name, args)
		if out.Err != nil || out.Result.Failed {
			t.Fatalf("%s: %s", name, out.Text)
		}
		return out
	}
	run("git_add", `{`+at+`,"files":["a b.txt"]}`)
	run("git_commit", `{`+at+`,"message":"it's \"first\" $HOME"}`)
	if out := run("git_log", `{`+at+`,"oneline":true}`); !strings.Contains(out.Text, `it's \"first\" $HOME`) {
		t.Error(out.Text)
	}
	sh("cd " + dir + " && echo 2 > 'a b.txt' && git config core.fsmonitor 'touch ../" + dir + "/ran'")
	if out := run("git_status", `{`+at+`,"short":true}`); !strings.Contains(out.Text, ` M \"a b.txt\"`) {
		t.Error(out.Text)
	}
	sh("! test -e " + dir + "/ran")
}

// shellOn runs a text on a target and returns its output, with its failure.
func shellOn(ctx context.Context, t *testing.T, target backend.Target, text string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := warranttest.Start(ctx, target, backend.Spec{Shell: text, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 0 {
		return fmt.Sprintf("%s: exit code %d, %v: %s", text, res.Code, err, out.String())
	}
	return ""
}
