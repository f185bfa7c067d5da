// Package card shows a record of the ledger as a chat card: pure, one face for
// each state. Everything that others wrote (the command, the model's words, a
// reason) is shown as plain text with its invisible characters made visible,
// and nothing is ever cut.
//
// It does not decide anything, and a button carries an id and a nonce and nothing else.
package card

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

// The prefixes begin the ids of the buttons; the record's id follows, and, where
// the button decides something, a dot and the nonce of this card.
const (
	ApprovePrefix = "approve:"
	DenyPrefix    = "deny:"
	EditPrefix    = "edit:"
	GrantPrefix   = "grant:"  // approve exactly this for a while
	GlassPrefix   = "glass:"  // decide alone
	ReviewPrefix  = "review:" // somebody looked at what was decided alone
	// StopPrefix begins the button that is the same as the word "stop"; it decides
	// nothing about the request and carries no nonce.
	StopPrefix = "stop:"
	// UndoPrefix begins the button that is the same as the word "undo"; what follows is
	// the id of the request whose change is to be taken back.
	UndoPrefix = "undo:"
)

// button is the id of a button that decides.
func button(prefix string, r approvals.Record) chat.ButtonID {
	return chat.ButtonID(prefix + string(r.ID) + "." + r.Nonce)
}

// Parse takes a button's id apart. ok is false for a button that this package
// did not make; nonce is "" where it carries none.
func Parse(b chat.ButtonID) (prefix string, id approvals.ID, nonce string, ok bool) {
	for _, p := range []string{ApprovePrefix, DenyPrefix, EditPrefix, GrantPrefix, GlassPrefix, ReviewPrefix, StopPrefix} {
		if rest, found := strings.CutPrefix(string(b), p); found {
			name, nonce, _ := strings.Cut(rest, ".")
			return p, approvals.ID(name), nonce, name != ""
		}
	}
	return "", "", "", false
}

// Of returns the card's face for the record's state. notice is a sentence that
// must stand out, or "".
func Of(r approvals.Record, notice string) chat.Card {
	code, summary := shown(r.Action)
	code, odd := exact(code)
	c := chat.Card{Title: title(r), Tone: tone(r), Code: code, Digest: r.Digest.Short()}
	if notice != "" {
		c.Warn = append(c.Warn, notice)
	}
	if odd {
		c.Warn = append(c.Warn, `This contains invisible or unusual characters; they are shown as \u{...} or \x.., and a backslash that is written before such a name as \x5c.`)
	}
	if s := disagreement(r); s != "" && r.State == approvals.Pending {
		c.Warn = append(c.Warn, s)
	}
	if r.Taint != "" && r.State == approvals.Pending {
		// Whoever found it made it visible already: its own escapes are none of a text's.
		c.Warn = append(c.Warn, strings.ReplaceAll(visible(r.Taint), "\n", `\x0a`))
	}
	c.Fields = fields(r)
	switch r.State {
	case approvals.Pending:
		c.Body = visible(summary)
		if r.Impact != "" {
			c.Body = strings.TrimPrefix(c.Body+"\n\n", "\n\n") + "What it would do, found by looking:\n" + visible(r.Impact)
		}
		level := strings.ToUpper(r.Level)
		deny := chat.Button{ID: button(DenyPrefix, r), Label: "Deny", Style: chat.StyleDeny, AskReason: true}
		yes := chat.Button{ID: button(ApprovePrefix, r), Label: "Approve", Style: chat.StyleApprove}
		if l := r.FinalLevel(); l == risk.Unknown || l >= risk.High {
			yes.Confirm = fmt.Sprintf("This is %s. Run exactly this on %s?", level, line(r.Action.Target))
		}
		yes.AskReason = r.Require.ReasonRequired
		c.Choose = []chat.Button{deny, yes}
		if g := min(r.Require.Grant, approvals.MaxGrant); g > 0 {
			c.Choose = append(c.Choose, chat.Button{
				ID: button(GrantPrefix, r), Label: fmt.Sprintf("Approve for %d min", int(g.Minutes())), Style: chat.StyleApprove, AskReason: r.Require.ReasonRequired,
				Confirm: fmt.Sprintf("Exactly this may then run again in this thread for %d minutes without asking. Stop ends that.", int(g.Minutes())),
			})
		}
		if _, ok := r.Action.Editable(); ok {
			c.Choose = append(c.Choose, chat.Button{ID: button(EditPrefix, r), Label: "Edit", Style: chat.StyleEdit, Edit: string(r.Action.Bytes)})
		}
		if len(r.Require.BreakGlass) > 0 {
			c.Choose = append(c.Choose, chat.Button{
				ID: button(GlassPrefix, r), Label: "Break glass", Style: chat.StyleApprove, AskReason: true,
				Confirm: "You decide alone, and give a reason. Somebody else has to review it afterwards.",
			})
		}
		c.Choose = append(c.Choose, chat.Button{ID: chat.ButtonID(StopPrefix + string(r.ID)), Label: "Stop", Style: chat.StyleStop})
	default:
		c.Final = true
		c.Body = ending(r)
		switch {
		case r.State == approvals.Approved || r.State == approvals.Running:
			c.After = []chat.Button{{ID: chat.ButtonID(StopPrefix + string(r.ID)), Label: "Stop", Style: chat.StyleStop}}
		case r.State == approvals.Done && r.Outcome.Undo:
			c.After = []chat.Button{{ID: chat.ButtonID(UndoPrefix + string(r.ID)), Label: "Undo", Style: chat.StyleEdit}}
		}
	}
	return c
}

