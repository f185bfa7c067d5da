// Package approvals binds what people approve to what runs. An [Action] is one
// exact thing to do, and people approve its [Digest]. Running it takes a
// [Permit], which only this package's [Ledger] makes: from votes on a record,
// or from the risk engine's proof that the action only reads.
//
// The package is a state machine over its own rows. It has no clock (times are
// arguments), no network and no rendering. approvals/policy decides who may
// vote, approvals/card renders a request, and approvals/gate joins them.
package approvals

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"countersign/approvals/risk"
)

// ID identifies one request for approval. It is derived from the thread and the
// call, so that filing the request again after a crash finds the same record.
// It is short enough to type ("approve 7k2mq4xz").
type ID string

var idEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// NewID returns the id of the request for one call of one thread.
func NewID(thread, call string) ID {
	sum := sha256.Sum256([]byte(thread + "\x00" + call))
	return ID(idEncoding.EncodeToString(sum[:])[:10])
}

// Revision returns the id of the request for the call of id after people edited
// its command n times; n is at least 1.
func (id ID) Revision(n int) ID { return NewID(string(id), strconv.Itoa(n)) }

// Kind says what an action's bytes are and therefore how they are judged.
type Kind string

// The kinds.
const (
	// KindObserve is a tool that is built to read only (read_file, capture-pane,
	// time). A model's claim never makes an action one.
	KindObserve Kind = "observe"
	// KindShell is shell text: the risk engine judges Bytes.
	KindShell Kind = "shell"
	// KindKeys is keystrokes for a terminal.
	KindKeys Kind = "keys"
	// KindChange is everything else; it always needs votes.
	KindChange Kind = "change"
)

