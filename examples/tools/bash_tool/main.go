// Bash_tool is a complete plugin: one tool, bash_tool, that runs a command with
// bash on the bot's own machine. It speaks the protocol of tools/plugin: JSON lines
// on standard input and output, with the extensions cancel, parallel, progress and
// timeout.
//
// It does not judge what it runs. The bot asks people before it calls this.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/local"
)

const (
	// defaultTimeout is how long a command may take when nobody says anything else.
	defaultTimeout = 110 * time.Second
	// reserve is how much earlier than the bot this gives up, so that what the
	// command wrote so far is not lost.
	reserve = 2 * time.Second
	// maxOutput is how much of the output is kept, in bytes. The bot shows the model
	// 50 KB; this leaves room for the note behind it.
	maxOutput = 48 << 10
)

// incoming is a line from the bot.
type incoming struct {
	Type    string  `json:"type"`
	Name    string  `json:"name"`
	CallID  string  `json:"call_id"`
	Timeout float64 `json:"timeout"` // seconds that the bot will wait; 0 when it does not say
	Params  struct {
		Command string  `json:"command"`
		Timeout float64 `json:"timeout"`
	} `json:"params"`
}

// outgoing is a line to the bot.
type outgoing struct {
	Type     string           `json:"type"`
	Tools    []map[string]any `json:"tools,omitempty"`
	Features []string         `json:"features,omitempty"`
	CallID   string           `json:"call_id,omitempty"`
	Content  []text           `json:"content,omitempty"`
	IsError  bool             `json:"is_error,omitempty"`
	Text     string           `json:"text,omitempty"`
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// describe is the answer to init.
func describe() outgoing {
	return outgoing{
		Type: "init", Features: []string{"cancel", "parallel", "progress", "timeout", "large"},
		Tools: []map[string]any{{
			"name":        "bash_tool",
			"description": "Runs a command with bash on the bot's own machine and returns both of its streams as one text.",
			"parameters": map[string]any{
				"type": "object",
				"properties": map[string]any{
					"command": map[string]any{"type": "string", "pattern": `\S`, "description": "The command."},
					"timeout": map[string]any{"type": "number", "exclusiveMinimum": 0, "description": "Seconds after which the command is ended."},
				},
				"required":             []string{"command"},
				"additionalProperties": false,
			},
		}},
	}
}

func main() {
	if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("bash_tool", "error", err)
		os.Exit(1)
	}
}

// serve answers until its input ends; then it ends the commands that still run.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s := server{machine: local.New(local.Options{Dir: dir}), enc: json.NewEncoder(out), stops: map[string]context.CancelCauseFunc{}}
	ctx, cancel := context.WithCancel(ctx)
	defer s.calls.Wait()
	defer cancel()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m incoming
		if json.Unmarshal(line, &m) != nil {
			continue // not for us
		}
		switch m.Type {
		case "init":
			s.say(describe())
		case "call":
			s.begin(ctx, m)
		case "cancel":
			s.stop(m.CallID)
		}
	}
}

// server runs calls; each has a goroutine that ends with it.
type server struct {
	machine *local.Target
	calls   sync.WaitGroup

	out sync.Mutex
	enc *json.Encoder

	mu    sync.Mutex
	stops map[string]context.CancelCauseFunc
}

// say writes one line.
func (s *server) say(o outgoing) {
	s.out.Lock()
	defer s.out.Unlock()
	_ = s.enc.Encode(o) // when nobody listens any more, the input ends, too
}

var errCancelled = errors.New("stopped")

func (s *server) begin(ctx context.Context, m incoming) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.stops[m.CallID] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		defer func() {
			s.stop(m.CallID)
			s.mu.Lock()
			delete(s.stops, m.CallID)
			s.mu.Unlock()
		}()
		said, err := s.run(ctx, m)
		if err != nil {
			said += fmt.Sprintf("\n[%v]", err)
		}
		s.say(outgoing{Type: "result", CallID: m.CallID, Content: []text{{"text", said}}, IsError: err != nil})
	})
}

func (s *server) stop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.stops[id]; cancel != nil {
		cancel(errCancelled)
	}
}

// run runs one command. A plugin of your own would use os/exec; this one borrows
// the bot's way to start a process, which ends everything that the command started.
func (s *server) run(ctx context.Context, m incoming) (string, error) {
	if m.Name != "bash_tool" {
		return "", fmt.Errorf("there is no tool %q", m.Name)
	}
	limit := defaultTimeout
	if m.Timeout > 0 {
		limit = max(time.Duration(m.Timeout*float64(time.Second))-reserve, reserve)
	}
	if t := time.Duration(m.Params.Timeout * float64(time.Second)); t > 0 {
		limit = min(limit, t)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("ended after %s", limit))
	defer cancel()
	s.say(outgoing{Type: "progress", CallID: m.CallID, Text: "running"})
	var out head
	p, err := door.Start(ctx, s.machine, door.Plumbing, nil, backend.Spec{Argv: []string{"bash", "-c", m.Params.Command}, Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	said := out.String()
	switch {
	case err != nil:
		return said, err
	case res.Killed:
		return said, context.Cause(ctx)
	case res.Code != 0:
		return said, fmt.Errorf("exit code %d", res.Code)
	}
	return said, nil
}

// head keeps the beginning of what is written to it, and counts the rest.
type head struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more int
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(p), maxOutput-h.b.Len())
	h.b.Write(p[:n])
	h.more += len(p) - n
	return len(p), nil
}

// String is what was kept, with a note about what was not.
func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.more == 0 {
		return h.b.String()
	}
	return fmt.Sprintf("%s\n[%d more bytes]", h.b.String(), h.more)
}
