package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/toolstest"
)

// TestMain makes the test's own program a plugin when it is started with -plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-plugin" {
		os.Exit(actor(os.Args[2], os.Args[3:]))
	}
	if os.Getenv("GORACE") == "" { // each plugin would sleep for a second at its end
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(needstest.Tidy(4, m.Run))
}

// actTool is what the test's plugin offers in most modes.
const actTool = `{"name":"act","description":"Does what it is told.","parameters":{"type":"object","properties":{` +
	`"do":{"type":"string","description":"What to do."},"text":{"type":"string","description":"More of it."}},"required":["do"],"additionalProperties":false}}`

// actor is a plugin in every state of health. It keeps a journal of what it reads
// in its working directory.
func actor(mode string, rest []string) int {
	journal, err := os.OpenFile("journal", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 3
	}
	features := "[]"
	if len(rest) > 0 {
		features = `["` + strings.Join(rest, `","`) + `"]`
	}
	var out sync.Mutex
	say := func(format string, a ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", a...)
	}
	result := func(id, text string) {
		b, _ := json.Marshal(text)
		say(`{"type":"result","call_id":%q,"content":[{"type":"text","text":%s}],"is_error":false}`, id, b)
	}
	stops := map[string]chan struct{}{}
	var held []string
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		_, _ = journal.Write(line)
		var m struct {
			Type, Name string
			CallID     string `json:"call_id"`
			Params     struct{ Do, Text string }
		}
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		id := m.CallID
		switch m.Type {
		case "init":
			switch mode {
			case "silent":
			case "quits":
				fmt.Fprintln(os.Stderr, "no such thing: token=hunter2secret")
				return 7
			case "future":
				say(`{"type":"init","protocol":2,"tools":[]}`)
			case "noisy":
				say("Starting up ...\n\n{\"type\":\"hello\"}\n[1,2")
				say(`{"type":"init","tools":[%s]}`, actTool)
			case "tools":
				say(`{"type":"init","tools":%s}`, rest[0])
			default:
				say(`{"type":"init","tools":[%s],"features":%s}`, actTool, features)
			}
		case "cancel":
			if c := stops[id]; c != nil {
				close(c)
				delete(stops, id)
			}
		case "call":
			switch m.Params.Do {
			case "echo":
				result(id, m.Params.Text)
			case "pid":
				result(id, fmt.Sprint(os.Getpid()))
			case "environ":
				result(id, strings.Join(os.Environ(), "\n"))
			case "group":
				wd, _ := os.Getwd()
				result(id, fmt.Sprintf("%d %d %s", os.Getpid(), syscall.Getpgrp(), wd))
			case "error":
				say(`{"type":"result","call_id":%q,"content":[{"type":"text","text":"no such city"}],"is_error":true}`, id)
			case "raw":
				say("%s", strings.ReplaceAll(m.Params.Text, "ID", id))
			case "stderr":
				for i := range 200 {
					fmt.Fprintf(os.Stderr, "line %d password=hunter2secret\n", i)
				}
				result(id, "said")
			case "noise":
				say("%s", strings.Repeat("noise ", 10))
				say(`{"type":"result","call_id":"call-999","content":[{"type":"text","text":"forged"}]}`)
				say(`{"type":"result","content":[{"type":"text","text":"forged"}]}`)
				say(`{"type":"result","call_id":7}`)
				say(`{"type":"init","tools":[]}`)
				say(`{"type":"progress","call_id":%q,"text":"not announced"}`, id)
				result(id, "the right one")
			case "twice":
				result(id, "first")
				result(id, "second")
			case "huge":
				say(`{"type":"result","call_id":%q,"content":[{"type":"text","text":"%s"}]}`, id, strings.Repeat("x", 9<<20))
			case "hugenoise":
				say("%s", strings.Repeat("x", 9<<20))
				result(id, "after the noise")
			case "never":
			case "die":
				os.Exit(9)
			case "answer and die":
				result(id, "the last word")
				os.Exit(9)
			case "fork and die", "fork", "escape and die":
				c := exec.Command("sh", "-c", "trap '' TERM; echo $$ >child.new; mv child.new child; exec sleep 600")
				c.SysProcAttr = &syscall.SysProcAttr{Setsid: m.Params.Do == "escape and die"}
				c.Stdout, c.Stderr = os.Stdout, os.Stderr // it holds the pipes
				if c.Start() != nil {
					os.Exit(4)
				}
				for {
					if _, err := os.Stat("child"); err == nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if m.Params.Do != "fork" {
					os.Exit(9)
				}
				result(id, "forked")
			case "deaf":
				signal.Ignore(syscall.SIGTERM)
				result(id, "deaf")
			case "stop reading":
				result(id, "no more")
				for {
					time.Sleep(time.Hour)
				}
			case "progress":
				say(`{"type":"progress","call_id":%q,"text":"half\u200b way"}`, id)
				result(id, "done")
			case "wait":
				c := make(chan struct{})
				stops[id] = c
				go func() {
					<-c
					say(`{"type":"result","call_id":%q,"content":[{"type":"text","text":"cleaned up"}],"is_error":true}`, id)
				}()
			case "hold":
				held = append(held, id)
			case "release": // this one is answered first
				result(id, "released")
				for _, h := range held {
					result(h, "held")
				}
				held = nil
			}
		}
	}
	_, _ = journal.WriteString("end of input\n")
	return 0
}

