// Package tickets knows the tickets that changes are made for: it finds their keys in what people write,
// asks Jira, ServiceNow, GitHub or GitLab whether they are open and approved, and adds comments to them.
//
// Rows (see store.Key):
//
//	("ticket", thread)      -> the thread's ticket, see named
//	("ticket-state", key)   -> approvals.Ticket as JSON
package tickets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/approvals"
	"countersign/internal/redact"
	"countersign/internal/rest"
	"countersign/store"
)

const (
	// again is how old an answer is before a vote asks again, and patience how long the vote waits.
	again    = 5 * time.Second
	patience = 2500 * time.Millisecond
	// every is how often tickets of open requests are asked about.
	every = 20 * time.Second
)

// Tracker asks one system. It is safe for concurrent use.
type Tracker interface {
	// Ticket looks a ticket up. ErrNone is that there is no such ticket.
	Ticket(ctx context.Context, key string) (approvals.Ticket, error)
	// Comment adds text to a ticket, unless a comment there has mark already.
	Comment(ctx context.Context, key, text, mark string) error
}

// ErrNone is the answer about a key that the system doesn't know.
var ErrNone = errors.New("has no such ticket")

// The kinds of systems.
const (
	Jira       = "jira"
	ServiceNow = "servicenow"
	GitHub     = "github"
	GitLab     = "gitlab"
)

// Kinds returns the kinds of systems.
func Kinds() []string { return []string{Jira, ServiceNow, GitHub, GitLab} }

// patterns are what keys look like where a configuration says nothing.
var patterns = map[string]string{Jira: `[A-Z][A-Z0-9_]+-[0-9]+`, ServiceNow: `(?:CHG|INC|RITM|TASK)[0-9]{7,}`, GitHub: `#[0-9]+`, GitLab: `#[0-9]+`}

// Options say what a system's tickets are like.
type Options struct {
	Name string // of the system, in sentences
	Kind string // "" is none: keys are only compared with Pattern
	URL  string // of the system; "" is the public one
	User string // for a password in place of a token (Jira, ServiceNow)
	// Project is the repository (GitHub) or project (GitLab) whose numbers people write.
	Project   string
	Token     redact.Secret
	TokenName string
	// Renew returns the token as it is now; nil is that it stays.
	Renew   func() redact.Secret
	Pattern string // a regular expression that a whole key fits; "" is the kind's own
	// Approved are the statuses (Jira), the values of approval (ServiceNow) or the labels (GitHub, GitLab) of
	// which an approved ticket has one; empty is that every open ticket will do.
	Approved []string
}

// system is one configured system.
type system struct {
	Options
	key     *regexp.Regexp // a whole key
	inText  *regexp.Regexp
	tracker Tracker // nil: nobody asks
}

// Book is every configured system. It is safe for concurrent use.
type Book struct {
	systems []system
	db      store.DB
	now     func() time.Time
	log     *slog.Logger

	wake chan struct{}

	mu   sync.Mutex
	soon map[string]bool      // threads whose ticket is to be asked about
	down map[string]time.Time // since when a system doesn't answer
}

// New returns a book; the error says which option is wrong.
func New(all []Options, db store.DB, now func() time.Time, log *slog.Logger) (*Book, error) {
	b := &Book{db: db, now: now, log: log, wake: make(chan struct{}, 1), soon: map[string]bool{}, down: map[string]time.Time{}}
	for _, o := range all {
		s := system{Options: o}
		if s.Pattern == "" {
			s.Pattern = patterns[o.Kind]
		}
		var err error
		if s.key, err = regexp.Compile(`^(?:` + s.Pattern + `)$`); err != nil || s.Pattern == "" {
			return nil, fmt.Errorf("%s has the pattern %q, which is no regular expression", o.Name, s.Pattern)
		}
		s.inText = regexp.MustCompile(`(?:^|[^A-Za-z0-9_#/-])(` + s.Pattern + `)(?:$|[^A-Za-z0-9_-])`)
		if o.Kind != "" {
			if s.tracker, err = NewTracker(o); err != nil {
				return nil, err
			}
		}
		b.systems = append(b.systems, s)
	}
	return b, nil
}

