package process

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

var (
	//go:embed proc.sh
	procScript string
	//go:embed look.sh
	lookScript string
	//go:embed output.sh
	outputScript string
	//go:embed stop.sh
	stopScript string
	//go:embed prune.sh
	pruneScript string
)

// look runs one of our scripts that looks at processes.
func (s *suite) look(ctx context.Context, text string, args ...string) (string, error) {
	return s.runScript(ctx, func(spec backend.Spec) (backend.Process, error) {
		return door.Start(ctx, s.Target, door.Look, nil, spec)
	}, text, args...)
}

// runScript runs one of our scripts on the target to its end. Its output is bounded by the request.
func (s *suite) runScript(ctx context.Context, start func(backend.Spec) (backend.Process, error), text string, args ...string) (string, error) {
	caps, err := s.Target.Probe(ctx)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	p, err := start(backend.Spec{
		Argv: append([]string{"sh", "-c", procScript + text, "countersign-look"}, args...),
		Dir:  "/", Env: append(backend.Environ(caps), "LC_ALL=C"), Stdout: &out,
	})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return out.String(), err
	case res.Killed:
		return out.String(), errors.Join(context.Cause(ctx), errQueryTimeout)
	case res.Code != 0:
		return out.String(), fmt.Errorf("the shell there ended with exit code %d", res.Code)
	}
	return out.String(), nil
}

// errQueryTimeout means that a query did not finish in time.
var errQueryTimeout = errors.New("it did not answer in time")

// identity returns the arguments with which scripts identify a process.
func (r row) identity() []string {
	boot := r.Boot
	if boot == "" {
		boot = "-"
	}
	return []string{r.Mark, strconv.Itoa(r.PID), strconv.FormatUint(r.Start, 10), boot, r.Mark}
}

// processReport is a target's report about one process.
type processReport struct {
	leader  string // of members in proc.sh
	live    []int  // running processes that belong to it
	missing bool   // the target has no files of it
	pid     int
	start   uint64
	boot    string
	began   int64
	code    *int
	ended   int64
	size    int64
	full    bool
	signals []string // sent so far
}

// parse parses the output of testify, by process name, up to a line "data". Unknown lines and
// malformed numbers are ignored, because a process can write to its own files.
func parse(out string) map[string]processReport {
	found := map[string]processReport{}
	var t processReport
	name := ""
	for line := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		f := strings.Fields(rest)
		switch word {
		case "data":
			return found
		case "process":
			t, name = processReport{signals: t.signals}, rest
		case "sent":
			t.signals = append(t.signals, rest)
		case "lead":
			t.leader = rest
		case "live":
			for _, p := range f {
				if n, err := strconv.Atoi(p); err == nil && n > 0 {
					t.live = append(t.live, n)
				}
			}
		case "none":
			t.missing = true
		case "pid":
			t.parseStart(f)
		case "ended":
			t.parseEnd(f)
		case "size":
			if n, err := strconv.ParseInt(rest, 10, 64); err == nil && n > 0 {
				t.size = n
			}
		case "full":
			t.full = true
		}
		if name != "" {
			found[name] = t
		}
	}
	return found
}

