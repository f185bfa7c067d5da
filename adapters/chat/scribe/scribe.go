// Package scribe writes the bot's posts into the threads of a chat network: posts of
// several messages, the drafts that become posts, the log of a turn, and what goes on
// now. A network gives it a [Page] for each thread, which sends, updates and deletes
// single messages; all that decides which message is written when is here.
//
// What a scribe knows of a thread is a cache. All of it can be lost at any moment and is
// found again in the thread's history.
package scribe

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/lanes"
)

var (
	// ErrMoved says that another replica posts in the thread by now, so that nothing was
	// done. The outbox tries again where it is still this one's turn.
	ErrMoved = errors.New("another replica posts in this thread")
	// ErrBusy says that a call of the urgency [Passing] was left out.
	ErrBusy = errors.New("there is no room for this now")
)

// Kind is what a message is to people.
type Kind int

// The kinds of messages.
const (
	Posted Kind = iota // a post, or a part of one
	Log                // the log of a turn
	Draft              // a reply that is being written
)

// Call says what a message that is written is, and when.
type Call struct {
	Kind    Kind
	Key     string    // of the post, "" where the message belongs to none
	Part    int       // of the post, from 0
	Post    chat.Post // what people are told, where it is a post
	Channel string    // where the message stands, "" for the thread itself
	Urgency Urgency
	Lines   []string // the keys of the posts in a log, where they change
	Convert bool     // the message is a draft, or shows a status, and becomes the post
	Shared  bool     // other replicas ever posted in the thread
	Doubt   bool     // a call that failed may have made the message
	// May is asked right before the call: its error means that this process must not
	// write in the thread any more.
	May func(context.Context) error
}

// Sent is a message that stands in the thread.
type Sent struct {
	ID string
	// Post means that a draft was answered with the message of its post: another replica
	// was faster.
	Post bool
}

// Page is one thread of a network. The scribe makes one call at a time, except for those of
// Format.
type Page[M any] interface {
	Format[M]
	Messages[M]
	Optional[M]
}

// Format is how a thread's network writes. Its methods only compute.
type Format[M any] interface {
	// Render makes the messages of a post, Line the log of a turn, and Draft a reply that is
	// being written. ok is false where that is too long for one message.
	Render(p chat.Post) []M
	Line(markdown string) (m M, ok bool)
	Draft(text string) (m M, ok bool)
	// Escape makes text Markdown that shows it as it is.
	Escape(text string) string
	// ParseRef reads the reference of a message of this thread; another one is ErrGone.
	ParseRef(m chat.MessageRef) (Ref, error)
	// Channel is what references of this thread begin with.
	Channel() string
}

// Messages are those that stand in a thread.
//
// The errors of its calls are [chat.ErrGone], [chat.ErrRejected], [chat.RateLimitedError],
// [ErrBusy] and [ErrMoved]; after any other the message may stand there, unless Refused
// says that the network answered.
type Messages[M any] interface {
	Send(ctx context.Context, c Call, m M) (Sent, error)
	Update(ctx context.Context, c Call, id string, m M) error
	// Delete removes a message; that it is not there is no error.
	Delete(ctx context.Context, c Call, id string) error
	Refused(err error) bool

	// Recent reads what an earlier process, or a call whose answer was lost, left in the
	// thread. Known reports whether a message is one that the scribe knows. The post of
	// the key next follows, "" for none.
	Recent(ctx context.Context, c Call, next string, known func(id string) bool) (History, error)
}

// Optional are the methods that a page can have from [Plain].
type Optional[M any] interface {
	// Fresh reports whether the thread is so young that only this process can have written
	// in it; shared says that other replicas did.
	Fresh(shared bool) bool
	// Claim returns the messages of a post that Recent found, in order, as many as stand
	// there, and ClaimLine the one that holds a line of the log, on networks that keep no
	// key on a message. Settled says that a post was made.
	Claim(p chat.Post, msgs []M) []string
	ClaimLine(m M) string
	Settled()
	// Removed says that a message of a post is not there any more, so that the next with
	// that key is another.
	Removed(key string, part int)
	// Attach adds the files of a post that its messages cannot hold and that are not there
	// yet. All the messages stand.
	Attach(ctx context.Context, c Call, msgs []M) error
	// Ended says that nothing more comes to a draft but its post.
	Ended(ctx context.Context, c Call, id string)
	// Yield says what has become of a draft, where another replica may have made a post
	// of it. If none can, it removes the draft, which is Gone then.
	Yield(ctx context.Context, c Call, id, text string) (Fate, error)
	// Signal shows what goes on by the network's own means. line is what the log says, ""
	// for nothing; after is when it has to be shown again, 0 for never.
	Signal(ctx context.Context, c Call, now Status) (line string, after time.Duration)
}

