package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/container"
	"countersign/targets/container/enginetest"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/process"
	"countersign/tools/toolstest"
)

// on each shell that may be /bin/sh.
func TestEveryShell(t *testing.T) {
	t.Parallel()
	for name, dir := range shells(t) {
		t.Run(name, func(t *testing.T) {
			if name != "dash" {
				needstest.Long(t)
			}
			t.Parallel()
			b := newBot(t)
			b.m.path = dir
			conform(t, b)
		})
	}
}

// through a connection, which is lost meanwhile.
func TestSSH(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	c := ssh.Config{Name: "web-1", Hop: ssh.Hop{Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}}, KnownHosts: []string{s.KnownHosts}}
	var all []*ssh.Target
	t.Cleanup(func() { // after what the bot cleans up
		for _, tgt := range all {
			_ = tgt.Close()
		}
	})
	open := func() *ssh.Target {
		tgt, err := ssh.New(c)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tgt)
		return tgt
	}
	b := newBotOn(t, open())
	if needstest.Whole(t) {
		conform(t, b)
	}

	was := b.t
	t.Run("a process survives the end of every connection (X-05)", func(t *testing.T) {
		b.t = t
		defer func() { b.t = was }()
		id := b.start("echo up; sleep 300")
		pid := b.row(id).PID
		b.says(id, "up")
		s.KillConnections()
		_ = b.cfg.Target.Close()
		b.cfg.Target = open()
		b.restart()
		if v := b.status(id); v["state"] != "running" || !alive(pid) {
			t.Errorf("%v", v)
		}
		s.Kill()
		if v := b.status(id); v["state"] != "unknown" || !strings.Contains(fmt.Sprint(v["notice"]), "does not answer") {
			t.Errorf("with the host gone: %v", v)
		}
		s.Restart()
		b.until(id, "running")
		if o := b.call("interrupt_background_process", dict{"process_id": id}); value(t, o)["gone"] != true || alive(pid) {
			t.Errorf("%s", o.Text)
		}
	})
}

// in containers, whose first process takes care of no orphans:
// one with coreutils and bash, one with busybox alone.
func TestContainer(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("-short: starts a container engine")
	}
	e := enginetest.Docker(t)
	for _, image := range []string{enginetest.Debian, enginetest.Tiny} {
		t.Run(image, func(t *testing.T) {
			tgt, err := container.New(container.Config{Container: e.Run(t, image), Engine: e.Host})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tgt.Close() })
			if _, err := tgt.Probe(t.Context()); err != nil { // the ID is known then
				t.Fatal(err)
			}
			conform(t, newBotOn(t, tgt))
		})
	}
}

