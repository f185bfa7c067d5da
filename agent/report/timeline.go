package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/audit"
)

// What a timeline shows at most. The archive has the rest.
const (
	maxTitle    = 120       // characters
	maxPeople   = 50        //
	maxRows     = 1500      // lines of the timeline: its beginning and its end
	maxLooks    = 1000      // lines of the appendix
	maxLong     = 200       // long commands in full
	maxBlock    = 4000      // characters of one of them
	maxQuestion = 100       // open questions
	maxReply    = 4 << 10   // bytes of a reply that are looked at for its first words
	foldFrom    = 3         // that many look-ups in a row are one line
	maxOfList   = 1_000_000 // bytes of one appendix
)

// Timeline returns the draft of a post-mortem in Markdown: a summary, the events in order
// and in UTC, headings for people to fill in, and open questions. It uses the record alone.
// Its length is limited to a few MB.
func Timeline(inc Incident) string {
	t := &timeline{writer: writer{inc.redactor()}, inc: inc, incidentState: fold(inc), scopes: map[string]string{}}
	t.collect()
	var b strings.Builder
	t.head(&b)
	t.rows(&b)
	b.WriteString(forPeople)
	t.questions(&b)
	t.appendices(&b)
	return b.String()
}

// forPeople contains the sections that only people can write.
const forPeople = `
## Impact

_Who could not do what, from when to when, and how many of them? What did it cost?_

## Root cause

_What made it possible, and what set it off? Facts and how they are known; no names._

## What went well

_What shortened it or kept it small?_

## What to improve

_What made it longer or larger? What was missing: an alert, a runbook, a right, a person?_

## Action items

_One line for each: what, who, until when._

- [ ] 
`

// row is one line of the timeline.
type row struct {
	at    time.Time
	scope string
	text  string
	read  *call // instead of text, so that several can be one line
}

type timeline struct {
	writer
	*incidentState
	inc    Incident
	out    []row
	scopes map[string]string // nested work: how its lines begin
	reads  []*call           // of the appendix, in order
	long   []*call           // shown cut, so that the appendix has them
	began  time.Time
	ended  time.Time
}

func (t *timeline) add(at time.Time, scope, format string, a ...any) {
	t.out = append(t.out, row{at: at, scope: scope, text: fmt.Sprintf(format, a...)})
}

// collect builds the rows. It merges those of the transcript with those that only the chain
// and the alerts have, ordered by time.
func (t *timeline) collect() {
	for i := range t.inc.Entries {
		t.entry(&t.inc.Entries[i])
	}
	for _, k := range t.calls { // an unfinished call appears at its start
		if k.result == nil && !k.intent.IsZero() {
			t.add(k.intent, k.scope, "%s — **it began, and nothing says how it ended**%s", t.what(k), t.basis(k))
		}
	}
	others := t.out
	t.out = nil
	for _, a := range t.alerts() {
		t.alert(a)
	}
	// Rows with the same time are ordered by cause and effect: alert, transcript, chain.
	t.out = append(t.out, others...)
	for i := range t.inc.Lines {
		t.line(&t.inc.Lines[i])
	}
	all := t.out
	slices.SortStableFunc(all, func(a, b row) int { return a.at.Compare(b.at) })
	if len(all) > 0 {
		t.began, t.ended = all[0].at, all[len(all)-1].at
	}
	for i := range t.inc.Entries {
		if at := t.inc.Entries[i].At; at.After(t.ended) {
			t.ended = at
		}
	}
}

func (t *timeline) alerts() []Alert {
	all := slices.Clone(t.inc.Alerts)
	slices.SortStableFunc(all, func(a, b Alert) int { return a.At.Compare(b.At) })
	return all
}

