// Package chat is the vocabulary between chat networks and the bot: what
// people do ([Event], [Click]), what they are shown ([Post], [Card]), and the
// two ports, [Handler] (the bot, seen from a network) and [Adapter] (a
// network, seen from the bot).
//
// It does not know any network: what Slack or Discord or the web console need
// beyond this stays inside their own package.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ThreadID names one conversation on one network, for example
// "slack:T1:C1:1700000000.0001" or "web:01J9". It is opaque to all but the
// adapter that made it, and is the unit of order, ownership, history and
// approval. The part before the first colon is the adapter's scheme.
type ThreadID string

// UserID is a network's own immutable id for a person, with the scheme in
// front ("slack:T1:U1", "web:alice"). It is never a display name.
type UserID string

// EventID identifies one thing that happened. Two deliveries with equal ids
// are one event.
type EventID string

// MessageRef is a message of ours that can still be edited. Only the adapter
// that returned it understands it.
type MessageRef string

// ButtonID names what a button decides. It carries an approval's id and
// nothing else: no command, no secret, no right.
type ButtonID string

var (
	// ErrGone means that the thread or message no longer exists; trying again
	// is useless.
	ErrGone = errors.New("chat: the thread or message is gone")
	// ErrClosed means that the channel takes nothing now: it is archived or locked, or the bot
	// isn't in it or lacks a permission there. It may take the same later.
	ErrClosed = errors.New("chat: the channel takes nothing now")
	// ErrRejected means that the network refused this content for good; a
	// plainer form may still be accepted.
	ErrRejected = errors.New("chat: the network rejected the content")
)

// RateLimitedError means that the network wants to be left alone for a while.
type RateLimitedError struct{ After time.Duration }

// Error implements error.
func (e *RateLimitedError) Error() string {
	return "the network accepts no more calls for " + e.After.String()
}

// User is a person as the network vouches for them.
type User struct {
	ID   UserID `json:"id"`
	Name string `json:"name"` // for display only, never for a decision
	Bot  bool   `json:"bot,omitempty"`
	// Outside marks a guest, a member of another organisation, or somebody whose
	// standing the network could not tell. They are never approvers unless their
	// own id is named.
	Outside bool `json:"outside,omitempty"`
	// Ungrouped is a sentence that says why the network vouches for none of their groups at this
	// moment, "" where it does.
	Ungrouped string `json:"-"`
}

// Has is "NAME has", or "You have" for somebody who is called you, as in the demo.
func Has(name string) string {
	if name == "you" {
		return "You have"
	}
	return name + " has"
}

// Unnamed is a text of the bot without a person's name, where it begins a sentence or a part of one, is bold, or follows
// by, for, from or of.
func Unnamed(text, name string) string {
	if name == "" {
		return text
	}
	return regexp.MustCompile(`(^|[.\n] ?|[:,(] |\*\*|\b(?:by|for|from|of) )`+regexp.QuoteMeta(name)+`('s |[:., )]|\*\*|$)`).ReplaceAllString(text, "${1}somebody${2}")
}

// File is a text file that came with a message, or that goes with a post.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"` // Text is not the whole file
	// Data is the content of a file that is no text; Text is empty then.
	Data []byte `json:"data,omitempty"`
}

// Content is what the file holds.
func (f File) Content() []byte {
	if len(f.Data) > 0 {
		return f.Data
	}
	return []byte(f.Text)
}

// Event is one message from a person.
type Event struct {
	ID     EventID   `json:"id"`
	Thread ThreadID  `json:"thread"`
	From   User      `json:"from"`
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
	Files  []File    `json:"files,omitempty"`
	// Ref is the network's own name for the message, for edits.
	Ref MessageRef `json:"ref,omitempty"`
	// Replaces is set on an edit: the Ref of the message that Text replaces.
	Replaces MessageRef `json:"replaces,omitempty"`
	// Unread says why what was said in the thread before this message was not read ("it is
	// switched off for this channel"); "" where it was, or where there was nothing.
	Unread string `json:"unread,omitempty"`
	// Deleted means that the message that Replaces names was deleted; Text says so.
	Deleted bool `json:"deleted,omitempty"`
	// Groups are the network's groups and roles that From is in at this moment;
	// set where Text may be a vote.
	Groups []string `json:"groups,omitempty"`
	// Invited means that From is a bot which the configuration allows to speak
	// here (an alerting system). It can ask, and never decide.
	Invited bool `json:"invited,omitempty"`
	// Token means that a program sent it with a token of From's. It decides nothing.
	Token bool `json:"token,omitempty"`
	// ReadOnly means that a turn which this message begins may only look (an alert).
	ReadOnly bool `json:"read_only,omitempty"`
}

