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
	"countersign/targets/backend/approved"
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

// prepared is a planned start.
type prepared struct {
	action  approvals.Action
	caps    backend.Caps
	command string
	dirID   string
	shell   []string
}

// Plan implements tools.Tool.
func (t starter) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	if t.Once {
		return tools.Plan{}, tools.Failed("a process in the background needs a running bot, which finds and stops it later; run the command " +
			"with run_shell, or ask a running bot")
	}
	k, err := t.prepare(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	if err := t.checkLimitsEarly(ctx, c.Thread); err != nil {
		return tools.Plan{}, err
	}
	p := tools.Planned(k.action, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, k, sink)
	})
	p.Level = risk.High
	return p, nil
}

// prepare builds the action. It is that of the tool bash, which finds what a command depends on,
// for a command that is not proven.
func (t starter) prepare(ctx context.Context, c tools.Call) (prepared, error) {
	var args struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return prepared{}, tools.Invalid("%v", err)
	}
	k := prepared{command: args.Command}
	var err error
	if k.caps, err = t.Target.Probe(ctx); err != nil {
		return prepared{}, tools.Failed("the target %s does not answer: %w", t.Target.ID(), err)
	}
	if !k.caps.Procfs {
		return prepared{}, tools.Failed("%s has no /proc, without which a background process cannot be told apart from others; run the "+
			"command with bash instead", t.Name)
	}
	dir := t.resolveDir(args.Path, k.caps.Home)
	only, err := json.Marshal(map[string]string{"command": args.Command})
	if err != nil {
		return prepared{}, tools.Invalid("%v", err)
	}
	plan, err := shell.NewBash(shell.Config{
		Target: t.Target, User: t.User, Dir: dir, Classify: func(risk.Text) risk.Verdict { return risk.Verdict{} },
	}).Plan(ctx, tools.Call{ID: c.ID, Thread: c.Thread, By: c.By, Groups: c.Groups, Name: "bash", Args: only})
	if err != nil {
		return prepared{}, err
	}
	k.action = plan.Action
	k.action.Tool, k.action.Kind, k.action.Args = "run_bash_background", approvals.KindShell, c.Args
	k.shell = []string{"sh", "-c"}
	if k.caps.Bash != "" { // the shell that was assumed when judging the text
		k.shell = []string{k.caps.Bash, "--noprofile", "--norc", "-c"}
	}
	k.action.Env["shell"] = strings.Join(k.shell, " ")
	k.action.Env["mark"] = "COUNTERSIGN_PROCESS is set to the process id and a random word"
	if k.dirID, err = t.checkDir(ctx, k.action); err != nil {
		return prepared{}, err
	}
	return k, nil
}