// entry adds the rows of one entry.
func (t *timeline) entry(e *history.Entry) {
	switch {
	case e.Message != nil:
		t.message(e)
	case e.Reply != nil:
		// Only final replies of the thread's own conversation.
		if text := t.said(e.Reply.Text); e.Scope == "" && len(e.Reply.Calls) == 0 && text != "" {
			t.add(e.At, "", "**bot**: %s", text)
		}
	case e.Decision != nil:
		t.decisionRow(e)
	case e.Edited != nil && e.Edited.Keep != nil:
		text, _ := t.code(e.Edited.Text, maxCommand)
		t.add(e.At, e.Scope, "**Shortened** by %s: request %s is withdrawn, and these steps are left %s", t.user(e.Edited.By), t.name(string(e.Edited.Approval)), text)
	case e.Edited != nil:
		text, _ := t.code(e.Edited.Text, maxCommand)
		t.add(e.At, e.Scope, "**Edited** by %s: request %s is withdrawn, and the command is now %s", t.user(e.Edited.By), t.name(string(e.Edited.Approval)), text)
	case e.Tried != nil:
		t.add(e.At, e.Scope, "**Refused**: a command that ran as a read tried to %s", t.said(e.Tried.What))
	case e.Begin != nil:
		t.beginRow(e)
	case e.Result != nil:
		t.resultRow(e)
	case e.Stop != nil:
		t.add(e.At, e.Scope, "**Stop** by %s", t.user(e.Stop.From))
	case e.Pen != nil && e.Pen.Taken:
		t.add(e.At, e.Scope, "**Keyboard taken** by %s; the bot waits", t.user(e.Pen.By))
	case e.Pen != nil:
		t.add(e.At, e.Scope, "**Keyboard given back** by %s", t.user(e.Pen.By))
	case e.Note != nil:
		t.add(e.At, e.Scope, "Note: %s", t.text(e.Note.Text, maxSaid))
	case e.Step != nil:
		t.step(e)
	case e.End != nil && e.End.Reason == history.EndLimit:
		t.add(e.At, e.Scope, "**Limit**: %s", t.text(e.End.Text, maxSaid))
	case e.End != nil && e.End.Reason == history.EndFailed:
		t.add(e.At, e.Scope, "**The bot could not go on**: %s", t.text(e.End.Text, maxSaid))
	}
}

func (t *timeline) message(e *history.Entry) {
	m := e.Message
	who := "**" + t.user(m.From) + "**"
	switch {
	case m.From.Bot:
		who += " (bot)"
	case m.From.Outside:
		who += " (outside)"
	}
	files := ""
	if n := len(m.Files); n > 0 {
		files = " (with " + plural(n, "file") + ")"
	}
	t.add(e.At, e.Scope, "%s: %s%s", who, t.text(m.Text, maxSaid), files)
}

// decisionRow adds a row for a decision that no run follows. An approval appears with its
// run.
func (t *timeline) decisionRow(e *history.Entry) {
	d := e.Decision
	k := t.byID[d.Call]
	if k == nil || d.State == approvals.Approved {
		return
	}
	why := ""
	if d.Reason != "" {
		why = ": " + t.text(d.Reason, maxSaid)
	}
	switch d.State {
	case approvals.Denied:
		t.add(e.At, e.Scope, "**Denied** by %s: %s%s%s", t.user(t.personNamed(d.By, d.ByName)), t.what(k), t.request(k, d.Approval), why)
	case approvals.Expired:
		t.add(e.At, e.Scope, "**Expired**, nobody decided in time: %s%s%s", t.what(k), t.request(k, d.Approval), why)
	default:
		t.add(e.At, e.Scope, "**%s**: %s%s%s", t.text(title(string(d.State)), maxName), t.what(k), t.request(k, d.Approval), why)
	}
}