// NewTracker returns what asks a system.
func NewTracker(o Options) (Tracker, error) {
	hint := "check the token in " + o.TokenName
	c := func(public string, header func(token redact.Secret) map[string]redact.Secret) *rest.Client {
		base := strings.TrimSuffix(o.URL, "/")
		if base == "" {
			base = public
		}
		return rest.New(base, func() map[string]redact.Secret {
			if o.Renew != nil {
				return header(o.Renew())
			}
			return header(o.Token)
		}, hint)
	}
	switch o.Kind {
	case Jira:
		return jira{c("", o.login), o}, nil
	case ServiceNow:
		return serviceNow{c("", func(token redact.Secret) map[string]redact.Secret {
			h := o.login(token)
			h["Accept"] = "application/json"
			return h
		}), o}, nil
	case GitHub:
		return gitHub{c("https://api.github.com", func(token redact.Secret) map[string]redact.Secret {
			return map[string]redact.Secret{"Authorization": "Bearer " + token, "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
		}), o}, nil
	case GitLab:
		return gitLab{c("https://gitlab.com", func(token redact.Secret) map[string]redact.Secret {
			return map[string]redact.Secret{"Private-Token": token}
		}), o}, nil
	}
	return nil, fmt.Errorf("the kind %q of a system of tickets is not known", o.Kind)
}

// Any reports whether there is a system at all.
func (b *Book) Any() bool { return len(b.systems) > 0 }

// of is the system of a key.
func (b *Book) of(key string) (system, bool) {
	for _, s := range b.systems {
		if s.key.MatchString(key) {
			return s, true
		}
	}
	return system{}, false
}

// IsKey reports whether a word is a key.
func (b *Book) IsKey(word string) bool {
	_, ok := b.of(word)
	return ok
}

// Find returns the last key that a text names.
func (b *Book) Find(text string) (key string, ok bool) {
	last := -1
	for _, s := range b.systems {
		// What ends one key may begin the next, so each search begins where the last key ended.
		for from := 0; ; {
			m := s.inText.FindStringSubmatchIndex(text[from:])
			if m == nil || m[3] == m[2] {
				break
			}
			if from+m[2] > last {
				last, key = from+m[2], text[from+m[2]:from+m[3]]
			}
			from += m[3]
		}
	}
	return key, last >= 0
}

// named is the ticket of a thread.
type named struct {
	Key string `json:"key"`
	// Sure means that somebody said that it is the ticket. Something in a message may only look like one: if
	// its system doesn't know it, the thread's ticket is Was again.
	Sure bool   `json:"sure,omitempty"`
	Was  string `json:"was,omitempty"`
}

func (b *Book) named(tx store.Tx, thread string) named {
	n, _ := store.Load[named](tx, store.Key("ticket", thread))
	return n
}

// SetTicket makes a ticket the thread's own; fresh is false if it was already. Unconfirmed it is what a message
// mentions.
func (b *Book) SetTicket(tx store.Tx, thread, key string, confirmed bool) (fresh bool) {
	n := b.named(tx, thread)
	fresh = n.Key != key
	switch {
	case fresh && n.Sure:
		n.Was = n.Key
	case !fresh && n.Sure:
		return false
	}
	n.Key, n.Sure = key, confirmed
	store.Save(tx, store.Key("ticket", thread), n)
	return fresh
}

// TicketOf is the thread's ticket, as far as it is known; the zero Ticket is none.
func (b *Book) TicketOf(tx store.Tx, thread string) approvals.Ticket {
	return b.State(tx, b.named(tx, thread).Key)
}

// State is what is known of a ticket; the zero Ticket is one of no system of the configuration.
func (b *Book) State(tx store.Tx, key string) approvals.Ticket {
	s, ok := b.of(key)
	switch {
	case key == "" || !ok:
		return approvals.Ticket{}
	case s.tracker == nil:
		return approvals.Ticket{Key: key, Open: true, Approved: true}
	}
	if t, ok := store.Load[approvals.Ticket](tx, store.Key("ticket-state", key)); ok && t.Source == s.Name {
		return t
	}
	return approvals.Ticket{Key: key, Source: s.Name}
}

// Refresh asks about the thread's ticket, if the newest answer is not of this moment. It takes at most a few
// seconds and stores what it heard.
func (b *Book) Refresh(ctx context.Context, thread string) error {
	var t approvals.Ticket
	if err := b.db.View(ctx, func(tx store.Tx) error { t = b.TicketOf(tx, thread); return nil }); err != nil {
		return err
	}
	s, ok := b.of(t.Key)
	if !ok || s.tracker == nil || t.Problem == "" && b.now().Sub(t.Read) < again {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := s.tracker.Ticket(ctx, t.Key)
	b.heard(s, err)
	switch {
	case errors.Is(err, ErrNone):
		got = approvals.Ticket{Status: "there is no such ticket", Read: b.now()}
	case err != nil:
		got = t
		// The rest is for the log, and was there.
		got.Problem, _, _ = strings.Cut(err.Error(), ": ")
		if ctx.Err() != nil {
			got.Problem = "didn't answer in time"
		}
	default:
		got.Read, got.Problem = b.now(), ""
	}
	got.Key, got.Source = t.Key, s.Name
	return b.db.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
		if n := b.named(tx, thread); n.Key == t.Key && !n.Sure && got.Problem == "" {
			n.Sure = true
			if errors.Is(err, ErrNone) {
				n.Key = n.Was
			}
			n.Was = ""
			store.Save(tx, store.Key("ticket", thread), n)
		}
		store.Save(tx, store.Key("ticket-state", t.Key), got)
		return nil
	})
}

