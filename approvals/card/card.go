// Package card shows a record of the ledger as a chat card. It is pure. An open card
// answers what will happen, where, how bad it is, and who may decide; a decided one says
// what was decided and how it ended. Everything else is in the card's details.
//
// Everything that others wrote (the command, the agent's words, a reason) is plain text
// with its invisible characters made visible, and nothing is ever cut.
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
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/deed"
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
	// TakePrefix and GivePrefix begin the buttons that are the same as the words "take" and "give". What
	// follows is a request, or what the words call a terminal: TARGET:SESSION.
	TakePrefix = "take:"
	GivePrefix = "give:"
	// TrialPrefix approves a change that undoes itself unless somebody keeps it. KeepPrefix and NowPrefix
	// begin the buttons of such a change; they carry no nonce.
	TrialPrefix = "trial:"
	KeepPrefix  = "keep:"
	NowPrefix   = "undo-now:"
	// DetailsPrefix begins the button that shows a card's details to whoever presses it. It
	// decides nothing and carries no nonce.
	DetailsPrefix = "details:"
)

// button is the id of a button that decides.
func button(prefix string, r approvals.Record) chat.ButtonID {
	return chat.ButtonID(prefix + string(r.ID) + "." + r.Nonce)
}

// Parse takes a button's id apart. ok is false for a button that this package
// did not make; nonce is "" where it carries none.
func Parse(b chat.ButtonID) (prefix string, id approvals.ID, nonce string, ok bool) {
	for _, p := range []string{ApprovePrefix, DenyPrefix, EditPrefix, GrantPrefix, GlassPrefix, TrialPrefix, ReviewPrefix, StopPrefix, DetailsPrefix} {
		if rest, found := strings.CutPrefix(string(b), p); found {
			name, nonce, _ := strings.Cut(rest, ".")
			return p, approvals.ID(name), nonce, name != ""
		}
	}
	return "", "", "", false
}

// Limits, in lines, of what a tool says about its action, and of warnings.
const (
	maxSummary = 12
	maxWarn    = 2
)

// New returns the card for the record's state. notice is a sentence that must stand out, or
// "".
func New(r approvals.Record, notice string) chat.Card {
	code, summary := shownOf(r)
	code, odd := exact(code)
	c := chat.Card{
		Title: headline(r), Tone: tone(r), Env: line(r.Place.Env), Production: r.Place.Production, Code: code, Digest: r.Digest.Short(),
		DetailsID: chat.ButtonID(DetailsPrefix + string(r.ID)),
	}
	c.Details = details(r, summary)
	if r.State != approvals.Pending {
		c.Final = true
		c.Body, c.Last = ending(r), line(r.Outcome.Last)
		if len(r.Receipt.Also) > 0 {
			c.Tone, c.Warn = chat.ToneBad, []string{line(r.Receipt.Sentence())}
		}
		if r.Action.Whole && r.Action.Kind == approvals.KindChange && len(r.Action.Steps) == 0 { // a diff says little in one line
			c.Details = append([]chat.Field{{Name: "Change", Value: code}}, c.Details...)
			c.Code = ""
		}
		switch {
		case r.State == approvals.Approved || r.State == approvals.Running:
			c.Since = r.Decided // a run begins right after
			c.After = []chat.Button{{ID: chat.ButtonID(StopPrefix + string(r.ID)), Label: "Stop", Style: chat.StyleStop}}
		case r.State == approvals.Done && r.Outcome.Open():
			c.After = []chat.Button{{ID: chat.ButtonID(TakePrefix + string(r.ID)), Label: "Take control", Style: chat.StyleEdit}}
		case r.State == approvals.Done && r.Outcome.Undo && !r.Trial.Open() && undone(r) == "":
			c.After = []chat.Button{{ID: chat.ButtonID(UndoPrefix + string(r.ID)), Label: "Undo", Style: chat.StyleEdit}}
		}
		return c
	}
	c.Risk = level(r) + " risk"
	c.Context = context(r.Action)
	if len(r.Action.Steps) > 0 {
		for _, s := range r.Action.Steps {
			if c.Context = context(s); c.Context != "" {
				break
			}
		}
	}
	c.Preview = preview(r, summary)
	c.Warn = warnings(r, notice, odd)
	if r.Claim.Given {
		c.Why = line(r.Claim.Why)
	}
	if u := r.Undoes; u.ID != "" {
		c.Fields = []chat.Field{{Name: "Why", Value: line(fmt.Sprintf(sayUndoes, u.Deed, nameOf(u.By), clock(u.At)))}}
	}
	c.Footer = footer(r)
	c.Expires = r.ExpiresAt
	c.Choose = choices(r)
	return c
}