// Click is one press of a button. From comes from the network's signed or
// authenticated interaction, never from text.
type Click struct {
	ID     EventID  `json:"id"`
	Thread ThreadID `json:"thread"`
	From   User     `json:"from"`
	Button ButtonID `json:"button"`
	Reason string   `json:"reason,omitempty"`
	Groups []string `json:"groups,omitempty"` // network groups and roles, looked up at click time
	// Text is what a button with Edit was changed to.
	Text string `json:"text,omitempty"`
	// Signed is what the person's device signed for this press, nil for nothing. Ticket is what a
	// press on another network was answered with, to be signed in the console.
	Signed *Signed `json:"signed,omitempty"`
	Ticket string  `json:"ticket,omitempty"`
}

// Signed is a device's answer to a [Signing].
type Signed struct {
	Nonce    string          `json:"nonce"`
	Response json.RawMessage `json:"response"` // as the browser gives it (PublicKeyCredential.toJSON)
}

// Signing is what a browser needs to have a press signed by the person's device.
type Signing struct {
	Nonce     string       `json:"nonce"`
	Challenge string       `json:"challenge"` // base64url
	Site      string       `json:"site"`      // the host for which the keys are
	Keys      []SigningKey `json:"keys"`      // those that may sign
	// Link is where it is signed instead, on the signer's own page; then only Nonce is set beside it.
	Link string `json:"link,omitempty"`
}

// SigningKey is a passkey that may sign.
type SigningKey struct {
	ID         string   `json:"id"` // base64url
	Transports []string `json:"transports,omitempty"`
}

// Answer is what the person who clicked gets. Every click gets one.
type Answer struct {
	Card   *Card    `json:"card,omitempty"` // the card's new face, for everybody
	Show   *Card    `json:"show,omitempty"` // a card for the person who clicked: its Code and Details are what they asked to see
	Ask    *Button  `json:"ask,omitempty"`  // a button of Show that must be confirmed in a form; see AskPrefix
	Sign   *Signing `json:"sign,omitempty"` // the press has to be signed; see SignPrefix
	Notice string   `json:"notice"`         // one sentence for the person who clicked
	Link   string   `json:"link,omitempty"` // an address for them, which stands after Notice
	OK     bool     `json:"ok"`             // the click did what its button says
}

// ButtonStyle tells an adapter how a button should look.
type ButtonStyle string

// The styles.
const (
	StyleDeny    ButtonStyle = "deny"
	StyleApprove ButtonStyle = "approve"
	StyleEdit    ButtonStyle = "edit"
	StyleStop    ButtonStyle = "stop"
)

// Button is one choice on a card.
type Button struct {
	ID    ButtonID    `json:"id"`
	Label string      `json:"label"`
	Style ButtonStyle `json:"style"`
	// AskReason means that the network should offer a field for a reason; the
	// reason may stay empty.
	AskReason bool `json:"ask_reason,omitempty"`
	// Write, when not empty, is what the reason has to be for the click to count.
	Write string `json:"write,omitempty"`
	// Sign means that the click counts with a signature of the person's device only.
	Sign bool `json:"sign,omitempty"`
	// Confirm, when not empty, is asked once more before the click counts.
	Confirm string `json:"confirm,omitempty"`
	// Edit, when not empty, is text that the network offers for editing; the
	// click's Text is what it became.
	Edit string `json:"edit,omitempty"`
	// More means that the button belongs into a menu, where the network has one.
	More bool `json:"more,omitempty"`
}

// AskPrefix before the id of a button makes the id of one that decides nothing: its answer
// has Ask and Show, for a network that asks in a form.
const AskPrefix = "ask:"

// SignPrefix before the id of a button with Sign makes the id of one that decides nothing: its
// answer has Sign. TicketPrefix before a ticket makes the id of one whose answer has what is to be
// signed, as AskPrefix has.
const (
	SignPrefix   = "sign:"
	TicketPrefix = "ticket:"
)

