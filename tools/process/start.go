package process

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/shell"
)

var (
	//go:embed start.sh
	startScript string
	//go:embed supervise.sh
	superviseScript string
	//go:embed begin.sh
	beginScript string
)

// ready is a start that was looked at.
type ready struct {
	action  approvals.Action
	caps    backend.Caps
	command string
	dirID   string
	shell   []string
}

// Plan implements tools.Tool.
func (t starter) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	if t.Once {
		return tools.Plan{}, tools.Failed("a process in the background needs a running bot, which finds and stops it later; run the command with run_shell, or ask a running bot")
	}
	k, err := t.ready(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	if err := t.roomNow(ctx, c.Thread); err != nil {
		return tools.Plan{}, err
	}
	p := tools.Planned(k.action, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, k, sink)
	})
	p.Level = risk.High
	return p, nil
}

// ready makes the action. It is that of the tool bash, which knows what a command
// depends on, for a command of which nothing is proven.
func (t starter) ready(ctx context.Context, c tools.Call) (ready, error) {
	var args struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return ready{}, tools.Invalid("%v", err)
	}
	k := ready{command: args.Command}
	var err error
	if k.caps, err = t.Target.Probe(ctx); err != nil {
		return ready{}, tools.Failed("the target %s does not answer: %w", t.Target.ID(), err)
	}
	if !k.caps.Procfs {
		return ready{}, tools.Failed("%s has no /proc, without which a background process cannot be told apart from others; run the command with bash instead", t.Name)
	}
	dir := t.dir(args.Path, k.caps.Home)
	only, err := json.Marshal(map[string]string{"command": args.Command})
	if err != nil {
		return ready{}, tools.Invalid("%v", err)
	}
	plan, err := shell.NewBash(shell.Config{
		Target: t.Target, User: t.User, Dir: dir, Classify: func(risk.Text) risk.Verdict { return risk.Verdict{} },
	}).Plan(ctx, tools.Call{ID: c.ID, Thread: c.Thread, By: c.By, Groups: c.Groups, Name: "bash", Args: only})
	if err != nil {
		return ready{}, err
	}
	k.action = plan.Action
	k.action.Tool, k.action.Kind, k.action.Args = "run_bash_background", approvals.KindShell, c.Args
	k.shell = []string{"sh", "-c"}
	if k.caps.Bash != "" { // the shell whose grammar the text is judged by
		k.shell = []string{k.caps.Bash, "--noprofile", "--norc", "-c"}
	}
	k.action.Env["shell"] = strings.Join(k.shell, " ")
	k.action.Env["mark"] = "COUNTERSIGN_PROCESS is set to the process id and a random word"
	if k.dirID, err = t.place(ctx, k.action); err != nil {
		return ready{}, err
	}
	return k, nil
}

// dir is the directory that a call means.
func (t starter) dir(given, home string) string {
	if rest, ok := strings.CutPrefix(given, "~"); ok && (rest == "" || rest[0] == '/') && path.IsAbs(home) {
		return home + rest
	}
	switch {
	case given == "":
		return t.Dir
	case path.IsAbs(given) || t.Dir == "":
		return given
	}
	return t.Dir + "/" + given
}

// place makes sure that the directory of an action can be used, and returns its
// identity, which is the one that the action names.
func (t starter) place(ctx context.Context, a approvals.Action) (string, error) {
	st, err := t.Target.FS().Stat(ctx, a.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", tools.Failed("the directory %s does not exist on %s; give another one in \"path\"", a.Dir, t.Name)
	case err != nil:
		return "", tools.Failed("the directory %s cannot be used: %w", a.Dir, err)
	case !st.Mode.IsDir():
		return "", tools.Failed("%s is no directory; give another one in \"path\"", a.Dir)
	}
	if st.ID != "" && !strings.HasSuffix(a.Files[strings.TrimSuffix(a.Dir, "/")+"/"], " "+st.ID) {
		return "", tools.Failed("the directory %s changed while it was looked at; propose the command again", a.Dir)
	}
	if t.Private != nil {
		resolved, err := t.Target.FS().Resolve(ctx, a.Dir)
		if err != nil {
			return "", tools.Failed("the directory %s cannot be used: %w", a.Dir, err)
		}
		if t.Private(resolved) || t.Private(a.Dir) {
			return "", tools.OffLimits(a.Dir, resolved, t.Roots)
		}
	}
	return st.ID, nil
}

// roomNow says early that a limit would be hit. It stores nothing.
func (t starter) roomNow(ctx context.Context, thread string) error {
	all, err := t.list(ctx, anyRow)
	if err != nil {
		return err
	}
	if t.room(all, thread) == nil {
		return nil
	}
	now := t.queryTarget(ctx, all)
	for i, v := range now {
		all[i] = v.row
	}
	if err := t.room(all, thread); err != nil {
		return tools.Failed("%w", err)
	}
	return nil
}

// begun is what the model gets.
type begun struct {
	ProcessID string `json:"process_id"`
	PID       int    `json:"pid,omitempty"`
	Directory string `json:"directory"`
	State     string `json:"state"`
	Notice    string `json:"notice,omitempty"`
}