// Deed says what a request does: what [deed.Headline] has, and of one that takes a command back, which.
func Deed(r approvals.Record) string {
	s := deed.Headline(r.Action, r.Engine.Effects)
	switch was := r.Undoes.Deed; {
	case was == "" || r.Action.Kind != approvals.KindShell:
		return s
	case was == deed.Unknown:
		return "Undo a command"
	default:
		return "Undo: " + lowerFirst(was)
	}
}

// headline is the deed and the place.
func headline(r approvals.Record) string {
	s := Deed(r)
	switch {
	case r.Place.Target == "":
		return s
	case r.Action.Tool == "trust_host_key": // the bot learns it; nothing is done on the host
		return s + " of " + line(r.Place.Target)
	}
	return s + " on " + line(r.Place.Target)
}

// level is the risk in one word.
func level(r approvals.Record) string {
	if r.Level == "" {
		return risk.Unknown.String()
	}
	return line(r.Level)
}

// ownSession begins the names of the threads' own sessions; the details have them.
const ownSession = "countersign-"

// context says what besides the code decides what a command does, in one line.
func context(a approvals.Action) string {
	var parts []string
	if a.Dir != "" {
		parts = append(parts, "in "+line(a.Dir))
	}
	switch own := strings.HasPrefix(a.Session, ownSession); {
	case a.Pane != "" && (own || a.Session == ""):
		parts = append(parts, "terminal "+line(a.Pane))
	case a.Pane != "":
		parts = append(parts, "terminal "+line(a.Session)+" / "+line(a.Pane))
	case a.Session != "":
		parts = append(parts, "terminal "+line(a.Session))
	}
	if a.Foreground != "" && a.Kind == approvals.KindKeys {
		parts = append(parts, "typed into "+line(a.Foreground))
	}
	return strings.Join(parts, " · ")
}

// preview is what the tool says of its action, and what was found out about it, in a few
// lines; the details have all.
func preview(r approvals.Record, summary string) []string {
	out := firstLines(visible(summary), maxSummary)
	if way := back(r.Preview.Back); way != "" {
		out = append(append(out, foundLines(r.Preview, maxFound-1)...), way)
	} else {
		out = append(out, foundLines(r.Preview, maxFound)...)
	}
	// A whole preview says what the arguments say; the details have them as they are bound.
	if args := arguments(r.Action); args != "" && !r.Action.Whole && r.Action.Kind != approvals.KindShell && r.Action.Kind != approvals.KindKeys {
		out = append(out, "with "+line(args))
	}
	return out
}

// firstLines returns the lines of a text, and how many more there are beyond the first.
func firstLines(text string, most int) []string {
	var lines []string
	for l := range strings.SplitSeq(text, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("and %d more lines, in the details", more))
	}
	return lines
}

