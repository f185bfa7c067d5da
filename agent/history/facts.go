package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"countersign/agent/llm"
	"countersign/approvals"
)

// Sizes of the facts, in characters of one line and lines of one kind.
const (
	factCommand  = 120
	factShort    = 40
	factReason   = 100
	factNote     = 200
	factQuestion = 80
	maxOpenLines = 20
	maxNoteLines = 10
	firstFacts   = 4 // that stay whatever comes later
	maxQuestions = 10
	lineSize     = 130 // of one line in tokens, at least
	titleSize    = 60  // of the words before a list, in tokens
)

// cover takes in that a unit is no longer shown.
func (c *conversation) cover(u *unit) {
	switch e := u.entry; {
	case e.Message != nil:
		if !e.Message.From.Bot {
			c.people = append(c.people, e)
		}
	case e.Note != nil:
		c.told++
	case e.Reply != nil:
		for i := u.from; i < u.to; i++ {
			p := &c.parts[i]
			c.told += c.decided[p.call.ID]
			if p.entry != nil && (p.entry.Result.Unknown || leavesOpen(p.entry.Result.Tool)) {
				c.told++
			}
		}
	}
}

// front is the size of what comes before the units, at least, with facts for that of the
// facts.
func (c *conversation) front(facts int) int {
	n := 0
	if c.task != nil {
		n += frame + Guess(len(c.task.Begin.Task)+len(c.task.Begin.Name)+64)
	}
	if c.summary == nil {
		return n
	}
	n += min(facts, c.factsRoom) + frame + titleSize
	if said, from := c.said(); from < len(c.people) {
		n += said + frame + titleSize
	}
	return n + min(size(c.summary), c.lim.large) + frame + titleSize
}

// guessFacts is at least what the facts will have.
func (c *conversation) guessFacts() int {
	return (c.told + c.nested + maxQuestions) * lineSize
}

// said finds which of the people's words stay, the newest first, and their size.
func (c *conversation) said() (tokens, from int) {
	for from = len(c.people); from > 0; from-- {
		n, _ := c.saidSize(c.people[from-1])
		if tokens+n > c.saidRoom {
			break
		}
		tokens += n
	}
	return tokens, from
}

// saidSize is the size of what is kept of a message that is no longer shown whole: its
// files go, and no message has more than a quarter of the room. most bounds the bytes
// of it, if it has more.
func (c *conversation) saidSize(e *Entry) (tokens, most int) {
	n := size(e)
	if len(e.Message.Files) > 0 {
		n = frame + dataFrame + guess(e.Message.From.Name) + guess(e.Message.Text)
	}
	if n > c.saidRoom/4 {
		most = max(c.saidRoom/4*2, 64)
		n = c.saidRoom/4 + cutSize + guess(e.Message.From.Name)
	}
	for _, f := range e.Message.Files {
		n += fileFrame + Guess(min(len(f.Name), 4*maxName))
	}
	return n, most
}

// saidItem is what is kept of a message.
func (c *conversation) saidItem(e *Entry) llm.Item {
	m := *e.Message
	m.Files = nil
	short := *e
	short.Message = &m
	_, most := c.saidSize(e)
	var text strings.Builder
	text.WriteString(c.mark.messageText(&short, most))
	for _, f := range e.Message.Files {
		fmt.Fprintf(&text, "\n[with the file %s, %d bytes; search_history with entry %d shows it]", cleanName(f.Name, "without a name"), len(f.Text), e.Seq)
	}
	return llm.Item{Role: llm.User, Text: text.String()}
}

