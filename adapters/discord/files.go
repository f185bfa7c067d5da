package discord

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
)

// What is read of the files of a message.
const (
	maxFiles    = 10
	maxRead     = 1 << 20 // bytes of all of them together
	fileTimeout = 10 * time.Second
)

// attached fetches the text files of a message. What cannot be read is said in the
// file's place, so that neither the person nor the model is left to guess.
func (a *Adapter) attached(ctx context.Context, files []*discordgo.MessageAttachment) []chat.File {
	if len(files) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	out := make([]chat.File, 0, len(files))
	left := int64(maxRead)
	for i, f := range files {
		cf := chat.File{Name: orElse(f.Filename, f.ID)}
		switch {
		case i >= maxFiles:
			cf.Text, cf.Cut = fmt.Sprintf("[not read: only the first %d files of a message are]", maxFiles), true
		case !textual(f):
			cf.Text, cf.Cut = fmt.Sprintf("[not read: %s is no text file]", orElse(f.ContentType, "a file of unknown type")), true
		case left <= 0:
			cf.Text, cf.Cut = fmt.Sprintf("[not read: only %d KiB of a message's files are]", maxRead>>10), true
		default:
			var n int
			cf.Text, cf.Cut, n = a.fetch(ctx, f, left)
			left -= int64(n)
		}
		out = append(out, cf)
	}
	return out
}

// fetch reads one file, limit bytes at most.
func (a *Adapter) fetch(ctx context.Context, f *discordgo.MessageAttachment, limit int64) (text string, cut bool, n int) {
	data, whole, err := a.rest.Download(ctx, f.URL, limit)
	switch {
	case err != nil:
		a.log.WarnContext(ctx, "an attached file could not be read", "file", f.ID, "error", err)
		return "[not read: the file could not be fetched from Discord; paste the lines that matter]", true, 0
	case bytes.IndexByte(data, 0) >= 0:
		return "[not read: the file holds binary data]", true, len(data)
	}
	text = strings.ToValidUTF8(string(data), "\uFFFD")
	if !whole {
		return strings.TrimSuffix(text, "\uFFFD") + fmt.Sprintf("\n[cut here: only %d KiB of a message's files are read]", maxRead>>10), true, len(data)
	}
	return text, false, len(data)
}

// textual reports whether a file is text, by its type and, where Discord names
// none, by its name.
func textual(f *discordgo.MessageAttachment) bool {
	kind := f.ContentType
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(f.Filename))
	}
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";")
	if strings.HasPrefix(kind, "text/") {
		return true
	}
	if kind == "" || kind == "application/octet-stream" {
		switch strings.ToLower(path.Ext(f.Filename)) {
		case ".log", ".txt", ".md", ".conf", ".cfg", ".ini", ".yaml", ".yml", ".toml", ".service", ".diff", ".patch", ".sh", ".sql":
			return true
		}
	}
	for _, s := range []string{"json", "yaml", "xml", "javascript", "x-sh", "sql", "toml", "x-log"} {
		if strings.Contains(kind, s) {
			return true
		}
	}
	return false
}