// warnings are the sentences that must stand out, the worst first.
func warnings(r approvals.Record, notice string, odd bool) []string {
	var all []string
	add := func(s string) {
		if s != "" {
			all = append(all, s)
		}
	}
	add(notice)
	add(disagreement(r))
	for _, a := range append([]approvals.Action{r.Action}, r.Action.Steps...) {
		if s := line(a.Env[approvals.TerminalFact]); !slices.Contains(all, s) {
			add(s)
		}
	}
	if r.Taint != "" {
		// Its source has made it visible; escaping it again would change it.
		add(strings.ReplaceAll(visible(r.Taint), "\n", `\x0a`))
	}
	if odd {
		add(sayHidden)
	}
	if len(all) > maxWarn {
		all = append(all[:maxWarn-1:maxWarn-1], strings.Join(all[maxWarn-1:], " "))
	}
	return all
}

// choices are the buttons of an open card.
func choices(r approvals.Record) []chat.Button {
	yes, no := "Approve", "Deny"
	if n := len(r.Action.Steps); n > 1 {
		yes, no = fmt.Sprintf(labelApproveAll, n), "Deny all"
	}
	signs := r.Require.Proof != ""
	approve := chat.Button{ID: button(ApprovePrefix, r), Label: yes, Style: chat.StyleApprove, AskReason: r.Require.ReasonRequired, Write: r.Require.Write, Sign: signs}
	if l := r.FinalLevel(); l == risk.Unknown || l >= risk.High {
		on := ""
		if r.Place.Target != "" {
			on = " on " + line(r.Place.Target)
		}
		approve.Confirm = fmt.Sprintf(askExactly, level(r), on)
		if r.Action.Kind == approvals.KindChange && len(r.Action.Steps) == 0 {
			approve.Confirm = fmt.Sprintf(askChange, level(r))
		}
	}
	out := []chat.Button{approve, {ID: button(DenyPrefix, r), Label: no, Style: chat.StyleDeny, AskReason: true}}
	more := func(b chat.Button) {
		b.More = true
		out = append(out, b)
	}
	if g := min(r.Require.Grant, approvals.MaxGrant); g > 0 {
		more(chat.Button{
			ID: button(GrantPrefix, r), Label: fmt.Sprintf(labelApproveFor, int(g.Minutes())), Style: chat.StyleApprove, AskReason: r.Require.ReasonRequired, Write: r.Require.Write,
			Confirm: fmt.Sprintf(askGrant, int(g.Minutes())),
		})
	}
	if keep := r.Require.KeepWithin; r.Preview.Back.Timed && keep > 0 && !signs {
		more(chat.Button{
			ID: button(TrialPrefix, r), Label: fmt.Sprintf(labelTrial, briefly(keep)), Style: chat.StyleApprove,
			AskReason: r.Require.ReasonRequired, Write: r.Require.Write, Confirm: approve.Confirm,
		})
	}
	if _, ok := r.Action.Editable(); ok && r.Undoes.ID == "" {
		more(chat.Button{ID: button(EditPrefix, r), Label: "Edit", Style: chat.StyleEdit, Edit: string(r.Action.Bytes)})
	} else if code, ok := droppable(r); ok {
		more(chat.Button{ID: button(EditPrefix, r), Label: "Drop steps", Style: chat.StyleEdit, Edit: code})
	}
	if len(r.Require.BreakGlass) > 0 {
		more(chat.Button{ID: button(GlassPrefix, r), Label: "Break glass", Style: chat.StyleApprove, AskReason: true, Confirm: askGlass, Sign: signs})
	}
	more(chat.Button{ID: chat.ButtonID(StopPrefix + string(r.ID)), Label: "Stop", Style: chat.StyleStop})
	return out
}

// briefly is a short time in words.
func briefly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()))
}

// Size is how many bytes of a card a person can read, all its text counted as it is shown.
func Size(c chat.Card) int {
	n := 0
	for s := range c.Texts() {
		n += len(*s)
	}
	return n
}

// shownPerByte is how many bytes a card shows at most for a byte of its action's JSON: what is
// invisible is spelled out, in the command, its headline and its details.
const shownPerByte = 12

