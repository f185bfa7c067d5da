// Package network is the example of docs/adding-an-adapter.md: a chat network that is a
// folder. Each thread is a file to which people and the bot append lines of JSON, so that
// `tail -f` reads it and `echo` speaks in it. Whoever can write a file is who they say:
// the folder's permissions are all the proof that there is.
package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

const (
	scheme = "file"
	ending = ".jsonl"
)

// Line is one line of a thread's file. A person writes ID, From and Text, or ID, From and
// Press; the bot writes the rest.
type Line struct {
	ID   string    `json:"id,omitempty"`
	At   time.Time `json:"at,omitzero"`
	From string    `json:"from,omitempty"` // "" is the bot
	Text string    `json:"text,omitempty"`
	// Press is a button that a person presses, and Reason why.
	Press  chat.ButtonID `json:"press,omitempty"`
	Reason string        `json:"reason,omitempty"`

	Key     string          `json:"key,omitempty"` // of the bot's post
	Part    int             `json:"part,omitempty"`
	Kind    scribe.Kind     `json:"kind,omitempty"`
	Title   string          `json:"title,omitempty"` // of a card
	Buttons []chat.ButtonID `json:"buttons,omitempty"`
	Edits   string          `json:"edits,omitempty"`   // the message that this line replaces
	Deletes string          `json:"deletes,omitempty"` // the message that is not there any more

	Answers string `json:"answers,omitempty"` // the line of a person that the bot took, or did not
	Refused bool   `json:"refused,omitempty"` // it did not: write the line again
	OK      bool   `json:"ok,omitempty"`
}

// Config is what an [Adapter] is made of.
type Config struct {
	Folder string
	Every  time.Duration // how often the files are read; 0 is a second
	Log    *slog.Logger  // nil: none
}

// Adapter is a folder as one of the bot's networks. It is safe for concurrent use.
type Adapter struct {
	cfg    Config
	scribe *scribe.Scribe[Line, *page]
	last   atomic.Int64 // the number of the message that was made last
	read   map[string]int64
	times  scribe.Times
}

// New returns an adapter; nothing is read until Run.
func New(cfg Config) *Adapter {
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Adapter{cfg: cfg, read: map[string]int64{}, times: scribe.Times{Show: cfg.Every, After: cfg.Every, Call: 10 * time.Second}}
	a.last.Store(time.Now().UnixNano())
	a.scribe = scribe.New[Line](scribe.Config[*page]{Open: a.open, Times: &a.times, Log: cfg.Log})
	return a
}

// Scheme implements [chat.Adapter].
func (a *Adapter) Scheme() string { return scheme }

// Post implements [chat.Adapter].
func (a *Adapter) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	return a.scribe.Post(ctx, t, p)
}

// Edit implements [chat.Adapter].
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	return a.scribe.Edit(ctx, t, m, p)
}

// ShowProgress implements [chat.ProgressShower].
func (a *Adapter) ShowProgress(ctx context.Context, t chat.ThreadID, p chat.Progress) {
	a.scribe.ShowProgress(ctx, t, p)
}