// RefreshSoon has Run ask about a thread's ticket without waiting for it.
func (b *Book) RefreshSoon(thread string) {
	b.mu.Lock()
	b.soon[thread] = true
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// heard says once that a system doesn't answer, and that it does again.
func (b *Book) heard(s system, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, down := b.down[s.Name]
	switch {
	case err != nil && !errors.Is(err, ErrNone) && !down:
		b.down[s.Name] = b.now()
		b.log.Warn("tickets can't be checked; in two minutes nothing that needs one can be approved", "system", s.Name, "error", err)
	case (err == nil || errors.Is(err, ErrNone)) && down:
		delete(b.down, s.Name)
		b.log.Info("tickets can be checked again", "system", s.Name, "after", b.now().Sub(since).Round(time.Second))
	}
}

// Run keeps what is known of the tickets of open requests fresh until ctx is done. changed is called for a
// thread whose ticket isn't as it was.
func (b *Book) Run(ctx context.Context, changed func(ctx context.Context, thread string)) error {
	for b.Any() {
		pause := every
		if err := b.round(ctx, changed); err != nil { // the store's trouble is said elsewhere
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-time.After(pause):
		}
	}
	<-ctx.Done()
	return nil
}

// round asks about the tickets of open requests, and of the threads that Soon named.
func (b *Book) round(ctx context.Context, changed func(ctx context.Context, thread string)) error {
	b.mu.Lock()
	soon := slices.Collect(maps.Keys(b.soon))
	clear(b.soon)
	b.mu.Unlock()
	before := map[string]approvals.Ticket{}
	err := b.db.View(ctx, func(tx store.Tx) error {
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			if r.Require.Ticket && !slices.Contains(soon, string(r.Thread)) {
				soon = append(soon, string(r.Thread))
			}
		}
		for _, thread := range soon {
			before[thread] = b.TicketOf(tx, thread)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for thread, was := range before {
		if err := b.Refresh(ctx, thread); err != nil {
			return err
		}
		var now approvals.Ticket
		if err := b.db.View(ctx, func(tx store.Tx) error { now = b.TicketOf(tx, thread); return nil }); err != nil {
			return err
		}
		if was.Needed(b.now()) != now.Needed(b.now()) || was.String() != now.String() {
			changed(ctx, thread)
		}
	}
	return nil
}

// Comment adds text to a ticket, unless mark is in a comment there already.
func (b *Book) Comment(ctx context.Context, key, text, mark string) error {
	s, ok := b.of(key)
	if !ok || s.tracker == nil {
		return nil
	}
	return s.tracker.Comment(ctx, key, text, mark)
}

// Systems are the names of the systems that take comments.
func (b *Book) Systems() (out []string) {
	for _, s := range b.systems {
		if s.tracker != nil {
			out = append(out, s.Name)
		}
	}
	return out
}