// parseStart parses "PID START BOOT TIME".
func (t *processReport) parseStart(f []string) {
	if len(f) != 4 {
		return
	}
	pid, err1 := strconv.Atoi(f[0])
	start, err2 := strconv.ParseUint(f[1], 10, 63)
	began, err3 := strconv.ParseInt(f[3], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || pid <= 1 || began < 0 || len(f[2]) > 64 {
		return
	}
	t.pid, t.start, t.boot, t.began = pid, start, f[2], began
}

// parseEnd parses "CODE TIME".
func (t *processReport) parseEnd(f []string) {
	if len(f) != 2 {
		return
	}
	code, err1 := strconv.Atoi(f[0])
	ended, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil || code < 0 || code > 255 || ended < 0 {
		return
	}
	t.code, t.ended = &code, ended
}

// observation is a row with the target's current answer.
type observation struct {
	row
	live []int
	// unknown says why the state is currently unknown, or is "".
	unknown string
	// askAgain means that the answer contained what a second query needs.
	askAgain bool
}

// queryTarget asks the target about the rows that run on it and may not have ended. It never fails:
// a process that it cannot ask about is unknown.
func (s *suite) queryTarget(ctx context.Context, all []row) []observation {
	out := make([]observation, len(all))
	byBase := map[string][]int{}
	for i, r := range all {
		out[i].row = r
		switch {
		case r.State == ended:
		case r.Target != s.Name:
			out[i].unknown = "it was started on the target " + r.Target + "; ask there"
		default:
			byBase[r.Base] = append(byBase[r.Base], i)
		}
	}
	if len(byBase) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	const atOnce = 50 // so many names and pids fit into a program's arguments
	for b, at := range byBase {
		for part := range slices.Chunk(at, atOnce) {
			args := []string{b}
			for _, i := range part {
				args = append(args, all[i].identity()...)
			}
			text, err := s.look(ctx, lookScript, args...)
			found := parse(text)
			for _, i := range part {
				out[i] = s.interpret(all[i], found[all[i].Mark], err)
			}
		}
	}
	return out
}

// interpret returns what a report means for a row.
func (s *suite) interpret(r row, t processReport, err error) observation {
	out := observation{row: r, live: t.live}
	switch id := s.Target.ID(); {
	case err != nil:
		out.unknown = fmt.Sprintf("the target %s does not answer (%v), so whether it runs is not known; ask again later", s.Name, err)
		return out
	case r.TargetID != id:
		out.unknown = fmt.Sprintf("it was started on %s, and %s is %s now; what became of it is not known", r.TargetID, s.Name, id)
		return out
	case t.leader == "":
		out.unknown = fmt.Sprintf("the target %s said nothing about it; ask again later", s.Name)
		return out
	}
	n := &out.row
	if n.PID == 0 && t.pid > 0 {
		n.PID, n.Start, n.Boot, n.Began, n.State = t.pid, t.start, t.boot, t.began, running
		if len(t.live) == 0 && t.code == nil {
			// The query did not have its pid.
			out.unknown, out.askAgain = "its start was confirmed only now; ask again", true
			return out
		}
	}
	if n.PID == 0 {
		if s.Now().Sub(n.Created) < settleTime || len(t.live) > 0 {
			out.unknown = "its start could not be confirmed yet; ask again in a minute"
			return out
		}
		n.Why = "it was never started, as far as " + s.Name + " shows"
	}
	n.Bytes, n.Full = max(n.Bytes, t.size), n.Full || t.full
	if t.code != nil {
		n.Code, n.Ended = t.code, t.ended
	}
	if len(t.live) > 0 {
		return out
	}
	n.State, n.Seen = ended, s.Now()
	switch {
	case n.Code != nil, n.Why != "":
	case t.leader == "boot":
		n.Why = s.Name + " was started again since, which ended it"
	case t.leader == "other":
		n.Why = fmt.Sprintf("it is gone, and its number %d belongs to another process now; nobody noted how it ended", n.PID)
	default:
		n.Why = "it is gone, and nobody noted how it ended"
	}
	return out
}

// refresh queries processes and stores what changed.
func (s *suite) refresh(ctx context.Context, all []row) []observation {
	seen := s.queryTarget(ctx, all)
	for i, v := range seen {
		if v.askAgain {
			seen[i] = s.queryTarget(ctx, []row{v.row})[0]
		}
	}
	var changed []row
	for i, was := range all {
		if v := seen[i]; v.State != was.State || v.PID != was.PID || (v.Code == nil) != (was.Code == nil) {
			changed = append(changed, seen[i].row)
		}
	}
	if len(changed) > 0 {
		if err := s.save(withoutCancel(ctx), changed...); err != nil {
			s.Log.WarnContext(ctx, "what was found out about background processes could not be stored", "err", err)
		}
	}
	return seen
}

// signalName returns the name of the signal behind an exit code, or "". The supervising shell
// reports 128+n for signal n.
func signalName(code int) string {
	if n := code - 128; n > 0 && n <= int(unix.SIGSYS) {
		return strings.TrimPrefix(unix.SignalName(unix.Signal(n)), "SIG")
	}
	return ""
}

// duration returns how long a process ran or has been running.
func (s *suite) duration(v observation) time.Duration {
	switch {
	case v.Began == 0:
		return 0
	case v.Ended >= v.Began && v.Code != nil:
		return time.Duration(v.Ended-v.Began) * time.Second
	case v.State == ended:
		return 0
	}
	return max(0, s.Now().Sub(v.Created).Round(time.Second))
}
