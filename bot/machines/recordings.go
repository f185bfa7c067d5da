package machines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/targets/record"
	"countersign/targets/session"
)

// noteWithin bounds how long the store may take to note who has a recording.
const noteWithin = 2 * time.Second

// Recordings are those of some targets in a data directory, whoever made them.
type Recordings struct {
	DataDir  string
	Targets  []string
	Register *record.Register // of recordings that other replicas have; nil without others
}

// Recording is one of a thread's recordings.
type Recording struct {
	ID       string
	Session  string
	Pane     string
	Started  time.Time
	Duration time.Duration
	Bytes    int64
	Target   string
	Thread   chat.ThreadID // whose terminal it was; "" where the recording doesn't tell
}

// recordingsDir is the directory of one target's recordings.
func recordingsDir(dataDir, target string) string {
	return filepath.Join(dataDir, "recordings", target)
}

// recorded is the label of a thread's session in the name of its recordings: the
// same session name may be another thread's later.
func recorded(thread string) string {
	sum := sha256.Sum256([]byte(thread))
	return hex.EncodeToString(sum[:4]) + "_"
}

// recorder begins to record a pane, or goes on after a restart.
func (m *Machine) recorder(thread, name, pane string, width, height int) (session.Recorder, error) {
	r, err := record.Open(record.Options{
		Dir: recordingsDir(m.opts.Env.DataDir, m.Name), Session: recorded(thread) + name, Pane: pane, Thread: thread, Cols: width, Rows: height,
		Redact: m.opts.Redact, MaxBytes: m.opts.File.Recordings.MaxBytes, Resume: true, Log: m.opts.Log,
	})
	if err != nil {
		return nil, err // a nil recorder would not be a nil interface
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteWithin)
	defer cancel()
	if err := m.opts.Register.Note(ctx, recorded(thread), record.Held{Target: m.Name, Session: name, Pane: pane, Last: time.Now()}); err != nil {
		m.opts.Log.Warn("the other replicas do not learn of a recording", "error", err)
	}
	return r, nil
}

// Of lists a thread's recordings, newest first.
func (r Recordings) Of(thread chat.ThreadID) ([]Recording, error) {
	return r.list(recorded(string(thread)))
}

// All lists the recordings of all threads, newest first.
func (r Recordings) All() ([]Recording, error) {
	out, err := r.list("")
	slices.SortStableFunc(out, func(a, b Recording) int { return b.Started.Compare(a.Started) })
	return out, err
}

// list lists the recordings whose session's name in the file begins with a label.
func (r Recordings) list(label string) ([]Recording, error) {
	out := []Recording{}
	for _, name := range slices.Sorted(slices.Values(r.Targets)) {
		list, err := record.List(recordingsDir(r.DataDir, name), record.Filter{})
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			of, session, ok := strings.Cut(i.Session, "_")
			if !ok || !strings.HasPrefix(of+"_", label) {
				continue
			}
			found := Recording{ID: name + ":" + i.ID, Session: session, Pane: i.Pane, Started: i.Started, Duration: i.Duration, Bytes: i.Bytes, Target: name}
			if label != "" && len(r.Targets) > 1 {
				found.Session = name + " " + session
			}
			if recorded(i.Thread) == of+"_" {
				found.Thread = chat.ThreadID(i.Thread)
			}
			out = append(out, found)
		}
	}
	return out, nil
}

// Elsewhere says what other replicas recorded of a thread; "" where nothing is known.
func (r Recordings) Elsewhere(ctx context.Context, thread chat.ThreadID) (string, error) {
	away, err := r.Register.Elsewhere(ctx, recorded(string(thread)))
	return record.Sentence(away), err
}

// Open opens one of a thread's recordings. Without it the error is [chat.ErrGone].
func (r Recordings) Open(thread chat.ThreadID, id string) (io.ReadCloser, error) {
	target, file, _ := strings.Cut(id, ":")
	if !slices.Contains(r.Targets, target) || !strings.HasPrefix(file, recorded(string(thread))) {
		return nil, fmt.Errorf("this thread has no such recording: %w", chat.ErrGone)
	}
	f, err := record.OpenFile(recordingsDir(r.DataDir, target), file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", chat.ErrGone, err)
	}
	return f, nil
}

// Prune removes the recordings whose last moment was before a time, and tells the other
// replicas what is left.
func (r Recordings) Prune(ctx context.Context, before time.Time) error {
	for _, name := range slices.Sorted(slices.Values(r.Targets)) {
		dir := recordingsDir(r.DataDir, name)
		if _, err := record.Prune(dir, before, func(string) bool { return false }); err != nil {
			return fmt.Errorf("old recordings of %s cannot be removed: %w", name, err)
		}
		if r.Register == nil {
			continue
		}
		list, err := record.List(dir, record.Filter{})
		if err != nil {
			return fmt.Errorf("the recordings of %s cannot be listed: %w", name, err)
		}
		for _, i := range list {
			group, session, ok := strings.Cut(i.Session, "_")
			if !ok {
				continue
			}
			if err := r.Register.Note(ctx, group+"_", record.Held{Target: name, Session: session, Pane: i.Pane, Last: i.Started.Add(i.Duration)}); err != nil {
				return fmt.Errorf("the other replicas do not learn of recordings: %w", err)
			}
		}
	}
	_, err := r.Register.Prune(ctx, before)
	return err
}
