package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/approvals"
	"countersign/internal/config"
	"countersign/targets/record"
	"countersign/targets/session"
)

// maxAttached is how much of recordings one post carries.
const maxAttached = 2 << 20

// noteWithin bounds how long the store may take to note who has a recording.
const noteWithin = 2 * time.Second

// recordingsDir is the directory of one target's recordings.
func recordingsDir(e config.Env, target string) string {
	return filepath.Join(e.DataDir, "recordings", target)
}

func (m *machine) recordings() string { return recordingsDir(m.env, m.name) }

// recorded is the label of a thread's session in the name of its recordings: the
// same session name may be another thread's later.
func recorded(thread string) string {
	sum := sha256.Sum256([]byte(thread))
	return hex.EncodeToString(sum[:4]) + "_"
}

// recorder begins to record a pane, or goes on after a restart.
func (m *machine) recorder(thread, name, pane string, width, height int) (session.Recorder, error) {
	r, err := record.Open(record.Options{
		Dir: m.recordings(), Session: recorded(thread) + name, Pane: pane, Cols: width, Rows: height,
		Redact: m.redact, MaxBytes: m.file.Recordings.MaxBytes, Resume: true, Log: m.log,
	})
	if err != nil {
		return nil, err // a nil recorder would not be a nil interface
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteWithin)
	defer cancel()
	if err := m.register.Note(ctx, recorded(thread), record.Held{Target: m.name, Session: name, Pane: pane, Last: time.Now()}); err != nil {
		m.log.Warn("the other replicas do not learn of a recording", "error", err)
	}
	return r, nil
}

// markApproval puts a decision into the recording of the pane that it is about.
func (b *bot) markApproval(id approvals.ID, a approvals.Action) {
	if a.Pane == "" {
		return
	}
	if m := b.byID(a.Target); m != nil {
		if o := m.state(); o != nil && o.book != nil {
			o.book.Mark(a.Session, a.Pane, "approved as "+string(id))
		}
	}
}

// recordingsOf lists a thread's recordings, newest first.
func (b *bot) recordingsOf(thread chat.ThreadID) ([]web.Recording, error) {
	out := []web.Recording{}
	prefix := recorded(string(thread))
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		list, err := record.List(b.machines[name].recordings(), record.Filter{})
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			own, ok := strings.CutPrefix(i.Session, prefix)
			if !ok {
				continue
			}
			label := own
			if len(b.machines) > 1 {
				label = name + " " + own
			}
			out = append(out, web.Recording{ID: name + ":" + i.ID, Session: label, Pane: i.Pane, Started: i.Started, Duration: i.Duration, Bytes: i.Bytes})
		}
	}
	return out, nil
}

// openRecording opens one of a thread's recordings.
func (b *bot) openRecording(thread chat.ThreadID, id string) (io.ReadCloser, error) {
	target, file, _ := strings.Cut(id, ":")
	m := b.machines[target]
	if m == nil || !strings.HasPrefix(file, recorded(string(thread))) {
		return nil, fmt.Errorf("this thread has no such recording: %w", chat.ErrGone)
	}
	r, err := record.OpenFile(m.recordings(), file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", chat.ErrGone, err)
	}
	return r, nil
}

// films shows the recordings to the console.
type films struct{ b *bot }

// Recordings implements web.Recordings.
func (f films) Recordings(_ context.Context, thread chat.ThreadID) ([]web.Recording, error) {
	return f.b.recordingsOf(thread)
}

// OpenRecording implements web.Recordings.
func (f films) OpenRecording(_ context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error) {
	return f.b.openRecording(thread, id)
}

// recordingWord is nil where nothing is recorded.
func (b *bot) recordingWord() func(context.Context, chat.ThreadID) ([]chat.File, string) {
	if b.file.Recordings.Off {
		return nil
	}
	return b.recording
}

// recording answers the chat word.
func (b *bot) recording(ctx context.Context, thread chat.ThreadID) (files []chat.File, text string) {
	list, err := b.recordingsOf(thread)
	if err != nil {
		b.log.ErrorContext(ctx, "the recordings cannot be listed", "error", err)
		return nil, "The recordings cannot be listed now; look at the bot's log."
	}
	away, err := b.register.Elsewhere(ctx, recorded(string(thread)))
	if err != nil {
		b.log.ErrorContext(ctx, "it is not known what other replicas recorded", "error", err)
	}
	elsewhere := record.Sentence(away)
	if len(list) == 0 {
		return nil, cmp.Or(elsewhere, "Nothing of this thread's terminals is recorded.")
	}
	var out strings.Builder
	out.WriteString("What the terminals of this thread showed; play a file with `asciinema play`, or in the web console:\n")
	left := int64(maxAttached)
	for _, r := range list {
		fmt.Fprintf(&out, "- %s, pane %s: %s UTC, %s, %d KiB", r.Session, r.Pane, r.Started.UTC().Format("2006-01-02 15:04"), r.Duration.Round(time.Second), (r.Bytes+1023)/1024)
		if r.Bytes > left {
			out.WriteString(" (too large to attach)\n")
			continue
		}
		raw, err := b.readRecording(thread, r.ID)
		if err != nil {
			out.WriteString(" (it cannot be read)\n")
			continue
		}
		out.WriteString("\n")
		left -= r.Bytes
		_, name, _ := strings.Cut(r.ID, "_")
		files = append(files, chat.File{Name: name, Text: raw})
	}
	out.WriteString(elsewhere)
	return files, out.String()
}

func (b *bot) readRecording(thread chat.ThreadID, id string) (string, error) {
	f, err := b.openRecording(thread, id)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxAttached))
	return string(raw), err
}

// pruneRecordings removes the recordings of some targets whose last moment was before a
// time, and tells the other replicas what is left; register is nil without others.
func pruneRecordings(ctx context.Context, e config.Env, targets []string, register *record.Register, before time.Time) error {
	slices.Sort(targets)
	for _, name := range targets {
		dir := recordingsDir(e, name)
		if _, err := record.Prune(dir, before, func(string) bool { return false }); err != nil {
			return fmt.Errorf("old recordings of %s cannot be removed: %w", name, err)
		}
		if register == nil {
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
			if err := register.Note(ctx, group+"_", record.Held{Target: name, Session: session, Pane: i.Pane, Last: i.Started.Add(i.Duration)}); err != nil {
				return fmt.Errorf("the other replicas do not learn of recordings: %w", err)
			}
		}
	}
	_, err := register.Prune(ctx, before)
	return err
}