// logs is a log that a test can read.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// harness is a host with one plugin.
type harness struct {
	*Host
	log   *logs
	dir   string
	files []file
	reg   *tools.Registry
}

// self is the test's program as a plugin.
func self(t *testing.T, mode string, rest ...string) Plugin {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Plugin{Name: "actor", Path: exe, Args: append([]string{"-plugin", mode}, rest...), Env: []string{"GORACE"}}
}

func host(t *testing.T, plugins ...Plugin) *harness {
	t.Helper()
	h := &harness{log: &logs{}, dir: t.TempDir()}
	var err error
	h.Host, err = New(t.Context(), Config{
		Plugins: plugins, DataDir: h.dir, Log: slog.New(slog.NewTextHandler(h.log, nil)),
		Taken: []string{"run_shell", "capture-pane"},
		File: func(_ context.Context, thread, name, mime string, data []byte) {
			if thread != "test:1" {
				t.Errorf("a file for thread %q", thread)
			}
			h.files = append(h.files, file{name, mime, data})
		},
		Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2secret", "[redacted]") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if h.reg, err = tools.NewRegistry(time.Now, h.Tools()...); err != nil {
		t.Fatal(err)
	}
	return h
}

// act calls the tool act.
func (h *harness) act(t *testing.T, do string, text ...string) toolstest.Outcome {
	t.Helper()
	args, err := json.Marshal(map[string]string{"do": do, "text": strings.Join(text, "")})
	if err != nil {
		t.Fatal(err)
	}
	return toolstest.Run(t.Context(), t, h.reg, "act", string(args))
}

func value(t *testing.T, o toolstest.Outcome) string {
	t.Helper()
	s, ok := o.Result.Value.(string)
	if o.Err != nil || !ok {
		t.Fatalf("no text: %+v", o)
	}
	return s
}

func (h *harness) journal(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, "plugins", "actor", "journal"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// fake is a program in memory: serve reads its input and writes its output.
type fake struct {
	inR  *io.PipeReader
	inW  *io.PipeWriter
	outR *io.PipeReader
	outW *io.PipeWriter
	errs *io.PipeReader
	errW *io.PipeWriter
	end  chan struct{}
	once sync.Once
}

func newFake(serve func(line string, say func(string)) (more bool)) *fake {
	f := &fake{end: make(chan struct{})}
	f.inR, f.inW = io.Pipe()
	f.outR, f.outW = io.Pipe()
	f.errs, f.errW = io.Pipe()
	go func() {
		defer f.die()
		in := bufio.NewReader(f.inR)
		for {
			line, err := in.ReadString('\n')
			if err != nil || !serve(line, func(s string) { _, _ = io.WriteString(f.outW, s+"\n") }) {
				return
			}
		}
	}()
	return f
}

func (f *fake) die() {
	f.once.Do(func() {
		_ = f.outW.Close()
		_ = f.errW.Close()
		_ = f.inR.Close()
		close(f.end)
	})
}

func (f *fake) Stdin() io.WriteCloser { return f.inW }
func (f *fake) Stdout() io.ReadCloser { return f.outR }
func (f *fake) Stderr() io.ReadCloser { return f.errs }
func (f *fake) Signal(syscall.Signal) { f.die() }
func (f *fake) Wait() string          { <-f.end; return "exit code 1" }

var _ process = (*fake)(nil)

// fakePlugin is a plugin that is in memory; its path is some file.
func fakePlugin(t *testing.T) Plugin {
	t.Helper()
	p := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Plugin{Name: "fake", Path: p, Tools: map[string]risk.Level{"act": risk.Medium}}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
