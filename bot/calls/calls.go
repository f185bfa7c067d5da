package calls

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/approvals"
	"countersign/console/api"
	"countersign/store"
	"countersign/store/aging"
	"countersign/tools"
)

const (
	// maxBeside is how many calls of a task may be open side by side.
	maxBeside = 32
	// keepFor is how long a call and its key are known.
	keepFor = 30 * 24 * time.Hour
	// forgotten is after how long a call that never began never will.
	forgotten = 24 * time.Hour
	// listed is how long after its beginning a call that has ended is still listed, for an agent that lost the answer.
	listed = time.Hour
	// pruned is how many old calls one new one deletes.
	pruned = 20
	// maxKey bounds a key and a task, maxCommand a command, and maxArgs the arguments of a tool, in bytes.
	maxKey, maxCommand, maxArgs = 128, 16 << 10, 128 << 10
	// firstLook and lastLook bound the pause between two looks at a call.
	firstLook, lastLook = 2 * time.Millisecond, 100 * time.Millisecond
	// settles is how long a call may run before it is worth telling that it does.
	settles = 200 * time.Millisecond
	prefix  = "call/" // of the events that begin them
)

// Config is what calls need. Every field is required.
type Config struct {
	DB store.DB
	// Ask begins a command in a conversation; see [agent.Agent.Ask].
	Ask func(ctx context.Context, ev chat.Event, what agent.Command) (why string, err error)
	// Deliver says something in one.
	Deliver func(ctx context.Context, ev chat.Event) error
	// Opener returns the network for channels of a scheme, or nil.
	Opener func(scheme string) chat.Opener
	// Channel is where conversations begin: "web", or a channel of a network.
	Channel func() string
	// Tools lists what programs may call beside commands.
	Tools  func() []api.ToolInfo
	Redact func(string) string
	Clean  func() Cleaner // takes secrets out of a stream
	// Kept passes on the whole output of a call that has ended, in its streams; whole is false if something is missing.
	// The error of one that isn't kept any more is [chat.ErrGone].
	Kept func(ctx context.Context, thread chat.ThreadID, id string, pass func(tools.Event) error) (whole bool, err error)
	Now  func() time.Time
	Log  *slog.Logger
}

// Cleaner takes secrets out of a text that comes in pieces.
type Cleaner interface {
	Write(piece string) string
	Flush() string
}

// Calls implements [api.Calls].
type Calls struct {
	cfg     Config
	streams streams
	gone    chan left
}

var _ api.Calls = (*Calls)(nil)

// New returns calls.
func New(c Config) *Calls {
	return &Calls{cfg: c, streams: streams{clean: c.Clean}, gone: make(chan left, 256)}
}

// call is one that somebody has asked for.
type call struct {
	User   chat.UserID   `json:"user"`
	By     string        `json:"by,omitempty"` // the token that alone sees it, beside its person
	Digest string        `json:"digest"`       // of what would run
	Begun  time.Time     `json:"begun"`
	Opens  string        `json:"opens"` // names the conversation before there is one
	Thread chat.ThreadID `json:"thread,omitempty"`
	From   uint64        `json:"from,omitempty"` // its entries have this number or a later one
	Why    string        `json:"why,omitempty"`  // it can't begin
	Task   string        `json:"task,omitempty"` // and the number of the task's conversation
	Slot   uint64        `json:"slot,omitempty"`
	// Alone says that nobody has any use for it once its asker has gone, and Heard when that last
	// waited for people.
	Alone bool      `json:"alone,omitempty"`
	Heard time.Time `json:"heard,omitzero"`
}

// of reports whether a call is an asker's.
func (c call) of(by api.Asker) bool {
	return c.User == by.ID && (by.Token == "" || c.By == by.Token)
}

// task is a conversation of a task.
type task struct {
	Last   string        `json:"last"` // call
	Thread chat.ThreadID `json:"thread,omitempty"`
}

func callKey(id string) []byte { return store.Key("calls", "call", id) }

func openKey(user chat.UserID, id string) []byte { return store.Key("calls", "open", string(user), id) }

func taskKey(user chat.UserID, name string, n uint64) []byte {
	return store.Key("calls", "task", string(user), name, n)
}

var ages = aging.Index{"calls", "age"}

// short is a name of some bytes, which nothing else has.
func short(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash never fails
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:10]))
}

