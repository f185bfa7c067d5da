package shell_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/tools"
	"countersign/tools/backend"
	"countersign/tools/backend/local"
	"countersign/tools/session"
	"countersign/tools/shell"
	"countersign/tools/tmux"
	"countersign/tools/toolstest"
)

// machine is run_shell without tmux, in a directory of real files.
type machine struct {
	t   *testing.T
	dir string
	reg *tools.Registry
}

func onMachine(t *testing.T) *machine {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: filepath.Join(top, "work")}
	m.sh("mkdir -p " + m.dir + "/conf && cd " + m.dir + ` && echo 'echo good' > run.sh && chmod +x run.sh &&
		ln -s run.sh link.sh && ln -s conf now && echo 'x: 1' > conf/app.yml && echo 'all:; echo made' > Makefile && echo line > app.log`)
	m.reg = registry(t, shell.New(shell.Config{Target: local.New(local.Options{Dir: m.dir}), Dir: m.dir}))
	return m
}

// sh changes the world behind the tool's back.
func (m *machine) sh(text string) {
	m.t.Helper()
	p, err := local.New(local.Options{Dir: "/"}).Start(m.t.Context(), backend.Spec{Shell: text, Dir: "/"})
	if err != nil {
		m.t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 0 {
		m.t.Fatalf("%s: %+v %v", text, res, err)
	}
}

func (m *machine) plan(command string) tools.Plan {
	m.t.Helper()
	p, err := plan(m.t, m.reg, call(command))
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

func TestWhatACommandDependsOnIsPartOfItsDigest(t *testing.T) {
	for name, tt := range map[string]struct{ command, attack string }{
		"the script is edited":                     {"bash run.sh", "echo evil >> run.sh"},
		"the program is edited":                    {"./run.sh; touch x", "echo evil >> run.sh"},
		"a sourced file is edited":                 {". ./run.sh", "echo evil >> run.sh"},
		"a script in a quoted text is edited":      {"bash -c 'cd conf; sh ../run.sh'", "echo evil >> run.sh"},
		"a script in another directory is edited":  {"cd conf && sh app.yml", "echo evil >> conf/app.yml"},
		"a manifest behind an option is edited":    {"kubectl apply -f=conf/app.yml", "echo evil >> conf/app.yml"},
		"standard input is edited":                 {"sh < run.sh", "echo evil >> run.sh"},
		"the Makefile that nobody names is edited": {"make all", "echo evil >> Makefile"},
		"a Makefile that comes first appears":      {"make all", "echo evil > GNUmakefile"},
		"a link is swapped":                        {"bash link.sh", "echo evil > b; ln -sfn b link.sh"},
		"a link is swapped to the same content":    {"bash link.sh", "cp run.sh b; ln -sfn b link.sh"},
		"a link on the way is swapped":             {"sh now/app.yml", "mkdir b; echo evil > b/app.yml; ln -sfn b now"},
		"a script appears":                         {"bash new.sh", "echo evil > new.sh"},
		"a script goes away":                       {"bash run.sh", "rm run.sh"},
		"the file of a redirection appears":        {"echo x > out", "echo precious > out"},
		"the file to remove is another one":        {"rm app.log", "mv app.log b; echo precious > app.log"},
		"a copied file is edited":                  {"cp conf/app.yml /etc/app.yml", "echo evil >> conf/app.yml"},
		"the directory is replaced":                {"touch x", "cd ..; mv work old; cp -a old work"},
	} {
		t.Run(name, func(t *testing.T) {
			m := onMachine(t)
			was := m.plan(tt.command)
			if again := m.plan(tt.command); again.Action.Digest() != was.Action.Digest() {
				t.Fatalf("it drifts by itself: %v", approvals.Drift(was.Action, again.Action))
			}
			m.sh("cd " + m.dir + " && " + tt.attack)
			is := m.plan(tt.command)
			if is.Action.Digest() == was.Action.Digest() || len(approvals.Drift(was.Action, is.Action)) == 0 {
				t.Errorf("no drift\nwas %v\nis  %v", was.Action.Files, is.Action.Files)
			}
			// A permit for the first plan is of no use any more, either.
			out := toolstest.RunPlan(t.Context(), t, m.reg, was)
			if !strings.Contains(out.Text, "was not run") || !strings.Contains(out.Text, "changed after it was checked") {
				t.Errorf("it ran: %s", out.Text)
			}
		})
	}
}

func TestALinkedDirectoryThatLeadsElsewhereIsDrift(t *testing.T) {
	m := onMachine(t)
	m.sh("cd " + m.dir + "/.. && ln -s work cur")
	cur := filepath.Join(filepath.Dir(m.dir), "cur")
	reg := registry(t, shell.New(shell.Config{Target: local.New(local.Options{Dir: "/"}), Dir: cur}))
	was, err := plan(t, reg, call("touch x"))
	if err != nil || was.Action.Dir != m.dir {
		t.Fatalf("%v, dir %s", err, was.Action.Dir)
	}
	m.sh("cd " + m.dir + "/.. && mkdir evil && ln -sfn evil cur")
	is, err := plan(t, reg, call("touch x"))
	if err != nil || !strings.Contains(strings.Join(approvals.Drift(was.Action, is.Action), ","), "the directory") {
		t.Errorf("%v, drift %v", err, approvals.Drift(was.Action, is.Action))
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, was); !strings.Contains(out.Text, "the directory") {
		t.Error(out.Text)
	}
}

func TestWhatDoesNotDecideWhatHappensMayChange(t *testing.T) {
	for name, tt := range map[string]struct{ command, change string }{
		"a log that is searched grows":      {"grep x app.log > /dev/null; touch y", "echo more >> app.log"},
		"a file that is appended to grows":  {"echo x >> app.log", "echo more >> app.log"},
		"a file that is removed grows":      {"rm app.log", "echo more >> app.log"},
		"another file is edited":            {"bash run.sh", "echo evil >> conf/app.yml"},
		"a file in the directory appears":   {"bash run.sh", "echo x > other"},
		"a read finds something else":       {"cat run.sh", "echo evil >> run.sh"},
		"the kernel's files are never same": {"cat /proc/uptime; touch y", "sleep 0.02"},
	} {
		m := onMachine(t)
		was := m.plan(tt.command)
		m.sh("cd " + m.dir + " && " + tt.change)
		if is := m.plan(tt.command); is.Action.Digest() != was.Action.Digest() {
			t.Errorf("%s: %v\nwas %v\nis  %v", name, approvals.Drift(was.Action, is.Action), was.Action.Files, is.Action.Files)
		}
	}
}

func TestTooMuchToHashIsSaidAndStillDrifts(t *testing.T) {
	m := onMachine(t)
	command := "bash"
	for i := range 20 {
		m.sh(fmt.Sprintf("echo %d > %s/s%d", i, m.dir, i))
		command += fmt.Sprintf(" s%d", i)
	}
	m.sh("truncate -s 9M " + m.dir + "/big")
	was := m.plan(command)
	hashed, said := 0, 0
	for _, state := range was.Action.Files {
		switch {
		case len(state) == 64:
			hashed++
		case strings.Contains(state, "there is too much"):
			said++
		}
	}
	if hashed != 16 || said != 4 {
		t.Errorf("%d hashed, %d not: %v", hashed, said, was.Action.Files)
	}
	m.sh("echo evil >> " + m.dir + "/s19")
	if is := m.plan(command); is.Action.Digest() == was.Action.Digest() {
		t.Error("a script that was not hashed changed, and nobody saw it")
	}
	big := m.plan("bash big").Action.Files[m.dir+"/big"]
	if !strings.Contains(big, "there is too much: 9437184 bytes") {
		t.Errorf("big is bound as %q", big)
	}
	var many strings.Builder
	for i := range 100 {
		m.sh(fmt.Sprintf("echo > %s/m%d", m.dir, i))
		fmt.Fprintf(&many, " m%d", i)
	}
	if f := m.plan("sh" + many.String()).Action.Files; f["(more)"] == "" || len(f) > 60 {
		t.Errorf("%d entries, and %q", len(f), f["(more)"])
	}
}

func TestProcessesHaveAFixedEnvironmentThatIsPartOfTheAction(t *testing.T) {
	for _, name := range []string{"BASH_ENV", "ENV", "GREP_OPTIONS", "LESSOPEN", "GIT_DIR", "LD_LIBRARY_PATH", "PYTHONPATH", "KUBECTL_EXTERNAL_DIFF"} {
		t.Setenv(name, "/tmp/poison")
	}
	t.Setenv("BASH_FUNC_ls%%", "() { echo poison; }")
	m := onMachine(t)
	for _, command := range []string{"ls", "ls; touch x"} {
		env := m.plan(command).Action.Env["process"]
		if !strings.Contains(env, "fixed variables, SHA-256 ") {
			t.Errorf("environment %q", env)
		}
		if out := toolstest.RunPlan(t.Context(), t, m.reg, m.plan(command)); strings.Contains(out.Text, "poison") || !strings.Contains(out.Text, "run.sh") {
			t.Error(out.Text)
		}
	}
	if out := toolstest.RunPlan(t.Context(), t, m.reg, m.plan("env; touch x")); strings.Contains(out.Text, "poison") {
		t.Error(out.Text)
	}
}

func TestAProvenReadRunsInExactlyTheShellThatTheProofIsAbout(t *testing.T) {
	target := &withBash{}
	reg := registry(t, shell.New(shell.Config{Target: target, Dir: "/"}))
	toolstest.Run(t.Context(), t, reg, "run_shell", call("ls &>/dev/null")) // sh would run it in the background
	toolstest.Run(t.Context(), t, reg, "run_shell", call("touch x"))
	specs := target.Specs()
	if len(specs) != 2 || strings.Join(specs[0].Argv, " ") != "/bin/bash --noprofile --norc -c ls &>/dev/null" || specs[0].Shell != "" || specs[1].Shell != "touch x" {
		t.Errorf("%+v", specs)
	}
	p, err := plan(t, registry(t, shell.New(shell.Config{Target: &toolstest.Target{}, Dir: "/"})), call("ls"))
	if err != nil || p.Action.Kind == approvals.KindShell || p.Action.Kind == approvals.KindObserve {
		t.Errorf("without bash the proof is about nothing, and the kind is %s (%v)", p.Action.Kind, err)
	}
}

// withBash is a fake target that has bash.
type withBash struct{ toolstest.Target }

func (w *withBash) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := w.Target.Probe(ctx)
	c.Bash = "/bin/bash"
	return c, err
}

// reading is run_shell over a fake tmux on a target with bash.
func reading(t *testing.T) (*world, *withBash) {
	t.Helper()
	w, target := managed(t), &withBash{}
	w.tool = shell.New(shell.Config{Target: target, Sessions: w.book, User: "tester", Dir: "/work"})
	w.reg = registry(t, w.tool)
	return w, target
}

func TestNoPlanThatCouldRunUnaskedIsForAPane(t *testing.T) {
	w, _ := reading(t)
	w.run(call("touch x")) // the pane is there
	for command, want := range map[string]struct {
		more string
		kind approvals.Kind
		pane string
	}{
		"ls":                {kind: approvals.KindShell},
		"ls | wc -l":        {kind: approvals.KindShell},
		"cd /etc && ls":     {kind: approvals.KindShell},
		"cat a.txt":         {kind: approvals.KindShell, more: `"pane":"shared"`},
		"tail -f /var/x":    {kind: approvals.KindKeys, pane: "shared", more: `"wait":false`},
		"cd /etc":           {kind: approvals.KindKeys, pane: "shared"},
		"cd /etc && cd ..":  {kind: approvals.KindKeys, pane: "shared"},
		"touch x":           {kind: approvals.KindShell, pane: "shared"},
		"echo $unknown_var": {kind: approvals.KindShell, pane: "shared"},
	} {
		var more []string
		if want.more != "" {
			more = append(more, want.more)
		}
		p, err := plan(t, w.reg, call(command, more...))
		if err != nil {
			t.Fatal(err)
		}
		a := p.Action
		if a.Kind != want.kind || a.Pane != want.pane || string(a.Bytes) != command {
			t.Errorf("%q: kind %s, pane %q", command, a.Kind, a.Pane)
		}
		if (a.Pane == "") != (a.Env["process"] != "") || (a.Pane != "") != (a.Env["shell"] != "") {
			t.Errorf("%q: environment %v", command, a.Env)
		}
	}
}

func TestAReadRunsBesideThePaneInItsDirectory(t *testing.T) {
	w, target := reading(t)
	target.Put("/srv/app/x", "")
	w.run(call("touch x"))
	w.shared().Set(func(i *tmux.Info) { i.Dir, i.State, i.Program = "/srv/app", tmux.StateRunning, "vim" })
	out := w.run(call("ls"))
	specs := target.Specs()
	if len(specs) != 1 || specs[0].Dir != "/srv/app" || len(specs[0].Argv) == 0 || out.Result.Failed {
		t.Errorf("%+v %s", specs, out.Text)
	}
	if got := w.shared().Commands(); len(got) != 1 {
		t.Errorf("the pane got %q", got)
	}
	if r := parse(t, w.run(call("cd /etc && ls"))); !strings.Contains(r.Notice, "the directory of the pane is still /srv/app") {
		t.Errorf("%+v", r)
	}
}

func TestAnotherProgramPaneOrDirectoryIsDrift(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the program in front": func(w *world) { w.shared().Set(func(i *tmux.Info) { i.Program = "psql" }) },
		"the directory":        func(w *world) { w.shared().Set(func(i *tmux.Info) { i.Dir = "/etc" }) },
		"the environment": func(w *world) {
			w.srv.Vanish(w.shared().Session())
			w.run(call("touch y"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := managed(t)
			w.run(call("touch x"))
			was, err := plan(t, w.reg, call("rm x"))
			if err != nil {
				t.Fatal(err)
			}
			change(w)
			before := len(w.shared().Commands())
			is, err := plan(t, w.reg, call("rm x"))
			if d := strings.Join(approvals.Drift(was.Action, is.Action), ", "); err != nil || !strings.Contains(d, name) {
				t.Errorf("drift %q, %v", d, err)
			}
			// The same in the last moment, with the permit in hand.
			if out := toolstest.RunPlan(t.Context(), t, w.reg, was); !strings.Contains(out.Text, "was not run") {
				t.Error(out.Text)
			}
			if n := len(w.shared().Commands()); n != before {
				t.Error("the command was typed")
			}
		})
	}
}

// TestAPoisonedPaneDoesNotReachAProvenRead: whoever can type into the shared
// shell (the model with an approved command, a person, a sourced script) leaves
// something there that runs in place of, or before, the next harmless command.
// The next harmless command runs without being asked.
func TestAPoisonedPaneDoesNotReachAProvenRead(t *testing.T) {
	for name, poison := range map[string]string{
		"an alias":                   "alias ls='touch POISON; ls'",
		"a function":                 "ls() { touch POISON; command ls; }",
		"a function builtin":         "cat() { touch POISON; }; builtin() { touch POISON; }; command() { touch POISON; }",
		"PATH":                       "mkdir -p evil; printf '#!/bin/sh\\ntouch POISON\\n' > evil/ls; chmod +x evil/ls; export PATH=$PWD/evil:$PATH",
		"a hash entry":               "printf '#!/bin/sh\\ntouch POISON\\n' > evil-ls; chmod +x evil-ls; hash -p $PWD/evil-ls ls",
		"a DEBUG trap":               "trap 'touch POISON' DEBUG",
		"PROMPT_COMMAND":             "PROMPT_COMMAND='touch POISON'",
		"BASH_ENV":                   "echo 'touch POISON' > env.sh; export BASH_ENV=$PWD/env.sh ENV=$PWD/env.sh",
		"an exported function":       "ls() { touch POISON; }; export -f ls",
		"IFS and options":            "IFS=l; shopt -s expand_aliases; set -f; alias ls='touch POISON'",
		"a command_not_found handle": "command_not_found_handle() { touch POISON; }; PATH=",
		"another program":            "cat > /dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, reg := overTmux(t)
			mark := filepath.Join(r.Dir, "POISON")
			runReal(t, reg, call("touch start"))
			poison := strings.ReplaceAll(poison, "POISON", mark)
			pane := r.Tmux("list-panes", "-a", "-F", "#{pane_id}")
			r.Tmux("send-keys", "-t", pane, "-l", poison)
			r.Tmux("send-keys", "-t", pane, "Enter")
			if name == "another program" {
				r.Eventually("it is in front", func() bool { return r.Tmux("list-panes", "-a", "-F", "#{pane_current_command}") == "cat" })
			} else {
				r.Tmux("send-keys", "-t", pane, "-l", ": > '"+r.Dir+"/typed'")
				r.Tmux("send-keys", "-t", pane, "Enter")
				r.Eventually("the poison was typed", func() bool {
					_, err := os.Stat(filepath.Join(r.Dir, "typed"))
					return err == nil
				})
				r.Eventually("the prompt is back", func() bool {
					screen := strings.TrimSpace(r.Tmux("capture-pane", "-p", "-t", pane))
					return strings.HasSuffix(screen, "#") || strings.HasSuffix(screen, "$")
				})
			}
			_ = os.Remove(mark) // of what ran while it was laid, for the one who typed
			for _, c := range []string{"ls", "cat start", "ls | wc -l"} {
				p, err := plan(t, reg, call(c))
				if err != nil {
					t.Fatal(err)
				}
				if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Result.Failed || !strings.Contains(out.Text, `"exit_code":0`) {
					t.Errorf("%q: %s", c, out.Text)
				}
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("the poison ran")
			}
		})
	}
}