// frontItems are what comes before the units: the task of a sub-agent, and what stays of
// the entries that a summary stands for, with the summary.
func (c *conversation) frontItems() (items []llm.Item, facts string) {
	user := func(text string) { items = append(items, llm.Item{Role: llm.User, Text: text}) }
	if c.task != nil {
		user(c.taskText())
	}
	if c.summary == nil {
		return items, ""
	}
	upto := c.summary.Summary.Upto
	if facts = c.facts(c.factsRoom * 2); facts != "" {
		user(fmt.Sprintf("[countersign] Facts of this conversation up to entry %d, from the bot's own record; # is the number of an entry:\n%s", upto, facts))
	}
	if _, from := c.said(); from < len(c.people) {
		text := "[countersign] What people wrote up to there follows word for word, oldest first."
		if from > 0 {
			text += fmt.Sprintf(" %d older messages are left out; search_history finds them.", from)
		}
		user(text)
		for _, e := range c.people[from:] {
			items = append(items, c.saidItem(e))
		}
	}
	text := strings.ReplaceAll(c.summary.Summary.Text, "[countersign]", "(countersign)")
	if size(c.summary) > c.lim.large {
		text = cutMiddle(text, max((c.lim.large-cutSize)*2, 64), "[... %d bytes of the summary are left out here ...]")
	}
	user(fmt.Sprintf("[countersign] Summary, written by the model, of what came before entry %d. It is a record and asks for nothing:\n%s", upto+1, text))
	return items, facts
}

// fact is one line of the facts in two lengths.
type fact struct {
	long, short string
	// plain facts are the first to go: an approved call that went well.
	plain bool
}

// facts are computed from the entries before the summary alone, so that they stay the
// same until the next one. most bounds them in bytes.
func (c *conversation) facts(most int) string {
	before := len(c.entries)
	for i := range c.entries {
		if &c.entries[i] == c.summary {
			before = i
		}
	}
	upto := c.summary.Summary.Upto
	var rest strings.Builder
	section := func(title string, percent int, lines []string, wrap func(string) string) {
		if lines = newest(lines, most*percent/100-len(title)-2); len(lines) > 0 {
			rest.WriteString("\n" + title + ":\n" + wrap(strings.Join(lines, "\n")))
		}
	}
	plain := func(s string) string { return s }
	section("Still open", 20, c.open(before, upto), plain)
	section("Not answered when the summary was written", 10, c.unanswered(before, upto), plain)
	section("Notes", 15, c.notes(upto), func(s string) string {
		return quoteData("the terminals of this thread", c.mark.tag(upto, "notes"), s)
	})
	text := rest.String()
	if lines := trim(c.decidedFacts(upto), most-len(text)-100); len(lines) > 0 {
		text = "\nDecisions:\n" + strings.Join(lines, "\n") + text
	}
	return strings.TrimPrefix(text, "\n")
}

// newest are the last lines that fit in so many bytes.
func newest(lines []string, most int) []string {
	for i, line := range slices.Backward(lines) {
		if most -= len(line) + 1; most < 0 {
			return lines[i+1:]
		}
	}
	return lines
}

// trim brings facts into most bytes: short ones in place of the older ones, then without
// the plain ones in the middle, then without others there.
func trim(facts []fact, most int) []string {
	lines := make([]string, len(facts))
	total := 0
	for i, f := range facts {
		lines[i] = f.long
		total += len(f.long) + 1
	}
	for i := 0; i < len(facts) && total > most; i++ {
		total -= len(lines[i]) - len(facts[i].short)
		lines[i] = facts[i].short
	}
	gone := 0
	const noteSize = 110
	drop := func(plain bool) {
		for i := firstFacts; i < len(facts)-1 && total > most-noteSize; i++ {
			if lines[i] != "" && (!plain || facts[i].plain) {
				total -= len(lines[i]) + 1
				lines[i] = ""
				gone++
			}
		}
	}
	if total > most {
		drop(true)
		drop(false)
	}
	var out []string
	used := 0
	for i, l := range lines {
		if gone > 0 && i == min(firstFacts, len(lines)) {
			out = append(out, fmt.Sprintf("- (%d more are left out here; search_history with kind decision finds them)", gone))
			used += noteSize
		}
		if l == "" {
			continue
		}
		if used+len(l)+1 > most {
			continue // not even the first ones fit
		}
		used += len(l) + 1
		out = append(out, l)
	}
	return out
}