// Plain is what a page embeds for what its network does in the plainest way: it keeps the
// key on each message, one process writes it, files stand in messages, and the status in
// the log.
type Plain[M any] struct{}

// Fresh implements Optional.
func (Plain[M]) Fresh(bool) bool { return false }

// Claim implements Optional.
func (Plain[M]) Claim(chat.Post, []M) []string { return nil }

// ClaimLine implements Optional.
func (Plain[M]) ClaimLine(M) string { return "" }

// Settled implements Optional.
func (Plain[M]) Settled() {}

// Removed implements Optional.
func (Plain[M]) Removed(string, int) {}

// Attach implements Optional.
func (Plain[M]) Attach(context.Context, Call, []M) error { return nil }

// Ended implements Optional.
func (Plain[M]) Ended(context.Context, Call, string) {}

// Yield implements Optional.
func (Plain[M]) Yield(context.Context, Call, string, string) (Fate, error) { return Stands, nil }

// Signal implements Optional.
func (Plain[M]) Signal(_ context.Context, _ Call, now Status) (string, time.Duration) {
	return now.Text, 0
}

// Status is what goes on in a thread.
type Status struct {
	Text     string    // as in chat.Progress, "" for nothing
	Since    time.Time // when it began
	Fresh    bool      // it was said since Signal was called last
	Drafting bool      // a draft is shown
}

// History is what Recent found.
type History struct {
	Posts []Found // that were not known, where the network tells their keys; the oldest first
	// Draft is the message of a draft which its post may take over: the one that comes
	// next. "" is none.
	Draft string
	// Unclean means that drafts which nobody writes any more could not be removed now.
	Unclean bool
}

// Found is a message of a post that stands in a thread.
type Found struct {
	Key  string
	Part int
	ID   string
	Log  bool // it holds other posts, too
}

// Fate is what became of a draft.
type Fate int

// What can become of a draft.
const (
	Stands  Fate = iota // it is as it was
	Changed             // it is a post now
	Gone                // it is not there
)

// Times are a scribe's clocks.
type Times struct {
	Show  time.Duration // between two edits that people only watch
	After time.Duration // how long something lasts before it is shown at all
	Call  time.Duration // how long one round of showing may take
	// Idle is how long nothing may come to a draft until a post of another key removes it:
	// another replica went on with its turn. 0 means that drafts wait for their ends.
	Idle time.Duration
}

// Config is what a [Scribe] is made of.
type Config[P any] struct {
	// Open gives the page of a thread, or chat.ErrGone where it names none.
	Open func(t chat.ThreadID) (P, error)
	// Turn says who posts in a thread, where several replicas do; nil: nobody else posts.
	// n counts how often the posting replica changed: 0 means that nobody posted yet, 1
	// that only one ever did. mine means that this process was the last that began to.
	Turn func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error)
	// Keyless means that the network keeps no key on a message. What is a message of the
	// log stays one then, and only Claim finds a post again.
	Keyless bool
	Times   *Times // read at each use, so that they may change before the first
	Log     *slog.Logger
}

// Scribe writes the threads of one network. It is safe for concurrent use.
type Scribe[M any, P Page[M]] struct {
	cfg   Config[P]
	tasks *lanes.Lanes // rounds of showing, which nobody waits for

	mu      sync.Mutex
	threads map[chat.ThreadID]*thread[P]
	ctx     context.Context
	closed  bool
}

// New returns a scribe. It takes posts at once, and shows progress until Close.
func New[M any, P Page[M]](cfg Config[P]) *Scribe[M, P] {
	return &Scribe[M, P]{cfg: cfg, tasks: lanes.New(), threads: map[chat.ThreadID]*thread[P]{}, ctx: context.Background()}
}

// Open lets progress in again after Close. What is shown ends with ctx.
func (s *Scribe[M, P]) Open(ctx context.Context) {
	s.mu.Lock()
	s.ctx, s.closed = ctx, false
	for _, th := range s.threads {
		th.show = show{}
	}
	s.mu.Unlock()
	s.tasks.Open()
}

// Stop shows nothing more; what is being shown goes on until Close.
func (s *Scribe[M, P]) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, th := range s.threads {
		if th.show.timer != nil {
			th.show.timer.Stop()
		}
	}
}

// Close stops and returns when nothing is being shown any more.
func (s *Scribe[M, P]) Close() {
	s.Stop()
	s.tasks.Close()
}

// Page returns the page of a thread.
func (s *Scribe[M, P]) Page(t chat.ThreadID) (P, error) {
	th, err := s.thread(t)
	if err != nil {
		var none P
		return none, err
	}
	return th.page, nil
}

const (
	// maxKeys bounds how many posts of a thread are remembered; older ones are found by
	// the reference that the outbox keeps.
	maxKeys = 256
	// age is how long a thread that nothing happens in is remembered.
	age = time.Hour
	// tidyAfter is how long the post of a draft may be under way. Later it is another
	// message.
	tidyAfter = 30 * time.Second
	// leaveTime bounds how long a process that ends removes its drafts.
	leaveTime = 3 * time.Second
)