// Size is how many bytes of a card a person has to read, all its text counted
// as it is shown.
func Size(c chat.Card) int {
	n := len(c.Title) + len(c.Code) + len(c.Body)
	for _, w := range c.Warn {
		n += len(w)
	}
	for _, f := range c.Fields {
		n += len(f.Name) + len(f.Value)
	}
	return n
}

// shown is what a person reads: code is everything that decides what the action
// does, beside the card's fields; summary is a sentence about it, or "". A
// preview stands in for the exact bytes only if its tool made it whole.
func shown(a approvals.Action) (code, summary string) {
	switch {
	case len(a.Steps) > 0:
		return steps(a.Steps), a.Preview
	case a.Kind == approvals.KindShell:
		return string(a.Bytes), a.Preview
	case a.Whole && a.Preview != "":
		return a.Preview, ""
	case len(a.Bytes) > 0:
		return string(a.Bytes), a.Preview
	}
	return a.Tool + " " + string(a.Args), a.Preview
}

// arguments is what of the arguments is shown nowhere else on the card, as one
// line of JSON, or "".
func arguments(a approvals.Action) string {
	if len(a.Args) == 0 || bytes.Equal(a.Args, a.Bytes) || (len(a.Bytes) == 0 && !a.Whole && a.Kind != approvals.KindShell) {
		return "" // none, or they are the code
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(a.Args, &m) != nil {
		return string(a.Args)
	}
	for name, raw := range m {
		var s string
		if json.Unmarshal(raw, &s) == nil && (s == string(a.Bytes) || (s == a.Path && s != "")) {
			delete(m, name)
		}
	}
	if len(m) == 0 {
		return ""
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(m) != nil {
		return string(a.Args)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// written finds a backslash that begins what exact writes for an invisible
// character, in a text that has it in plain letters.
var written = regexp.MustCompile(`\\(x[0-9a-f]{2}|u\{[0-9A-F]+\})`)

// exact makes the invisible visible so that only one text has this form: in a
// text with invisible characters a backslash that would look like the beginning
// of one is shown as \x5c. odd reports whether there are any.
func exact(s string) (out string, odd bool) {
	if _, odd = risk.Visible(s); !odd {
		return s, false
	}
	out, _ = risk.Visible(written.ReplaceAllString(s, `\x5c$1`))
	return out, true
}

func title(r approvals.Record) string {
	level := strings.ToUpper(r.Level)
	switch r.State {
	case approvals.Pending:
		return "Approve " + r.Action.Tool + "? " + level
	case approvals.Approved:
		return "Approved: " + r.Action.Tool + " (" + level + ")"
	case approvals.Running:
		return "Running: " + r.Action.Tool + " (" + level + ")"
	case approvals.Done:
		return "Done: " + r.Action.Tool + " (" + level + ")"
	case approvals.OutUnk:
		return "Outcome unknown: " + r.Action.Tool + " (" + level + ")"
	case approvals.Denied:
		return "Denied: " + r.Action.Tool + " (" + level + ")"
	case approvals.Expired:
		return "Expired: " + r.Action.Tool + " (" + level + ")"
	case approvals.Cancelled:
		return "Withdrawn: " + r.Action.Tool + " (" + level + ")"
	case approvals.Invalid:
		return "Not run: " + r.Action.Tool + " (" + level + ")"
	}
	return r.Action.Tool
}

func tone(r approvals.Record) chat.Tone {
	switch r.State {
	case approvals.Pending:
		switch l := r.FinalLevel(); {
		case l == risk.Unknown || l >= risk.High:
			return chat.ToneHigh
		case l == risk.Medium:
			return chat.ToneMedium
		}
		return chat.ToneLow
	case approvals.Done:
		if r.Outcome.OK {
			return chat.ToneGood
		}
		return chat.ToneBad
	case approvals.OutUnk, approvals.Invalid:
		return chat.ToneBad
	default:
		return chat.ToneNeutral
	}
}

// disagreement puts into words where the model's labels say less than the engine:
// a lower risk, no change where none is excluded, no privileges where some are
// used. Where the model says more there is nothing to warn of.
func disagreement(r approvals.Record) string {
	if !r.Claim.Given {
		return ""
	}
	engine := risk.ParseLevel(r.Engine.Risk)
	lower := engine != claimed(r.Claim.Risk) && risk.Max(engine, claimed(r.Claim.Risk)) == engine
	change := !r.Claim.Mutation && !r.Engine.ReadOnly
	privileges := !r.Claim.Privesc && slices.Contains(r.Engine.Effects, string(risk.EffectPrivesc))
	if !lower && !change && !privileges {
		return ""
	}
	model := []string{"risk " + named(r.Claim.Risk)}
	says := []string{strings.ToUpper(r.Engine.Risk)}
	if !r.Claim.Mutation {
		model = append(model, "no change")
		if change {
			says = append(says, "not proven to only read")
		}
	}
	if privileges {
		model = append(model, "no raised privileges")
		says = append(says, "raised privileges")
	}
	s := fmt.Sprintf("The model says %s; the engine says %s", strings.Join(model, " and "), strings.Join(says, " and "))
	if len(r.Engine.Reasons) > 0 {
		s += ": " + r.Engine.Reasons[0]
	}
	return line(strings.TrimSuffix(s, ".") + ".")
}

// claimed is a model's word for a risk as a level. A word that nobody knows
// counts as the highest, and no word as the lowest.
func claimed(word string) risk.Level {
	switch word {
	case "", "low":
		return risk.Low
	case "medium":
		return risk.Medium
	case "high":
		return risk.High
	}
	return risk.Unknown
}

func named(word string) string {
	if word == "" {
		return "(not given)"
	}
	return word
}

func visible(s string) string {
	s, _ = risk.Visible(s)
	return s
}

// line is exact for what must not look like more than one line: a name with a
// newline in it could draw fields of its own. No warning stands beside it, so
// the backslash is always told apart.
func line(s string) string {
	s, _ = risk.Visible(written.ReplaceAllString(s, `\x5c$1`))
	return strings.ReplaceAll(s, "\n", `\x0a`)
}

// place is everything beside the text that decides what an action does.
func place(a approvals.Action) []chat.Field {
	var f []chat.Field
	add := func(name, value string) {
		if value != "" {
			f = append(f, chat.Field{Name: name, Value: value})
		}
	}
	target := line(a.Target)
	if a.User != "" {
		target = line(a.User) + "@" + target
	}
	add("Target", target)
	add("Directory", line(a.Dir))
	switch {
	case a.Pane != "":
		add("Pane", strings.TrimPrefix(line(a.Session)+" / "+line(a.Pane), " / "))
	case a.Session != "":
		add("Session", line(a.Session))
	}
	add("Program in front", line(a.Foreground))
	add("File", line(a.Path))
	add("Files", line(strings.Join(a.Paths, ", ")))
	add("Arguments", line(arguments(a)))
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		add("Environment", line(name)+"="+line(a.Env[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Files)) {
		add("Depends on", line(name)+", "+fileState(a.Files[name]))
	}
	return f
}

func fields(r approvals.Record) []chat.Field {
	a := r.Action
	f := place(a)
	add := func(name, value string) {
		if value != "" {
			f = append(f, chat.Field{Name: name, Value: value})
		}
	}
	add("Length", length(a))
	engine := strings.ToUpper(r.Engine.Risk)
	if len(r.Engine.Effects) > 0 {
		engine += " (" + strings.Join(r.Engine.Effects, ", ") + ")"
	}
	if len(r.Engine.Reasons) > 0 {
		engine += ": " + strings.Join(r.Engine.Reasons, "; ")
	}
	add("Engine says", line(engine))
	if r.Claim.Given {
		change, priv := "no change", ""
		if r.Claim.Mutation {
			change = "changes something"
		}
		if r.Claim.Privesc {
			priv = ", with raised privileges"
		}
		add(labeller(r)+" says", line(fmt.Sprintf("risk %s, %s%s", r.Claim.Risk, change, priv)))
		add(labeller(r)+"'s reason", line(fmt.Sprintf("%q", r.Claim.Why)))
	}
	add("Asked by", line(r.Requester.Name))
	if r.Agent != "" {
		add("Made by", line(r.Agent))
	}
	if r.Revision > 0 {
		add("Edited", "by "+line(r.Requester.Name)+"; the model asked for something else, and its labels do not apply")
	}
	add("Rule", line(r.Rule))
	if r.Basis.Kind == approvals.ByVotes {
		votes(add, r)
	} else {
		add("Approved by", line(r.Basis.Why))
	}
	if r.State == approvals.Pending {
		add("Expires", stamp(r.ExpiresAt))
	}
	add("Request", fmt.Sprintf("%s, digest %s", r.ID, r.Digest.Short()))
	return f
}

// votes says who may decide and how far they are. Several needs are a line each.
func votes(add func(name, value string), r approvals.Record) {
	if len(r.Require.Needs) == 0 {
		add("Who may approve", "nobody")
		return
	}
	one := len(r.Require.Needs) == 1
	for i, n := range r.Require.Needs {
		who := strings.Join(n.Groups, " or ")
		if who == "" {
			who = "nobody"
		}
		count := fmt.Sprintf("%d of %d", r.Met(i), max(n.Count, 1))
		if one {
			add("Who may approve", line(who))
			add("Votes", count)
		} else {
			add("Votes ("+line(n.Rule)+")", count+" from "+line(who))
		}
		for k, s := range n.Escalate {
			if k >= n.Taken && r.State == approvals.Pending {
				add("If nobody decides", fmt.Sprintf("from %s also %s", stamp(r.Created.Add(s.After)), line(strings.Join(s.Groups, ", "))))
			}
		}
	}
	if !r.Require.RequesterMay {
		add("Not", line(r.Requester.Name)+", who asked for it")
	}
	if r.Require.ReasonRequired {
		add("Reason", "required")
	}
}

// steps are the actions of a plan, each with everything that decides what it does.
func steps(all []approvals.Action) string {
	var b strings.Builder
	for i, a := range all {
		code, _ := shown(a)
		fmt.Fprintf(&b, "Step %d: %s", i+1, line(a.Tool))
		for _, f := range place(a) {
			fmt.Fprintf(&b, ", %s %s", strings.ToLower(f.Name), f.Value)
		}
		b.WriteString("\n")
		for l := range strings.SplitSeq(code, "\n") {
			b.WriteString("    " + l + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Review is the card that asks for the look at what one person decided alone, or
// says who took it.
func Review(r approvals.Record) chat.Card {
	code, _ := shown(r.Action)
	code, _ = exact(code)
	by := r.By.Name
	if by == "" {
		by = string(r.By.ID)
	}
	c := chat.Card{
		Title: "Review: " + r.Action.Tool + " was approved by one person alone", Tone: chat.ToneHigh, Code: code, Digest: r.Digest.Short(),
		Body: visible(fmt.Sprintf("%s broke the glass at %s: %s", by, stamp(r.Decided), r.Reason)),
	}
	c.Fields = place(r.Action)
	c.Fields = append(c.Fields, chat.Field{Name: "Asked by", Value: line(r.Requester.Name)}, chat.Field{Name: "Request", Value: fmt.Sprintf("%s, digest %s", r.ID, r.Digest.Short())})
	if r.Review.Due {
		c.Warn = []string{"Somebody else has to look at this, and press Reviewed."}
		c.Choose = []chat.Button{{ID: button(ReviewPrefix, r), Label: "Reviewed", Style: chat.StyleApprove, AskReason: true}}
		return c
	}
	c.Final, c.Tone = true, chat.ToneNeutral
	c.Title = "Reviewed: " + r.Action.Tool + " was approved by one person alone"
	note := ""
	if r.Review.Note != "" {
		note = ": " + r.Review.Note
	}
	c.Body += visible(fmt.Sprintf("\nReviewed by %s at %s%s", r.Review.By.Name, stamp(r.Review.At), note))
	return c
}

// fileState says in which state a file was when the action was planned.
func fileState(sum string) string {
	if len(sum) != 64 {
		return line(sum)
	}
	return "SHA-256 " + line(sum[:12])
}

// length says how long the shown text is, and what of it cannot be seen: the
// end of a file without a newline.
func length(a approvals.Action) string {
	code, _ := shown(a)
	lines := strings.Count(code, "\n")
	open := !strings.HasSuffix(code, "\n")
	if open && code != "" {
		lines++
	}
	content := a.Kind == approvals.KindChange && !a.Whole && len(a.Bytes) > 0
	if lines < 2 && !content {
		return ""
	}
	s := fmt.Sprintf("%d lines, %d bytes", lines, len(code))
	if lines == 1 {
		s = fmt.Sprintf("1 line, %d bytes", len(code))
	}
	if content && open {
		s += ", no newline at the end"
	}
	return s
}

// basis says by what right it was approved, where no vote on it did.
func basis(r approvals.Record) string {
	switch {
	case r.Basis.Kind != approvals.ByVotes:
		return " (" + r.Basis.Why + ")"
	case r.Review.Due || r.Review.By.ID != "":
		return ", alone, by breaking the glass: " + r.Reason
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

func nameOf(u chat.User) string {
	if u.Name == "" {
		return string(u.ID)
	}
	return u.Name
}

// voters are all who approved, in their order, with their reasons.
func voters(r approvals.Record, last string) string {
	var all []string
	for _, v := range r.Votes {
		if !v.Approve {
			continue
		}
		one := nameOf(v.User)
		if v.Reason != "" && !v.Glass {
			one += fmt.Sprintf(" (%q)", v.Reason)
		}
		all = append(all, one)
	}
	switch n := len(all); n {
	case 0:
		return last
	case 1:
		return all[0]
	default:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
}

// ending says who decided, when and why, and how it went.
func ending(r approvals.Record) string {
	by := nameOf(r.By)
	if r.State != approvals.Denied && r.State != approvals.Cancelled && r.Basis.Kind == approvals.ByVotes {
		by = voters(r, by)
	}
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	s := ""
	switch r.State {
	case approvals.Approved:
		s = fmt.Sprintf("Approved by %s at %s%s. It runs next.", by, stamp(r.Decided), basis(r))
	case approvals.Running:
		s = fmt.Sprintf("Approved by %s at %s%s. Running now.", by, stamp(r.Decided), basis(r))
	case approvals.Done:
		s = fmt.Sprintf("Approved by %s at %s%s. %s", by, stamp(r.Decided), basis(r), happened(r.Outcome))
	case approvals.OutUnk:
		s = fmt.Sprintf("Approved by %s at %s. Contact was lost while it ran: it may or may not have happened. Look before repeating it.", by, stamp(r.Decided))
	case approvals.Denied:
		s = fmt.Sprintf("Denied by %s at %s%s", by, stamp(r.Decided), reason)
	case approvals.Expired:
		s = "Nobody decided in time, so it was not run."
		if !r.RunBy.IsZero() {
			s = fmt.Sprintf("Approved by %s at %s, but not used within %s, so it was not run.", by, stamp(r.Decided), r.Require.RunWithin)
		}
	case approvals.Cancelled:
		s = fmt.Sprintf("Withdrawn by %s%s", by, reason)
	case approvals.Invalid:
		s = "Not run" + reason + ". It has to be asked again."
	case approvals.Pending:
	}
	return visible(s)
}

// happened says how a run ended, in one sentence.
func happened(o approvals.Outcome) string {
	how, note := "It ran", o.Note
	switch {
	case o.Unstarted:
		how = "It was not run"
		if _, why, ok := strings.Cut(note, "was not run: "); ok {
			note = why // its own sentence says so, too
		}
	case o.Signal != "":
		how = "It ran and was ended by the signal SIG" + strings.TrimPrefix(o.Signal, "SIG")
		note = "" // what a shell makes of the signal
	case !o.OK:
		how = "It ran and failed"
		if note == "failed" {
			note = ""
		}
	}
	if note != "" {
		how += ": " + note
	}
	return strings.TrimRight(how, ".") + "."
}

// labeller is whose labels a request has: a step of a workflow was labelled by whoever wrote
// it down.
func labeller(r approvals.Record) string {
	if strings.HasPrefix(r.Agent, approvals.MadeByWorkflow) {
		return "Runbook"
	}
	return "Model"
}
