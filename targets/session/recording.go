package session

import "context"

// Recorder takes what a pane shows, for later. Its methods never block.
type Recorder interface {
	Output(b []byte)
	Marker(text string)
	Close() error
}

// Recordings makes recorders; nil records nothing.
type Recordings func(thread, session, pane string, width, height int) (Recorder, error)

// record begins to record a pane into which this process types. A pane that cannot be recorded is used all the
// same: what was decided is in the audit, not in the recording.
func (b *Book) record(ctx context.Context, thread string, key paneKey, p Pane) {
	if b.cfg.Record == nil {
		return
	}
	info, err := p.Info(ctx)
	if err != nil {
		return // it is gone; the next one is recorded
	}
	rec, err := b.cfg.Record(thread, key.session, key.pane, info.Width, info.Height)
	if err == nil {
		err = p.Tap(ctx, func(out []byte) {
			if p.Driving() { // else the process that does records it
				rec.Output(out)
			}
		})
	}
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "a pane is not recorded", "session", key.session, "pane", key.pane, "error", err)
		if rec != nil {
			_ = rec.Close() // the first error says it
		}
		return
	}
	b.mu.Lock()
	old := b.recorders[key]
	b.recorders[key] = rec
	b.mu.Unlock()
	if old != nil {
		b.closeRecorder(old)
	}
}

func (b *Book) closeRecorder(r Recorder) {
	if err := r.Close(); err != nil {
		b.cfg.Log.Warn("a recording is not complete", "error", err)
	}
}

// Mark puts a marker into the recording of a pane.
func (b *Book) Mark(session, pane, text string) {
	b.mu.Lock()
	rec := b.recorders[paneKey{session, pane}]
	b.mu.Unlock()
	if rec != nil {
		rec.Marker(text)
	}
}

// Close ends the recordings. The terminals stay.
func (b *Book) Close() {
	b.mu.Lock()
	all := b.recorders
	b.recorders = map[paneKey]Recorder{}
	b.mu.Unlock()
	for _, r := range all {
		b.closeRecorder(r)
	}
}
