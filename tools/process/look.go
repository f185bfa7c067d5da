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

// script runs one of our scripts on the target to its end. What it prints is bounded by
// what it is asked for.
func (s *suite) script(ctx context.Context, text string, args ...string) (string, error) {
	caps, err := s.Target.Probe(ctx)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	p, err := s.Target.Start(ctx, backend.Spec{
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
		return out.String(), errors.Join(context.Cause(ctx), errStopped)
	case res.Code != 0:
		return out.String(), fmt.Errorf("the shell there ended with exit code %d", res.Code)
	}
	return out.String(), nil
}

// errStopped means that a look was ended before it was done.
var errStopped = errors.New("it did not answer in time")

// identity are the arguments by which scripts know a process.
func (r row) identity() []string {
	boot := r.Boot
	if boot == "" {
		boot = "-"
	}
	return []string{r.Mark, strconv.Itoa(r.PID), strconv.FormatUint(r.Start, 10), boot, r.Mark}
}

// testimony is what a target says of one process.
type testimony struct {
	lead    string // of members in proc.sh
	live    []int  // what runs of it
	none    bool   // there are no files of it
	pid     int
	start   uint64
	boot    string
	began   int64
	code    *int
	ended   int64
	size    int64
	full    bool
	signals []string // that were sent
}

// parse reads what testify printed, by name of the process. It ends at a line "data".
// Lines that it does not know, and numbers that are none, are left out: a process can
// write to its own files.
func parse(out string) map[string]testimony {
	found := map[string]testimony{}
	var t testimony
	name := ""
	for line := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		f := strings.Fields(rest)
		switch word {
		case "data":
			return found
		case "process":
			t, name = testimony{signals: t.signals}, rest
		case "sent":
			t.signals = append(t.signals, rest)
		case "lead":
			t.lead = rest
		case "live":
			for _, p := range f {
				if n, err := strconv.Atoi(p); err == nil && n > 0 {
					t.live = append(t.live, n)
				}
			}
		case "none":
			t.none = true
		case "pid":
			t.birth(f)
		case "ended":
			t.end(f)
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

// birth reads "PID START BOOT TIME".
func (t *testimony) birth(f []string) {
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

// end reads "CODE TIME".
func (t *testimony) end(f []string) {
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

// observation is a row with the target's current answer about it.
type observation struct {
	row
	live []int
	// unknown says why nothing is known at the moment, or is "".
	unknown string
	// again means that the target's answer told how to ask it better.
	again bool
}

// queryTarget asks the target about those of the rows that run on it and are not known to
// have ended. It does not fail: a process it cannot ask about is unknown.
func (s *suite) queryTarget(ctx context.Context, all []row) []observation {
	out := make([]observation, len(all))
	byBase := map[string][]int{}
	for i, r := range all {
		out[i].row = r
		switch {
		case r.State == over:
		case r.Target != s.Name:
			out[i].unknown = "it was started on the target " + r.Target + "; ask there"
		default:
			byBase[r.Base] = append(byBase[r.Base], i)
		}
	}
	if len(byBase) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	const atOnce = 50 // names and numbers of so many fit into the arguments of a program
	for b, at := range byBase {
		for part := range slices.Chunk(at, atOnce) {
			args := []string{b}
			for _, i := range part {
				args = append(args, all[i].identity()...)
			}
			text, err := s.script(ctx, lookScript, args...)
			found := parse(text)
			for _, i := range part {
				out[i] = s.judge(all[i], found[all[i].Mark], err)
			}
		}
	}
	return out
}

// judge says what a testimony means.
func (s *suite) judge(r row, t testimony, err error) observation {
	out := observation{row: r, live: t.live}
	switch id := s.Target.ID(); {
	case err != nil:
		out.unknown = fmt.Sprintf("the target %s does not answer (%v), so whether it runs is not known; ask again later", s.Name, err)
		return out
	case r.TargetID != id:
		out.unknown = fmt.Sprintf("it was started on %s, and %s is %s now; what became of it is not known", r.TargetID, s.Name, id)
		return out
	case t.lead == "":
		out.unknown = fmt.Sprintf("the target %s said nothing about it; ask again later", s.Name)
		return out
	}
	n := &out.row
	if n.PID == 0 && t.pid > 0 {
		n.PID, n.Start, n.Boot, n.Began, n.State = t.pid, t.start, t.boot, t.began, running
		if len(t.live) == 0 && t.code == nil {
			// It was looked for without its number.
			out.unknown, out.again = "its start was confirmed only now; ask again", true
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
	n.State, n.Seen = over, s.Now()
	switch {
	case n.Code != nil, n.Why != "":
	case t.lead == "boot":
		n.Why = s.Name + " was started again since, which ended it"
	case t.lead == "other":
		n.Why = fmt.Sprintf("it is gone, and its number %d belongs to another process now; nobody noted how it ended", n.PID)
	default:
		n.Why = "it is gone, and nobody noted how it ended"
	}
	return out
}

// refresh looks at processes and stores what changed.
func (s *suite) refresh(ctx context.Context, all []row) []observation {
	seen := s.queryTarget(ctx, all)
	for i, v := range seen {
		if v.again {
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
		if err := s.save(detach(ctx), changed...); err != nil {
			s.Log.WarnContext(ctx, "what was found out about background processes could not be stored", "err", err)
		}
	}
	return seen
}

// signal is the name of the signal that an exit code stands for, or "". The shell that
// waits for a process says 128+n for signal n.
func signal(code int) string {
	if n := code - 128; n > 0 && n <= int(unix.SIGSYS) {
		return strings.TrimPrefix(unix.SignalName(unix.Signal(n)), "SIG")
	}
	return ""
}

// lasted is how long a process ran or runs.
func (s *suite) lasted(v observation) time.Duration {
	switch {
	case v.Began == 0:
		return 0
	case v.Ended >= v.Began && v.Code != nil:
		return time.Duration(v.Ended-v.Began) * time.Second
	case v.State == over:
		return 0
	}
	return max(0, s.Now().Sub(v.Created).Round(time.Second))
}