func title(s string) string {
	if s == "" {
		return "Ended"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// beginRow adds a row for the start of nested work.
func (t *timeline) beginRow(e *history.Entry) {
	b := e.Begin
	kind := "Sub-agent"
	if b.Kind == history.NestedWorkflow {
		kind = "Workflow"
	}
	t.scopes[b.Call] = t.text(b.Name, maxName)
	what := ""
	if b.Task != "" {
		what = ": " + t.text(b.Task, maxSaid)
	} else if len(b.Inputs) > 0 {
		var in []string
		for name, value := range b.Inputs {
			in = append(in, name+"="+value)
		}
		slices.Sort(in)
		what = " with " + t.text(strings.Join(in, ", "), maxSaid)
	}
	if k := t.byID[b.Call]; k != nil && k.lastAsk() != nil {
		what += t.basis(k)
	}
	t.add(e.At, e.Scope, "**%s %s began**%s", kind, t.name(b.Name), what)
}

func (t *timeline) step(e *history.Entry) {
	s := e.Step
	switch s.What {
	case history.StepAsked:
		t.add(e.At, e.Scope, "step %s asks: %s", t.name(s.ID), t.text(s.Text, maxSaid))
	case history.StepAnswered:
		t.add(e.At, e.Scope, "step %s answered by %s: %s", t.name(s.ID), t.user(s.By), t.text(s.Text, maxSaid))
	default: // waits are left out
	}
}

// resultRow adds a row for the end of a call.
func (t *timeline) resultRow(e *history.Entry) {
	k := t.byID[e.Result.Call]
	if k == nil || k.result != e.Result {
		return
	}
	took := ""
	if d, ok := k.took(t.chain); ok {
		took = " after " + span(d)
	}
	switch {
	case k.begin != nil:
		how := "ended"
		switch k.end(t.chain) {
		case endFailed:
			how = "failed: " + t.text(k.why(), maxSaid)
		case endUnknown:
			how = "ended, **outcome unknown**"
		default:
		}
		kind := "Sub-agent"
		if k.begin.Begin.Kind == history.NestedWorkflow {
			kind = "Workflow"
		}
		t.add(e.At, e.Scope, "%s %s %s%s", kind, t.name(k.begin.Begin.Name), how, took)
	case k.isRead(t.chain):
		t.out = append(t.out, row{at: k.start(), scope: e.Scope, read: k})
	case !k.intent.IsZero():
		t.add(k.intent, e.Scope, "%s — %s%s%s", t.what(k), t.outcome(k), took, t.basis(k))
	case k.forbidden != nil:
		t.add(e.At, e.Scope, "**Refused by the policy**: %s: %s", t.what(k), t.text(cmp.Or(k.forbidden.Event.Note, k.why()), maxSaid))
	case k.lastAsk() != nil && k.state() == approvals.Cancelled && k.decision() == nil:
		t.add(e.At, e.Scope, "**Withdrawn**: %s%s: %s", t.what(k), t.request(k, k.lastAsk().Approval), t.text(k.why(), maxSaid))
	case k.decision() != nil && k.decision().State == approvals.Approved:
		t.add(e.At, e.Scope, "**Approved, and not run**: %s%s: %s", t.what(k), t.basis(k), t.text(k.why(), maxSaid))
	}
}

// said returns the beginning of a model's Markdown reply as one line of text.
func (t *timeline) said(reply string) string {
	return t.text(markdown.Plain(markdown.Parse(firstBytes(t.clean(reply), maxReply))), maxSaid)
}

// what describes a call: the tool, its target and the exact command.
func (t *timeline) what(k *call) string {
	out := t.name(k.tool())
	if at := k.target(); at != "" {
		out += " on " + t.name(at)
	}
	if k.wanted && k.scope == "" {
		out += " (a person's wish)"
	}
	if strings.TrimSpace(k.command()) == "" {
		return out
	}
	shown, whole := t.code(k.command(), maxCommand)
	out += ": " + shown
	if !whole {
		i := slices.Index(t.long, k)
		if i < 0 {
			i = len(t.long)
			t.long = append(t.long, k)
		}
		out += fmt.Sprintf(" (whole: B%d)", i+1)
	}
	return out
}

// outcome describes how a run ended.
func (t *timeline) outcome(k *call) string {
	code, known := k.exitCode()
	switch k.end(t.chain) {
	case endUnknown:
		return "**outcome unknown**"
	case endLost:
		return "**no outcome**"
	case endFailed:
		if known {
			return fmt.Sprintf("**exit code %d**", code)
		}
		return "**failed**"
	default:
	}
	approved := ""
	if k.rec != nil && k.rec.Receipt.AsApproved {
		approved = ", " + k.rec.Receipt.Sentence()
	}
	if known {
		return fmt.Sprintf("exit code %d", code) + approved
	}
	return "done" + approved
}

// request describes a request.
func (t *timeline) request(k *call, id approvals.ID) string {
	digest := ""
	for _, a := range k.asks {
		if a.Approval == id {
			digest = ", digest " + inline(a.Digest.Short())
		}
	}
	return fmt.Sprintf(" (request %s%s, asked for %s)", t.name(string(id)), digest, t.user(t.requester(k)))
}

// requester returns the person a call was requested for.
func (t *timeline) requester(k *call) chat.User {
	if k.rec != nil && k.rec.Requester.ID != "" {
		return k.rec.Requester
	}
	return k.by
}

// basis says why a call was permitted to run.
func (t *timeline) basis(k *call) string {
	a := k.lastAsk()
	switch {
	case k.isRead(true):
		return " · proven read-only"
	case a == nil:
		return " · nobody was asked" // the chain, which would say why, is missing
	}
	return " · " + t.approval(k) + t.request(k, a.Approval)
}

// approval says who or what approved a call.
func (t *timeline) approval(k *call) string {
	if r := k.rec; r != nil {
		var who []string
		for _, v := range r.Votes {
			switch {
			case v.Glass && v.Approve:
				who = append(who, t.user(v.User)+", who **broke the glass**: "+t.text(v.Reason, maxSaid))
			case v.Approve:
				who = append(who, t.user(v.User))
			}
		}
		switch {
		case r.Basis.Kind != approvals.ByVotes:
			of := ""
			if r.Basis.Of != "" {
				of = " of request " + t.name(string(r.Basis.Of))
			}
			return "approved by " + t.text(string(r.Basis.Kind), maxName) + of + ": " + t.text(r.Basis.Why, maxSaid)
		case len(who) > 0:
			return "approved by " + strings.Join(who, " and ")
		}
	}
	if d := k.decision(); d != nil && d.State == approvals.Approved {
		return "approved by " + t.user(t.personNamed(d.By, d.ByName))
	}
	return "not approved"
}

// line adds a row for an event that only the chain has.
func (t *timeline) line(l *audit.Line) {
	e := l.Event
	who := t.user(t.personNamed(e.User, ""))
	id := t.name(e.Approval)
	note := ""
	if e.Note != "" {
		note = ": " + t.text(e.Note, maxSaid)
	}
	switch e.What {
	case audit.Ticket:
		t.add(l.At, "", "%s named the **ticket**%s", who, note)
	case audit.Relieved:
		t.add(l.At, "", "**Shift change**: request %s%s", id, note)
	case audit.Escalated:
		t.add(l.At, "", "**Escalated**: request %s%s", id, note)
	case audit.Refused:
		t.add(l.At, "", "A vote of %s on request %s did not count%s", who, id, note)
	case audit.Granted:
		t.add(l.At, "", "%s approved the same as request %s for a while%s", who, id, note)
	case audit.Revoked:
		t.add(l.At, "", "%s ended what was approved for a while%s", who, note)
	case audit.Reviewed:
		t.add(l.At, "", "%s reviewed request %s, which one person had decided alone%s", who, id, note)
	case audit.Kept:
		t.add(l.At, "", "%s kept the change of request %s", who, id)
	case audit.Undone:
		t.add(l.At, "", "The change of request %s was undone%s", id, note)
	case audit.UndoFailed:
		t.add(l.At, "", "**The change of request %s couldn't be undone**%s", id, note)
	case audit.Receipt:
		if strings.HasPrefix(e.Note, "Also") {
			t.add(l.At, "", "**More than was shown**, by request %s%s", id, note)
		}
	case audit.Policy:
		t.add(l.At, "", "The policy changed%s", note)
	}
}

func (t *timeline) alert(a Alert) {
	text := t.text(cmp.Or(a.Title, a.Text, a.Key), maxSaid)
	from := ""
	if a.Source != "" {
		from = " (" + t.text(a.Source, maxName) + ")"
	}
	status := ""
	switch a.Status {
	case Firing:
		status = " firing"
	case Resolved:
		status = " resolved"
	case "":
	default:
		status = " " + t.text(a.Status, maxName)
	}
	t.add(a.At, "", "**Alert%s**: %s%s", status, text, from)
}

// firingAlerts returns the alerts whose last status is firing.
func (t *timeline) firingAlerts() []Alert {
	last := map[string]Alert{}
	for _, a := range t.alerts() {
		last[a.Source+"\x00"+cmp.Or(a.Key, a.Title)] = a
	}
	var out []Alert
	for _, a := range last {
		if a.Status == Firing {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Alert) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Key+a.Title, b.Key+b.Title)) })
	return out
}

