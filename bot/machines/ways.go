package machines

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/targets/backend/approved"
	"countersign/targets/backend/door"
	"countersign/tools/impact"
)

// ways keeps how approved commands on a machine can be undone.
//
// Keys: ("way", id of the request) -> keptWay as JSON. Copies of files stay on the machine.
type ways struct{ m *Machine }

// keptWay is the way back from one command that ran.
type keptWay struct {
	Thread string     `json:"thread"`
	By     chat.User  `json:"by,omitzero"` // who asked for the command, and their groups: what the looks may reach
	Groups []string   `json:"groups,omitempty"`
	Target string     `json:"target"` // name in the configuration
	At     time.Time  `json:"at"`
	Dir    string     `json:"dir,omitempty"`
	Way    impact.Way `json:"way"`
	After  string     `json:"after,omitempty"` // what the look showed when the command had ended; "" if nobody looked
	Timer  string     `json:"timer,omitempty"` // the name of the timer's files on the machine (trial.sh)
}

func wayKey(id approvals.ID) []byte { return store.Key("way", string(id)) }

// PruneWays deletes up to limit ways back and looks of commands that ran before a time and returns how many.
func PruneWays(tx store.Tx, before time.Time, limit int) int {
	var old [][]byte
	for _, of := range []string{"way", "receipt"} {
		start, end := store.Prefix(of)
		for key := range tx.Scan(start, end) {
			if w, ok := store.Load[struct{ At time.Time }](tx, key); ok && w.At.Before(before) && len(old) < limit {
				old = append(old, bytes.Clone(key))
			}
		}
	}
	for _, key := range old {
		tx.Delete(key)
	}
	return len(old)
}

// Begin implements shell.Ways.
func (w ways) Begin(ctx context.Context, thread, call string, a approvals.Action) error {
	if w.m.opts.DB == nil {
		return nil
	}
	id := approvals.NewID(thread, call)
	var rec approvals.Record
	if err := w.m.opts.DB.View(ctx, func(tx store.Tx) error {
		rec, _ = (approvals.Ledger{}).Get(tx, id)
		return nil
	}); err != nil {
		return err
	}
	trial := rec.Trial.For > 0
	o := w.m.State()
	switch usable := o != nil && o.Caps.Bash != ""; {
	case !usable && trial:
		return errors.New("it was approved to undo itself, and the target isn't reachable to set the timer")
	case !usable:
		return nil
	}
	l := w.m.looker(askerOf(rec), o, a)
	k := keptWay{Thread: thread, By: rec.Requester, Groups: rec.Groups, Target: w.m.Name, At: time.Now(), Dir: a.Dir, Way: l.back(ctx)}
	if b := rec.Preview.Back; k.Way.Kind == "" && b.Kind == approvals.OnePress && len(b.Keep)+len(b.Made) > 0 {
		k.Way = w.keepFiles(ctx, o, id, b)
	}
	switch {
	case k.Way.Kind != approvals.OnePress && trial:
		return errors.New("it was approved to undo itself, and there is no way back any more")
	case k.Way.Kind != approvals.OnePress:
		return nil
	case trial:
		// One that an earlier attempt set, which the bot did not survive, must not undo this one.
		if old, ok := w.load(ctx, thread, id); ok && old.Timer != "" {
			if _, err := w.script(ctx, o, settleScript, nil, old.Timer, "keep"); err != nil {
				return fmt.Errorf("it was approved to undo itself, and its earlier timer could not be ended: %w", err)
			}
		}
		k.Timer = copiesOf(o) + "/" + string(id) + "-" + strings.ToLower(rand.Text()[:8])
	}
	err := w.m.opts.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, wayKey(id), k)
		return nil
	})
	switch {
	case err != nil && trial:
		return err
	case err != nil:
		w.m.opts.Log.Warn("a command can't be undone, since its way back could not be stored", "request", id, "error", err)
		return nil
	case trial:
		spec, out := ownScript(o, trialScript, slices.Concat(k.Way.Keep, k.Way.Made), k.Timer, strconv.Itoa(int(rec.Trial.For.Seconds())), k.Way.Command, cmp.Or(k.Way.Look, stateScript))
		p, err := approved.Start(ctx, w.m.Target, spec) // people approved that the timer runs the way back
		if _, err = out.of(ctx, p, err); err != nil {
			return fmt.Errorf("it was approved to undo itself, and the timer could not be set: %w", err)
		}
		failpoint.Hit(failpoint.TimerSet)
	}
	return nil
}