// CallStatus is what became of what a program has asked for.
type CallStatus struct {
	State    ExecState `json:"state"`
	Call     string    `json:"-"`                 // its id in the transcript
	Number   uint64    `json:"number,omitempty"`  // a later one of the thread has a higher one
	Request  string    `json:"request,omitempty"` // that it waits for, or waited
	ExitCode *int      `json:"exit_code,omitempty"`
	Stdout   string    `json:"stdout,omitempty"` // its end, where Kept has all of it
	Stderr   string    `json:"stderr,omitempty"`
	Result   string    `json:"result,omitempty"`  // of another tool than run_shell
	Kept     string    `json:"kept,omitempty"`    // the id of the whole output
	Failed   bool      `json:"failed,omitempty"`  // or it was not run
	Unknown  bool      `json:"unknown,omitempty"` // nobody knows how it ended
	Note     string    `json:"note,omitempty"`    // why it was not run, or why nobody knows
	// Allowed says that the program that asked may run Command itself: what it asked for, or what
	// people made of it.
	Allowed bool     `json:"allowed,omitempty"`
	Command string   `json:"command,omitempty"` // without secrets
	Locked  bool     `json:"locked,omitempty"`  // it may only where the kernel keeps it from changing anything
	Needs   []string `json:"needs,omitempty"`   // what that has to leave open
	Digest  string   `json:"digest,omitempty"`  // of the command as it is: SHA-256, in hexadecimal
}

// ExecState says how far a command is.
type ExecState string

// The states of a command. The zero state means that it has not begun.
const (
	ExecWaiting ExecState = "waiting" // for people
	ExecRunning ExecState = "running" // or about to
	ExecDone    ExecState = "done"
)

// Field is one labelled line of a card. Value is plain text, never markup.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Tone tells an adapter how a card should be coloured.
type Tone string

// The tones.
const (
	ToneNeutral Tone = ""
	ToneLow     Tone = "low"
	ToneMedium  Tone = "medium"
	ToneHigh    Tone = "high"
	ToneGood    Tone = "good"
	ToneBad     Tone = "bad"
)

// Card is a structured message. Everything in it is plain text: adapters
// escape it, and show Code in a fixed-width block without changing a
// character.
//
// A card that asks for approval has what a person needs to decide on its face, in this
// order: Title with Env and Risk, Code with Context, Preview, Warn, Why, Footer with
// Expires, and the buttons. Details is shown only to those who ask for it.
type Card struct {
	Title string `json:"title"`
	Tone  Tone   `json:"tone,omitempty"`
	// Env is the environment that Title's place belongs to ("production"). Production sets
	// it apart.
	Env        string `json:"env,omitempty"`
	Production bool   `json:"production,omitempty"`
	Risk       string `json:"risk,omitempty"` // in words: "high risk"
	Code       string `json:"code,omitempty"` // the exact thing to be run, invisible characters already made visible
	// Context says in one line what else decides what Code does: the directory, the pane.
	Context string   `json:"context,omitempty"`
	Preview []string `json:"preview,omitempty"` // what it would do, in a few lines
	Body    string   `json:"body,omitempty"`
	// Steps are how far the steps of a plan are: Body has a line for each after its first.
	Steps   []StepState `json:"steps,omitempty"`
	Warn    []string    `json:"warn,omitempty"`   // sentences that must stand out, the worst first; of a Final card, about what happened
	Why     string      `json:"why,omitempty"`    // the agent's own words, to be shown as a quotation
	Footer  string      `json:"footer,omitempty"` // who asked, and who may decide
	Expires time.Time   `json:"expires,omitzero"` // of an open card
	// Since is when what was approved began, while it runs; zero otherwise.
	Since time.Time `json:"since,omitzero"`
	// Last is the last line that it printed: while it runs, a passing sight, which no durable post has;
	// of what failed, of its error.
	Last   string  `json:"last,omitempty"`
	Fields []Field `json:"fields,omitempty"`
	// Details has everything that is bound or was judged. A value may have several lines.
	Details []Field  `json:"details,omitempty"`
	Choose  []Button `json:"choose,omitempty"`
	Final   bool     `json:"final,omitempty"` // decided: no button of Choose comes back
	// After are the buttons of a card that is Final: they decide nothing about it, and
	// the person who presses one gets a notice.
	After []Button `json:"after,omitempty"`
	// DetailsID is the button that shows Details, where a network can't show them by itself.
	DetailsID ButtonID `json:"details_id,omitempty"`
	// Digest names exactly what the buttons decide, short enough to read out. A
	// network that cannot show Code whole asks for a confirmation that names it.
	Digest string `json:"digest,omitempty"`
	Attach []File `json:"attach,omitempty"`
}

