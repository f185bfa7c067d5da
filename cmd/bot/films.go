package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/bot/machines"
)

// maxAttached is how much of recordings one post carries.
const maxAttached = 2 << 20

// recordings are those of the bot's targets.
func (b *bot) recordings() machines.Recordings {
	return machines.Recordings{DataDir: b.env.DataDir, Targets: slices.Collect(maps.Keys(b.file.Targets)), Register: b.register}
}

// films shows the recordings to the console.
type films struct{ b *bot }

// Recordings implements web.Recordings.
func (f films) Recordings(_ context.Context, thread chat.ThreadID) ([]web.Recording, error) {
	list, err := f.b.recordings().Of(thread)
	if err != nil {
		return nil, err
	}
	out := []web.Recording{}
	for _, r := range list {
		out = append(out, web.Recording(r))
	}
	return out, nil
}

// OpenRecording implements web.Recordings.
func (f films) OpenRecording(_ context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error) {
	return f.b.recordings().Open(thread, id)
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
	list, err := b.recordings().Of(thread)
	if err != nil {
		b.log.ErrorContext(ctx, "the recordings cannot be listed", "error", err)
		return nil, "The recordings cannot be listed now; look at the bot's log."
	}
	elsewhere, err := b.recordings().Elsewhere(ctx, thread)
	if err != nil {
		b.log.ErrorContext(ctx, "it is not known what other replicas recorded", "error", err)
	}
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
	f, err := b.recordings().Open(thread, id)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxAttached))
	return string(raw), err
}
