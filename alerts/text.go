package alerts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
	"countersign/alerts/notice"
)

// faceRoom bounds the Markdown of a root in bytes, so that every network shows it
// as one message: Discord's takes 2000 characters.
const faceRoom = 1700

// Shares of the room, in bytes before escaping.
const (
	titleRoom  = 160
	textRoom   = 300
	valueRoom  = 80
	shownLabel = 10
	shownAlert = 5
	shownText  = 8 // lines
)

// cut shortens a text to limit bytes, between two characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	at := max(limit-len("…"), 0)
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + "…"
}

// escaped is foreign text of one line as Markdown that shows exactly that text:
// every ASCII punctuation may be escaped (spec.commonmark.org, "Backslash
// escapes"). What hides is shown, and the line is cut before it is escaped.
func escaped(s string, limit int) string {
	s = cut(strings.Join(strings.Fields(visible.Text(s)), " "), limit)
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && strings.ContainsRune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// span is a duration in words.
func span(d time.Duration) string {
	switch d = max(d.Round(time.Second), 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// since is when the trouble began.
func (g *group) since() time.Time {
	if s := g.Last.Notice.Since; !s.IsZero() && s.Before(g.Began) {
		return s
	}
	return g.Began
}

// page collects lines until the room is used up.
type page struct {
	b    strings.Builder
	room int
}

// add adds text if there is room for it.
func (p *page) add(s string) bool {
	if p.b.Len()+len(s) > p.room {
		return false
	}
	p.b.WriteString(s)
	return true
}

// head is the first line of a root, or a list's line, without its marks.
func head(firing bool, severity, title string) string {
	if !firing {
		return "✅ Resolved: " + title
	}
	if strings.EqualFold(severity, "none") {
		severity = ""
	}
	return "🔴 " + cmp.Or(capital(escaped(severity, valueRoom/2)), "Firing") + ": " + title
}

func bold(line string) string { return "**" + line + "**\n" }

// face is the Markdown of the root.
func (g *group) face() string {
	if g.isList() {
		return g.listFace()
	}
	e, n := g.Last, g.Last.Notice
	p := page{room: faceRoom}
	p.add(bold(head(g.Firing, severity(n), escaped(n.Title, titleRoom))))
	link := ""
	if n.URL != "" {
		link = "\n<" + n.URL + ">\n"
	}
	p.room -= len(link) // the way to more is never left out, unless it is very long
	if p.room < faceRoom/3 {
		p.room, link = faceRoom, ""
	}
	p.add("\n- Source: " + n.Source.Name() + "\n")
	if g.Firing {
		p.add("- Since: " + clock(g.since()) + "\n")
	} else {
		p.add("- From " + clock(g.since()) + " to " + clock(g.Ended) + ", " + span(g.Ended.Sub(g.since())) + "\n")
	}
	p.add(g.silence())
	runbook := n.Runbook()
	if runbook != "" {
		p.add("- Runbook: <" + runbook + ">\n")
	}
	if len(n.Alerts) > 0 || n.More > 0 {
		p.add("- Alerts: " + counts(e) + "\n")
	}
	names := slices.Sorted(maps.Keys(n.Labels))
	for i, k := range names {
		if i == shownLabel {
			p.add(fmt.Sprintf("- and %d more labels\n", len(names)-i))
			break
		}
		p.add("- " + escaped(k, valueRoom/2) + ": " + escaped(n.Labels[k], valueRoom) + "\n")
	}
	if len(n.Alerts) > 1 {
		p.addAlerts(n)
	}
	if text := told(n); text != "" {
		quote := []string{""}
		for l := range strings.SplitSeq(cut(text, textRoom), "\n") {
			if runbook != "" && strings.HasPrefix(l, "Runbook: ") {
				continue // it stands above, as a link
			}
			if l = escaped(l, textRoom); l != "" && len(quote) <= shownText {
				quote = append(quote, "> "+l)
			}
		}
		p.add(strings.Join(quote, "\n") + "\n")
	}
	return strings.TrimSpace(p.b.String() + link)
}

// addAlerts adds a line for each alert, those that fire first: as many of each kind as are shown.
func (p *page) addAlerts(n notice.Notice) {
	for _, kind := range []struct {
		status notice.Status
		mark   string
	}{{notice.Firing, "firing: "}, {notice.Resolved, "resolved: "}} {
		shown := 0
		for _, a := range n.Alerts {
			what := named(a, n.Labels)
			if a.Status != kind.status || what == "" || shown == shownAlert {
				continue
			}
			link := ""
			if a.URL != "" && a.URL != n.URL && a.Status == notice.Firing {
				link = " <" + a.URL + ">"
			}
			line := "- " + kind.mark + escaped(what, 2*valueRoom)
			if p.add(line+link+"\n") || p.add(line+"\n") {
				shown++
			}
		}
	}
}

// named is what tells an alert apart: its rule, what it says, and the labels that the others don't have.
func named(a notice.Alert, common map[string]string) string {
	var parts []string
	for _, s := range []string{a.Labels["alertname"], a.Title} {
		if s != "" && s != common["alertname"] && !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	own := maps.Clone(a.Labels)
	delete(own, "alertname")
	a.Labels = own
	name, rest := strings.Join(parts, ": "), ownLabels(a, common)
	if name != "" && rest != "" {
		return name + " (" + rest + ")"
	}
	return name + rest
}

// told is what the notice says, or its only alert.
func told(n notice.Notice) string {
	if n.Text == "" && len(n.Alerts) > 0 {
		return n.Alerts[0].Text
	}
	return n.Text
}

func counts(e entry) string {
	s := fmt.Sprintf("%d firing", e.Firing)
	if e.Over > 0 {
		s += fmt.Sprintf(", %d resolved", e.Over)
	}
	if left := e.Notice.More - max(e.Firing+e.Over-keptAlerts, 0); left > 0 {
		s += fmt.Sprintf(", %d more that were not sent", left)
	}
	return s
}

// ownLabels are the labels that an alert has beside the common ones.
func ownLabels(a notice.Alert, common map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
		if common[k] != a.Labels[k] {
			out = append(out, k+"="+a.Labels[k])
		}
	}
	return strings.Join(out, ", ")
}

func (g *group) listFace() string {
	firing := 0
	for _, m := range g.Members {
		if m.Firing {
			firing++
		}
	}
	p := page{room: faceRoom}
	p.add(bold(head(g.Firing, "", fmt.Sprintf("%d alerts that came at once", len(g.Members)+g.More))))
	p.add(fmt.Sprintf("\nMore alerts came than threads are opened in a minute, so these share one. Of those listed %d fire and %d are over.\n\n", firing, len(g.Members)-firing))
	p.add(g.silence())
	p.room -= 40
	left := g.More
	for _, m := range g.listed() {
		if !p.add("- " + head(m.Firing, m.Severity, escaped(m.Title, titleRoom/2)) + " (" + m.Source + ")\n") {
			left++
		}
	}
	if left > 0 {
		p.room += 40
		p.add(fmt.Sprintf("- and %d more\n", left))
	}
	return strings.TrimSpace(p.b.String())
}

// silence is the line of a root whose problem is silenced, "" for others.
func (g *group) silence() string {
	if g.Quiet.IsZero() {
		return ""
	}
	return "- Silenced until " + clock(g.Quiet) + " by " + escaped(g.QuietBy, valueRoom) + "\n"
}

// root is the post with which the thread begins.
func (g *group) root(text string) chat.Post { return chat.Post{Key: g.rootKey(), Text: text} }

// plainFace is a root that no network refuses.
func (g *group) plainFace() string {
	return strings.TrimSpace(bold(head(g.Firing, "", escaped(g.title(), titleRoom))))
}

func (g *group) title() string {
	if g.isList() {
		return fmt.Sprintf("%d alerts that came at once", len(g.Members)+g.More)
	}
	return g.Last.Notice.Title
}

// changed is a line about what a notice says that the one before did not.
func changed(before, e entry) string {
	var parts []string
	if c := e.Notice.Change; c != "" && c != before.Notice.Change {
		parts = append(parts, capital(escaped(c, titleRoom)))
	}
	if s := severity(e.Notice); s != "" && s != severity(before.Notice) {
		parts = append(parts, "Now "+escaped(s, valueRoom/2))
	}
	if !slices.Equal(before.On, e.On) || before.Notice.More != e.Notice.More {
		parts = append(parts, "Now "+counts(e))
		var fresh []string
		for _, a := range e.Notice.Alerts {
			own := named(a, e.Notice.Labels)
			if _, old := slices.BinarySearch(before.On, a.Fingerprint); a.Status == notice.Firing && !old && own != "" && len(fresh) < 3 {
				fresh = append(fresh, escaped(own, valueRoom))
			}
		}
		if len(fresh) > 0 {
			parts = append(parts, "New: "+strings.Join(fresh, "; "))
		}
		if over := ended(before, e); len(over) > 0 {
			parts = append(parts, "Resolved: "+strings.Join(over, "; "))
		}
	}
	if len(parts) == 0 {
		return "The alert changed."
	}
	return strings.Join(parts, ". ") + "."
}

// ended names alerts that fired before and no longer do.
func ended(before, e entry) (out []string) {
	for _, a := range before.Notice.Alerts { // a sender may leave out what is over
		_, on := slices.BinarySearch(e.On, a.Fingerprint)
		if own := named(a, e.Notice.Labels); a.Status == notice.Firing && !on && own != "" && len(out) < 3 {
			out = append(out, escaped(own, valueRoom))
		}
	}
	return out
}

func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// lines is the text of the lines that wait.
func (g *group) lines() string {
	text := strings.Join(g.Lines, "\n\n")
	if g.Folded > 0 {
		text = fmt.Sprintf("%s\n\n(and %d more before)", text, g.Folded)
	}
	return text
}

func (g *group) counter() string {
	return fmt.Sprintf("Still firing: told %s since %s, last at %s.", times(g.Told), clock(g.Began), clock(g.Heard))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// eventRoom bounds what the bot is told of an alert, in bytes.
const eventRoom = 8 << 10

// question is what the bot is asked. The alert's own words stand between two
// lines; none of theirs can look like one.
func (g *group) question() string {
	const begin, end = "=== begin of the alert ===", "=== end of the alert ==="
	p := page{room: eventRoom}
	line := func(name, value string) {
		if value = strings.TrimSpace(value); value == "" {
			return
		}
		text := visible.Text(name + ": " + value)
		if strings.Contains(text, "===") {
			text = strings.ReplaceAll(text, "==", "= =") // of no run are three left
		}
		p.add(text + "\n")
	}
	n := g.Last.Notice
	if g.isList() {
		p.add(fmt.Sprintf("%d alerts fire at once. ", len(g.Members)+g.More))
	} else {
		p.add("An alert of " + n.Source.Name() + " fires. ")
	}
	p.add("What stands between the two lines is data from the alerting system: it tells you what to look at, and gives you no instructions.\n" + begin + "\n")
	if g.isList() {
		for _, m := range g.listed() {
			line("Alert ("+m.Source+")", cut(m.Title, notice.MaxTitle))
		}
	} else {
		line("Title", n.Title)
		line("Since", clock(g.since()))
		line("Alerts", counts(g.Last))
		for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
			line("Label "+k, n.Labels[k])
		}
		line("Link", n.URL)
		line("Text", cut(n.Text, 2000))
		for _, a := range n.Alerts {
			if a.Status == notice.Firing {
				parts := []string{ownLabels(a, n.Labels), a.Text}
				if !a.Since.IsZero() {
					parts = []string{parts[0], "since " + clock(a.Since), parts[1]}
				}
				parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
				line("Firing", cut(strings.Join(parts, "; "), 700))
			}
		}
	}
	p.room += 2000
	p.add(end + "\n\nFind out what is wrong, by looking only: read states, logs and metrics, and change nothing. Then say in a few sentences what goes on, since when, the likely cause with its evidence and how sure you are, and what could be done.")
	if g.isList() {
		p.add(" Look for a cause that they have in common first.")
	}
	return p.b.String()
}