func refuse(format string, a ...any) error {
	return &api.CallError{Sentence: fmt.Sprintf(format, a...)}
}

var errMissing = &api.CallError{Sentence: sayNoCall, Missing: true}

// caller is what is known of an asker, or an error.
func caller(a api.CallRequest) (approvals.Caller, error) {
	c := approvals.Caller{
		Way: approvals.Way(a.Way), Program: a.Program, Host: a.Host, Repository: a.Repository, Ref: a.Ref, Proven: a.Proven, Token: a.With, By: a.Source,
	}
	switch c.Way {
	case "":
		return approvals.Caller{Token: a.With}.Shown(), nil
	case approvals.WayAPI, approvals.WayMCP, approvals.WayHook:
		return c.Shown(), nil
	case approvals.WayJob:
		if a.Proven {
			return c.Shown(), nil
		}
	}
	return c, refuse(sayWay, a.Way)
}

var targetForm = regexp.MustCompile(`^[^\s\x00-\x1f]{1,200}$`)

func check(a api.CallRequest) error {
	switch {
	case a.Key == "" || len(a.Key) > maxKey || len(a.Task) > maxKey:
		return refuse(sayKey, maxKey)
	case (a.Command == "") == (a.Tool == ""):
		return refuse(sayOneOf)
	case a.Tool != "" && (len(a.Args) > maxArgs || !json.Valid(a.Args)):
		return refuse(sayArgs, maxArgs>>10)
	case a.Tool != "":
		return nil
	case strings.TrimSpace(a.Command) == "" || strings.ContainsRune(a.Command, 0):
		return refuse(sayCommand)
	case len(a.Command) > maxCommand:
		return refuse(sayLong, maxCommand>>10)
	case !targetForm.MatchString(a.Target):
		return refuse(sayTarget)
	}
	return nil
}

// Ask implements [api.Calls].
func (c *Calls) Ask(ctx context.Context, by api.Asker, groups []string, a api.CallRequest) (api.Call, error) {
	who, err := caller(a)
	if err == nil {
		err = check(a)
	}
	if err != nil {
		return api.Call{}, err
	}
	id := short(string(by.ID), a.Key)
	if by.Token != "" {
		id = short(string(by.ID), a.Key, by.Token)
	}
	row, err := c.begin(ctx, by, id, a, who)
	if err != nil {
		return api.Call{}, err
	}
	if row.Thread == "" && row.Why == "" {
		if row, err = c.open(ctx, by, id, row, a, who); err != nil {
			return api.Call{}, err
		}
	}
	now, _, err := c.wait(ctx, by, id, "", 0)
	if err != nil {
		return now, err
	}
	if now.State == "" {
		ev := chat.Event{ID: chat.EventID(prefix + id), Thread: row.Thread, From: by.User, Groups: groups, Text: asked(a), At: c.cfg.Now()}
		why, err := c.cfg.Ask(ctx, ev, agent.Command{Target: a.Target, Text: strings.TrimSpace(a.Command), Tool: a.Tool, Args: a.Args, Caller: who})
		if err != nil {
			return api.Call{}, err
		}
		if row.Why = why; why != "" {
			if err := c.cfg.DB.Update(ctx, func(tx store.Tx) error { Refuse(tx, ev.ID, why); return nil }); err != nil {
				return api.Call{}, err
			}
		}
	}
	return c.Wait(ctx, by, id, "", 0)
}

// asked says in a line what is asked.
func asked(a api.CallRequest) string {
	if a.Tool != "" {
		return a.Tool + " " + string(a.Args)
	}
	return "exec " + a.Target + ": " + a.Command
}