// Texts are all texts that people read on a card or behind its details, but those of its buttons and
// files. They can be changed through the pointers.
func (c *Card) Texts() iter.Seq[*string] {
	return func(yield func(*string) bool) {
		all := []*string{&c.Title, &c.Env, &c.Risk, &c.Code, &c.Context, &c.Body, &c.Why, &c.Footer, &c.Last}
		for _, lines := range [][]string{c.Preview, c.Warn} {
			for i := range lines {
				all = append(all, &lines[i])
			}
		}
		for _, fields := range [][]Field{c.Fields, c.Details} {
			for i := range fields {
				all = append(all, &fields[i].Name, &fields[i].Value)
			}
		}
		for _, s := range all {
			if !yield(s) {
				return
			}
		}
	}
}

// Runs reports whether a card is of something that runs: it can be stopped.
func (c *Card) Runs() bool {
	return c.Final && slices.ContainsFunc(c.After, func(b Button) bool { return b.Style == StyleStop })
}

// StepState says how far a step of a plan is. Its line in [Card.Body] begins with [StepState.Mark].
type StepState string

// The states of a step.
const (
	StepWaiting StepState = "waiting"
	StepRunning StepState = "running"
	StepDone    StepState = "done"
	StepFailed  StepState = "failed" // or it was not run, or nobody knows
)

// Mark is a state as one character with a space.
func (s StepState) Mark() string {
	switch s {
	case StepWaiting:
		return "○ "
	case StepRunning:
		return "▸ "
	case StepDone:
		return "✓ "
	case StepFailed:
		return "✗ "
	}
	return ""
}

// Post is one message of the bot. Text is Markdown written by the bot or the
// model; adapters must neutralise mentions and raw HTML in it.
type Post struct {
	// Key is the outbox row's idempotency key, unique in the thread. Posting
	// the same key again replaces the message that it made.
	Key   string `json:"key"`
	Text  string `json:"text,omitempty"`
	Card  *Card  `json:"card,omitempty"`
	Files []File `json:"files,omitempty"`
	// Output is the id of a whole output of which Text shows the end, or "". It becomes a file
	// on networks that are no [OutputViewer].
	Output string `json:"output,omitempty"`
	// Quiet posts must not notify anybody (progress, results); only approvals
	// and questions should.
	Quiet bool `json:"quiet,omitempty"`
	// For are people whom the post calls by their ids, so that their network notifies them: a network mentions
	// its own (see [Post.Called]) where the post isn't quiet, and takes no notice of the others.
	For []UserID `json:"for,omitempty"`
	// Log marks a line of the work log: a network may fold it into the message
	// before it when that is one too, so that a busy turn is one message.
	Log bool `json:"log,omitempty"`
	// Also are lines of the log that are posted with this one, on a network that is a [LogJoiner].
	Also []Post `json:"-"`
}

// LogJoiner is an [Adapter] that takes several lines of the log at once, as [Post.Also]. All of them
// have the reference of the first.
type LogJoiner interface {
	JoinsLog()
}

// maxCalled is how many people a post calls.
const maxCalled = 5

// Called are the ids, as their network writes them, of those people of a network whom the post calls.
func (p Post) Called(network string) (out []string) {
	if p.Quiet || p.Log {
		return nil
	}
	for _, id := range p.For {
		scheme, rest, ok := strings.Cut(string(id), ":")
		if own := rest[strings.LastIndex(rest, ":")+1:]; ok && scheme == network && own != "" && len(out) < maxCalled && !slices.Contains(out, own) {
			out = append(out, own)
		}
	}
	return out
}

// CardPrefix begins the key of each post with the card of a request; its id follows.
const CardPrefix = "approval/"

// OutputViewer is an [Adapter] whose people can open a whole output, so that no file has to
// be posted.
type OutputViewer interface {
	ShowsOutputs()
}

// WholeAt says how people get a whole output, by its id.
func WholeAt(id string) string { return "`output " + id + "` posts all of it." }

// ProgressKind says what a sign of life shows.
type ProgressKind string

// The kinds of progress.
const (
	ProgressDraft  ProgressKind = "draft"  // what the model writes; the zero value means it, too
	ProgressOutput ProgressKind = "output" // what a running call prints
	ProgressStatus ProgressKind = "status" // what the thread waits for, and nothing else
)