// copiesOf is the directory of the account for copies of files and for timers.
func copiesOf(o *Opened) string { return o.Caps.TempDir + "/countersign-undo-" + o.Caps.User }

// Ended implements shell.Ways.
func (w ways) Ended(ctx context.Context, thread, call string) bool {
	id := approvals.NewID(thread, call)
	k, ok := w.load(ctx, thread, id)
	if !ok {
		return false
	}
	state, err := w.look(ctx, k)
	if err == nil && k.Timer != "" { // it would undo what others do from now on
		if _, err := w.script(ctx, w.m.State(), settleScript, nil, k.Timer, "after"); err != nil {
			w.m.opts.Log.Warn("a change on trial will be undone even if somebody changes the same meanwhile", "request", id, "error", err)
		}
	}
	if err != nil || state == k.Way.State { // nothing is to be undone
		return false
	}
	k.After = state
	err = w.m.opts.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, wayKey(id), k)
		return nil
	})
	return err == nil
}

// Back implements shell.Ways.
func (w ways) Back(ctx context.Context, thread, change string) (command, dir string, err error) {
	k, ok := w.load(ctx, thread, approvals.ID(change))
	switch {
	case !ok || k.Target != w.m.Name:
		return "", "", errors.New("there is nothing to undo")
	case k.After == "":
		return "", "", fmt.Errorf("the bot didn't see how that command ended; check, and then run this yourself if it fits: %s", k.Way.Command)
	}
	state, err := w.look(ctx, k)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("couldn't check whether it is still as the command left it: %w", err)
	case state != k.After:
		return "", "", errors.New(sayChangedSince + "; look at it, and propose what is needed now")
	}
	return k.Way.Command, k.Dir, nil
}

func (w ways) load(ctx context.Context, thread string, id approvals.ID) (k keptWay, ok bool) {
	if w.m.opts.DB == nil {
		return k, false
	}
	if err := w.m.opts.DB.View(ctx, func(tx store.Tx) error {
		k, ok = store.Load[keptWay](tx, wayKey(id))
		return nil
	}); err != nil {
		return k, false
	}
	return k, ok && k.Thread == thread
}

// Trial implements desk.Witness.
func (s Set) Trial(ctx context.Context, thread chat.ThreadID, id approvals.ID, keep *bool) (end approvals.TrialEnd, note string, err error) {
	var m *Machine
	for _, m = range s {
		break
	}
	if m == nil {
		return "", "", errors.New("there are no targets")
	}
	target, ok, err := WayTarget(ctx, m.opts.DB, thread, string(id))
	switch {
	case err != nil:
		return "", "", err
	case !ok && keep != nil:
		return "", "", errors.New("it is only just beginning; try again")
	case !ok:
		return approvals.NoTrial, "", nil // the bot went away before it ran
	}
	if m = s[target]; m == nil {
		return "", "", fmt.Errorf("the target %s isn't configured any more", target)
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return "", "", err
	}
	w := ways{m}
	k, ok := w.load(ctx, string(thread), id)
	if !ok || k.Timer == "" {
		return approvals.NoTrial, "", nil
	}
	what := "look"
	if keep != nil {
		what = map[bool]string{true: "keep", false: "now"}[*keep]
	}
	out, err := w.script(ctx, o, settleScript, nil, k.Timer, what)
	if err != nil {
		return "", "", err
	}
	return trialEnd(out)
}

// trialEnd reads what settle.sh printed.
func trialEnd(out string) (end approvals.TrialEnd, note string, err error) {
	claim, rest, _ := strings.Cut(out, "\n")
	switch code, ended := strings.CutPrefix(rest, "done "); {
	case claim == "claim kept":
		return approvals.Kept, "", nil
	case ended:
		code, said, _ := strings.Cut(code, "\n")
		switch code {
		case "0":
			return approvals.Undone, "", nil
		case "changed":
			return approvals.UndoFailed, sayChangedSince, nil
		}
		return approvals.UndoFailed, strings.TrimSpace("exit status " + code + ": " + said), nil
	}
	return "", "", nil
}

// WayTarget returns the target of a thread's command that can be undone; ok is false if there is none.
func WayTarget(ctx context.Context, db store.DB, thread chat.ThreadID, change string) (target string, ok bool, err error) {
	err = db.View(ctx, func(tx store.Tx) error {
		var k keptWay
		k, ok = store.Load[keptWay](tx, wayKey(approvals.ID(change)))
		target, ok = k.Target, ok && k.Thread == string(thread)
		return nil
	})
	return target, ok, err
}

