package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
)

const (
	maxKeys    = 100
	maxLiteral = 16 << 10
)

// keyName matches tmux key names: modifiers and one character or one name. tmux would type any
// other word as letters.
var keyName = regexp.MustCompile(`^(?:[CMScms]-)*\^?(?:[^\s\x00-\x1f\x7f]|(?i:up|down|left|right|home|end|npage|pagedown|pgdn|ppage|pageup|pgup|ic|` +
	`insert|dc|delete|tab|btab|space|bspace|enter|escape|f[1-9]|f1[0-2]|kp[0-9/*+.-]|kpenter))$`)

type presser struct{ Config }

// Spec implements tools.Tool. Keys can do anything that the program in the pane can do.
func (presser) Spec() tools.Spec {
	return tools.Spec{
		Name: "send-keys", Description: describe("send-keys"), Level: risk.Medium, NeedsTmux: true,
		Aliases: []string{"tmux-send-keys", "send_pty_input"},
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: merge(selectorProperties(), delayProperties("Wait first."), map[string]tools.Property{
			"literal_text": {Type: "string", MaxLength: maxLiteral, Description: "Typed first, character by character."},
			"keys": {Type: "array", Items: &tools.Property{Type: "string"}, MaxItems: maxKeys,
				Description: `tmux key names, pressed second: C-c, Escape, Up, Tab, Enter.`},
			"enter": {Type: "boolean", Default: false, Description: "Press Enter last."},
		})}.WithClaim()),
	}
}

type pressArgs struct {
	selector
	delay
	tools.ClaimArgs
	Literal string   `json:"literal_text"`
	Keys    []string `json:"keys"`
	Enter   bool     `json:"enter"`
}

// canonical returns the exact keys, one step per line, in the order in which they are pressed.
// Different calls never have the same lines.
func (a pressArgs) canonical() string {
	var b strings.Builder
	for _, s := range typingSteps(a.Literal) {
		b.WriteString(s + "\n")
	}
	for _, k := range a.Keys {
		b.WriteString("press " + quoteKey(k) + "\n")
	}
	if a.Enter {
		b.WriteString("press Enter\n")
	}
	return b.String()
}

// preview returns the keys for people, in one line.
func (a pressArgs) preview(program string) string {
	parts := typingSteps(a.Literal)
	var names []string
	for _, k := range a.Keys {
		names = append(names, quoteKey(k))
	}
	if a.Enter {
		names = append(names, "Enter")
	}
	if len(names) > 0 {
		parts = append(parts, "press "+strings.Join(names, ", "))
	}
	s := strings.Join(parts, ", then ")
	if program != "" {
		s += ", into " + strconv.Quote(program)
	}
	return s
}

// onlyInterrupts reports whether the keys only interrupt what runs.
func (a pressArgs) onlyInterrupts() bool {
	return a.Literal == "" && !a.Enter && !slices.ContainsFunc(a.Keys, func(k string) bool {
		return !slices.Contains([]string{"C-c", "C-d", "C-z", "C-\\"}, k)
	})
}

// typingSteps describes in steps what typing a text does. Letters are quoted, and a character that
// acts as a key is a separate step, because a newline in a text runs what precedes it.
func typingSteps(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
		if n < 0 {
			n = len(text)
		}
		if n > 0 {
			out = append(out, "type "+strconv.Quote(text[:n]))
			text = text[n:]
			continue
		}
		switch c := text[0]; c {
		case '\n':
			out = append(out, "type a newline (Enter)")
		case '\r':
			out = append(out, "type a carriage return (Enter)")
		case '\t':
			out = append(out, "type a tab (Tab)")
		case 0x1b:
			out = append(out, "type an escape character (Escape)")
		case 0x7f:
			out = append(out, "type a delete character (BSpace)")
		default:
			out = append(out, fmt.Sprintf("type the control character \\x%02x (C-%c)", c, c|0x40))
		}
		text = text[1:]
	}
	return out
}

var (
	plainKey = regexp.MustCompile(`^[A-Za-z0-9^-]+$`)
	// enterKey matches other names of the key that runs a command.
	enterKey = regexp.MustCompile(`^(?:[Cc]-|\^)[mMjJ]$|(?i:^kpenter$)`)
)

// quoteKey formats a key name so that it cannot look like several keys or a harmless one.
func quoteKey(name string) string {
	switch {
	case enterKey.MatchString(name):
		return name + " (Enter)"
	case plainKey.MatchString(name):
		return name
	}
	return strconv.Quote(name)
}