// Run implements [chat.Adapter].
func (a *Adapter) Run(ctx context.Context, h chat.Handler) error {
	a.scribe.Open(ctx)
	defer a.scribe.Close()
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	for {
		files, err := filepath.Glob(filepath.Join(a.cfg.Folder, "*"+ending))
		if err != nil {
			return fmt.Errorf("file: %w", err)
		}
		for _, f := range files {
			if err := a.hear(ctx, h, f); err != nil {
				a.cfg.Log.WarnContext(ctx, "a thread cannot be read; it is tried again", "file", f, "error", err)
			}
		}
		a.scribe.Keep(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// hear hands over what people wrote since it was called last. After a start that is all
// to which no line answers.
func (a *Adapter) hear(ctx context.Context, h chat.Handler, file string) error {
	f, err := os.Stat(file)
	if err != nil || f.Size() == a.read[file] {
		return err
	}
	p, err := a.open(chat.ThreadID(scheme + ":" + strings.TrimSuffix(filepath.Base(file), ending)))
	if err != nil {
		return nil //nolint:nilerr // no thread has such a name
	}
	lines, err := p.lines()
	if err != nil {
		return err
	}
	open := map[string]bool{} // that a person wrote after the answer to it, if any
	for _, l := range lines {
		if l.From != "" {
			open[l.ID] = true
		}
		delete(open, l.Answers)
	}
	for _, l := range lines {
		if !open[l.ID] || ctx.Err() != nil {
			continue
		}
		delete(open, l.ID)
		if err := p.append(a.handle(ctx, h, p, l)); err != nil {
			return err
		}
	}
	a.read[file] = f.Size() // what was answered is read once more, and is not open
	return ctx.Err()
}

// handle hands one line over, and returns the answer.
func (a *Adapter) handle(ctx context.Context, h chat.Handler, p *page, l Line) Line {
	id := chat.EventID(string(p.id()) + ":" + l.ID)
	from := chat.User{ID: chat.UserID(scheme + ":" + l.From), Name: l.From}
	if l.Press == "" {
		err := h.Deliver(ctx, chat.Event{ID: id, Thread: p.id(), From: from, Text: l.Text, At: time.Now()})
		return Line{Answers: l.ID, Refused: err != nil}
	}
	ans, err := h.Click(ctx, chat.Click{ID: id, Thread: p.id(), From: from, Button: l.Press, Reason: l.Reason})
	if err != nil {
		return Line{Answers: l.ID, Refused: true, Text: "That did not work, and nothing was decided; press the button again."}
	}
	if ans.Card != nil {
		if err := p.repaint(ctx, l.Press, *ans.Card); err != nil {
			a.cfg.Log.WarnContext(ctx, "a card keeps its old face until its next edit", "thread", p.id(), "error", err)
		}
	}
	return Line{Answers: l.ID, Text: strings.TrimSpace(ans.Notice + " " + ans.Link), OK: ans.OK}
}

// name is the form of a thread's name, and number that of a message's.
var (
	name   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	number = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
)

func (a *Adapter) open(t chat.ThreadID) (*page, error) {
	n, ok := strings.CutPrefix(string(t), scheme+":")
	if !ok || !name.MatchString(n) {
		return nil, fmt.Errorf("file: %q names no thread: %w", t, chat.ErrGone)
	}
	return &page{a: a, name: n}, nil
}

// page is one thread, as the scribe writes in it.
type page struct {
	scribe.Plain[Line]
	a    *Adapter
	name string
	mu   sync.Mutex // held while a line is appended
}

func (p *page) id() chat.ThreadID { return chat.ThreadID(scheme + ":" + p.name) }

// Channel implements scribe.Page.
func (p *page) Channel() string { return p.name }

// ParseRef implements scribe.Page.
func (p *page) ParseRef(m chat.MessageRef) (scribe.Ref, error) {
	r, err := scribe.ParseRef(m, name, number)
	if err == nil && r.Channel != p.name {
		err = fmt.Errorf("the message %q is not in %s: %w", m, p.id(), chat.ErrGone)
	}
	return r, err
}

// Render implements scribe.Page: whatever it holds, a post is one message.
func (*page) Render(p chat.Post) []Line {
	l := Line{Text: p.Text}
	if c := p.Card; c != nil {
		l.Title, l.Text = c.Title, face(*c)
		for _, b := range slices.Concat(c.Choose, c.After) {
			l.Buttons = append(l.Buttons, b.ID)
		}
	}
	for _, f := range p.Files {
		l.Text += "\n\n" + f.Name + ":\n" + scribe.Fence(string(f.Content()))
	}
	return []Line{l}
}

// face is all that a card says, below its title.
func face(c chat.Card) string {
	lines := slices.Concat([]string{c.Code, c.Body}, c.Warn)
	for _, f := range c.Fields {
		lines = append(lines, f.Name+": "+f.Value)
	}
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "\n")
}

// Line implements scribe.Page.
func (*page) Line(markdown string) (Line, bool) { return Line{Text: markdown}, true }

// Draft implements scribe.Page.
func (*page) Draft(text string) (Line, bool) { return Line{Text: text}, true }

// Escape implements scribe.Page: a file has no markup.
func (*page) Escape(text string) string { return text }

// Refused implements scribe.Page: what a file does not take is not there.
func (*page) Refused(error) bool { return true }

// Send implements scribe.Page.
func (p *page) Send(ctx context.Context, c scribe.Call, m Line) (scribe.Sent, error) {
	m.ID = fmt.Sprint(p.a.last.Add(1))
	return scribe.Sent{ID: m.ID}, p.write(ctx, c, m)
}

// Update implements scribe.Page.
func (p *page) Update(ctx context.Context, c scribe.Call, id string, m Line) error {
	if shown, err := p.shown(); err != nil || !slices.ContainsFunc(shown, func(l Line) bool { return l.ID == id }) {
		return errors.Join(err, chat.ErrGone)
	}
	m.Edits = id
	return p.write(ctx, c, m)
}

// Delete implements scribe.Page.
func (p *page) Delete(ctx context.Context, c scribe.Call, id string) error {
	return p.write(ctx, c, Line{Deletes: id})
}

func (p *page) write(ctx context.Context, c scribe.Call, m Line) error {
	if err := c.May(ctx); err != nil {
		return err
	}
	m.Key, m.Part, m.Kind = c.Key, c.Part, c.Kind
	return p.append(m)
}

// Recent implements scribe.Page: each message carries the key of its post.
func (p *page) Recent(_ context.Context, _ scribe.Call, _ string, known func(string) bool) (h scribe.History, err error) {
	shown, err := p.shown()
	for _, l := range shown {
		if l.Key != "" && !known(l.ID) {
			h.Posts = append(h.Posts, scribe.Found{Key: l.Key, Part: l.Part, ID: l.ID, Log: l.Kind == scribe.Log})
		}
	}
	return h, err
}

// repaint gives the card of a button its new face.
func (p *page) repaint(ctx context.Context, b chat.ButtonID, c chat.Card) error {
	shown, err := p.shown()
	for _, l := range slices.Backward(shown) {
		if slices.Contains(l.Buttons, b) {
			r := scribe.Ref{Channel: p.name, Parts: []string{l.ID}}
			return p.a.scribe.Edit(ctx, p.id(), r.String(), chat.Post{Key: l.Key, Card: &c})
		}
	}
	return err
}

// shown are the bot's messages as they are now, the oldest first.
func (p *page) shown() (out []Line, err error) {
	lines, err := p.lines()
	for _, l := range lines {
		is := func(o Line) bool { return o.ID == l.Edits || o.ID == l.Deletes }
		switch at := slices.IndexFunc(out, is); {
		case l.From != "" || l.Answers != "":
		case l.Deletes != "":
			out = slices.DeleteFunc(out, is)
		case l.Edits == "":
			out = append(out, l)
		case at >= 0:
			l.ID = l.Edits
			if l.Key == "" {
				l.Key = out[at].Key // the log keeps that of its first line
			}
			out[at] = l
		}
	}
	return out, err
}

// lines reads the file. A line that is not whole yet, or that is none, is passed over.
func (p *page) lines() (out []Line, err error) {
	data, err := os.ReadFile(p.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file: there is no thread %s: %w", p.name, chat.ErrGone)
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var l Line
		if json.Unmarshal(s.Bytes(), &l) == nil {
			out = append(out, l)
		}
	}
	return out, err
}

func (p *page) path() string { return filepath.Join(p.a.cfg.Folder, p.name+ending) }

// append writes one line, in one call: lines of others do not come in between.
func (p *page) append(l Line) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.At = time.Now().UTC()
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p.path(), os.O_WRONLY|os.O_APPEND, 0) // a person makes it
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("file: there is no thread %s: %w", p.name, chat.ErrGone)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close())
}
