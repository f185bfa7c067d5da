package machines

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/approvals"
	"countersign/config"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/targets/receipt"
	"countersign/tools/impact"
	"countersign/tools/shell/named"
)

const (
	// readyWithin is how long a command waits until its target has been looked at. It runs then, with a
	// receipt or without.
	readyWithin = 300 * time.Millisecond
	// spareFor is how long after the last card something stands by to look at the target.
	spareFor = 10 * time.Minute
	// unusedAfter is how long a target is looked at for a command that does not run.
	unusedAfter = 30 * time.Second
	// receiptWithin limits how long a result waits for its receipt.
	receiptWithin = 2 * time.Second
	// maxReceiptDirs is how many directories of a preview are looked at for it.
	maxReceiptDirs = 20
)

// receipts notes what approved commands on a machine really change.
//
// Keys: ("receipt", id of the request) -> keptLook as JSON, for a bot that begins again while a command runs.
type receipts struct{ m *Machine }

// keptLook is the look before a command.
type keptLook struct {
	Thread string         `json:"thread"`
	At     time.Time      `json:"at"`
	Before receipt.Before `json:"before"`
	// Mark is that of the command's process, Shell the number of the one that it is typed into, and Records the file in
	// which its terminal notes when commands end.
	Mark    string `json:"mark,omitempty"`
	Shell   string `json:"shell,omitempty"`
	Records string `json:"records,omitempty"`
}

func lookKey(id approvals.ID) []byte { return store.Key("receipt", string(id)) }

// watches are the commands that are looked at, by request.
type watches struct {
	mu   sync.Mutex
	open map[approvals.ID]*watching
}

type watching struct {
	watch    *receipt.Watch
	unused   *time.Timer // ends it if nothing runs
	recorded bool
	keptLook
	storing sync.WaitGroup
}

func (w *watches) put(id approvals.ID, one *watching) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[approvals.ID]*watching{}
	}
	w.open[id] = one
}

func (w *watches) get(id approvals.ID, take bool) *watching {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.open[id]
	if take {
		delete(w.open, id)
	}
	return one
}

// spare stands by to look at a target while requests wait for people: on some targets it takes long to start.
type spare struct {
	mu     sync.Mutex
	watch  *receipt.Watch // nil where none does
	unused *time.Timer    // drops it
}

// take returns what stands by, or nil.
func (s *spare) take() *receipt.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watch
	if w == nil {
		return nil
	}
	s.unused.Stop()
	s.watch = nil
	if w.Ended() { // as when the container began again
		w.Drop()
		return nil
	}
	return w
}

// drop drops w, if it stands by.
func (s *spare) drop(w *receipt.Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch == w {
		s.watch = nil
		w.Drop()
	}
}

// standBy has something stand by, since a card may be approved soon.
func (r receipts) standBy() {
	s := &r.m.spare
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil && !s.watch.Ended() {
		s.unused.Reset(spareFor)
		return
	}
	if w := r.prepare(); w != nil {
		s.watch, s.unused = w, time.AfterFunc(spareFor, func() { s.drop(w) })
	}
}

// prepare starts what will look at the target; nil where nothing can.
func (r receipts) prepare() *receipt.Watch {
	o := r.m.State()
	if o == nil || r.m.working.Err() != nil || r.m.opts.DB == nil || !o.Caps.Procfs || r.m.Config.Receipts == config.ReceiptsOff || r.m.Config.Credential != "" {
		return nil
	}
	w, err := receipt.Prepare(r.m.working, r.m.Target, backend.Environ(o.Caps))
	if err != nil {
		r.m.opts.Log.Warn("a command has no receipt, since its target can't be looked at", "target", r.m.Name, "error", err)
		return nil
	}
	return w
}

// Begin implements shell.Receipts.
func (r receipts) Begin(thread, call string) {
	id := approvals.NewID(thread, call)
	o := r.m.State()
	if o == nil || r.m.watches.get(id, false) != nil {
		return
	}
	w := r.m.spare.take()
	if w == nil {
		w = r.prepare()
	}
	if w == nil {
		return
	}
	go func(home string) {
		ctx, cancel := context.WithTimeout(r.m.working, readyWithin)
		defer cancel()
		var dirs []string
		_ = r.m.opts.DB.View(ctx, func(tx store.Tx) error { // else it is only told less exactly
			rec, _ := asShown(tx, id)
			dirs = append(directories(rec, home), home)
			return nil
		})
		w.Look(dirs)
	}(o.Caps.Home)
	one := &watching{watch: w, keptLook: keptLook{Thread: thread}}
	one.unused = time.AfterFunc(unusedAfter, func() { // it ends the target's program, too
		if r.m.watches.get(id, true) != nil {
			w.Drop()
		}
	})
	r.m.watches.put(id, one)
}

