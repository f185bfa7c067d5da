package shell_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/targets/tmux"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/shell"
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
		ln -s run.sh link.sh && ln -s conf now && ln -s /nothing gone && ln -s /dev/null disk && echo 'x: 1' > conf/app.yml && echo 'all:; echo made' > Makefile && echo line > app.log`)
	for name, text := range map[string]string{
		"load.sh": "#!/bin/sh\n. \"$(dirname \"$0\")/lib/a.sh\"\nlib/b.sh\n", "lib/a.sh": "x=1\n", "lib/b.sh": "echo b\n",
		"deploy.py": "import os, helper\nimport pkg\n", "helper.py": "x = 1\n", "pkg/__init__.py": "from .deep import x\n", "pkg/deep.py": "x = 1\n",
		"pkg/__main__.py": "x = 1\n", "bare": "import helper\n", "linked.py": "import via\n",
		"a.js": "require('./lib/b')\n", "lib/b.js": "1\n", "a.pl": "use FindBin;\nuse lib \"$FindBin::Bin/lib\";\nuse Mod;\n", "lib/Mod.pm": "1;\n",
		"a.rb": "require_relative 'lib/c'\n", "lib/c.rb": "1\n",
	} {
		name = filepath.Join(m.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("helper.py", filepath.Join(m.dir, "via.py")); err != nil {
		t.Fatal(err)
	}
	m.reg = registry(t, shell.New(shell.Config{Target: local.New(local.Options{Dir: m.dir}), Dir: m.dir}))
	return m
}

func TestWhatAScriptLoadsBeyondItsFilesIsSaid(t *testing.T) {
	m := onMachine(t)
	m.sh("cd " + m.dir + ` && echo 'import yaml' > far.py && echo '. "$X"' > far.sh && mkdir many && for i in $(seq 0 30); do echo "import m$((i+1))" > many/m$i.py; done`)
	for command, want := range map[string]bool{
		"python3 deploy.py": false, "sh load.sh": false, "node a.js": false, "perl a.pl": false, "ruby a.rb": false, "bash run.sh": false, "rm far.py": false, "make all": false,
		"python3 far.py": true, "sh far.sh": true, "python3 many/m0.py": true, "python3 -c 'import yaml'": true, "git add far.py": false,
	} {
		if got := m.plan(command).Action.Files["(loads)"]; (got != "") != want {
			t.Errorf("%s: %q: %v", command, got, m.plan(command).Action.Files)
		}
	}
	hashed := 0
	for _, state := range m.plan("python3 many/m0.py").Action.Files {
		if len(state) == 64 {
			hashed++
		}
	}
	if hashed == 0 || hashed > 16 {
		t.Errorf("%d files were read", hashed)
	}
}

func TestAProgramThatIsTypedLoadsFilesToo(t *testing.T) {
	needstest.Program(t, "python3", "apt-get install python3")
	m := onMachine(t)
	reg := registry(t, shell.NewCode(shell.Config{Target: local.New(local.Options{Dir: m.dir}), Dir: m.dir}, shell.Interpreters{"python": {"python3", "-"}}))
	code := func() (tools.Plan, error) {
		return reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: thread, Name: "execute_code", Args: []byte(`{"language":"python","code":"import helper\nprint(helper.x)"}`)})
	}
	was, err := code()
	if err != nil {
		t.Fatal(err)
	}
	m.sh("echo 'x = 2' >> " + m.dir + "/helper.py")
	if is, err := code(); err != nil || is.Action.Digest() == was.Action.Digest() {
		t.Errorf("no drift: %v %v", err, was.Action.Files)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, was); !strings.Contains(out.Text, "changed after it was checked") {
		t.Error(out.Text)
	}
}

// sh changes the world behind the tool's back.
func (m *machine) sh(text string) {
	m.t.Helper()
	p, err := warranttest.Start(m.t.Context(), local.New(local.Options{Dir: "/"}), backend.Spec{Shell: text, Dir: "/"})
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
	t.Parallel()
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
		// What a command does in a directory that it names, it does in that one.
		"its cd leads to another by a link":           {"cd conf && rm -rf -- *", "mv conf b; mkdir c; ln -s c conf"},
		"its cd leads to another":                     {"cd conf && rm -rf -- *", "mv conf b; mkdir conf"},
		"its cd goes through another link":            {"cd now && rm -rf -- *", "mkdir b; ln -sfn b now"},
		"its cd goes through a link of another name":  {"cd now && rm -rf -- *", "mv conf b; ln -sfn b now"},
		"a directory to remove is another":            {"rm -rf conf", "mv conf b; mkdir conf"},
		"a directory before a pattern is another":     {"rm -rf ./conf/*", "mv conf b; mkdir conf"},
		"a directory before a range is another":       {"rm -rf conf/[a-z]*", "mv conf b; mkdir conf"},
		"a directory before a brace is another":       {"rm -rf conf/{a,b}", "mv conf b; mkdir conf"},
		"a directory before a variable is another":    {`for f in a b; do rm "conf/$f"; done`, "mv conf b; mkdir conf"},
		"a directory in a variable is another":        {`d=$PWD; x=conf; rm -rf "$x"/*`, "mv conf b; mkdir conf"},
		"a directory below a variable is another":     {`d=./lib; rm -rf "$d/sub"`, "mkdir lib/sub"},
		"a directory of a loop is another":            {`for d in lib conf; do (cd "$d" && rm -rf -- *); done`, "mv conf b; mkdir conf"},
		"a directory after its cd to a variable":      {`d=conf; cd "$d" && rm -rf e`, "mkdir conf/e"},
		"a directory by the working directory":        {`rm -rf "$PWD/conf"/*`, "mv conf b; mkdir conf"},
		"a directory whose name begins with a dash":   {"rm -rf -- -d", "mkdir ./-d"},
		"a directory of an option is another":         {"tar -xf a.tar --directory=conf", "mv conf b; mkdir conf"},
		"a directory in a quoted text is another":     {"bash -c 'cd conf && rm -rf -- *'", "mv conf b; mkdir conf"},
		"a directory under another is another":        {"mkdir conf/d; cd conf; rm -rf d", "mkdir conf/d"},
		"two changes, one after the other":            {"cd conf; cd d; rm x", "mkdir conf/d; touch conf/d/x"},
		"two changes in a second subshell":            {"(cd a; ls); (cd conf; cd d; rm x)", "mkdir conf/d; touch conf/d/x"},
		"a change in a function that is called later": {"f() { cd d; }; cd conf; f; rm x", "mkdir conf/d; touch conf/d/x"},
		"the directory above is another":              {"cd conf; cd ..; rm -rf ../work/conf/*", "cd ..; mv work/conf b; mkdir work/conf"},
		"the directory of a link's shell is another":  {"cd now/..; rm -rf d", "mkdir d"},
		"a link on the way to a new file is swapped":  {"echo x > now/new", "mkdir b; ln -sfn b now"},
		"a link to a file that is missing is swapped": {"echo x > gone", "ln -sfn /etc/nothing gone"},
		"a directory appears":                         {"cd new && rm -rf -- *", "mkdir new"},
		"a directory to make appears as a link":       {"mkdir -p new && cd new && touch x", "ln -s conf new"},
		"a directory to make is used for more":        {"mkdir -p conf && cd conf && rm -rf -- *", "mv conf b; mkdir conf"},
		"a directory to make is used by sudo":         {"mkdir -p conf && sudo -u app rm -rf conf", "mv conf b; mkdir conf"},
		// What a script loads decides what it does, too.
		"a sourced file of a script is edited":        {"sh load.sh", "echo evil >> lib/a.sh"},
		"a file that a script runs is edited":         {"./load.sh", "echo evil >> lib/b.sh"},
		"a module of a script is edited":              {"python3 deploy.py", "echo evil >> helper.py"},
		"a module of a module is edited":              {"python3 deploy.py", "echo evil >> pkg/deep.py"},
		"a package of a script is edited":             {"python3 deploy.py", "echo evil >> pkg/__init__.py"},
		"a module of the language is shadowed":        {"python3 deploy.py", "echo evil >> os.py"},
		"a module becomes a package":                  {"python3 deploy.py", "mkdir helper; echo evil > helper/__init__.py"},
		"a module of a script elsewhere is edited":    {"cd conf && python3 ../deploy.py", "echo evil >> helper.py"},
		"a module of a module that is run is edited":  {"python3 -m deploy", "echo evil >> helper.py"},
		"a module of a program in the text is edited": {"python3 -c 'import helper'", "echo evil >> helper.py"},
		"a module of an input program is edited":      {"python3 - <<'E'\nimport helper\nE", "echo evil >> helper.py"},
		"a module of a program from a file is edited": {"python3 < deploy.py", "echo evil >> helper.py"},
		"a module of a script without a name":         {"python3 bare", "echo evil >> helper.py"},
		"a module of a directory is edited":           {"python3 pkg", "echo evil >> pkg/__main__.py"},
		"a module of node is edited":                  {"node a.js", "echo evil >> lib/b.js"},
		"a module of an option of node is edited":     {"node -r ./lib/b.js x", "echo evil >> lib/b.js"},
		"a module of perl is edited":                  {"perl a.pl", "echo evil >> lib/Mod.pm"},
		"a module of ruby is edited":                  {"ruby a.rb", "echo evil >> lib/c.rb"},
		"a module is a link that is swapped":          {"python3 linked.py", "cp helper.py h2.py; ln -sfn h2.py via.py"},
		"a script is read, and run by another name":   {"cp ./load.sh x; sh load.sh", "echo evil >> lib/a.sh"},
		"a link to a device is swapped":               {"dd if=run.sh of=disk", "ln -sfn /dev/zero disk"},
		"a script in shared memory is edited":         {"bash /dev/shm/countersign-test.sh", "echo evil >> /dev/shm/countersign-test.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			m := onMachine(t)
			if strings.Contains(tt.command, "/dev/shm/") {
				shm := "/dev/shm/countersign-test.sh"
				m.sh("echo good > " + shm)
				t.Cleanup(func() { _ = os.Remove(shm) })
			}
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
		"a directory that it makes appears": {"mkdir -p new/sub && cd new/sub && echo x > a", "mkdir new"},
		"both that it makes appear":         {"mkdir -p new/sub && cd new/sub && echo x > a", "mkdir -p new/sub"},
		"a named directory gets a new file": {"cd conf && rm -rf -- *", "touch conf/other"},
		"a directory is renamed above it":   {"cd conf && touch x", "touch -d 2001-01-01 conf"},
	} {
		m := onMachine(t)
		was := m.plan(tt.command)
		m.sh("cd " + m.dir + " && " + tt.change)
		if is := m.plan(tt.command); is.Action.Digest() != was.Action.Digest() {
			t.Errorf("%s: %v\nwas %v\nis  %v", name, approvals.Drift(was.Action, is.Action), was.Action.Files, is.Action.Files)
		}
	}
}

// TestDirectoriesThatARunMakesDoNotEndAGrant: what the command itself, or an earlier
// step of its plan, brought about is no change by others.
func TestDirectoriesThatARunMakesDoNotEndAGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		command, between string
		same             bool
	}{
		"it made a directory":            {"git init new && cd new && git gc", "mkdir new", true},
		"a step before made one":         {"cd new/sub && rm -rf -- *", "mkdir -p new/sub", true},
		"somebody made a link instead":   {"cd new && rm -rf -- *", "ln -s conf new", false},
		"it is another than was shown":   {"cd conf && rm -rf -- *", "mv conf b; mkdir conf", false},
		"a named directory went away":    {"cd conf && rm -rf -- *", "rmdir conf || rm -r conf", false},
		"a file to write made it appear": {"echo x > conf/new", "touch conf/new", true},
	} {
		m := onMachine(t)
		was := m.plan(tt.command).Action
		m.sh("cd " + m.dir + " && " + tt.between)
		is := m.plan(tt.command).Action
		same := maps.Equal(settled(was), settled(is))
		for file, state := range was.Files { // as a grant and a plan compare them
			same = same && is.Files[file] == state
		}
		if same != tt.same {
			t.Errorf("%s: %v\nwas %v\nis  %v", name, same, was.Files, is.Files)
		}
	}
}

// settled are the entries that have to be the same in each run.
func settled(a approvals.Action) map[string]string {
	out := maps.Clone(a.Files)
	maps.DeleteFunc(out, func(_, state string) bool { return strings.Contains(state, approvals.AnyContent) })
	return out
}

func TestADirectoryThatIsOnlyKnownLaterIsSaid(t *testing.T) {
	m := onMachine(t)
	for command, want := range map[string]bool{
		`cd "$X" && rm x`: true, "cd $(mktemp -d) && rm x": true, "cd - && rm x": true, "popd; rm x": true, "cd ~nobody && rm x": true, "rm -rf ~nobody/x": true, "d=conf; cd $d; rm x": false,
		"cd conf && rm app.yml; cd -; rm x": false, "cd && rm x": false, "rm x": false,
	} {
		if got := m.plan(command).Action.Files["(elsewhere)"]; (got != "") != want {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// surveyed counts how often the target is asked.
type surveyed struct {
	*local.Target
	mu    sync.Mutex
	asked []string
}

func (s *surveyed) note(question string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, question)
}

type surveyedFiles struct {
	backend.FileSystem
	s *surveyed
}

func (s *surveyed) FS() backend.FileSystem { return surveyedFiles{s.Target.FS(), s} }

func (f surveyedFiles) Stat(ctx context.Context, name string) (backend.FileInfo, error) {
	f.s.note("stat " + name)
	return f.FileSystem.Stat(ctx, name)
}

func (f surveyedFiles) Resolve(ctx context.Context, name string) (string, error) {
	f.s.note("resolve " + name)
	return f.FileSystem.Resolve(ctx, name)
}

func (f surveyedFiles) StatAll(ctx context.Context, names []string) ([]backend.FileInfo, []error, error) {
	f.s.note(fmt.Sprint(len(names), " at once"))
	infos, errs := make([]backend.FileInfo, len(names)), make([]error, len(names))
	for i, n := range names {
		if infos[i], errs[i] = f.FileSystem.Stat(ctx, n); errs[i] != nil {
			infos[i].Path, _ = f.FileSystem.Resolve(ctx, n)
		}
	}
	return infos, errs, nil
}

func TestAFarTargetIsAskedOnceForAllNames(t *testing.T) {
	m := onMachine(t)
	s := &surveyed{Target: local.New(local.Options{Dir: m.dir})}
	reg := registry(t, shell.New(shell.Config{Target: s, Dir: m.dir}))
	command := "cd conf; cd d; (cd now && rm -rf -- * link.sh ../conf/new); rm app.log; rm -rf ~/x/[a-z]*"
	far, err := plan(t, reg, call(command))
	names := slices.DeleteFunc(slices.Clone(s.asked), func(q string) bool { return q == "stat "+m.dir }) // the directory itself comes first
	if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], " at once") {
		t.Errorf("asked %q, %v", s.asked, err)
	}
	if near := m.plan(command).Action.Files; !maps.Equal(near, far.Action.Files) {
		t.Errorf("another way to look finds something else:\n%v\n%v", near, far.Action.Files)
	}
}

func TestADirectoryAndItsFilesAreLookedAtWithOneQuestion(t *testing.T) {
	m := onMachine(t)
	s := &surveyed{Target: local.New(local.Options{Dir: m.dir})}
	reg := registry(t, shell.New(shell.Config{Target: s, Dir: m.dir}))
	asked := func(command string) string {
		s.asked = nil
		if _, err := plan(t, reg, call(command)); err != nil {
			t.Fatal(err)
		}
		return strings.Join(s.asked, ", ")
	}
	for _, tt := range []struct{ command, want string }{
		{"rm app.log", "stat " + m.dir + ", 2 at once"},
		{"rm app.log", "3 at once"},
		{"cat app.log", ""}, // a read is looked at while it runs
		{"uptime", ""},
	} {
		if got := asked(tt.command); got != tt.want {
			t.Errorf("%s asks %q, want %q", tt.command, got, tt.want)
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
	target := &withLock{}
	reg := registry(t, shell.New(shell.Config{Target: target, Dir: "/"}))
	toolstest.Run(t.Context(), t, reg, "run_shell", call("ls &>/dev/null")) // sh would run it in the background
	toolstest.Run(t.Context(), t, reg, "run_shell", call("touch x"))
	specs := target.Specs()
	if len(specs) != 2 || strings.Join(specs[0].Argv, " ") != "/bin/bash --noprofile --norc -c ls &>/dev/null" || specs[0].Shell != "" || specs[1].Shell != "touch x" {
		t.Errorf("%+v", specs)
	}
	// Without bash it is proven for whatever sh is, or not at all.
	sh := &toolstest.Target{}
	reg = registry(t, shell.New(shell.Config{Target: sh, Dir: "/"}))
	for command, shell := range map[string]string{"ls -l": "sh", "[[ -f x ]]": ""} {
		if p, err := plan(t, reg, call(command)); err != nil || p.Action.Shell != shell {
			t.Errorf("%s: %q (%v)", command, p.Action.Shell, err)
		}
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
	target.Put("/work/.keep", "")
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
		"tail -f /var/x":    {kind: approvals.KindShell, pane: "shared", more: `"wait":false`},
		"cd /etc":           {kind: approvals.KindShell},
		"cd /etc && cd ..":  {kind: approvals.KindShell},
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
	if r := parse(t, w.run(call("cd /etc && ls"))); !strings.Contains(r.Notice, "the directory of the terminal is still /srv/app") {
		t.Errorf("%+v", r)
	}
}

func TestAnotherProgramPaneOrDirectoryIsDrift(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the program in front":   func(w *world) { w.shared().Set(func(i *tmux.Info) { i.Program = "psql" }) },
		"the directory":          func(w *world) { w.shared().Set(func(i *tmux.Info) { i.Dir = "/etc" }) },
		"terminal's environment": func(w *world) { w.shared().Says(tmux.Shell{State: "7.3", Paths: true}) },
		"the terminal's environment": func(w *world) {
			w.srv.Vanish(w.shared().Session())
			w.run(call("touch y"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := managed(t)
			w.run(call("touch x"))
			w.shared().Says(tmux.Shell{State: "7.2", Paths: true})
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

func TestPeopleAtThePaneSeeWhatRanBesideIt(t *testing.T) {
	w, target := reading(t)
	target.Exec = func(_ context.Context, s backend.Spec) (backend.Result, error) {
		_, _ = s.Stdout.Write([]byte("out\n"))
		_, _ = s.Stderr.Write([]byte("err\n"))
		return backend.Result{Code: 2}, nil
	}
	w.reg = registry(t, shell.New(shell.Config{Target: target, Sessions: w.book, Dir: "/work"}))
	w.run(call("touch x"))
	w.run(call("ls /x"))
	w.run(call("touch y")) // which comes after what is to be seen before
	if shown := w.shared().Shown(); len(shown) != 1 || shown[0] != "(beside this shell) $ ls /x\nout\nerr\n" || len(w.shared().Commands()) != 2 {
		t.Errorf("shown %q, typed %q", shown, w.shared().Commands())
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