// begin makes the row of a call, or finds it, and finds a conversation of its task that is free.
func (c *Calls) begin(ctx context.Context, by api.Asker, id string, a api.CallRequest, who approvals.Caller) (row call, err error) {
	name, digest := "", short(a.Target, a.Command, a.Tool, string(a.Args))
	if a.Task != "" && a.Thread == "" {
		name = short(string(who.Way), who.Program, a.Task, by.Token)
	}
	err = c.cfg.DB.Update(ctx, func(tx store.Tx) error {
		known, ok := store.Load[call](tx, callKey(id))
		if ok {
			if row = known; row.Digest != digest {
				return &api.CallError{Sentence: sayOtherKey, Conflict: true}
			}
			return nil
		}
		now := c.cfg.Now().UTC()
		ages.Prune(tx, now.Add(-keepFor), pruned, func(r aging.Row) bool { drop(tx, r.Parts); return true })
		row = call{User: by.ID, By: by.Token, Digest: digest, Thread: a.Thread, Begun: now, Opens: id, Alone: who.Way == approvals.WayHook}
		if name != "" {
			n, free := uint64(0), false
			for ; n < maxBeside && !free; n++ {
				t, ok := store.Load[task](tx, taskKey(by.ID, name, n))
				if last, known := store.Load[call](tx, callKey(t.Last)); !ok || !known || c.became(tx, t.Last, last).State == chat.ExecDone {
					free, row.Thread, row.Task, row.Slot = true, t.Thread, name, n
					store.Save(tx, taskKey(by.ID, name, n), task{Last: id, Thread: t.Thread})
				}
			}
			if !free {
				return refuse(sayBeside, maxBeside)
			}
		}
		if row.Thread != "" {
			row.From = agent.Begins(tx, row.Thread)
		}
		store.Save(tx, callKey(id), row)
		tx.Set(openKey(by.ID, id), nil)
		tx.Set(ages.Key(now, id), nil)
		return nil
	})
	return row, err
}

// drop deletes an old call.
func drop(tx store.Tx, parts []any) {
	if id, ok := parts[0].(string); ok {
		if row, ok := store.Load[call](tx, callKey(id)); ok {
			tx.Delete(openKey(row.User, id))
			if t, _ := store.Load[task](tx, taskKey(row.User, row.Task, row.Slot)); t.Last == id {
				tx.Delete(taskKey(row.User, row.Task, row.Slot))
			}
		}
		tx.Delete(callKey(id))
	}
}

// open begins the conversation of a call.
func (c *Calls) open(ctx context.Context, by api.Asker, id string, row call, a api.CallRequest, who approvals.Caller) (call, error) {
	channel := cmp.Or(c.cfg.Channel(), "web")
	scheme, _, _ := strings.Cut(channel, ":")
	o := c.cfg.Opener(scheme)
	if o == nil {
		return row, refuse(sayNoChannel, channel)
	}
	thread, _, err := o.Open(ctx, channel, prefix+row.Opens, chat.Post{Key: prefix + row.Opens, Text: c.cfg.Redact(title(by, a, who))})
	switch {
	case errors.Is(err, chat.ErrGone):
		return row, refuse(sayNoChannel, channel)
	case err != nil:
		return row, err
	}
	row.Thread = thread
	return row, c.cfg.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, callKey(id), row)
		if key := taskKey(by.ID, row.Task, row.Slot); row.Task != "" {
			if t, _ := store.Load[task](tx, key); t.Last == id {
				store.Save(tx, key, task{Last: id, Thread: thread})
			}
		}
		return nil
	})
}

// title is the first message of a conversation, of which networks make its title.
func title(by api.Asker, a api.CallRequest, who approvals.Caller) string {
	what, _, more := strings.Cut(strings.TrimSpace(asked(a)), "\n")
	what = strings.TrimPrefix(what, "exec ")
	if r := []rune(what); len(r) > 120 {
		what, more = string(r[:120]), true
	}
	if more {
		what += " …"
	}
	switch {
	case who.Way == "":
		return by.Name + ": `" + strings.ReplaceAll(what, "`", "'") + "`"
	case who.Host != "":
		return fmt.Sprintf(sayAsksOn, strings.TrimPrefix(who.String(), "the program "), by.Name, who.Host)
	}
	return fmt.Sprintf(sayAsks, strings.TrimPrefix(who.String(), "the program "), by.Name)
}

// became says what became of a call.
func (c *Calls) became(tx store.Tx, id string, row call) api.Call {
	out := api.Call{ID: id, Thread: row.Thread}
	switch {
	case row.Why != "":
		out.State, out.Failed, out.Note = chat.ExecDone, true, strings.TrimSuffix(row.Why, ".")
	case row.Thread != "":
		out.CallStatus = agent.Executed(tx, row.Thread, row.From, chat.EventID(prefix+id))
	}
	if out.State == "" && c.cfg.Now().Sub(row.Begun) > forgotten { // an event is known for a time only, and must not begin twice
		out.State, out.Failed, out.Unknown, out.Note = chat.ExecDone, true, true, sayForgotten
	}
	return out
}

