package history

import (
	"fmt"
	"strings"

	"countersign/agent/llm"
)

// interrupted answers a call that has no result. The engine gives every call a
// result before it asks the model again, so this is seen only for a transcript
// that was cut short by hand.
const interrupted = "Tool error: the call was interrupted and its outcome is unknown; look before repeating it."

// Render turns a transcript into the conversation that a model is given, after
// the system prompt. The order is always one that the API accepts: each
// assistant message with calls is followed at once by exactly one result for
// each call, whatever people said in between. A call that a person edited keeps
// the model's own arguments, and its result begins with what came instead. budget is the size in bytes that
// the result should keep to: the oldest tool results are cleared first, then
// the oldest turns are left out with a note. budget <= 0 means no limit.
func Render(system string, entries []Entry, budget int) []llm.Item {
	results := map[string]*Result{}
	edits := map[string]*Edited{}
	for i := range entries {
		if e := entries[i].Edited; e != nil {
			edits[e.Call] = e // the last one is what was asked for
		}
		if r := entries[i].Result; r != nil {
			if _, dup := results[r.Call]; !dup {
				results[r.Call] = r
			}
		}
	}
	// Replies carry their own results, so nothing that people said while a call
	// was open can come between the two. A group is what may be dropped together.
	var groups [][]llm.Item
	for i := range entries {
		switch e := &entries[i]; {
		case e.Message != nil:
			groups = append(groups, []llm.Item{{Role: llm.User, Text: messageText(e.Message)}})
		case e.Reply != nil:
			groups = append(groups, replyItems(e.Reply, results, edits))
		case e.Note != nil:
			groups = append(groups, []llm.Item{{Role: llm.User, Text: "[countersign] " + e.Note.Text}})
		case e.End != nil && e.End.Reason != EndDone && e.End.Text != "":
			groups = append(groups, []llm.Item{{Role: llm.User, Text: "[countersign] " + e.End.Text}})
		}
	}
	groups = fit(groups, budget-len(system))
	items := []llm.Item{{Role: llm.System, Text: system}}
	for _, g := range groups {
		items = append(items, g...)
	}
	return items
}

func messageText(m *Message) string {
	var b strings.Builder
	name := m.From.Name
	if name == "" {
		name = string(m.From.ID)
	}
	fmt.Fprintf(&b, "%s: %s", name, m.Text)
	for _, f := range m.Files {
		fmt.Fprintf(&b, "\n\n[attached file %q", f.Name)
		if f.Cut {
			b.WriteString(", cut")
		}
		fmt.Fprintf(&b, "]\n%s", f.Text)
	}
	return b.String()
}

// editedText tells the model that its call is not what was asked for: the call in
// its own message stays as it wrote it.
func editedText(e *Edited, result string) string {
	name := e.By.Name
	if name == "" {
		name = string(e.By.ID)
	}
	return fmt.Sprintf("[countersign] %s edited this call before deciding: your %q was replaced, and what follows is the result of exactly this instead:\n%s\n[countersign] Its result:\n%s", name, e.Argument, e.Shown, result)
}

func replyItems(r *Reply, results map[string]*Result, edits map[string]*Edited) []llm.Item {
	items := []llm.Item{{Role: llm.Assistant, Text: r.Text, Calls: r.Calls}}
	for _, c := range r.Calls {
		text := interrupted
		if res := results[c.ID]; res != nil {
			text = res.Text
		}
		if e := edits[c.ID]; e != nil {
			text = editedText(e, text)
		}
		items = append(items, llm.Item{Role: llm.Tool, CallID: c.ID, Text: text})
	}
	return items
}

// keepGroups is how many of the newest groups are never touched to save room.
const keepGroups = 8

func fit(groups [][]llm.Item, budget int) [][]llm.Item {
	if budget <= 0 {
		return groups
	}
	size := 0
	for _, g := range groups {
		size += sizeOf(g)
	}
	last := len(groups) - keepGroups
	for i := 0; i < last && size > budget; i++ {
		for j := range groups[i] {
			it := &groups[i][j]
			if it.Role != llm.Tool || len(it.Text) <= 200 {
				continue
			}
			cleared := fmt.Sprintf("[an old result of %d bytes was cleared to save room; run the call again if you need it]", len(it.Text))
			size -= len(it.Text) - len(cleared)
			it.Text = cleared
		}
	}
	dropped := 0
	for dropped < last && size > budget {
		size -= sizeOf(groups[dropped])
		dropped++
	}
	if dropped == 0 {
		return groups
	}
	note := []llm.Item{{Role: llm.User, Text: fmt.Sprintf("[countersign] The oldest %d messages of this thread were left out to save room.", dropped)}}
	return append([][]llm.Item{note}, groups[dropped:]...)
}

func sizeOf(g []llm.Item) int {
	n := 0
	for _, it := range g {
		n += len(it.Text) + 16
		for _, c := range it.Calls {
			n += len(c.Name) + len(c.Args) + 32
		}
	}
	return n
}