// waiting returns the requests that are pending, or approved and not used yet.
func (t *timeline) waiting() []approvals.Record {
	var out []approvals.Record
	for _, r := range t.inc.Records {
		if r.State == approvals.Pending || r.State == approvals.Approved {
			out = append(out, r)
		}
	}
	return out
}

// title returns the incident's title.
func (t *timeline) title() string {
	for _, a := range t.alerts() {
		if s := cmp.Or(a.Title, a.Text, a.Key); s != "" {
			return t.text(s, maxTitle)
		}
	}
	for i := range t.inc.Entries {
		if m := t.inc.Entries[i].Message; m != nil && strings.TrimSpace(m.Text) != "" {
			return t.text(m.Text, maxTitle)
		}
	}
	return "thread " + t.name(string(t.inc.Thread))
}

// head writes the title and the summary.
func (t *timeline) head(b *strings.Builder) {
	fmt.Fprintf(b, "# Post-mortem: %s\n\n", t.title())
	b.WriteString("_A draft, made of the record of the thread alone. All times are UTC. `[redacted:…]` stands for a secret._\n\n")
	b.WriteString("## Summary\n\n")
	fmt.Fprintf(b, "- **Thread**: %s\n", t.name(string(t.inc.Thread)))
	if !t.began.IsZero() {
		fmt.Fprintf(b, "- **Began**: %s\n", moment(t.began))
	}
	switch why := t.unfinished(); {
	case t.began.IsZero():
		b.WriteString("- Nothing is recorded.\n")
	case why != "":
		fmt.Fprintf(b, "- **Ended**: still open (%s); the last thing recorded is of %s\n", why, moment(t.ended))
		fmt.Fprintf(b, "- **Duration**: %s so far\n", span(t.ended.Sub(t.began)))
	default:
		fmt.Fprintf(b, "- **Ended**: %s\n", moment(t.ended))
		fmt.Fprintf(b, "- **Duration**: %s\n", span(t.ended.Sub(t.began)))
	}
	fmt.Fprintf(b, "- **Commands**: %s\n", t.counts())
	b.WriteString("\n| who | id | what they did |\n|---|---|---|\n")
	for i, p := range t.people {
		if i == maxPeople {
			fmt.Fprintf(b, "| and %s | | |\n", plural(len(t.people)-i, "other"))
			break
		}
		roles := strings.Join(p.roles, ", ")
		if p.Bot {
			roles = strings.TrimPrefix("a program, "+roles, ", ")
		}
		// In a table, a vertical bar ends a cell even inside code.
		fmt.Fprintf(b, "| %s | %s | %s |\n", t.user(p.User), t.text(string(p.ID), maxName), cmp.Or(strings.TrimSuffix(roles, ", "), "took part"))
	}
	b.WriteString("| countersign | | the bot: proposed and ran |\n")
}