// conform is what holds on every target.
func conform(t *testing.T, b *bot) {
	was := b.t
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			b.t = t
			defer func() { b.t = was }()
			f(t)
		})
	}
	sub("a start returns an id and the number of the process at once (X-05)", func(t *testing.T) {
		begin := time.Now()
		o := b.call("run_bash_background", dict{"command": "exec sleep 300"})
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("it took %v", d)
		}
		v := value(t, o)
		id, _ := v["process_id"].(string)
		r := b.row(id)
		if !strings.HasPrefix(id, "bg-") || len(id) != 7 || v["pid"] != float64(r.PID) || r.PID < 2 || v["directory"] != "/" {
			t.Errorf("%v, stored %+v", v, r)
		}
		if k := o.Kinds(); !slices.Equal(k, []tools.EventKind{tools.Started, tools.Info, tools.Completed}) {
			t.Errorf("events %v", k)
		}
		if v := b.status(id); v["state"] != "running" || v["command"] != "exec sleep 300" || v["processes"] != 1.0 {
			t.Errorf("status %v", v)
		}
		o = b.call("interrupt_background_process", dict{"process_id": id})
		if v := value(t, o); v["gone"] != true || fmt.Sprint(v["signals"]) != "[INT]" || v["signal"] != "INT" || v["state"] != "signalled" {
			t.Errorf("interrupted: %v", v)
		}
	})
	sub("the status has the exit code (X-06)", func(t *testing.T) {
		id := b.start("echo out; exit 3")
		v := b.until(id, "exited")
		if v["exit_code"] != 3.0 || v["output_bytes"] != 4.0 {
			t.Errorf("%v", v)
		}
	})
	sub("the status has the signal that ended it (X-06)", func(t *testing.T) {
		id := b.start("kill -SEGV $$; sleep 300")
		v := b.until(id, "signalled")
		if v["signal"] != "SEGV" || v["exit_code"] != 139.0 {
			t.Errorf("%v", v)
		}
		if out := b.output(id, nil)["output"]; out != "" {
			t.Errorf("a shell of ours put its remark into the output: %q", out)
		}
	})
	sub("output comes while it runs, both streams in order (X-07)", func(t *testing.T) {
		id := b.start("for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf part; sleep 300")
		want := "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\npart"
		if out := b.says(id, "part"); out != want {
			t.Errorf("%q", out)
		}
		v := b.output(id, dict{"tail": 2})
		if v["output"] != "[5 lines (30 bytes) before this are left out]\nerr 3\npart" || v["state"] != "running" || v["next_offset"] != 7.0 {
			t.Errorf("tail: %v", v)
		}
		v = b.output(id, dict{"offset": 2, "limit": 2})
		if v["output"] != "[1 line (6 bytes) before this are left out]\nerr 1\nout 2\n[4 lines (22 bytes) after this are left out; go on with \"offset\": 4, or give \"tail\"]" || v["next_offset"] != 4.0 {
			t.Errorf("a part: %v", v)
		}
		b.call("interrupt_background_process", dict{"process_id": id})
		if v := b.output(id, nil); v["output"] != want || v["state"] != "signalled" {
			t.Errorf("after its end: %v", v)
		}
	})
	sub("an interrupt ends the whole group and what left it (X-08)", func(t *testing.T) {
		// A shell minds its trap when what it waits for has ended, also on a busy machine.
		grace := b.cfg.Grace
		b.cfg.Grace = 2 * time.Second
		b.restart()
		defer func() { b.cfg.Grace = grace; b.restart() }()
		// A grandchild, one in a session of its own, and one whose parent is gone.
		id := b.start(`sh -c 'sleep 301 & wait' & setsid sleep 302 & (setsid sleep 303 &) ; trap 'echo caught' INT; echo up; while :; do sleep 0.1; done`)
		b.says(id, "up")
		b.eventually("all run", func() bool { n, _ := b.status(id)["processes"].(float64); return n >= 5 })
		v := value(t, b.call("interrupt_background_process", dict{"process_id": id}))
		// A child that takes long to hear TERM, on a busy machine, gets KILL as well.
		if sent := fmt.Sprint(v["signals"]); v["gone"] != true || sent != "[INT TERM]" && sent != "[INT TERM KILL]" {
			t.Errorf("%v", v)
		}
		if v := b.status(id); v["state"] != "signalled" || v["processes"] != nil {
			t.Errorf("%v", v)
		}
		// busybox's shell says of a child that was ended that it was.
		if out := fmt.Sprint(b.output(id, nil)["output"]); strings.TrimSuffix(out, "Terminated\n") != "up\ncaught\n" {
			t.Errorf("%q", out)
		}
	})
	sub("what hears no other signal is killed (X-08)", func(t *testing.T) {
		id := b.start("trap '' INT TERM; echo up; while :; do sleep 1; done")
		b.says(id, "up")
		v := value(t, b.call("interrupt_background_process", dict{"process_id": id}))
		if v["gone"] != true || fmt.Sprint(v["signals"]) != "[INT TERM KILL]" || v["signal"] != "KILL" {
			t.Errorf("%v", v)
		}
	})
	sub("tail -f goes on over three calls (X-27)", func(t *testing.T) {
		f := "/tmp/countersign-follow-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		id := b.start("umask 022; echo one >" + f + "; tail -f " + f)
		b.says(id, "one\n")
		next := b.output(id, nil)["next_offset"]
		for i, word := range []string{"two", "three"} {
			done := b.start("echo " + word + " >>" + f)
			b.until(done, "exited")
			b.eventually(word+" is there", func() bool {
				v := b.output(id, dict{"offset": next})
				out, _ := v["output"].(string)
				if !strings.HasSuffix(out, "left out]\n"+word+"\n") {
					return false
				}
				if v["state"] != "running" || v["next_offset"] != float64(i+3) {
					t.Errorf("%v", v)
				}
				next = v["next_offset"]
				return true
			})
		}
		b.call("interrupt_background_process", dict{"process_id": id})
		b.until(b.start("rm "+f), "exited")
	})
	sub("the exact text runs in the directory that is given (X-05)", func(t *testing.T) {
		id := value(t, b.call("run_bash_background", dict{"command": "pwd\nprintf '%s\\n' \"a'b  $0\" '\u00e4\\'\n\n", "path": "tmp"}))["process_id"].(string)
		b.until(id, "exited")
		out, _ := b.output(id, nil)["output"].(string)
		lines := strings.Split(out, "\n")
		if len(lines) != 4 || lines[0] != "/tmp" || !strings.HasPrefix(lines[1], "a'b  ") || lines[2] != "\u00e4\\" {
			t.Errorf("%q", lines)
		}
	})
	sub("the environment is the fixed one, and input is empty (X-05)", func(t *testing.T) {
		id := b.start("cat; env | cut -d= -f1 | sort; umask; grep SigIgn /proc/$$/status")
		b.until(id, "exited")
		out, _ := b.output(id, nil)["output"].(string)
		for _, bad := range []string{"COUNTERSIGN_TOKEN", "SSH_", "GOROOT"} {
			if strings.Contains(out, bad) {
				t.Errorf("%q: %s", bad, out)
			}
		}
		if !strings.Contains(out, "COUNTERSIGN_PROCESS\n") || !strings.Contains(out, "0022\n") && !strings.Contains(out, "0002\n") {
			t.Errorf("%s", out)
		}
		if i := strings.LastIndex(out, "SigIgn:"); i < 0 || !strings.HasSuffix(strings.TrimSpace(out[i:]), "0") && !strings.HasSuffix(strings.TrimSpace(out[i:]), "4") {
			t.Errorf("SIGINT is ignored: %s", out[max(i, 0):])
		}
	})
	sub("the list has this thread's own, and nobody else's (X-06)", func(t *testing.T) {
		theirs := value(t, b.callIn("test:2", "run_bash_background", dict{"command": "echo secret; sleep 300"}))["process_id"].(string)
		list, _ := value(t, b.call("get_background_status", dict{}))["processes"].([]any)
		if len(list) < 5 || strings.Contains(fmt.Sprint(list), theirs) {
			t.Errorf("%v", list)
		}
		for _, name := range []string{"get_background_status", "get_background_output", "interrupt_background_process"} {
			if _, err := b.plan("test:1", name, dict{"process_id": theirs}); err == nil || !strings.Contains(err.Error(), "no process") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if o := b.callIn("test:2", "interrupt_background_process", dict{"process_id": theirs}); value(t, o)["gone"] != true {
			t.Errorf("its own thread: %s", o.Text)
		}
	})
}