// Fits reports whether a request's card shows at most a number of bytes, and how many it would show
// when it does not. Only a large action is drawn for that.
func Fits(r approvals.Record, notice string, most int) (size int, ok bool) {
	raw, err := json.Marshal(r.Action)
	if err == nil && shownPerByte*(len(raw)+len(r.Claim.Why)+len(r.Taint)+len(r.Agent)) <= most {
		return 0, true
	}
	size = Size(New(r, notice))
	return size, size <= most
}

// shownOf is shown for a request, whose steps have been judged.
func shownOf(r approvals.Record) (code, summary string) {
	if len(r.Action.Steps) > 0 {
		return strings.Join(eachStep(r.Action.Steps, r.Engine.Steps), "\n"), r.Action.Preview
	}
	return shown(r.Action)
}

// shown is what a person reads: code is everything that decides what the action
// does, beside the card's fields; summary is a sentence about it, or "". A
// preview stands in for the exact bytes only if its tool made it whole.
func shown(a approvals.Action) (code, summary string) {
	switch {
	case len(a.Steps) > 0:
		return strings.Join(eachStep(a.Steps, nil), "\n"), a.Preview
	case a.Kind == approvals.KindShell:
		return string(a.Bytes), a.Preview
	case a.Whole && a.Preview != "":
		return strings.TrimSuffix(a.Preview, "\n"), "" // its last line ends like every other
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
		if a.Kind == approvals.KindShell && name == "wait" && string(raw) == "true" { // as it's without
			delete(m, name)
		}
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

// tone is the colour of the card: the risk of an open one, the result of one that ran.
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
		switch {
		case undone(r) != "":
			return chat.ToneNeutral
		case r.Outcome.OK:
			return chat.ToneGood
		case r.Outcome.Open():
			return chat.ToneMedium
		}
		return chat.ToneBad
	case approvals.OutcomeUnknown, approvals.Invalid:
		return chat.ToneBad
	default:
		return chat.ToneNeutral
	}
}