// resolveDir returns the directory of a call.
func (t starter) resolveDir(given, home string) string {
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

// checkDir checks that an action's directory can be used and is the one that the action names, and
// returns its identity.
func (t starter) checkDir(ctx context.Context, a approvals.Action) (string, error) {
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

// checkLimitsEarly reports during planning that a limit would be exceeded. It stores nothing.
func (t starter) checkLimitsEarly(ctx context.Context, thread string) error {
	all, err := t.list(ctx, anyRow)
	if err != nil {
		return err
	}
	if t.checkLimits(all, thread) == nil {
		return nil
	}
	now := t.queryTarget(ctx, all)
	for i, v := range now {
		all[i] = v.row
	}
	if err := t.checkLimits(all, thread); err != nil {
		return tools.Failed("%w", err)
	}
	return nil
}

// startResult is what the model gets.
type startResult struct {
	ProcessID string `json:"process_id"`
	PID       int    `json:"pid,omitempty"`
	Directory string `json:"directory"`
	State     string `json:"state"`
	Notice    string `json:"notice,omitempty"`
}

// run starts the process and returns when it has started.
func (t starter) run(ctx context.Context, c tools.Call, was prepared, sink tools.Sink) (tools.Result, error) {
	emitStarted(sink, was.command)
	k, err := t.prepare(ctx, c)
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
	r, err := t.reserveOrRefresh(ctx, row{
		Target: t.Name, TargetID: t.Target.ID(), Thread: c.Thread, Call: c.ID, By: c.By, Command: k.command, Dir: k.action.Dir,
		Base: base(k.caps), Created: t.Now(), State: starting,
	})
	if err != nil {
		return tools.Result{}, err
	}
	said, err := t.launch(ctx, r, k)
	if err != nil && !errors.Is(err, errUnconfirmed) {
		if ferr := t.forget(withoutCancel(ctx), r); ferr != nil {
			t.Log.WarnContext(ctx, "a background process that was not started is still noted", "id", r.ID, "err", ferr)
		}
		return tools.Result{}, err
	}
	v := startResult{ProcessID: r.ID, Directory: r.Dir}
	if err != nil {
		v.State = "unknown"
		why := "Whether it started is not known: the connection to " + t.Name + " ended, or the call did, before it was confirmed."
		v.Notice = why + " It is not started again by itself; ask get_background_status for " + r.ID + " before anything else."
		emitFinished(sink, v.Notice, v.State)
		return tools.Result{Value: v, Unknown: true, Why: why, Text: r.ID + ": " + v.Notice}, nil //nolint:nilerr // reported as an unknown outcome
	}
	r.PID, r.Start, r.Boot, r.Began, r.State = said.pid, said.start, said.boot, said.began, running
	if err := t.save(withoutCancel(ctx), r); err != nil {
		// It runs, and the next query finds it by its files.
		t.Log.WarnContext(ctx, "the start of a background process could not be stored", "id", r.ID, "err", err)
	}
	v.PID, v.State = r.PID, "running"
	text := fmt.Sprintf("%s runs in the background (pid %d on %s)", r.ID, r.PID, t.Name)
	emitFinished(sink, text, v.State)
	return tools.Result{Value: v, Text: text}, nil
}

// reserveOrRefresh is reserve; if a limit is reached it refreshes the running processes and tries
// again.
func (t starter) reserveOrRefresh(ctx context.Context, r row) (row, error) {
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

// errUnconfirmed means that it is unknown whether a process was started.
var errUnconfirmed = errors.New("process: the start was not confirmed")

// launch starts the process of a row. Any error but errUnconfirmed means that nothing was started.
func (t starter) launch(ctx context.Context, r row, k prepared) (processReport, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	blocks := (t.Limits.Output + blockSize - 1) / blockSize
	var out bytes.Buffer
	argv := []string{"sh", "-c", startScript, "countersign-start", r.Base, r.Mark, r.Mark, strconv.FormatInt(blocks, 10), superviseScript, beginScript}
	p, err := approved.Start(ctx, t.Target, backend.Spec{
		Argv: append(argv, k.shell...), Dir: k.action.Dir, DirID: k.dirID, Env: backend.Environ(k.caps),
		Stdin: strings.NewReader(k.command), Stdout: &out,
	})
	switch {
	case errors.Is(err, backend.ErrChanged):
		return processReport{}, tools.Failed("the command was not started: the directory %s changed after it was checked; propose it again: %w", k.action.Dir, err)
	case errors.Is(err, backend.ErrLost), err != nil && ctx.Err() != nil:
		return processReport{}, errUnconfirmed
	case err != nil:
		return processReport{}, tools.Failed("the command did not start on %s: %w", t.Target.ID(), err)
	}
	_, err = p.Wait()
	return t.parseAnswer(out.String(), r, err)
}

// parseAnswer parses the answer of a start. A complete answer counts even if the connection failed
// afterwards.
func (t starter) parseAnswer(text string, r row, err error) (processReport, error) {
	var said processReport
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "began":
			if said.parseStart(strings.Fields(rest)); said.pid > 0 {
				return said, nil
			}
		case "no":
			return said, tools.Failed("the command was not started on %s: %s", t.Name, startError(rest, r))
		}
	}
	if err != nil {
		t.Log.Info("the start of a background process was not confirmed", "id", r.ID, "err", err)
	}
	return said, errUnconfirmed
}

// startError says why a target started nothing, and how to fix it.
func startError(word string, r row) string {
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