func TestABotThatWasStartedAgainFindsItsProcesses(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	id := b.start("echo before; while [ ! -e " + b.m.temp + "/go ]; do sleep 0.05; done; echo after; exit 7")
	b.says(id, "before")
	b.restart()
	if v := b.status(id); v["state"] != "running" {
		t.Fatalf("%v", v)
	}
	if err := os.WriteFile(filepath.Join(b.m.temp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if v := b.until(id, "exited"); v["exit_code"] != 7.0 {
		t.Errorf("%v", v)
	}
	b.restart()
	if v := b.output(id, nil); v["output"] != "before\nafter\n" || v["exit_code"] != 7.0 {
		t.Errorf("%v", v)
	}
	if _, err := b.plan("test:1", "interrupt_background_process", dict{"process_id": id}); err == nil || !strings.Contains(err.Error(), "nothing to interrupt") {
		t.Errorf("interrupting what is over: %v", err)
	}
}

func TestFilesAreForTheAccountAlone(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	id := b.start("umask; echo hi")
	b.until(id, "exited")
	r := b.row(id)
	for _, dir := range []string{r.Base, filepath.Join(r.Base, r.Mark)} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, st.Mode(), err)
		}
	}
	files, err := os.ReadDir(filepath.Join(r.Base, r.Mark))
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if st, err := f.Info(); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), st.Mode(), err)
		}
	}
}