// backWithin bounds the look for a way back for which an approved command waits.
const backWithin = 3 * time.Second

func (l looker) back(ctx context.Context) impact.Way {
	ctx, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	return impact.BackFrom(ctx, l.action, l.proves, l)
}

// lookWithin bounds one look at what a command changed.
const lookWithin = 5 * time.Second

// look reads what a command changes.
func (w ways) look(ctx context.Context, k keptWay) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	o := w.m.State()
	if o == nil {
		return "", errors.New("the target isn't reachable")
	}
	if k.Way.Look == "" {
		out, err := w.script(ctx, o, stateScript, slices.Concat(k.Way.Keep, k.Way.Made))
		return strings.TrimSpace(out), err
	}
	l := w.m.looker(asker{thread: chat.ThreadID(k.Thread), by: k.By, groups: k.Groups}, o, approvals.Action{Target: w.m.Target.ID(), User: o.Caps.User, Dir: k.Dir})
	out, exit, err := l.Read(ctx, k.Way.Look)
	return impact.State(out, exit), err
}

// The scripts for copies of files, whose paths come on standard input, each with a zero byte, and for
// changes on trial.
var (
	//go:embed trial.sh
	trialScript string
	//go:embed settle.sh
	settleScript string
	//go:embed keep.sh
	keepScript string
	//go:embed state.sh
	stateScript string
)

// keepFiles copies files before a command runs. The zero Way means that they could not be kept.
func (w ways) keepFiles(ctx context.Context, o *Opened, id approvals.ID, b approvals.Back) impact.Way {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	way := impact.Way{Kind: b.Kind, Note: b.Text, Keep: b.Keep, Made: b.Made}
	var steps [][]string
	if len(b.Made) > 0 {
		made := slices.Clone(b.Made)
		slices.Sort(made)
		slices.Reverse(made) // what is in a directory before the directory
		steps = append(steps, append([]string{"rm", "-df", "--"}, made...))
	}
	if len(b.Keep) > 0 {
		copies := copiesOf(o)
		archive := copies + "/" + string(id) + "-" + strings.ToLower(rand.Text()[:8]) + ".tar"
		if _, err := w.script(ctx, o, keepScript, b.Keep, copies, archive); err != nil {
			w.m.opts.Log.Warn("a command can't be undone, since its files could not be copied", "request", id, "error", err)
			return impact.Way{}
		}
		steps = append(steps, []string{"tar", "--extract", "--absolute-names", "--preserve-permissions", "--same-owner", "--file=" + archive})
	}
	var ok bool
	if way.Command, ok = impact.Commands(steps...); !ok {
		return impact.Way{}
	}
	state, err := w.look(ctx, keptWay{Way: way})
	if err != nil {
		return impact.Way{}
	}
	way.State = state
	return way
}

// script runs one of the bot's own scripts with paths on its standard input.
func (w ways) script(ctx context.Context, o *Opened, text string, paths []string, args ...string) (string, error) {
	spec, out := ownScript(o, text, paths, args...)
	p, err := door.Start(ctx, w.m.Target, door.Plumbing, nil, spec)
	return out.of(ctx, p, err)
}

// ownScript returns the process of a script, and what it will print.
func ownScript(o *Opened, text string, paths []string, args ...string) (backend.Spec, *printed) {
	out := &printed{firstBytes{max: 4 << 10}, firstBytes{max: 4 << 10}}
	return backend.Spec{
		Argv: append([]string{"/bin/sh", "-c", text, "sh"}, args...), Dir: "/", Env: backend.Environ(o.Caps),
		Stdin: strings.NewReader(strings.Join(paths, "\x00") + "\x00"), Stdout: &out.out, Stderr: &out.errs,
	}, out
}

// printed is what a script prints.
type printed struct{ out, errs firstBytes }

// of waits for the script and returns its output.
func (s *printed) of(ctx context.Context, p backend.Process, err error) (string, error) {
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return "", err
	case res.Killed:
		return "", context.Cause(ctx)
	case res.Code != 0:
		return "", fmt.Errorf("exit status %d: %s", res.Code, strings.TrimSpace(s.errs.String()))
	}
	return s.out.String(), nil
}
