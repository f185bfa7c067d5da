package session

import (
	"fmt"
	"time"

	"countersign/store"
)

// row is one managed session.
type row struct {
	ID      string    `json:"id"` // random; also a tag of the tmux session
	Name    string    `json:"name"`
	Thread  string    `json:"thread"`
	Default bool      `json:"default,omitempty"`
	Created time.Time `json:"created"`
	// Ready means that it once existed in tmux; before, the row only holds its
	// place in the limits.
	Ready bool `json:"ready,omitempty"`
	// Closing means that somebody decided to end it.
	Closing bool               `json:"closing,omitempty"`
	Panes   map[string]paneRow `json:"panes,omitempty"`
	// Used is when a command last ran there, within usedStep.
	Used time.Time `json:"used,omitzero"`
	// Pen is who has the keyboard; nil is the bot. Turn counts how often that
	// changed.
	Pen  *pen  `json:"pen,omitempty"`
	Turn int64 `json:"turn,omitempty"`
	// Driver is the process that types there, "" one that is alone, and Epoch counts how
	// often that changed.
	Driver string `json:"driver,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
}

type paneRow struct {
	ID string `json:"id,omitempty"` // tmux's, "" until it was made
	// Fresh means that no command of the bot was typed there.
	Fresh bool `json:"fresh,omitempty"`
}

// found is the row of a pane that was found under this id.
func (p paneRow) found(id string) paneRow {
	if p.ID != "" && p.ID != id {
		return paneRow{ID: id}
	}
	p.ID = id
	return p
}

func (b *Book) key(name string) []byte {
	return store.Key("session", b.cfg.Instance, b.cfg.Target, name)
}

func (b *Book) orphanKey(id string) []byte {
	return store.Key("session-orphan", b.cfg.Instance, b.cfg.Target, id)
}

// rows lists the sessions of this target, of one thread or, with "", of all.
func (b *Book) rows(tx store.Tx, thread string) []row {
	var out []row
	start, end := store.Prefix("session", b.cfg.Instance, b.cfg.Target)
	for k, v := range tx.Scan(start, end) {
		var r row
		store.Decode(k, v, &r)
		if thread == "" || r.Thread == thread {
			out = append(out, r)
		}
	}
	return out
}

// owned returns the row of a session if thread owns it.
func (b *Book) owned(tx store.Tx, thread, name string) (row, bool, error) {
	r, ok := store.Load[row](tx, b.key(name))
	if ok && r.Thread != thread {
		return row{}, false, &refusal{ErrForeign, fmt.Sprintf("the session %s belongs to another thread; choose another name, or work in "+
			"this thread's own sessions", name)}
	}
	return r, ok, nil
}

// room checks the limits for one more session, or one more pane, of a thread.
func (b *Book) room(tx store.Tx, thread string, session, pane bool) error {
	lim := b.cfg.Limits
	sessions, panes := 0, 0
	for _, r := range b.rows(tx, thread) {
		if !r.Default {
			sessions++
		}
		for name := range r.Panes {
			if name != sharedPane {
				panes++
			}
		}
	}
	if session && sessions >= lim.Sessions {
		return &refusal{ErrLimit, fmt.Sprintf("this thread already has %d sessions beside its default one, and the limit (tmux max_sessions) "+
			"is %d; end one with tmux-kill-session, or use one of them", sessions, lim.Sessions)}
	}
	if pane && panes >= lim.Panes {
		return &refusal{ErrLimit, fmt.Sprintf("this thread already has %d panes beside the shared ones, and the limit (tmux max_panes) is "+
			"%d; end one with tmux-kill-pane, or use one of them", panes, lim.Panes)}
	}
	return nil
}

// errAllTargets is the ErrLimit of all targets together.
var errAllTargets = fmt.Errorf("%w on all targets", ErrLimit)

// instanceRoom checks the limits over all threads: of this target, and of all.
func (b *Book) instanceRoom(tx store.Tx) error {
	if n := len(b.rows(tx, "")); n >= b.cfg.Limits.Target {
		return &refusal{ErrLimit, fmt.Sprintf("this bot already has %d sessions on %s, and the limit (tmux max_target_sessions) is %d; end "+
			"one that is no longer needed with tmux-kill-session, or raise the limit", n, b.cfg.Target, b.cfg.Limits.Target)}
	}
	n := 0
	start, end := store.Prefix("session", b.cfg.Instance)
	for range tx.Scan(start, end) {
		n++
	}
	if n >= b.cfg.Limits.Instance {
		return &refusal{errAllTargets, fmt.Sprintf("this bot already has %d sessions, and its limit (tmux max_instance_sessions) is %d; end one "+
			"that is no longer needed with tmux-kill-session, or raise the limit", n, b.cfg.Limits.Instance)}
	}
	return nil
}