func TestADirectoryOfSomebodyElseIsNotUsed(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	id := b.start("true")
	base := b.row(id).Base
	b.until(id, "exited")
	if err := os.Rename(base, base+"-kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base+"-kept", base); err != nil {
		t.Fatal(err)
	}
	o := b.call("run_bash_background", dict{"command": "touch " + b.m.temp + "/ran"})
	if o.Err == nil || !strings.Contains(o.Err.Error(), "cannot be made or is not the account's own") {
		t.Errorf("%s", o.Text)
	}
	if _, err := os.Stat(b.m.temp + "/ran"); err == nil {
		t.Error("it ran")
	}
	if all, err := process.Rows(t.Context(), b.cfg.DB); err != nil || len(all) != 1 {
		t.Errorf("the row of what was not started stays: %v %v", all, err)
	}
}

func TestOutputBeyondTheLimitIsThrownAwayAndTheProcessGoesOn(t *testing.T) {
	t.Parallel()
	for name, dir := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "dash" {
				needstest.Long(t)
			}
			b := newBot(t, func(c *process.Config) { c.Limits.Output = 4000 })
			b.m.path = dir
			id := b.start("i=0; while [ $i -lt 200000 ]; do echo line $i; i=$((i+1)); done; exit 5")
			v := b.until(id, "exited")
			if v["exit_code"] != 5.0 || v["output_bytes"] != 4096.0 || !strings.Contains(fmt.Sprint(v["notice"]), "kept up to 4096 bytes") {
				t.Errorf("%v", v)
			}
			out, _ := b.output(id, nil)["output"].(string)
			if !strings.HasPrefix(out, "line 0\nline 1\n") || len(out) != 4096 {
				t.Errorf("%d bytes: %.40q", len(out), out)
			}
		})
	}
}

func TestAPageHasAtMostFiftyKilobytesAndTwoThousandLines(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	b := newBot(t)
	id := b.start(`i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done`)
	b.until(id, "exited")
	v := b.output(id, nil)
	out, _ := v["output"].(string)
	if strings.Count(out, "\n") != 2000 || v["next_offset"] != 2001.0 || !strings.HasSuffix(out, "1999\n[3000 lines (15000 bytes) after this are left out; go on with \"offset\": 2001, or give \"tail\"]") {
		t.Errorf("%v: %q", v["next_offset"], out[len(out)-120:])
	}
	v = b.output(id, dict{"offset": 4999})
	if out, _ := v["output"].(string); out != "[4998 lines (23880 bytes) before this are left out]\n4998\n4999\n" || v["next_offset"] != 5001.0 {
		t.Errorf("%v: %q", v["next_offset"], out)
	}
	wide := b.start(`head -c 200000 /dev/zero | tr '\0' x; echo; echo end`)
	b.until(wide, "exited")
	v = b.output(wide, nil)
	out, _ = v["output"].(string)
	if strings.Count(out, "x") != 50<<10 || v["next_offset"] != 2.0 || !strings.Contains(out, "(148805 bytes) after this are left out") {
		t.Errorf("%v: %q", v["next_offset"], out[len(out)-120:])
	}
	if out := b.output(wide, dict{"offset": 2})["output"]; out != "[1 line (200001 bytes) before this are left out]\nend\n" {
		t.Errorf("%q", out)
	}
	out, _ = b.output(wide, dict{"tail": 2})["output"].(string)
	if !strings.HasPrefix(out, "[148805 bytes before this are left out]\nxxx") || !strings.HasSuffix(out, "x\nend\n") {
		t.Errorf("%.60q", out)
	}
}