// thread is what is known of one thread.
type thread[P any] struct {
	id   chat.ThreadID
	page P

	mu      sync.Mutex // held while something is written in the thread
	history phase
	turn    turn
	refs    map[string]Ref
	order   []string
	log     *worklog
	logs    []*worklog // that were closed last
	drafts  map[string]*draft
	running map[string]run    // by the key of its post
	moved   map[string]string // by a message that was removed, the one in its place

	used time.Time // guarded by Scribe.mu, as is show
	show show
}

func (s *Scribe[M, P]) thread(t chat.ThreadID) (*thread[P], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	th := s.threads[t]
	if th == nil {
		page, err := s.cfg.Open(t)
		if err != nil {
			return nil, err
		}
		th = &thread[P]{id: t, page: page, refs: map[string]Ref{}, drafts: map[string]*draft{}, running: map[string]run{}, moved: map[string]string{}}
		s.threads[t] = th
	}
	th.used = time.Now()
	return th, nil
}

// Keep drops what is known of threads in which nothing happened for long. It also removes
// drafts whose post another replica made, because no post of this process takes them
// over, and what could not be removed before. Call it every now and then.
func (s *Scribe[M, P]) Keep(ctx context.Context) {
	s.mu.Lock()
	maps.DeleteFunc(s.threads, func(_ chat.ThreadID, th *thread[P]) bool { return time.Since(th.used) > age })
	s.mu.Unlock()
	s.each(func(th *thread[P]) bool { return slices.ContainsFunc(th.logs, (*worklog).isLate) }, func(th *thread[P]) {
		s.tasks.Add(string(th.id), func() {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Call)
			defer cancel()
			th.mu.Lock()
			defer th.mu.Unlock()
			if s.catchUp(ctx, th, false) == nil {
				s.tidy(ctx, th)
			}
		})
	})
	s.eachDrafting(func(th *thread[P]) {
		s.tasks.Add(string(th.id), func() {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Call)
			defer cancel()
			th.mu.Lock()
			defer th.mu.Unlock()
			if s.catchUp(ctx, th, false) != nil {
				return
			}
			if s.hasLateDraft(th) {
				s.sweep(ctx, th, "")
			}
			if th.history == unclean && th.turn.phase != theirs {
				if err := s.look(ctx, th, "", Quiet); err != nil {
					s.cfg.Log.InfoContext(ctx, "the thread's history is read later", "thread", th.id, "error", err)
				}
			}
		})
	})
}

// Leave removes the drafts of this process from threads that other replicas go on with:
// they begin new ones. Call it after Close, where others do not take drafts over.
func (s *Scribe[M, P]) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	s.eachDrafting(func(th *thread[P]) {
		if !th.mu.TryLock() {
			return
		}
		defer th.mu.Unlock()
		if s.catchUp(ctx, th, false) != nil {
			return
		}
		err := s.yield(ctx, th)
		if err == nil && (th.history == unclean || th.history == doubtful) && th.turn.phase != theirs {
			err = s.look(ctx, th, "", Quiet) // the end may have cut an answer off
		}
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "a draft stays until the thread's next post", "thread", th.id, "error", err)
		}
	})
}

// eachDrafting calls do for the threads in which a draft stands or may stand, where several
// replicas post.
func (s *Scribe[M, P]) eachDrafting(do func(*thread[P])) {
	if s.cfg.Turn != nil {
		s.each(func(th *thread[P]) bool { return len(th.drafts) > 0 || th.history == unclean || th.history == doubtful }, do)
	}
}

// each calls do for the threads that are so. One in which a post is on its way is left out.
func (s *Scribe[M, P]) each(so func(*thread[P]) bool, do func(*thread[P])) {
	s.mu.Lock()
	threads := maps.Clone(s.threads)
	s.mu.Unlock()
	for _, th := range threads {
		if !th.mu.TryLock() {
			continue
		}
		is := so(th)
		th.mu.Unlock()
		if is {
			do(th)
		}
	}
}

func (th *thread[P]) remember(key string, r Ref) {
	if _, ok := th.refs[key]; !ok {
		th.order = append(th.order, key)
		if len(th.order) > maxKeys {
			delete(th.refs, th.order[0])
			th.order = th.order[1:]
		}
	}
	th.refs[key] = r
}

// knows reports whether a message is one of the posts that are remembered, or is written.
func (th *thread[P]) knows(id string) bool {
	for _, r := range th.refs {
		if r.has(id) {
			return true
		}
	}
	for _, d := range th.drafts {
		if d.id == id {
			return true
		}
	}
	return th.log != nil && th.log.id == id
}