// unfinished says why the incident is still open, "" if it is over.
func (t *timeline) unfinished() string {
	var why []string
	if n := len(t.firingAlerts()); n > 0 {
		why = append(why, plural(n, "alert")+" firing")
	}
	if n := len(t.waiting()); n > 0 {
		why = append(why, plural(n, "request")+" waiting")
	}
	if t.open {
		why = append(why, "the bot is at work")
	}
	if t.holder != nil {
		why = append(why, "a person has the keyboard")
	}
	return strings.Join(why, ", ")
}

func (t *timeline) counts() string {
	n := map[string]int{}
	for _, k := range t.calls {
		end := k.end(t.chain)
		switch {
		case k.begin != nil:
			continue
		case k.isRead(t.chain):
			n["looks"]++
		case !k.intent.IsZero():
			n["approved"]++
		}
		n[string(end)]++
	}
	out := []string{plural(n["approved"], "run") + " with approval", plural(n["looks"], "look-up") + " without"}
	for _, end := range []ending{endFailed, endUnknown, endLost, endDenied, endExpired, endForbidden, endCancelled, endWaiting} {
		if n[string(end)] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[string(end)], end))
		}
	}
	return strings.Join(out, ", ")
}

// rows writes the timeline. If it has more than maxRows lines, rows leaves out some in the
// middle.
func (t *timeline) rows(b *strings.Builder) {
	b.WriteString("\n## Timeline\n")
	lines := t.lines()
	from, to := len(lines), len(lines)
	if len(lines) > maxRows {
		from, to = maxRows*3/5, len(lines)-maxRows*2/5
	}
	day := ""
	for i, l := range lines {
		if i >= from && i < to {
			if i == from {
				fmt.Fprintf(b, "\n_%s left out here; transcript.jsonl of the archive has everything._\n", plural(to-from, "line"))
				day = ""
			}
			continue
		}
		if d := l.at.UTC().Format("Monday, 2 January 2006"); d != day {
			day = d
			fmt.Fprintf(b, "\n### %s\n\n", d)
		}
		indent := ""
		if name, ok := t.scopes[l.scope]; ok && l.scope != "" {
			indent = "_" + name + "_ › "
		}
		fmt.Fprintf(b, "- `%s` %s%s\n", clock(l.at), indent, l.text)
	}
	if len(lines) == 0 {
		b.WriteString("\n_Nothing is recorded._\n")
	}
}