// run starts the process, and returns when it has begun.
func (t starter) run(ctx context.Context, c tools.Call, was ready, sink tools.Sink) (tools.Result, error) {
	begin(sink, was.command)
	k, err := t.ready(ctx, c)
	if err != nil {
		return tools.Result{}, tools.Failed("the command was not started: what it depends on could not be checked again: %w", err)
	}
	if k.action.Digest() != was.action.Digest() || k.dirID != was.dirID {
		what := strings.Join(approvals.Drift(was.action, k.action), ", ")
		if what == "" {
			what = "the directory"
		}
		return tools.Result{}, tools.Failed("the command was not started: %s changed after it was checked; propose it again", what)
	}
	r, err := t.claim(ctx, row{
		Target: t.Name, TargetID: t.Target.ID(), Thread: c.Thread, Call: c.ID, By: c.By, Command: k.command, Dir: k.action.Dir,
		Base: base(k.caps), Created: t.Now(), State: starting,
	})
	if err != nil {
		return tools.Result{}, err
	}
	said, err := t.launch(ctx, r, k)
	if err != nil && !errors.Is(err, errUnconfirmed) {
		if ferr := t.forget(detach(ctx), r); ferr != nil {
			t.Log.WarnContext(ctx, "a background process that was not started is still noted", "id", r.ID, "err", ferr)
		}
		return tools.Result{}, err
	}
	v := begun{ProcessID: r.ID, Directory: r.Dir}
	if err != nil {
		v.State = "unknown"
		v.Notice = fmt.Sprintf("Whether it started is not known: the connection to %s ended, or the call did, before it was confirmed. It is not started again by itself; ask get_background_status for %s before anything else.", t.Name, r.ID)
		finish(sink, v.Notice, v.State)
		return tools.Result{Value: v, Unknown: true, Text: r.ID + ": " + v.Notice}, nil //nolint:nilerr // said as what it is
	}
	r.PID, r.Start, r.Boot, r.Began, r.State = said.pid, said.start, said.boot, said.began, running
	if err := t.save(detach(ctx), r); err != nil {
		// It runs, and the next look finds it by its files.
		t.Log.WarnContext(ctx, "the start of a background process could not be stored", "id", r.ID, "err", err)
	}
	v.PID, v.State = r.PID, "running"
	text := fmt.Sprintf("%s runs in the background (pid %d on %s)", r.ID, r.PID, t.Name)
	finish(sink, text, v.State)
	return tools.Result{Value: v, Text: text}, nil
}

// claim is reserve, after a look at what runs where a limit is hit.
func (t starter) claim(ctx context.Context, r row) (row, error) {
	var full *limitError
	out, err := t.reserve(ctx, r)
	if !errors.As(err, &full) {
		return out, err
	}
	all, err := t.list(ctx, anyRow)
	if err != nil {
		return row{}, err
	}
	t.refresh(ctx, all)
	out, err = t.reserve(ctx, r)
	if errors.As(err, &full) {
		return row{}, tools.Failed("%w", err)
	}
	return out, err
}

// errUnconfirmed means that nobody knows whether a process was started.
var errUnconfirmed = errors.New("process: the start was not confirmed")

// launch starts the process of a row. Its error is errUnconfirmed, or means that
// nothing was started.
func (t starter) launch(ctx context.Context, r row, k ready) (testimony, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	blocks := (t.Limits.Output + blockSize - 1) / blockSize
	var out bytes.Buffer
	argv := []string{"sh", "-c", startScript, "countersign-start", r.Base, r.Mark, r.Mark, strconv.FormatInt(blocks, 10), superviseScript, beginScript}
	p, err := t.Target.Start(ctx, backend.Spec{
		Argv: append(argv, k.shell...), Dir: k.action.Dir, DirID: k.dirID, Env: backend.Environ(k.caps),
		Stdin: strings.NewReader(k.command), Stdout: &out,
	})
	switch {
	case errors.Is(err, backend.ErrChanged):
		return testimony{}, tools.Failed("the command was not started: the directory %s changed after it was checked; propose it again: %w", k.action.Dir, err)
	case errors.Is(err, backend.ErrLost), err != nil && ctx.Err() != nil:
		return testimony{}, errUnconfirmed
	case err != nil:
		return testimony{}, tools.Failed("the command did not start on %s: %w", t.Target.ID(), err)
	}
	_, err = p.Wait()
	return t.parseAnswer(out.String(), r, err)
}

// parseAnswer parses the answer of a start. A complete answer counts even if the connection
// failed afterwards.
func (t starter) parseAnswer(text string, r row, err error) (testimony, error) {
	var said testimony
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "began":
			if said.birth(strings.Fields(rest)); said.pid > 0 {
				return said, nil
			}
		case "no":
			return said, tools.Failed("the command was not started on %s: %s", t.Name, obstacle(rest, r))
		}
	}
	if err != nil {
		t.Log.Info("the start of a background process was not confirmed", "id", r.ID, "err", err)
	}
	return said, errUnconfirmed
}

// obstacle says why a target started nothing, and what to do.
func obstacle(word string, r row) string {
	switch word {
	case "setsid":
		return "the program setsid is missing there; install util-linux or busybox"
	case "proc":
		return "/proc is missing there; run the command with bash instead"
	case "directory":
		return "its files cannot be kept, because " + r.Base + " cannot be made or is not the account's own; remove it or make room there"
	case "space":
		return "its files cannot be written below " + r.Base + "; make room there"
	}
	return "the shell there failed before the command began; make room below " + r.Base + " and try again"
}
