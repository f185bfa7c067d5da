package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/remote"
	"countersign/test/needstest"
)

// launchers are the ways to lock something on a system, the best one first.
var launchers = []string{"helper", "perl"}

// only is a system whose lock is that one, with the helper if that is asked for.
func only(t *testing.T, by string) *remote.Machine {
	t.Helper()
	return lockedBy(t, by, newLoop(t))
}

func lockedBy(t *testing.T, by string, l *loop) *remote.Machine {
	t.Helper()
	o := remote.Options{Transport: l, Name: "loop", Notes: "countersign-test", OnlyLock: by, Slack: time.Millisecond}
	if by == "helper" {
		o.SearchFirst = backendtest.Helper(t)
	}
	m := remote.New(o)
	t.Cleanup(m.Close)
	caps, err := m.Probe(t.Context())
	if err != nil || caps.Lock.By != by {
		t.Fatalf("%+v, %v", caps.Lock, err)
	}
	return m
}

// scarce is a system with what a directory says of its memory.
type scarce struct {
	*loop
	dir string
}

func (s scarce) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	const with = `mount --bind "$0/meminfo" /proc/meminfo && mount --bind "$0" /sys/fs/cgroup && exec "$@"`
	return s.loop.Open(ctx, append([]string{"unshare", "--mount", "sh", "-c", with, s.dir}, argv...), stdin, stdout, stderr)
}

// What runs unasked has a quarter of the memory that is free, which the kernel's cache of files is, and what Go programs need to begin.
func TestMemoryIsBoundedByWhatIsFree(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can mount what says how much memory is free")
	}
	v1, v2 := []string{"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"}, []string{"memory.max", "memory.current", "memory.stat"}
	for _, tc := range []struct {
		rule, free string
		files      []string
		says       []string
		want       string
	}{
		{"a machine", "8000000", nil, nil, "2000000"},
		{"a small machine", "400000", nil, nil, "262144"},
		{"a large machine", "64000000", nil, nil, "4194304"},
		{"a container", "8000000", v2, []string{"4294967296", "1000000000", "file 1\n"}, "804435"},
		{"a container with a full cache", "8000000", v2, []string{"4294967296", "4200000000", "anon 1\ninactive_file 4000000000\nactive_file 1\n"}, "999747"},
		{"a container without a limit", "8000000", v2, []string{"max", "4200000000", ""}, "2000000"},
		{"a container of the first version", "8000000", v1, []string{"4294967296", "4200000000", "inactive_file 1\ntotal_inactive_file 4000000000\n"}, "999747"},
		{"no limit in the first version", "8000000", v1, []string{"9223372036854771712", "4200000000", "total_inactive_file 4000000000\n"}, "2000000"},
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		write("meminfo", "MemTotal: 99000000 kB\nMemAvailable: "+tc.free+" kB")
		for i, name := range tc.files {
			write(name, tc.says[i])
		}
		for _, by := range launchers {
			o := remote.Options{Transport: scarce{newLoop(t), dir}, Name: "scarce", OnlyLock: by, Slack: time.Millisecond}
			if by == "helper" {
				o.SearchFirst = backendtest.Helper(t)
			}
			m := remote.New(o)
			t.Cleanup(m.Close)
			for _, s := range []backend.Spec{{Lock: &backend.Lock{}}, {Bounded: true}} {
				var out bytes.Buffer
				s.Argv, s.Stdout, s.Stderr = []string{"sh", "-c", "ulimit -d"}, &out, &out
				p, err := warranttest.Start(t.Context(), m, s)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Wait(); err != nil || strings.TrimSpace(out.String()) != tc.want {
					t.Errorf("%s, %s, locked %v: %q, want %s; %v", tc.rule, by, s.Lock != nil, out.String(), tc.want, err)
				}
			}
		}
	}
}

// Each launcher locks as the best one does.
func TestEveryLauncher(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			backendtest.Lock(t, target{only(t, by)}, by)
		})
	}
}

// Each of them that says what it refuses can hold what is rehearsed.
func TestEveryLauncherRehearses(t *testing.T) {
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			if by != "perl" {
				needstest.Long(t)
			}
			if os.Getuid() != 0 {
				needstest.Missing(t, "only root can make a view of the files")
			}
			backendtest.Rehearsal(t, target{only(t, by)}, by)
		})
	}
}

func TestAHostRecords(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can record")
	}
	backendtest.Receipt(t, target{only(t, "perl")}, true)
}

// What is called perl may be anything: a lock that does not hold is none.
func TestALauncherThatDoesNotLockIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"it runs everything":    "while [ $# -gt 0 ] && [ \"$1\" != /bin/sh ]; do shift; done; exec \"$@\"",
		"it says that it locks": "while [ \"${t#countersign}\" = \"$t\" ]; do t=$1; shift; done; echo \"$t l 7 1\" >&2; while [ \"$1\" != /bin/sh ]; do shift; done; exec \"$@\"",
		"it lies about it":      "for t; do case $t in countersign*) break ;; esac; done; echo \"$t l 7 1\" >&2; echo \"$t x held\"; exit 0",
		"it fails":              "exit 1",
		"it does nothing":       "exit 0",
		"it does not end":       "exec sleep 1000",
		"it talks":              "yes | head -c 100000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, p := range []string{"perl", "countersign-lock"} {
				text := text
				if p != "perl" && name == "it does not end" {
					text = "exit 1" // one is given 10 s
				}
				if err := os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			m := remote.New(remote.Options{Transport: newLoop(t), Name: "loop", Notes: "countersign-test", SearchFirst: dir})
			t.Cleanup(m.Close)
			caps, err := m.Probe(t.Context())
			if err != nil || caps.Lock.By != "" || len(caps.Lock.Lacks) == 0 {
				t.Fatalf("%+v, %v", caps.Lock, err)
			}
			t.Log(caps.Lock.Lacks)
			file := filepath.Join(dir, "ran")
			if _, err := warranttest.Start(t.Context(), m, backend.Spec{Argv: []string{"touch", file}, Lock: &backend.Lock{}}); !errors.Is(err, backend.ErrNoLock) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("it ran")
			}
		})
	}
}