// Action is one exact thing to do, complete enough to be judged, shown, hashed
// and compared. It holds no handles and no closures. Every field is part of the
// digest.
type Action struct {
	Tool    string `json:"tool"`
	Kind    Kind   `json:"kind"`
	Target  string `json:"target"`            // the backend's id, with its proven identity
	User    string `json:"user,omitempty"`    // the account it runs as there
	Dir     string `json:"dir,omitempty"`     // resolved working directory
	Session string `json:"session,omitempty"` // managed tmux session
	Pane    string `json:"pane,omitempty"`    // pane in that session
	// Locked says that the kernel prevents it from changing anything; see targets/lock.
	Locked bool `json:"locked,omitempty"`
	// Shell is the shell that interprets Bytes in a separate process: "bash", "sh", or ""
	// if unknown.
	Shell string `json:"shell,omitempty"`
	// Foreground is the program that keystrokes would reach.
	Foreground string `json:"foreground,omitempty"`
	Path       string `json:"path,omitempty"` // resolved file that is read or written
	// Paths are the resolved files of an action about more than one, in place of Path.
	Paths []string `json:"paths,omitempty"`
	// Bytes is the exact command, keystrokes, or new file content.
	Bytes []byte `json:"bytes,omitempty"`
	// Args are the validated arguments of the call in canonical JSON, without
	// the model's claims about them.
	Args json.RawMessage   `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// Files maps each file the action depends on (a script it runs, a file it
	// overwrites) to the SHA-256 of its content at planning time.
	Files map[string]string `json:"files,omitempty"`
	// Steps are the actions of a plan, in order. Each runs only exactly as given here.
	Steps []Action `json:"steps,omitempty"`
	// Preview is shown to people beside Bytes: a summary, or a clearer form such as a
	// diff.
	Preview string `json:"preview,omitempty"`
	// Whole says that Preview and the content named by Files determine completely what
	// Bytes and Args do, as a diff does. Only then may a card show Preview instead of them.
	Whole bool `json:"whole,omitempty"`
}

// AnyContent is part of the Action.Files value of a file that the action only
// writes to: its current content does not influence what runs.
const AnyContent = "whatever its content"

// Absent is the value, in Action.Files, of a file that does not exist yet.
const Absent = "absent"

// LeftBySteps is the value, in Action.Files and [ShellFact] of a plan's step, for state
// that earlier steps may create or change.
const LeftBySteps = "as the steps before leave it"

// ShellFact is the key in Action.Env for the state of the shell that text is typed into:
// [ShellNew], [ShellShared] or [LeftBySteps]. The shell itself compares it right before it runs the text.
const ShellFact = "shell"

// ShellNew is the state of the shell in a pane that does not exist yet, or in which nobody
// has changed anything.
const ShellNew = "as the new pane starts it"

// ProcessFact is the key in Action.Env for the environment of a command that runs as a separate process: the hash
// of what the bot makes, or [ByRunner].
const ProcessFact = "process"

// ByRunner is the value of [ProcessFact] in Action.Env of a command that the runner of a host starts,
// which makes its environment.
const ByRunner = "as the runner starts it"

const sharedShell = "that of the shared pane "

// ShellShared returns the state of the shell in the existing pane of that name. state is the shell's own
// name of it, "" if it has none; started means that all is as it was at the start.
func ShellShared(pane, state string, started bool) string {
	switch {
	case started:
		return sharedShell + pane + asStarted
	case state == "":
		return sharedShell + pane + asLeft
	}
	return sharedShell + pane + asLeft + ", state " + state
}

const (
	asLeft    = ", as commands and people left it"
	asStarted = ", as at its start"
)

// TerminalFact is the key in Action.Env for what makes a command mean something else in its terminal than
// in another shell of the account: sentences, with names from the terminal.
const TerminalFact = "terminal"

// ShellChanged says that the shell is not in the state that was approved.
const ShellChanged = "the terminal's environment changed since this was approved; ask again"

// MaxEdit is the longest shell text, in bytes, that people may edit on a card:
// what the input of a Slack modal holds (3,000 characters).
const MaxEdit = 3000

// Text returns the action's shell text for the risk engine.
func (a Action) Text() risk.Text {
	t := risk.Text{Command: string(a.Bytes), Dir: a.Dir, Locked: a.Locked, Environ: a.Env[ProcessFact] != "" && a.Env[ProcessFact] != ByRunner}
	switch a.Shell {
	case "bash":
		t.Shell = risk.Bash
	case "sh":
		t.Shell = risk.POSIX
	}
	return t
}

// OutsidePrefix begins the targets of actions that the program that asks runs itself, on a machine
// that the bot knows only by what that program says: "outside:HOST".
const OutsidePrefix = "outside:"

// Outside reports whether the program that asks runs the action itself, on a machine that is no
// target.
func (a Action) Outside() bool { return strings.HasPrefix(a.Target, OutsidePrefix) }

// Private reports whether the action runs in a separate process and not in a shared shell,
// where aliases and functions could change what its text means.
func (a Action) Private() bool { return a.Pane == "" }

// Editable reports whether people may edit the action's shell text, and returns the name
// of the call's argument that contains it. Text with invisible characters is not
// editable, because an editor could not see what they keep.
func (a Action) Editable() (argument string, ok bool) {
	text := string(a.Bytes)
	if _, odd := risk.Visible(text); a.Kind != KindShell || odd || text == "" || len(text) > MaxEdit {
		return "", false
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(a.Args, &args) != nil {
		return "", false
	}
	for name, raw := range args {
		var s string
		if json.Unmarshal(raw, &s) != nil || s != text {
			continue
		}
		if ok {
			return "", false // ambiguous: two arguments contain the text
		}
		argument, ok = name, true
	}
	return argument, ok
}

// Edited returns the action with another text for Editable's argument. It serves for a
// preliminary judgement only: what runs is planned by the tool from the edited text.
func (a Action) Edited(argument, text string) Action {
	a.Bytes, a.Args = []byte(text), WithArgument(a.Args, argument, text)
	return a
}

// Keep returns a plan that is left with some of its steps, given by their indexes. Like
// [Action.Edited], it serves for a preliminary judgement only.
func (a Action) Keep(steps []int) Action {
	all := a.Steps
	a.Steps = nil
	for _, i := range steps {
		a.Steps = append(a.Steps, all[i])
	}
	return a
}

// WithArgument returns a call's arguments, a JSON object, with one of them
// replaced by a text; nil when there is no such argument.
func WithArgument(args json.RawMessage, name, text string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(args, &m) != nil || m[name] == nil {
		return nil
	}
	var err error
	if m[name], err = json.Marshal(text); err != nil {
		return nil
	}
	out, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return out
}

// Digest is the SHA-256 of a versioned canonical encoding of an [Action]. People approve
// a digest.
type Digest [sha256.Size]byte

// digestVersion changes with the encoding, so that an approval given under another
// encoding never matches.
const digestVersion = "countersign-action-v3\n"

// Digest returns the action's digest. JSON with fixed field order and sorted
// map keys is the canonical encoding.
func (a Action) Digest() Digest {
	b, err := json.Marshal(a)
	if err != nil {
		// Only Args can fail to marshal (invalid JSON); hash it as bytes so that
		// the digest is still unique to this action.
		raw := a.Args
		a.Args = nil
		b, _ = json.Marshal(a)
		b = append(append(b, 0), raw...)
	}
	return sha256.Sum256(append([]byte(digestVersion), b...))
}

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short returns the first 12 hex digits, for cards.
func (d Digest) Short() string { return d.String()[:12] }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(raw) != len(d) {
		return ErrDigest
	}
	copy(d[:], raw)
	return nil
}

// Claim is the model's own assessment of its call. The card shows it as the model's words.
// It can only raise the level.
type Claim struct {
	Risk     string `json:"risk,omitempty"` // low, medium, high
	Mutation bool   `json:"mutation,omitempty"`
	Privesc  bool   `json:"privesc,omitempty"`
	Why      string `json:"why,omitempty"`
	Given    bool   `json:"given,omitempty"` // the tool asks for a claim and the model made one
}

// State is the state of one record.
type State string

// The states. See [Next] for the moves between them.
const (
	Pending        State = "pending"
	Approved       State = "approved"
	Running        State = "running" // the intent is stored; the action may run once
	Done           State = "done"    // it ran to its end, successfully or not
	OutcomeUnknown State = "unknown" // it may or may not have run
	Denied         State = "denied"
	Expired        State = "expired"
	Cancelled      State = "cancelled" // withdrawn by stop
	Invalid        State = "invalid"   // the action changed between approval and run
)

// Permit authorises one run of one action. Only a [Ledger] makes one; the zero Permit
// permits nothing.
type Permit struct {
	digest Digest
	ok     bool
	by     ID   // the request that was approved; "" for a proven read
	locked bool // it is a proof that assumes a lock
}

type permitKey struct{}

// Under returns a context of a run under a permit.
func Under(ctx context.Context, p Permit) context.Context {
	return context.WithValue(ctx, permitKey{}, p)
}

// PermitOf returns the permit under which something runs in a context; the zero Permit if there is none.
func PermitOf(ctx context.Context) Permit {
	p, _ := ctx.Value(permitKey{}).(Permit)
	return p
}

// UnderOf returns the approved request under which something runs in a context, "" if there is none.
func UnderOf(ctx context.Context) ID { return PermitOf(ctx).by }

// Covers reports whether the permit is one, and whether only for what runs under a lock.
func (p Permit) Covers() (locked, ok bool) { return p.locked, p.ok }

// Allows reports whether the permit is for exactly this action.
func (p Permit) Allows(a Action) bool { return p.ok && p.digest == a.Digest() }