// Progress is a passing sign of life: the draft of a reply or the output of a
// running command. It is not durable and may be dropped; the [Post] with the
// same Key replaces it.
type Progress struct {
	Key    string       `json:"key"`
	Kind   ProgressKind `json:"kind,omitempty"`
	Status string       `json:"status,omitempty"` // [StatusThinking], "running systemctl status x"
	Text   string       `json:"text,omitempty"`   // the whole draft so far, already cut to a sane size
	Card   string       `json:"card,omitempty"`   // the key of the post whose card is about what runs, "" for none
	Done   bool         `json:"done,omitempty"`   // nothing more comes under this Key
}

// LastLine is the last line of what a command printed that has something in it.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	if r := []rune(s); len(r) > maxLast {
		s = string(r[:maxLast]) + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// maxLast is how much of a last line is shown, in characters.
const maxLast = 160

// Inquiry is what somebody wants to know, or to have stopped, outside any
// thread.
type Inquiry struct {
	ID     EventID
	From   User
	Groups []string // network groups and roles, looked up at this moment
	// Within bounds the answer to threads whose id begins with it: one channel,
	// or the whole network.
	Within string
	// Here is where the person is, likewise: of other places they are told only of what they may decide
	// or have asked for. "" is nowhere.
	Here string
	// Fresh is for programs, which act on what they read: the answer is from no earlier look.
	Fresh bool
}

// Overview is what goes on in the threads that an [Inquiry] covers.
type Overview struct {
	Busy      []Busy
	Approvals []Waiting
	Sessions  []Session
}

// Busy is a thread with open work.
type Busy struct {
	Thread ThreadID
	Doing  string // a few words: [StatusDecision], "running uptime"
}

// Waiting is a request that waits for people.
type Waiting struct {
	Thread  ThreadID
	ID      string // as in "approve <id>"
	Title   string // what is asked for, one line of plain text
	Level   string // low, medium, high, critical
	Target  string
	Expires time.Time
	// Mine means that the person who asks may approve it.
	Mine bool
}

// Session is a managed terminal session.
type Session struct {
	Thread ThreadID
	Name   string
	State  string // one word: idle, running, ...
	Attach string // the command line that attaches to it; may be empty
}

// Desk answers what belongs to no thread: slash commands and home pages.
type Desk interface {
	Overview(ctx context.Context, q Inquiry) (Overview, error)
	// Stop ends what runs in the threads that q covers and returns those that
	// had open work.
	Stop(ctx context.Context, q Inquiry) ([]ThreadID, error)
	// Run begins a workflow: words are its name and inputs ("disk-full directory=/var"),
	// none asks for the list. It begins in the thread that q.Within names, or, where that is
	// a channel (it ends in a colon), in a new one there. An empty thread means that
	// nothing was begun; answer says why, in Markdown.
	Run(ctx context.Context, q Inquiry, words string) (thread ThreadID, answer string, err error)
}

// Handler receives what people do.
type Handler interface {
	// Deliver accepts one message. nil means that it is durable: only then may
	// the adapter acknowledge it to its network.
	Deliver(ctx context.Context, ev Event) error
	// Click decides one press. The answer is for the person who clicked; an
	// error means that nothing was decided and the person should be told so.
	Click(ctx context.Context, c Click) (Answer, error)
}

// Adapter is one chat network. Its methods are safe for concurrent use.
type Adapter interface {
	// Scheme is the prefix of this network's thread and user ids.
	Scheme() string
	// Run connects, reconnects, and hands events to h until ctx is done.
	Run(ctx context.Context, h Handler) error
	// Post writes a message. A post without a thread cannot be expressed.
	// It may be called again with the same Key after a crash, and must then
	// not make a second message where the network allows that.
	Post(ctx context.Context, t ThreadID, p Post) (MessageRef, error)
	// Edit replaces a message that Post made.
	Edit(ctx context.Context, t ThreadID, r MessageRef, p Post) error
}

// Whisperer is implemented by adapters of networks on which one person of a thread can be told something.
type Whisperer interface {
	// Whisper tells it soon, or never: nobody relies on it.
	Whisper(t ThreadID, to UserID, text string)
}

// Retracter is implemented by adapters of networks that cannot keep the second of two
// replicas from posting the same message: one that was stopped right before its call makes
// it when it wakes.
type Retracter interface {
	// Retract removes the messages of twice that are not among those of kept, the post of
	// the same key that counts.
	Retract(ctx context.Context, t ThreadID, key string, twice, kept MessageRef) error
}

// ProgressShower is implemented by adapters that can show [Progress].
type ProgressShower interface {
	ShowProgress(ctx context.Context, t ThreadID, p Progress)
}