// A launcher that broke after the target was opened runs nothing.
func TestALauncherThatBreaksRunsNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"it fails": "exit 1", "it does nothing": "exit 0", "it is not there": "", "it runs the program": "while [ \"$1\" != touch ]; do shift; done; echo \"$@\" >\"$2\"",
	} {
		for _, by := range launchers {
			t.Run(by+": "+name, func(t *testing.T) {
				dir := t.TempDir()
				program := map[string]string{"helper": "countersign-lock"}[by]
				if program == "" {
					program = by
				}
				place := filepath.Join(dir, program)
				program0 := "/usr/bin/" + program
				if by == "helper" {
					program0 = filepath.Join(backendtest.Helper(t), program)
				}
				if err := os.WriteFile(place, []byte("#!/bin/sh\nexec "+program0+" \"$@\"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				m := remote.New(remote.Options{Transport: newLoop(t), Name: "loop", Notes: "countersign-test", OnlyLock: by, SearchFirst: dir})
				t.Cleanup(m.Close)
				if caps, err := m.Probe(t.Context()); err != nil || caps.Lock.By != by {
					t.Fatalf("%+v, %v", caps.Lock, err)
				}
				if err := os.Remove(place); err != nil {
					t.Fatal(err)
				}
				if text != "" {
					if err := os.WriteFile(place, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				_, err := warranttest.Start(t.Context(), m, backend.Spec{Argv: []string{"touch", filepath.Join(dir, "ran")}, Lock: &backend.Lock{}})
				if !errors.Is(err, backend.ErrNoLock) {
					t.Errorf("%v", err)
				}
				// What pretends to be perl may do anything; what the bot itself starts does not run.
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil && name != "it runs the program" {
					t.Error("it ran")
				}
			})
		}
	}
}

// A program whose guard was killed is not left waiting for it.
func TestAKilledGuardLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m := only(t, by)
			dir := t.TempDir()
			// The guard is the parent of what it started; those that it did not start live on,
			// and what they try fails.
			out := &safe{}
			p, err := warranttest.Start(t.Context(), m, backend.Spec{
				Shell:  "(setsid sh -c 'sleep 2; { echo x >" + dir + "/f; } 2>&1; echo tried' &); echo $$ $PPID; sleep 300",
				Stdout: out, Stderr: out, Lock: &backend.Lock{},
			})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return strings.Contains(out.String(), "\n") })
			var pid, guard int
			if _, err := fmt.Sscan(out.String(), &pid, &guard); err != nil {
				t.Fatal(err, out.String())
			}
			g, err := os.FindProcess(guard)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			res, err := p.Wait()
			if err != nil || res.Code == 0 {
				t.Errorf("%+v, %v", res, err)
			}
			waitFor(t, func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); return err != nil })
			time.Sleep(3 * time.Second)
			if _, err := os.Stat(dir + "/f"); err == nil {
				t.Error("it wrote a file when the guard was gone")
			}
		})
	}
}

// What is blocked in a call when its guard ends is told that there is no such call.
func TestACallWithoutAGuardFails(t *testing.T) {
	t.Parallel()
	for i, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m := only(t, by)
			out := &safe{}
			// It leaves the group, so that nobody ends it, and becomes another program when the
			// kernel says that there is no such call.
			sign := fmt.Sprintf("30.%d", os.Getpid()*10+i)
			p, err := warranttest.Start(t.Context(), m, backend.Spec{
				Argv: []string{"perl", "-e", `
					my $guard = getppid; $| = 1;
					if (!fork) { setpgrp(0, 0); for (1 .. 200) { select undef, undef, undef, 0.1; exec "sleep", $ARGV[1] if !mkdir $ARGV[0] and $! == 38 } exit }
					print "$guard\n"; sleep 300`, filepath.Join(t.TempDir(), "d"), sign},
				Stdout: out, Lock: &backend.Lock{},
			})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return strings.Contains(out.String(), "\n") })
			var guard int
			_, _ = fmt.Sscan(out.String(), &guard)
			g, _ := os.FindProcess(guard)
			_ = g.Kill()
			_, _ = p.Wait()
			waitFor(t, func() bool {
				all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				return slices.ContainsFunc(all, func(f string) bool { b, _ := os.ReadFile(f); return string(b) == "sleep\x00"+sign+"\x00" })
			})
		})
	}
}

// The system itself ends a locked command whose time is over.
func TestADeadlineEndsALockedCommand(t *testing.T) {
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m := only(t, by)
			l := newLoop(t)
			own := lockedBy(t, by, l)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			mark := "locked-deadline-" + by
			p, err := warranttest.Start(ctx, own, backend.Spec{Shell: "trap '' TERM; sleep 300 & wait; sleep 300", Mark: mark, Grace: time.Second, Lock: &backend.Lock{}})
			if err != nil {
				t.Fatal(err)
			}
			l.cutAll()
			if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
				t.Fatalf("Wait: %v", err)
			}
			for {
				note, err := m.Testify(t.Context(), mark)
				if err != nil {
					t.Fatal(err)
				}
				if !note.Running {
					break // the group is gone, without anybody's help
				}
			}
		})
	}
}

type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