// decidedFacts are the decisions of people about the covered calls and how these ended, and
// the calls whose outcome is not known.
func (c *conversation) decidedFacts(upto uint64) []fact {
	var out []fact
	told := map[string]bool{}
	for _, e := range c.decisions {
		ref, ok := c.calls[e.Decision.Call]
		if !ok || ref.reply.Seq > upto || e.Seq > c.summary.Seq {
			continue
		}
		told[e.Decision.Call] = true
		out = append(out, c.decisionFact(e, ref))
	}
	for i := range c.units[:c.summaryAt] {
		u := &c.units[i]
		if u.entry.Seq > upto {
			break
		}
		for j := u.from; j < u.to; j++ {
			p := &c.parts[j]
			if p.entry == nil || p.entry.Result == nil || !p.entry.Result.Unknown || told[p.entry.Result.Call] {
				continue
			}
			what := c.what(p.call, factCommand)
			line := fmt.Sprintf("- #%d %s: outcome unknown, it may or may not have happened", p.entry.Seq, what)
			out = append(out, fact{long: line, short: line})
		}
	}
	return out
}

func (c *conversation) decisionFact(e *Entry, ref callRef) fact {
	d := e.Decision
	by := d.ByName
	if by == "" {
		by = d.By
	}
	by = cleanName(by, "the policy")
	verb := string(d.State)
	edited := ""
	if ed := c.edits[d.Call]; ed != nil {
		edited = ", edited by " + authorName(ed.Edited.By)
	}
	digest := ""
	if a := c.asks[string(d.Approval)]; a != nil {
		digest = " (digest " + a.Digest.String()[:8] + ")"
	}
	outcome, plain := "", false
	if d.State == approvals.Approved {
		outcome, plain = ending(ref.result)
		outcome = ": " + outcome
	}
	reason := ""
	if d.Reason != "" {
		reason = ", because " + quote(oneLine(d.Reason, factReason))
	}
	at := e.At.UTC().Format("Jan 2 15:04Z")
	line := func(what, reason string) string {
		return fmt.Sprintf("- #%d %s %s by %s%s: %s%s%s%s", e.Seq, at, verb, by, edited, what, digest, outcome, reason)
	}
	return fact{long: line(c.what(ref.call, factCommand), reason), short: line(c.what(ref.call, factShort), ""), plain: plain}
}

// quote puts a text in quotes as a person would.
func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, "'") + `"` }

// mainArguments say what a call does, the first that it has.
var mainArguments = [...]string{"command", "cmd", "keys", "text", "url", "path", "session", "process_id", "query", "task"}

// what says in a few words what a call is, with a person's edit.
func (c *conversation) what(call *llm.Call, n int) string {
	name := oneLine(call.Name, maxName)
	text := ""
	if ed := c.edits[call.ID]; ed != nil {
		text = ed.Edited.Shown
	} else if args := arguments(call); args != nil {
		for _, key := range mainArguments {
			if s, ok := args[key].(string); ok && s != "" {
				text = s
				break
			}
		}
	}
	if text == "" {
		text = call.Args
	}
	if text = oneLine(text, n); text == "" || text == "{}" {
		return name
	}
	return name + " " + quote(text)
}

// maxArguments is how large, in bytes, the arguments of a call are that are looked into.
const maxArguments = 64 << 10

func arguments(call *llm.Call) map[string]any {
	var args map[string]any
	if len(call.Args) > maxArguments || json.Unmarshal([]byte(call.Args), &args) != nil {
		return nil
	}
	return args
}

// ending says how an approved call ended. plain is true if all went well.
func ending(result *Entry) (how string, plain bool) {
	if result == nil {
		return "it has not run yet", false
	}
	r := result.Result
	switch {
	case r.Unknown:
		return "outcome unknown", false
	case r.Denied || r.Skipped:
		return "it did not run", false
	}
	if code, ok := exitCode(r.Text); ok {
		return "exit " + code, code == "0"
	}
	if r.Failed {
		return "it failed", false
	}
	return "it ended well", true
}

// exitCode finds the exit code in an envelope: a key, which no quoted output can hold.
func exitCode(text string) (string, bool) {
	if !strings.HasPrefix(text, envelopeBegin) {
		return "", false
	}
	for _, lead := range []string{`{"exit_code":`, `,"exit_code":`} {
		_, after, ok := strings.Cut(text, lead)
		end := strings.IndexAny(after, ",}")
		if ok && end > 0 && end < 12 && strings.Trim(after[:end], "-0123456789") == "" {
			return after[:end], true
		}
	}
	return "", false
}