// showing is a book whose panes can show text.
type showing struct {
	*session.Book
	shown []string
}

type shownPane struct {
	session.Pane
	s *showing
}

func (s *showing) Ensure(ctx context.Context, thread, name, pane string) (session.Pane, string, error) {
	p, notice, err := s.Book.Ensure(ctx, thread, name, pane)
	return shownPane{p, s}, notice, err
}

func (p shownPane) Show(_ context.Context, text string) error {
	p.s.shown = append(p.s.shown, p.Session()+" "+text)
	return nil
}

func TestPeopleAtThePaneSeeWhatRanBesideIt(t *testing.T) {
	w, target := reading(t)
	target.Exec = func(_ context.Context, s backend.Spec) (backend.Result, error) {
		_, _ = s.Stdout.Write([]byte("out\n"))
		_, _ = s.Stderr.Write([]byte("err\n"))
		return backend.Result{Code: 2}, nil
	}
	book := &showing{Book: w.book}
	w.reg = registry(t, shell.New(shell.Config{Target: target, Sessions: book, Dir: "/work"}))
	w.run(call("touch x")) // the pane is there, and the fake's are never pristine
	w.run(call("ls /x"))
	if len(book.shown) != 1 || !strings.HasSuffix(book.shown[0], " (beside this shell) $ ls /x\nout\nerr\n") || len(w.shared().Commands()) != 1 {
		t.Errorf("shown %q, typed %q", book.shown, w.shared().Commands())
	}
	// A pane that cannot be found takes nothing from the result.
	p, err := plan(t, w.reg, call("ls /x"))
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Vanish(w.shared().Session())
	w.srv.Fail = func(string) error { return errors.New("no room") }
	if r := parse(t, toolstest.RunPlan(t.Context(), t, w.reg, p)); r.ExitCode == nil || *r.ExitCode != 2 || r.Stdout != "out\n" {
		t.Errorf("%+v", r)
	}
}