// disagreement puts into words where the agent's labels say less than the engine: a lower
// risk, no change where one is not excluded, no raised privileges where some are used.
func disagreement(r approvals.Record) string {
	if !r.Claim.Given {
		return ""
	}
	engine := risk.ParseLevel(r.Engine.Risk)
	lower := engine != claimed(r.Claim.Risk) && risk.Max(engine, claimed(r.Claim.Risk)) == engine
	change := !r.Claim.Mutation && !r.Engine.ReadOnly
	privileges := !r.Claim.Privesc && slices.Contains(r.Engine.Effects, string(risk.EffectPrivesc))
	var s []string
	switch {
	case !lower && !change && !privileges:
		return ""
	case change && claimed(r.Claim.Risk) == risk.Low:
		s = append(s, sayHarmless)
	case change:
		s = append(s, sayNoChange)
	case lower:
		s = append(s, "The agent called this "+named(r.Claim.Risk)+".")
	}
	if privileges {
		s = append(s, sayPrivileges)
	}
	why := ""
	if len(r.Engine.Reasons) > 0 {
		why = strings.TrimSuffix(r.Engine.Reasons[0], ".")
	}
	switch it, found := strings.CutPrefix(why, "it "); {
	case found:
		s = append(s, "It "+it+".")
	case why != "":
		s = append(s, upperFirst(named(r.Engine.Risk))+": "+why+".")
	case change:
		s = append(s, "It isn't proven to only read ("+named(r.Engine.Risk)+").")
	default:
		s = append(s, "It is "+named(r.Engine.Risk)+".")
	}
	return line(strings.Join(s, " "))
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

// named is a level in words.
func named(word string) string {
	if word == "" {
		return "no risk given"
	}
	return word + " risk"
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

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

// details are everything that is bound or was judged.
func details(r approvals.Record, summary string) []chat.Field {
	a := r.Action
	// What people look for comes first, and what was bound beside the text at the end.
	bound := place(a)
	there := slices.IndexFunc(bound, func(f chat.Field) bool { return f.Name != "Target" && f.Name != "Directory" })
	if there < 0 {
		there = len(bound)
	}
	f := slices.Clone(bound[:there])
	add := func(name, value string) {
		if value != "" {
			f = append(f, chat.Field{Name: name, Value: value})
		}
	}
	for i, s := range a.Steps {
		code, _ := shown(s)
		code, _ = exact(code)
		add(fmt.Sprintf("Step %d", i+1), code)
		for _, f := range place(s) {
			add(fmt.Sprintf("Step %d, %s", i+1, strings.ToLower(f.Name)), f.Value)
		}
	}
	add("Summary", visible(summary))
	add("Receipt", receiptOf(r.Receipt))
	add("Preview", visible(found(r.Preview)))
	add("Way back", wayBack(r.Preview.Back))
	analysis := level(r) + " risk"
	if r.Engine.Risk != r.Level {
		analysis = named(line(r.Engine.Risk)) + ", raised to " + level(r)
	}
	if len(r.Engine.Effects) > 0 {
		analysis += " (" + strings.Join(r.Engine.Effects, ", ") + ")"
	}
	if len(r.Engine.Reasons) > 0 {
		analysis += ": " + strings.Join(r.Engine.Reasons, "; ")
	}
	add("Analysis", line(analysis))
	if r.Claim.Given {
		change, priv := "no change", ""
		if r.Claim.Mutation {
			change = "changes something"
		}
		if r.Claim.Privesc {
			priv = ", with raised privileges"
		}
		add(labeller(r)+"'s label", line(named(r.Claim.Risk)+", "+change+priv))
		add(labeller(r)+"'s reason", line(fmt.Sprintf("%q", r.Claim.Why)))
	}
	add("Origin", strings.ReplaceAll(visible(r.Taint), "\n", `\x0a`))
	add("Asked by", line(nameOf(r.Requester)))
	add("Made by", line(r.Agent))
	if r.DroppedBy.ID != "" {
		add("Shortened", "by "+line(nameOf(r.DroppedBy))+"; the agent asked for more steps")
	}
	if edited(r) {
		add("Edited", "by "+line(nameOf(r.Requester))+"; the agent asked for something else, and its labels do not apply")
	}
	if r.Ticket.Key != "" {
		add("Ticket", line(strings.TrimSpace(r.Ticket.String()+" "+r.Ticket.URL)))
	}
	add("Rule", line(r.Rule))
	if r.Basis.Kind == approvals.ByVotes {
		votes(add, r)
	} else {
		add("Approved by", line(r.Basis.Why))
	}
	add("Asked at", stamp(r.Created))
	if r.State == approvals.Pending {
		expires := stamp(r.ExpiresAt)
		if r.ExpiresAt.Sub(r.Created) >= 24*time.Hour { // the time of day alone would be taken for today's
			expires = r.ExpiresAt.UTC().Format("2006-01-02 15:04:05") + " UTC"
		}
		add("Expires", expires)
	}
	f = append(f, bound[there:]...)
	add("Tool", line(a.Tool))
	add("Length", length(a))
	add("Request", fmt.Sprintf("%s, digest %s", r.ID, r.Digest.Short()))
	return f
}

// edited reports whether people changed the command of a request. To drop steps does not.
func edited(r approvals.Record) bool { return r.Revision > 0 && r.DroppedBy.ID == "" }

// droppable is the text of a plan from which people may remove steps; see [Kept].
func droppable(r approvals.Record) (code string, ok bool) {
	if len(r.Action.Steps) < 2 {
		return "", false
	}
	code, _ = shownOf(r)
	_, odd := exact(code)
	return code, !odd && len(code) <= approvals.MaxEdit
}

// Kept returns the indexes of the steps that a person left in the text of a plan's card, or whose numbers
// they sent (see [chat.Steps]). ok is false if the text is anything but the card's own, without some of its steps.
func Kept(r approvals.Record, text string) (steps []int, ok bool) {
	if _, ok := droppable(r); !ok {
		return nil, false
	}
	if steps, ok := numbered(text, len(r.Action.Steps)); ok {
		return steps, true
	}
	rest := unspaced(text)
	for i, step := range eachStep(r.Action.Steps, r.Engine.Steps) {
		if after, found := strings.CutPrefix(rest, unspaced(step)); found && (after == "" || after[0] == '\n') {
			rest = strings.TrimPrefix(after, "\n")
			steps = append(steps, i)
		}
	}
	return steps, rest == "" && len(steps) > 0
}

// numbered are the indexes of steps that are named by their numbers.
func numbered(text string, most int) (steps []int, ok bool) {
	for f := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 || n > most || slices.Contains(steps, n-1) {
			return nil, false
		}
		steps = append(steps, n-1)
	}
	slices.Sort(steps)
	return steps, len(steps) > 0
}

// unspaced is a text without empty lines and without blanks at the ends of its lines.
func unspaced(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimRight(l, " \t\r\n"); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// eachStep is the text of each action of a plan, with everything that decides what it does.
// Their risks are said where they differ.
func eachStep(all []approvals.Action, risks []string) []string {
	var out []string
	differ := len(risks) == len(all) && slices.ContainsFunc(risks, func(s string) bool { return s != risks[0] })
	shared := map[string]string{}
	for i, a := range all {
		var b strings.Builder
		code, _ := shown(a)
		code = strings.TrimSuffix(code, "\n")
		fmt.Fprintf(&b, "%d. %s", i+1, deed.Headline(a, nil))
		if differ {
			b.WriteString(" · " + line(risks[i]) + " risk")
		}
		for _, f := range place(a) {
			switch f.Name {
			case "Environment", "Depends on": // the details have these
			case "Arguments":
				if a.Kind != approvals.KindShell && a.Kind != approvals.KindKeys {
					fmt.Fprintf(&b, ", with %s", f.Value)
				}
			case "File", "Files", "Program in front":
				if strings.Contains(code, f.Value) || f.Name == "Program in front" && a.Kind == approvals.KindShell {
					continue // it shows the name itself, or it's the shell that runs it
				}
				fmt.Fprintf(&b, ", %s %s", strings.ToLower(f.Name), f.Value)
			default:
				if first, said := shared[f.Name]; !said {
					shared[f.Name] = f.Value // the headline or the context says it
				} else if first != f.Value {
					fmt.Fprintf(&b, ", %s %s", strings.ToLower(f.Name), f.Value)
				}
			}
		}
		b.WriteString("\n")
		for l := range strings.SplitSeq(code, "\n") {
			b.WriteString("    " + l + "\n")
		}
		out = append(out, strings.TrimSuffix(b.String(), "\n"))
	}
	return out
}

// Review is the card that asks for the review of what one person approved alone, or says who
// has reviewed it.
func Review(r approvals.Record) chat.Card {
	code, summary := shownOf(r)
	code, _ = exact(code)
	c := chat.Card{
		Title: "Review: " + headline(r), Tone: chat.ToneHigh, Env: line(r.Place.Env), Production: r.Place.Production,
		Code: code, Context: context(r.Action), Digest: r.Digest.Short(), Details: details(r, summary), DetailsID: chat.ButtonID(DetailsPrefix + string(r.ID)),
		Body: visible(fmt.Sprintf(sayGlass, nameOf(r.By), clock(r.Decided), r.Reason)),
	}
	if r.Review.Due {
		c.Warn = []string{sayReview}
		c.Choose = []chat.Button{{ID: button(ReviewPrefix, r), Label: "Reviewed", Style: chat.StyleApprove, AskReason: true}}
		return c
	}
	c.Final, c.Tone = true, chat.ToneNeutral
	c.Title = "Reviewed: " + headline(r)
	note := ""
	if r.Review.Note != "" {
		note = ": " + r.Review.Note
	}
	c.Body += visible(fmt.Sprintf(sayReviewed, nameOf(r.Review.By), clock(r.Review.At), note))
	return c
}

// fileState says in which state a file was when the action was planned. A part of a digest would tell what is in a
// short file to whoever guesses it.
func fileState(sum string) string {
	if len(sum) != 64 {
		return line(sum)
	}
	return "its content"
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

// basis says what approved it, where votes did not.
func basis(r approvals.Record) string {
	switch {
	case r.Basis.Kind != approvals.ByVotes:
		return " (" + r.Basis.Why + ")"
	case r.Review.Due || r.Review.By.ID != "":
		return " alone (break glass): " + r.Reason
	}
	return ""
}

// clock is a time for a sentence.
func clock(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }

// stamp is a time for the details.
func stamp(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// plainName is a name that cannot look like a part of a card's sentence.
var plainName = regexp.MustCompile(`^[\pL\pN@._'-]+( [\pL\pN@._'-]+){0,4}$`)

// nameOf is a person's name for a sentence; an odd one is quoted.
func nameOf(u chat.User) string {
	name := u.Name
	if name == "" {
		name = string(u.ID)
	}
	if plainName.MatchString(name) || u.Name == "" {
		return name
	}
	return strconv.Quote(quotes.Replace(name))
}

// quotes are marks that could close those around a name.
var quotes = strings.NewReplacer(`"`, "'", "“", "'", "”", "'", "„", "'", "‟", "'", "″", "'", "«", "'", "»", "'", "＂", "'")

// voters are all who approved, in their order, with their reasons.
func voters(r approvals.Record, last string) string {
	var all []string
	for _, v := range r.Votes {
		if !v.Counts() {
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

// maxStep is how much of a step's command stands in its line, in characters.
const maxStep = 80

// Progress puts on the decided card of a plan how its steps went. steps are their requests,
// as far as they were made, in the plan's order.
func Progress(c *chat.Card, plan approvals.Record, steps []approvals.Record) {
	c.Code, c.After, c.Since = "", nil, time.Time{} // the details have the code, and each step its own time
	switch plan.State {
	case approvals.Approved, approvals.Running, approvals.Done, approvals.OutcomeUnknown:
	default:
		return
	}
	var lines []string
	add := func(state chat.StepState, text string) {
		c.Steps = append(c.Steps, state)
		lines = append(lines, state.Mark()+text)
	}
	ok, bad, busy := 0, 0, false // bad is the first step that did not succeed
	for i, a := range plan.Action.Steps {
		what := deed.Headline(a, nil)
		if a.Kind == approvals.KindShell {
			code, _ := exact(string(a.Bytes))
			what = clipped(strings.Join(strings.Fields(code), " "), maxStep)
		}
		if i >= len(steps) {
			add(chat.StepWaiting, what+" · not run yet")
			continue
		}
		s := steps[i]
		state, how := chat.StepRunning, "running"
		switch s.State {
		case approvals.Done:
			how = result(s.Outcome)
			if state = chat.StepFailed; s.Outcome.OK {
				state = chat.StepDone
				ok++
			}
			if s.Outcome.Last != "" {
				how += " · " + clipped(line(s.Outcome.Last), maxStep)
			}
			if back := undone(s); back != "" {
				how += " · " + back
			} else if s.Outcome.Undo {
				c.After = append(c.After, chat.Button{ID: chat.ButtonID(UndoPrefix + string(s.ID)), Label: fmt.Sprintf(labelUndoStep, i+1), Style: chat.StyleEdit})
			}
		case approvals.OutcomeUnknown:
			state, how = chat.StepFailed, sayStepUnknown
		case approvals.Approved, approvals.Running:
			busy = true
		default:
			state, how = chat.StepFailed, "not run"
			if s.Reason != "" {
				how += ": " + line(s.Reason)
			}
		}
		if state == chat.StepFailed && bad == 0 {
			bad = i + 1
		}
		add(state, what+" · "+visible(how))
	}
	switch {
	case bad > 0:
		c.Tone = chat.ToneBad
	case ok == len(plan.Action.Steps):
		c.Tone = chat.ToneGood
	default:
		c.Tone = chat.ToneNeutral
	}
	if busy {
		c.After = append(c.After, chat.Button{ID: chat.ButtonID(StopPrefix + string(plan.ID)), Label: "Stop", Style: chat.StyleStop})
	}
	by := voters(plan, nameOf(plan.By))
	how := fmt.Sprintf(sayStepsDone, ok, len(plan.Action.Steps))
	if bad > 0 {
		how = fmt.Sprintf(sayStepFailed, bad, len(plan.Action.Steps))
	}
	c.Body = visible(fmt.Sprintf(sayPlanApproved, by, clock(plan.Decided), basis(plan), how)) + strings.Join(lines, "\n")
}

// clipped cuts a text to n characters.
func clipped(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + " …"
	}
	return s
}

// ending says who decided and how it went, in one line.
func ending(r approvals.Record) string {
	by := nameOf(r.By)
	if r.State != approvals.Denied && r.State != approvals.Cancelled && r.Basis.Kind == approvals.ByVotes {
		by = voters(r, by)
	}
	approved := fmt.Sprintf(sayApproved, by, clock(r.Decided), basis(r))
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	s := ""
	switch r.State {
	case approvals.Approved, approvals.Running: // one face, so that the start of a run is no edit
		s = approved + "running"
	case approvals.Done:
		s = approved + result(r.Outcome)
		if back := undone(r); back != "" {
			s = back + " · " + lowerFirst(s)
		} else if r.Receipt.AsApproved && r.Outcome.OK { // beside a failure it would contradict it
			s += " · " + r.Receipt.Sentence()
		}
	case approvals.OutcomeUnknown:
		s = approved + sayUnknown
	case approvals.Denied:
		s = fmt.Sprintf(sayDenied, by, clock(r.Decided), reason)
	case approvals.Expired:
		s = sayExpired
		if !r.RunBy.IsZero() {
			s = approved + fmt.Sprintf(sayLateStart, r.Require.RunWithin)
		}
	case approvals.Cancelled:
		s = fmt.Sprintf(sayWithdrawn, by, reason)
	case approvals.Invalid:
		s = "Not run" + reason + ". Ask for it again."
	case approvals.Pending:
	}
	return visible(s)
}

// undone says who took back what a request changed; "" if it stands.
func undone(r approvals.Record) string {
	switch {
	case !r.UndoneAt.IsZero():
		return fmt.Sprintf(sayUndone, nameOf(r.UndoneBy), clock(r.UndoneAt))
	case r.Trial.Ended == approvals.Undone:
		return "↩ " + TrialEnded(r)
	}
	return ""
}

// result says how a run ended, in a few words.
func result(o approvals.Outcome) string {
	note := strings.TrimRight(strings.Replace(o.Note, "exit code ", "exit ", 1), ".")
	switch {
	case o.Unstarted:
		if _, why, ok := strings.Cut(note, "was not run: "); ok {
			note = why // its own sentence says so, too
		}
		return "not run: " + note
	case o.Signal != "":
		return "ended by SIG" + strings.TrimPrefix(o.Signal, "SIG")
	case o.Open():
		return note
	case !o.OK && (note == "" || note == "failed"):
		return "failed"
	case !o.OK:
		return "failed: " + note
	case note == "":
		return "done"
	}
	return note
}

// labeller is whose labels a request has: a step of a workflow was labelled by whoever wrote
// it down.
func labeller(r approvals.Record) string {
	if strings.HasPrefix(r.Agent, approvals.MadeByWorkflow) {
		return "Runbook"
	}
	return "Agent"
}