func TestANumberThatIsUsedAgainIsNotTheProcess(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBot(t)
	// stranger takes over the number, later than the process began.
	stranger := func(t *testing.T, id string) int {
		other := exec.Command("sleep", "300")
		other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
		pid := other.Process.Pid
		if err := process.Change(t.Context(), b.cfg.DB, id, func(r *process.Row) { r.PID = pid }); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	gone := func() string { // a process of ours whose end nobody noted
		id := b.start("exec sleep 300")
		r := b.row(id)
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		b.eventually("it is gone", func() bool { return !alive(r.PID) })
		b.eventually("its end is noted", func() bool {
			return os.Remove(filepath.Join(r.Base, r.Mark, "ended")) == nil
		})
		return id
	}
	t.Run("an interrupt refuses it", func(t *testing.T) {
		id := gone()
		pid := stranger(t, id)
		v := value(t, b.call("interrupt_background_process", dict{"process_id": id}))
		if v["gone"] != true || v["state"] != "ended" || len(v["signals"].([]any)) != 0 || !alive(pid) {
			t.Errorf("%v", v)
		}
	})
	t.Run("a status says that it is gone", func(t *testing.T) {
		id := gone()
		pid := stranger(t, id)
		if v := b.status(id); v["state"] != "ended" || !strings.Contains(fmt.Sprint(v["notice"]), "belongs to another process now") || !alive(pid) {
			t.Errorf("%v", v)
		}
	})
	t.Run("a number of an earlier boot means nothing", func(t *testing.T) {
		id := b.start("exec sleep 300")
		pid := b.row(id).PID
		if err := process.Change(t.Context(), b.cfg.DB, id, func(r *process.Row) { r.Boot = "another" }); err != nil {
			t.Fatal(err)
		}
		if v := b.status(id); v["state"] != "ended" || !strings.Contains(fmt.Sprint(v["notice"]), "started again") || !alive(pid) {
			t.Errorf("%v", v)
		}
	})
}

func TestAStartThatNobodyConfirmedIsUnknownAndShowsUpLater(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBot(t)
	b.m.set(func() { b.m.lose = true })
	o := b.call("run_bash_background", dict{"command": "echo up; sleep 300"})
	if !o.Result.Unknown || value(t, o)["state"] != "unknown" {
		t.Fatalf("%s", o.Text)
	}
	id := value(t, o)["process_id"].(string)
	if v := b.status(id); v["state"] != "unknown" {
		t.Errorf("while the target does not answer: %v", v)
	}
	b.m.set(func() { b.m.lose = false })
	b.restart()
	if v := b.until(id, "running"); v["pid"] == nil {
		t.Errorf("%v", v)
	}
	if v := value(t, b.call("interrupt_background_process", dict{"process_id": id})); v["gone"] != true {
		t.Errorf("%v", v)
	}
}

func TestAStartThatNeverReachedTheTargetIsGivenUpAfterAMinute(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBot(t)
	b.m.set(func() {
		b.m.fail = func(backend.Spec) error { return fmt.Errorf("cut: %w", backend.ErrLost) }
	})
	o := b.call("run_bash_background", dict{"command": "sleep 300"})
	if !o.Result.Unknown {
		t.Fatalf("%s", o.Text)
	}
	id := value(t, o)["process_id"].(string)
	b.m.set(func() { b.m.fail = nil })
	if v := b.status(id); v["state"] != "unknown" || !strings.Contains(fmt.Sprint(v["notice"]), "could not be confirmed yet") {
		t.Errorf("%v", v)
	}
	b.later(2 * time.Minute)
	if v := b.status(id); v["state"] != "ended" || !strings.Contains(fmt.Sprint(v["notice"]), "never started") {
		t.Errorf("%v", v)
	}
}

func TestALostConnectionWhileInterruptingIsUnknown(t *testing.T) {
	b := newBot(t)
	id := b.start("exec sleep 300")
	n := 0
	b.m.set(func() {
		b.m.fail = func(backend.Spec) error {
			if n++; n > 1 { // the look before goes well
				return backend.ErrLost
			}
			return nil
		}
	})
	o := b.call("interrupt_background_process", dict{"process_id": id})
	if !o.Result.Unknown || value(t, o)["gone"] == true {
		t.Errorf("%s", o.Text)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBot(t, func(c *process.Config) { c.Limits = process.Limits{Thread: 2, Target: 3} })
	first := b.start("exec sleep 300")
	b.start("exec sleep 300")
	start := dict{"command": "exec sleep 300"}
	if _, err := b.plan("test:1", "run_bash_background", start); err == nil || !strings.Contains(err.Error(), "this thread already has 2") || !strings.Contains(err.Error(), first) {
		t.Errorf("of a thread: %v", err)
	}
	value(t, b.callIn("test:2", "run_bash_background", start))
	if _, err := b.plan("test:2", "run_bash_background", start); err == nil || !strings.Contains(err.Error(), "3 processes of this and other threads") {
		t.Errorf("of a target: %v", err)
	}
	// One that has ended makes room, also when nobody asked for it since.
	if err := syscall.Kill(b.row(first).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is gone", func() bool { return !alive(b.row(first).PID) })
	late, err := b.plan("test:1", "run_bash_background", start)
	if err != nil {
		t.Fatal(err)
	}
	b.start("exec sleep 300")
	if o := toolstest.RunPlan(t.Context(), t, b.reg, late); o.Err == nil || !strings.Contains(o.Err.Error(), "limit is 2") {
		t.Errorf("a limit that was reached after the approval: %s", o.Text)
	}
}

func TestAProcessOfAnotherTargetIsNamedWithIt(t *testing.T) {
	b := newBot(t)
	id := b.start("exec sleep 300")
	other := b.cfg
	b.cfg.Name = "db-1"
	b.restart()
	if _, err := b.plan("test:1", "get_background_status", dict{"process_id": id}); err == nil || !strings.Contains(err.Error(), "runs on the target local") {
		t.Errorf("%v", err)
	}
	if v := value(t, b.call("get_background_status", dict{})); !strings.Contains(fmt.Sprint(v), "target local") {
		t.Errorf("%v", v)
	}
	b.cfg = other
	b.m.set(func() { b.m.id = "local#made again" })
	b.restart()
	if v := b.status(id); v["state"] != "unknown" || !strings.Contains(fmt.Sprint(v["notice"]), "made again") {
		t.Errorf("on another machine of the same name: %v", v)
	}
	if _, err := b.plan("test:1", "interrupt_background_process", dict{"process_id": id}); err == nil || !strings.Contains(err.Error(), "not looked for there") {
		t.Errorf("%v", err)
	}
}

func TestWhatACommandLeavesBehindStillCounts(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBot(t)
	id := b.start("sleep 300 & echo left $!")
	out := b.says(id, "left ")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(out, "left ")))
	if err != nil {
		t.Fatal(err)
	}
	v := b.until(id, "exited")
	if v["exit_code"] != 0.0 || v["processes"] != 1.0 || !strings.Contains(fmt.Sprint(v["notice"]), "1 process that it started still run") {
		t.Errorf("%v", v)
	}
	if v := value(t, b.call("interrupt_background_process", dict{"process_id": id})); v["gone"] != true || v["exit_code"] != 0.0 || alive(pid) {
		t.Errorf("%v, alive: %v", v, alive(pid))
	}
}

func TestAChildThatIsStartedInThisMomentIsNotMissed(t *testing.T) {
	needstest.Long(t)
	b := newBot(t, func(c *process.Config) { c.Limits = process.Limits{Thread: 100, Target: 100} })
	for range 15 { // a single look misses it about every other time
		id := b.start("sleep 300 & echo left $!")
		if v := b.until(id, "exited"); v["processes"] != 1.0 {
			t.Fatalf("%v", v)
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	done, still := b.start("echo hi"), b.start("exec sleep 300")
	b.until(done, "exited")
	r := b.row(done)
	prune := func(before time.Time) int {
		t.Helper()
		n, err := process.Prune(t.Context(), b.cfg, before)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := prune(time.Time{}); n != 0 {
		t.Errorf("%d before the retention is over", n)
	}
	b.later(8 * 24 * time.Hour)
	if n := prune(time.Time{}); n != 1 {
		t.Errorf("%d, want the one that has ended", n)
	}
	if _, err := os.Stat(filepath.Join(r.Base, r.Mark)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files stay: %v", err)
	}
	if v := b.status(still); v["state"] != "running" {
		t.Errorf("the other: %v", v)
	}
	b.m.set(func() { b.m.fail = func(backend.Spec) error { return backend.ErrLost } })
	if n, err := process.Prune(t.Context(), b.cfg, time.Time{}); n != 0 || err == nil {
		t.Errorf("a target that does not answer: %d %v", n, err)
	}
}

func TestWhatPeopleApproveIsTheTextTheDirectoryAndTheFiles(t *testing.T) {
	b := newBot(t, func(c *process.Config) { c.Private = func(p string) bool { return strings.HasSuffix(p, "/private") } })
	dir := b.m.temp
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte("echo one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/private", 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := b.plan("test:1", "run_bash_background", dict{"command": "sh job.sh", "path": dir})
	if err != nil {
		t.Fatal(err)
	}
	a := p.Action
	if a.Kind != approvals.KindShell || string(a.Bytes) != "sh job.sh" || a.Dir != dir || len(a.Files[script]) != 64 || p.Level != risk.High {
		t.Errorf("%+v, level %v", a, p.Level)
	}
	if arg, ok := a.Editable(); !ok || arg != "command" {
		t.Errorf("the text cannot be edited on its card: %q", arg)
	}
	if p, err := b.plan("test:1", "run_bash_background", dict{"command": "ls"}); err != nil || p.Level != risk.High {
		t.Errorf("what only reads has level %v, and a start always asks (%v)", p.Level, err)
	}
	if err := os.WriteFile(script, []byte("echo two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := toolstest.RunPlan(t.Context(), t, b.reg, p); o.Err == nil || !strings.Contains(o.Err.Error(), "changed after it was checked") {
		t.Errorf("a file that changed: %s", o.Text)
	}
	for args, want := range map[string]string{
		dir + "/private": "private to the bot", dir + "/none": "does not exist", script: "is no directory",
	} {
		if _, err := b.plan("test:1", "run_bash_background", dict{"command": "true", "path": args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := b.plan("test:1", "run_bash_background", dict{"command": "a\x00b"}); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("%v", err)
	}
	b.m.noProc = true
	if _, err := b.plan("test:1", "run_bash_background", dict{"command": "true"}); err == nil || !strings.Contains(err.Error(), "/proc") {
		t.Errorf("%v", err)
	}
}

func TestATargetWithoutSetsidIsRefused(t *testing.T) {
	b := newBot(t)
	dir := t.TempDir()
	for _, name := range []string{"sh", "cat"} {
		p, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.m.set(func() {
		b.m.fail = func(s backend.Spec) error {
			for i, kv := range s.Env {
				if strings.HasPrefix(kv, "PATH=") {
					s.Env[i] = "PATH=" + dir
				}
			}
			return nil
		}
	})
	o := b.call("run_bash_background", dict{"command": "true"})
	if o.Err == nil || !strings.Contains(o.Err.Error(), "install util-linux or busybox") {
		t.Errorf("%s", o.Text)
	}
}

func TestACallThatIsStoppedWhileItStartsIsUnknown(t *testing.T) {
	b := newBot(t)
	p, err := b.plan("test:1", "run_bash_background", dict{"command": "sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.m.set(func() { b.m.fail = func(backend.Spec) error { cancel(); return nil } })
	o := toolstest.RunPlan(ctx, t, b.reg, p)
	b.m.set(func() { b.m.fail = nil })
	if o.Err != nil || !o.Result.Unknown {
		t.Errorf("%s", o.Text)
	}
}

func TestTools(t *testing.T) {
	b := newBot(t)
	one, two := b.start("exec sleep 300"), b.start("exec sleep 300")
	starts := func() int { b.m.mu.Lock(); defer b.m.mu.Unlock(); return b.m.starts }
	other := map[string]string{"process_id": strconv.Quote(two), "path": `"/tmp"`}
	cases := map[string][]toolstest.Case{
		"run_bash_background":          {{Name: "start", Args: `{"command":"make","path":"/"}`, Other: other}},
		"get_background_status":        {{Name: "status", Args: `{"process_id":"` + one + `"}`, Other: other}},
		"get_background_output":        {{Name: "part", Args: `{"process_id":"` + one + `","offset":2,"limit":10}`, Other: other}, {Name: "tail", Args: `{"process_id":"` + one + `","tail":10}`, Other: other}},
		"interrupt_background_process": {{Name: "stop", Args: `{"process_id":"` + one + `"}`, Other: other}},
	}
	for _, tool := range process.New(b.cfg) {
		t.Run(tool.Spec().Name, func(t *testing.T) { toolstest.Check(t, tool, starts, cases[tool.Spec().Name]...) })
	}
	if s, ok := b.reg.Lookup("run_background"); !ok || s.Name != "run_bash_background" || s.Level != risk.High {
		t.Errorf("the alias run_background: %+v", s)
	}
	if _, err := b.plan("test:1", "get_background_output", dict{"process_id": one, "tail": 1, "offset": 1}); err == nil {
		t.Error("tail and offset together are accepted")
	}
	for name, want := range map[string]risk.Level{"get_background_status": risk.Read, "get_background_output": risk.Read, "interrupt_background_process": risk.High} {
		p, err := b.plan("test:1", name, dict{"process_id": one})
		if err != nil || p.Level != want || (want == risk.Read) != (p.Action.Kind == approvals.KindObserve) {
			t.Errorf("%s: level %v, kind %s (%v)", name, p.Level, p.Action.Kind, err)
		}
	}
	if tools := process.New(process.Config{Target: b.cfg.Target}); len(tools) != 4 { // as patterns, without a store
		t.Error(len(tools))
	}
}

func FuzzParse(f *testing.F) {
	f.Add("process bg-1-2\nlead yes\nlive 1 2\npid 12 34 boot 56\nended 3 99\nsize 7\nfull\n")
	f.Add("sent INT\nprocess a\nlead other\nlive\nnone\n")
	f.Add("process a\npid 1 2\nended 999 1\ndata\nprocess b\n")
	f.Fuzz(func(t *testing.T, s string) {
		if n := process.Parse(s); n > strings.Count(s, "process ")+1 {
			t.Errorf("%d processes of %q", n, s)
		}
	})
}