// Wait implements [api.Calls]. Whoever has the answer that a call waits may end before they ask again, so each such
// answer may be the last.
func (c *Calls) Wait(ctx context.Context, by api.Asker, id string, seen chat.ExecState, within time.Duration) (api.Call, error) {
	out, alone, err := c.wait(ctx, by, id, seen, within)
	if ctx.Err() != nil || alone && out.State == chat.ExecWaiting {
		c.leave(id, by)
	}
	return out, err
}

// wait is Wait without noting that its caller may have gone. alone is as the call has it.
func (c *Calls) wait(ctx context.Context, by api.Asker, id string, seen chat.ExecState, within time.Duration) (out api.Call, alone bool, err error) {
	begun, noted := time.Now(), false
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		err := c.cfg.DB.View(ctx, func(tx store.Tx) error {
			row, ok := store.Load[call](tx, callKey(id))
			if !ok || !row.of(by) {
				return errMissing
			}
			out, alone = c.became(tx, id, row), row.Alone
			return nil
		})
		since := time.Since(begun)
		left := within - since
		if ctx.Err() != nil {
			return out, alone, ctx.Err()
		}
		if err != nil || left <= 0 || news(out.State, seen, since) {
			return out, alone, err
		}
		if alone && !noted && out.State == chat.ExecWaiting {
			noted = true
			if err := c.heard(ctx, id); err != nil {
				return out, alone, err
			}
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done(): // the next look ends it
		}
	}
}

// Open implements [api.Calls].
func (c *Calls) Open(ctx context.Context, by api.Asker, ended bool) ([]api.Call, error) {
	out, over := []api.Call{}, []string{}
	err := c.cfg.DB.View(ctx, func(tx store.Tx) error {
		out, over = out[:0], over[:0]
		for key := range tx.Scan(store.Prefix("calls", "open", string(by.ID))) {
			parts, err := store.Parts(key)
			if err != nil {
				return err
			}
			id, _ := parts[len(parts)-1].(string)
			row, ok := store.Load[call](tx, callKey(id))
			switch now := c.became(tx, id, row); {
			case !ok || now.State == chat.ExecDone && c.cfg.Now().Sub(row.Begun) > listed:
				over = append(over, id)
			case row.of(by) && (ended || now.State != chat.ExecDone):
				out = append(out, now)
			}
		}
		return nil
	})
	if err != nil || len(over) == 0 {
		return out, err
	}
	return out, store.UpdateRelaxed(ctx, c.cfg.DB, func(tx store.Tx) error {
		for _, id := range over {
			tx.Delete(openKey(by.ID, id))
		}
		return nil
	})
}

// news reports whether a state is worth telling to whoever has seen another one. That it runs is, if
// it doesn't end soon or people had to decide.
func news(now, seen chat.ExecState, since time.Duration) bool {
	if now == seen || now == chat.ExecDone {
		return now == chat.ExecDone
	}
	return now == chat.ExecWaiting || seen == chat.ExecWaiting || since > settles
}

// Withdraw implements [api.Calls].
func (c *Calls) Withdraw(ctx context.Context, by api.Asker, id string) error {
	now, _, err := c.wait(ctx, by, id, "", 0)
	if err != nil || now.State == chat.ExecDone || now.Thread == "" {
		return err
	}
	return c.cfg.Deliver(ctx, chat.Event{ID: chat.EventID(prefix + id + "/stop"), Thread: now.Thread, From: by.User, Text: "stop", At: c.cfg.Now()})
}

// Last implements [api.Calls].
func (c *Calls) Last(ctx context.Context, thread chat.ThreadID) (x chat.CallStatus, err error) {
	err = c.cfg.DB.View(ctx, func(tx store.Tx) error {
		x = agent.LastExecuted(tx, thread)
		return nil
	})
	return x, err
}

// Callable implements [api.Calls].
func (c *Calls) Callable() []api.ToolInfo { return c.cfg.Tools() }

// Refuse notes why the call that an event was to begin can't. It reports whether there is one.
func Refuse(tx store.Tx, event chat.EventID, why string) bool {
	id, ok := strings.CutPrefix(string(event), prefix)
	if !ok {
		return false
	}
	row, ok := store.Load[call](tx, callKey(id))
	if ok {
		row.Why = why
		store.Save(tx, callKey(id), row)
	}
	return ok
}