// The tools that begin and end what stays open.
const (
	createSession   = "tmux-create-session"
	killSession     = "tmux-kill-session"
	startProcess    = "run_bash_background"
	startProcessToo = "run_background"
)

// leavesOpen reports whether a call of a tool can leave something open.
func leavesOpen(tool string) bool {
	return tool == createSession || tool == startProcess || tool == startProcessToo
}

// open says which sessions and background processes were begun, by this conversation and by
// what is nested in it, and not ended, as far as calls tell.
func (c *conversation) open(before int, upto uint64) []string {
	type thing struct {
		key, line string
	}
	var things []thing
	end := func(key string) {
		things = slices.DeleteFunc(things, func(t thing) bool { return t.key == key })
	}
	for i := range before {
		e := &c.entries[i]
		if e.Result == nil || c.scope != "" && e.Scope != c.scope {
			continue
		}
		ref, ok := c.calls[e.Result.Call]
		if !ok || ref.result != e || e.Result.Skipped || e.Result.Denied {
			continue
		}
		began := ref.reply.Seq <= upto
		switch e.Result.Tool {
		case createSession:
			args := arguments(ref.call)
			name, _ := args["session"].(string)
			target, _ := args["target"].(string)
			key := "session\x00" + target + "\x00" + name
			end(key)
			if began && !e.Result.Failed {
				things = append(things, thing{key, fmt.Sprintf("- the tmux session %s%s, since entry %d", quote(oneLine(name, maxName)), onTarget(target), e.Seq)})
			}
		case killSession:
			args := arguments(ref.call)
			name, _ := args["session"].(string)
			target, _ := args["target"].(string)
			if !e.Result.Failed {
				end("session\x00" + target + "\x00" + name)
			}
		case startProcess, startProcessToo:
			id, _ := process(e.Result.Text)
			if began && id != "" && !e.Result.Failed {
				things = append(things, thing{"process\x00" + id, fmt.Sprintf("- the background process %s, since entry %d: %s", oneLine(id, maxName), e.Seq, c.what(ref.call, factCommand))})
			}
		case "get_background_status", "get_background_output", "interrupt_background_process":
			if id, over := process(e.Result.Text); id != "" && over {
				end("process\x00" + id)
			}
		}
	}
	lines := make([]string, 0, len(things))
	for _, t := range things[max(0, len(things)-maxOpenLines):] {
		lines = append(lines, t.line)
	}
	return lines
}

func onTarget(target string) string {
	if target == "" {
		return ""
	}
	return " on " + quote(oneLine(target, maxName))
}

// process reads which background process a result is about, and whether it has ended.
func process(text string) (id string, over bool) {
	var e struct {
		Result struct {
			ProcessID string `json:"process_id"`
			State     string `json:"state"`
			Gone      bool   `json:"gone"`
		} `json:"result"`
	}
	if json.Unmarshal([]byte(text), &e) != nil {
		return "", false
	}
	switch e.Result.State {
	case "exited", "signalled", "ended":
		return e.Result.ProcessID, true
	}
	return e.Result.ProcessID, e.Result.Gone
}

// unanswered are the covered messages after which the model had not replied when the
// summary was written.
func (c *conversation) unanswered(before int, upto uint64) []string {
	var lines []string
	for i := before - 1; i >= 0; i-- {
		e := &c.entries[i]
		if !c.shows(e) {
			continue
		}
		if e.Reply != nil {
			break
		}
		if e.Message != nil && e.Seq <= upto && !e.Message.From.Bot {
			lines = append(lines, fmt.Sprintf("- #%d %s: %s", e.Seq, authorName(e.Message.From), quote(oneLine(e.Message.Text, factQuestion))))
		}
	}
	lines = lines[:min(len(lines), maxQuestions)]
	slices.Reverse(lines)
	return lines
}

// notes are the newest covered notes, one line each.
func (c *conversation) notes(upto uint64) []string {
	var lines []string
	for i := c.summaryAt - 1; i >= 0 && len(lines) < maxNoteLines; i-- {
		e := c.units[i].entry
		if e.Note != nil && e.Seq <= upto {
			lines = append(lines, fmt.Sprintf("- #%d %s", e.Seq, oneLine(e.Note.Text, factNote)))
		}
	}
	slices.Reverse(lines)
	return lines
}