// Runs implements shell.Receipts.
func (r receipts) Runs(ctx context.Context, thread, call, mark, process, records string) {
	id := approvals.NewID(thread, call)
	w := r.m.watches.get(id, false)
	if w == nil || !w.unused.Stop() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	var err error
	if w.Before, w.recorded, err = w.watch.Ready(ctx); err != nil {
		r.m.watches.get(id, true)
		w.watch.Drop()
		r.m.opts.Log.Debug("a command has no receipt", "target", r.m.Name, "error", err)
		return
	}
	w.At, w.Mark, w.Shell, w.Records = time.Now(), mark, process, records
	switch {
	case w.recorded && process != "":
		w.watch.Process(process)
	case w.recorded:
		w.watch.Program(mark)
	}
	kept := w.keptLook // without what is much and says nothing by being there
	kept.Before.State = maps.Clone(kept.Before.State)
	delete(kept.Before.State, receipt.Settings)
	delete(kept.Before.State, receipt.Listings)
	w.storing.Go(func() { // beside the command; Ended waits for it
		ctx, cancel := context.WithTimeout(r.m.working, receiptWithin)
		defer cancel()
		_ = r.m.opts.DB.Update(ctx, func(tx store.Tx) error {
			store.Save(tx, lookKey(id), kept)
			return nil
		})
	})
}

// Ended implements shell.Receipts.
func (r receipts) Ended(ctx context.Context, thread, call string) (<-chan approvals.Receipt, bool) {
	id := approvals.NewID(thread, call)
	w := r.m.watches.get(id, true)
	found := make(chan approvals.Receipt, 1)
	go func() { found <- r.receipt(ctx, thread, id, w) }() // within twice receiptWithin
	return found, w != nil && w.recorded
}

// receipt is that of a request's command, w if this process looks at it.
func (r receipts) receipt(ctx context.Context, thread string, id approvals.ID, w *watching) approvals.Receipt {
	ctx, cancel := context.WithTimeout(ctx, receiptWithin)
	defer cancel()
	var rec approvals.Record
	asked := false
	if w != nil {
		w.unused.Stop()
		w.storing.Wait()
		defer w.watch.Drop()
	}
	if r.m.opts.DB == nil {
		return approvals.Receipt{}
	}
	err := r.m.opts.DB.View(ctx, func(tx store.Tx) error {
		if w == nil { // an earlier process of the bot began it
			if kept, ok := store.Load[keptLook](tx, lookKey(id)); ok && kept.Thread == thread {
				w = &watching{keptLook: kept}
			}
		}
		rec, asked = asShown(tx, id)
		return nil
	})
	o := r.m.State()
	if err != nil || !asked || w == nil || w.Before.State == nil || o == nil {
		return approvals.Receipt{}
	}
	var report receipt.Report
	if w.recorded {
		report, err = w.watch.End(ctx)
	} else {
		report, err = receipt.After(ctx, r.m.Target, backend.Environ(o.Caps), w.Before, w.Shell, o.Caps.Home, directories(rec, o.Caps.Home))
	}
	if err != nil {
		r.m.opts.Log.Warn("a command has no receipt", "target", r.m.Name, "request", id, "error", err)
		return approvals.Receipt{}
	}
	own, err := r.m.own()
	if err != nil {
		return approvals.Receipt{}
	}
	report.Changes = slices.DeleteFunc(report.Changes, func(c receipt.Change) bool { // what the bot does itself
		return r.made(o, id, w.keptLook, c) || !report.Recorded && own != nil && own(c.Path)
	})
	return impact.Receipt(rec.Action, rec.Preview, report)
}

// asShown is a request with the preview that people were shown.
func asShown(tx store.Tx, id approvals.ID) (rec approvals.Record, ok bool) {
	rec, ok = (approvals.Ledger{}).Get(tx, id)
	if rec.Basis.Kind == approvals.ByPlan { // of all of its steps
		plan, _ := (approvals.Ledger{}).Get(tx, rec.Basis.Of)
		rec.Preview = approvals.Preview{Evidence: approvals.UnknownEffect, Text: plan.Preview.Text, Files: plan.Preview.Files}
	}
	return rec, ok
}

// made reports whether the bot itself made a change for a command: in its note of the command, by deleting old notes,
// in the records of its terminal, or in what it keeps to undo it.
func (r receipts) made(o *Opened, id approvals.ID, l keptLook, c receipt.Change) bool {
	dir, name := path.Split(c.Path)
	switch notes, copies := r.m.notes(o), copiesOf(o); {
	case c.Path == notes || c.Path == copies:
		return true
	case dir == notes+"/" && c.Kind == receipt.Deleted:
		return true
	case dir == notes+"/" && l.Mark != "":
		return slices.Contains([]string{l.Mark, l.Mark + ".out", l.Mark + ".err", l.Mark + ".pipe1", l.Mark + ".pipe2"}, name)
	case dir == copies+"/":
		return strings.HasPrefix(name, string(id)+"-")
	}
	return l.Records != "" && c.Path == l.Records
}

// directories are the command's own, those of the files that people were shown, and what the command names with
// where that is.
func directories(rec approvals.Record, home string) []string {
	var out []string
	add := func(dir string) {
		if path.IsAbs(dir) && dir != "/" && !slices.Contains(out, dir) && len(out) < maxReceiptDirs {
			out = append(out, dir)
		}
	}
	add(rec.Action.Dir)
	for _, f := range rec.Preview.Files {
		add(path.Dir(f))
	}
	for _, f := range named.Find(string(rec.Action.Bytes)).Files { // also those that aren't there yet, which it isn't bound to
		name := f.Name
		if rest, of := strings.CutPrefix(name, "~/"); of {
			name = path.Join(home, rest)
		}
		if !path.IsAbs(name) && path.IsAbs(rec.Action.Dir) {
			name = path.Join(rec.Action.Dir, name)
		}
		add(path.Dir(name))
		add(path.Clean(name))
	}
	return out
}