// Plan implements tools.Tool.
func (t presser) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args pressArgs
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if err := args.normalize(); err != nil {
		return tools.Plan{}, err
	}
	wait, err := args.parse()
	if err != nil {
		return tools.Plan{}, err
	}
	if args.Literal == "" && len(args.Keys) == 0 && !args.Enter {
		return tools.Plan{}, tools.Invalid(`there is nothing to press; give "literal_text", "keys" or "enter"`)
	}
	for _, k := range args.Keys {
		if !keyName.MatchString(k) || !utf8.ValidString(k) {
			return tools.Plan{}, tools.Invalid(`%s is no name of a key; use names like C-c, Enter, Up or F5, and "literal_text" for text`, tools.Quote(k))
		}
	}
	ref, err := t.Book.Find(ctx, c.Thread, args.Session, args.Pane)
	if err != nil {
		return tools.Plan{}, tools.Failed("no key was pressed: %w", err)
	}
	if ref.Taken != "" {
		return tools.Plan{}, tools.Failed("no key was pressed: %s has the keyboard of the session %s; wait until they say give", ref.Taken, ref.Session)
	}
	if !ref.Exists && !createdOnDemand(ref) {
		return tools.Plan{}, tools.Failed("no key was pressed: the pane %s of the session %s does not exist now; run_shell makes it again", ref.Pane, ref.Session)
	}
	a := t.action(c.Name, approvals.KindKeys, ref, without(c.Args, "literal_text", "keys", "enter")) // these are in Bytes
	a.Dir, a.Foreground = ref.Dir, ref.Program
	if ref.Exists { // another pane may get the name later
		a.Env = map[string]string{"terminal": "pane " + ref.ID}
	}
	a.Bytes, a.Preview = []byte(args.canonical()), args.preview(ref.Program)
	plan := tools.Planned(a, args.Claim(), func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.press(ctx, c.Thread, ref, args, wait, sink)
	})
	plan.Interrupt = ref.Busy && a.Interrupts()
	return plan, nil
}

// without returns canonical arguments without the named ones.
func without(args json.RawMessage, names ...string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(args, &m) != nil {
		return args
	}
	for _, n := range names {
		delete(m, n)
	}
	return tools.MustSchema(m)
}

// createdOnDemand reports whether a pane may be created for keys: only the thread's default one, so
// that keys never reach a pane other than the named one.
func createdOnDemand(ref session.Ref) bool { return ref.Default && ref.Pane == "shared" }

func (t presser) press(ctx context.Context, thread string, ref session.Ref, args pressArgs, wait time.Duration, sink tools.Sink) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: args.preview(ref.Program)})
	if err := pause(ctx, wait); err != nil {
		return tools.Result{}, err
	}
	if err := t.Book.Writable(ctx, thread, ref.Session); err != nil {
		return tools.Result{}, tools.Failed("no key was pressed: %w", err)
	}
	p, err := t.Book.Open(ctx, thread, ref.Session, ref.Pane)
	if missing(err) && createdOnDemand(ref) && !ref.Exists {
		p, _, err = t.Book.Ensure(ctx, thread, "", "")
	}
	if err != nil {
		return tools.Result{}, tools.Failed("no key was pressed: %w", err)
	}
	if ref.Exists {
		if p.ID() != ref.ID {
			return tools.Result{}, tools.Failed("no key was pressed: the pane %s was replaced by %s after the keys were checked; look with "+
				"capture-pane and propose them again", ref.ID, p.ID())
		}
		info, err := p.Info(ctx)
		if err != nil {
			return tools.Result{}, tools.Failed("no key was pressed: %w", err)
		}
		if info.State == tmux.StatePassword && !args.onlyInterrupts() {
			return tools.Result{}, tools.Failed("no key was pressed: the pane asks for a password or another secret, and those are typed by " +
				"people only; ask somebody to say take, attach and type it, or stop the command with C-c")
		}
		if info.Program != ref.Program {
			return tools.Result{}, tools.Failed("no key was pressed: the pane now runs %s, and the keys were meant for %s; look with "+
				"capture-pane and propose them again", tools.Quote(info.Program), tools.Quote(ref.Program))
		}
	}
	err = p.SendKeys(ctx, tmux.Keys{Literal: args.Literal, Names: args.Keys, Enter: args.Enter})
	if errors.Is(err, backend.ErrLost) || err != nil && ctx.Err() != nil {
		return unknownResult(err), nil //nolint:nilerr // the result reports that the outcome is unknown
	}
	if err != nil {
		return tools.Result{}, tools.Failed("the keys were not pressed: %w", err)
	}
	text := fmt.Sprintf("keys sent to tmux pane %s", p.ID())
	sink(tools.Event{Kind: tools.Info, Text: text})
	sink(tools.Event{Kind: tools.Completed, Text: "sent"})
	return tools.Result{Value: text, Text: text}, nil
}

// unknownResult is the result of keys that may or may not have been pressed.
func unknownResult(err error) tools.Result {
	why := "It is not known whether the keys were pressed: " + err.Error() + "."
	text := why + " Look with capture-pane before doing anything else."
	return tools.Result{Value: text, Text: text, Failed: true, Unknown: true, Why: why}
}