// lines returns the rows, with consecutive reads combined.
func (t *timeline) lines() []row {
	var out []row
	for i := 0; i < len(t.out); {
		if t.out[i].read == nil {
			out = append(out, t.out[i])
			i++
			continue
		}
		j := i
		for j < len(t.out) && t.out[j].read != nil && t.out[j].scope == t.out[i].scope {
			j++
		}
		out = append(out, t.readRows(t.out[i:j])...)
		i = j
	}
	return out
}

// readRows returns the rows for consecutive reads: one row for many, else one each.
func (t *timeline) readRows(rows []row) []row {
	from, failed := len(t.reads)+1, 0
	for _, r := range rows {
		t.reads = append(t.reads, r.read)
		if r.read.end(t.chain) != endOK {
			failed++
		}
	}
	if len(rows) < foldFrom {
		var out []row
		for _, r := range rows {
			r.text = t.readLine(r.read)
			out = append(out, r)
		}
		return out
	}
	text := plural(len(rows), "look-up")
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	text += fmt.Sprintf(", until %s (A%d to A%d)", clock(rows[len(rows)-1].at), from, len(t.reads))
	return []row{{at: rows[0].at, scope: rows[0].scope, text: text}}
}

// readLine returns the line of one read.
func (t *timeline) readLine(k *call) string {
	took := ""
	if d, ok := k.took(t.chain); ok {
		took = " after " + span(d)
	}
	return t.what(k) + " — " + t.outcome(k) + took + t.basis(k)
}

