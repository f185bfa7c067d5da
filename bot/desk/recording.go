package desk

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/bot/machines"
)

// maxAttached is how much of recordings one post carries.
const maxAttached = 2 << 20

// Recordings answers the chat word "recording".
type Recordings struct {
	machines.Recordings
	Off bool // nothing is recorded
	Log *slog.Logger
}

// Recording answers the chat word.
func (r Recordings) Recording(ctx context.Context, ev chat.Event, _ agent.Args) (agent.Answer, error) {
	if r.Off {
		return says(sayNotRecorded)
	}
	list, err := r.Of(ev.Thread)
	if err != nil {
		r.Log.ErrorContext(ctx, "the recordings cannot be listed", "error", err)
		return says(sayNoList)
	}
	elsewhere, err := r.Elsewhere(ctx, ev.Thread)
	if err != nil {
		r.Log.ErrorContext(ctx, "it is not known what other replicas recorded", "error", err)
	}
	if len(list) == 0 {
		return says(cmp.Or(elsewhere, sayNothingRecorded))
	}
	var files []chat.File
	var out strings.Builder
	out.WriteString(sayRecordings)
	left := int64(maxAttached)
	for _, i := range list {
		fmt.Fprintf(&out, "- %s, pane %s: %s UTC, %s, %d KiB", i.Session, i.Pane, i.Started.UTC().Format("2006-01-02 15:04"), i.Duration.Round(time.Second), (i.Bytes+1023)/1024)
		if i.Bytes > left {
			out.WriteString(" (too large to attach)\n")
			continue
		}
		raw, err := r.read(ev.Thread, i.ID)
		if err != nil {
			out.WriteString(" (it cannot be read)\n")
			continue
		}
		out.WriteString("\n")
		left -= i.Bytes
		_, name, _ := strings.Cut(i.ID, "_")
		files = append(files, chat.File{Name: name, Text: raw})
	}
	out.WriteString(elsewhere)
	return agent.Answer{Text: out.String(), Files: files}, nil
}

func (r Recordings) read(thread chat.ThreadID, id string) (string, error) {
	f, err := r.Open(thread, id)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxAttached))
	return string(raw), err
}