// questions writes the open questions.
func (t *timeline) questions(b *strings.Builder) {
	b.WriteString("\n## Open questions\n\n")
	var all []string
	add := func(format string, a ...any) { all = append(all, "- "+fmt.Sprintf(format, a...)+"\n") }
	for _, f := range t.inc.Faults {
		add("%s", t.text(f, 2*maxSaid))
	}
	for _, k := range t.calls {
		switch k.end(t.chain) {
		case endUnknown:
			add("**What did this do?** Its outcome is unknown since %s: %s%s", moment(k.start()), t.what(k), t.basis(k))
		case endLost:
			if k.begin == nil {
				add("**Did this end, and how?** It began at %s: %s%s", moment(k.start()), t.what(k), t.basis(k))
			}
		default:
		}
	}
	for _, r := range t.waiting() {
		shown, _ := t.code(commandOf(r.Action), maxCommand)
		if r.State == approvals.Approved {
			add("Request %s is approved and has not run yet: %s: %s", t.name(string(r.ID)), t.name(r.Action.Tool), shown)
			continue
		}
		add("Request %s waits for a decision until %s: %s: %s", t.name(string(r.ID)), moment(r.ExpiresAt), t.name(r.Action.Tool), shown)
	}
	for _, r := range t.inc.Records {
		if r.Review.Due {
			add("Request %s was decided by %s alone, and nobody has reviewed it yet.", t.name(string(r.ID)), t.user(r.By))
		}
	}
	for _, a := range t.firingAlerts() {
		add("The alert “%s” fires since %s, as far as is known.", t.text(cmp.Or(a.Title, a.Text, a.Key), maxSaid), moment(a.At))
	}
	if t.holder != nil {
		add("%s took the keyboard at %s and has not given it back.", t.user(t.holder.Pen.By), moment(t.holder.At))
	}
	if len(all) == 0 {
		b.WriteString("The record leaves none.\n")
	}
	for i, q := range all {
		if i == maxQuestion {
			fmt.Fprintf(b, "- and %d more; commands.csv of the archive has all\n", len(all)-i)
			break
		}
		b.WriteString(q)
	}
}

// appendices writes the reads, and in full the commands that were shortened above.
func (t *timeline) appendices(b *strings.Builder) {
	if len(t.reads) > 0 {
		b.WriteString("\n## Appendix A: look-ups\n\n")
		if t.chain {
			b.WriteString("They ran without a person, because they were proven to only read.\n\n")
		}
		size := b.Len()
		for i, k := range t.reads {
			if i == maxLooks || b.Len()-size > maxOfList {
				fmt.Fprintf(b, "- and %d more; commands.csv of the archive has all\n", len(t.reads)-i)
				break
			}
			fmt.Fprintf(b, "- A%d `%s` %s\n", i+1, moment(k.start()), strings.TrimSuffix(t.readLine(k), " · proven read-only"))
		}
	}
	if len(t.long) == 0 {
		return
	}
	b.WriteString("\n## Appendix B: long commands\n")
	size := b.Len()
	for i := 0; i < len(t.long); i++ {
		if i == maxLong || b.Len()-size > maxOfList {
			fmt.Fprintf(b, "\nAnd %d more; commands.csv of the archive has all.\n", len(t.long)-i)
			break
		}
		k := t.long[i]
		text, short := t.fullCommand(k)
		fmt.Fprintf(b, "\n**B%d** %s of %s\n\n%s", i+1, t.name(k.tool()), moment(k.start()), block(text))
		if short {
			b.WriteString("\n_It is longer; commands.csv of the archive has more of it._\n")
		}
	}
}

// fullCommand returns a command for a code block. short reports that it was cut.
func (t *timeline) fullCommand(k *call) (text string, short bool) {
	return cut(visible.Code(t.cleanCommand(k.command())), maxBlock)
}
