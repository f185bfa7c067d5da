package blockkit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
	"countersign/adapters/chat/visible"
)

// The files that a card adds where a message has no room.
const (
	codeFile    = "command.txt"
	detailsFile = "details.txt"
)

// maxLine is how much of one text of a card is shown, in bytes of JSON; it
// leaves room in a block for the markup. maxLabel is the same for a field's name.
const (
	maxLine  = 2400
	maxLabel = 200
)

// Card draws a card: title, risk, code, preview, warnings, fields, body, the agent's
// reason, who may decide in small print, then the buttons in the order given, one for the
// details, and the menu. A final card without a choice is one line.
//
// Code is shown character for character. Where it has no room, its beginning
// and end are shown with a sentence that says how much is left out, "command.txt"
// carries the whole, and the approving buttons ask for a confirmation that names
// the digest. Other texts that have no room end with a pointer to "details.txt".
// Files of the card come after those two.
//
// A button is left out, and a warning says so, when its id is empty, given
// twice, longer than 128 bytes or not printable ASCII, and from the sixth on:
// nothing may be decided by a button that can't be told apart.
func Card(c chat.Card, o CardOptions) Message {
	d := newDrawing(c, o)
	blocks, files := d.oneLine()
	if blocks == nil {
		blocks, files = d.whole()
	}
	if blocks == nil {
		blocks, files = d.reduced()
	}
	said := c
	said.Code = clip(visible.Code(c.Code), maxSaidCode)
	return Message{Text: fallback(face.Text(said)), Blocks: blocks, Files: append(files, c.Attach...)}
}

// maxSaidCode is how much of the code stands in a message's text, in characters:
// the target and the reasons after it matter there too.
const maxSaidCode = 1000

// zone is where on a card a line stands.
type zone int

const (
	zoneHead zone = iota // small, above the code
	zoneFields
	zoneSmall
)

// line is one text of a card, already visible.
type line struct {
	zone        zone
	label, text string
	time        moment // after text
}

// drawing is a card on its way to blocks.
type drawing struct {
	card    chat.Card
	options CardOptions
	header  slack.Block
	lines   []line
	code    string // visible
	exact   bool   // code is what the card says, to the character
	buttons []chat.Button
	// The names of the two files, that none of the card's own has.
	codeName, detailsName string
}

func newDrawing(c chat.Card, o CardOptions) *drawing {
	d := &drawing{
		card: c, options: o, code: visible.Code(c.Code),
		codeName: face.FreeName(codeFile, c.Attach), detailsName: face.FreeName(detailsFile, c.Attach),
	}
	d.exact = d.code == c.Code
	add := func(z zone, label, text string) {
		if text = visible.Text(text); strings.TrimSpace(text) != "" {
			d.lines = append(d.lines, line{zone: z, label: visible.Text(label), text: text})
		}
	}
	title := face.Headline(c)
	d.header = slack.NewHeaderBlock(plain(title, MaxHeader))
	if utf16Len(visible.Text(title)) > MaxHeader {
		add(zoneFields, "", c.Title)
	}
	lines := face.Lines(c)
	for _, l := range lines {
		switch l.Part {
		case face.Risk, face.Context:
			add(zoneHead, "", l.Text)
		case face.Preview:
			add(zoneFields, "", visible.Below(l.Text))
		case face.Warning:
			add(zoneFields, warning, l.Text)
		case face.Field, face.Body, face.Why: // below what is ours to say
		}
	}
	if !d.exact {
		add(zoneFields, warning, sayInvisible(d.codeName))
	}
	var left []string
	d.buttons, left = face.Buttons(c, MaxButtons, validButton)
	for _, label := range left {
		add(zoneFields, warning, fmt.Sprintf(sayNoButton, label))
	}
	if len(c.Details) > 0 && validButton(c.DetailsID) && !slices.ContainsFunc(d.buttons, func(b chat.Button) bool { return b.ID == c.DetailsID }) {
		d.buttons = append(d.buttons, chat.Button{ID: c.DetailsID, Label: "Details"})
	}
	for _, l := range lines {
		switch l.Part {
		case face.Field:
			add(zoneFields, l.Label, visible.Below(l.Text))
		case face.Body:
			add(zoneFields, "", l.Text)
			if s := since(c); s.shown() && strings.TrimSpace(l.Text) != "" {
				d.lines[len(d.lines)-1].time = s
			}
		case face.Why:
			add(zoneFields, l.Label, "“"+visible.Below(l.Text)+"”")
		case face.Risk, face.Context, face.Preview, face.Warning:
		}
	}
	add(zoneSmall, "State", face.State(c))
	add(zoneSmall, "", c.Footer)
	if !c.Expires.IsZero() && !c.Final {
		d.lines = append(d.lines, line{zone: zoneSmall, text: "expires at ", time: moment{c.Expires, "{time}"}})
	}
	if len(c.Details) == 0 { // they have it
		add(zoneSmall, "Digest", c.Digest)
	}
	return d
}

// warning labels a warning.
const warning = "⚠"

// maxOneLine is how much of a decided command stands in its one line, in characters.
const maxOneLine = 200

// oneLine draws a decided card with details: what was done where, the command, and how it
// ended. It returns nil for any other card.
func (d *drawing) oneLine() ([]slack.Block, []chat.File) {
	c := d.card
	if !c.Final || len(c.Details) == 0 || quoted(c.Title) > maxLine || quoted(c.Body) > maxLine {
		return nil, nil
	}
	body, plan := c.Body, planOf(c)
	if plan != nil {
		body, _, _ = strings.Cut(body, "\n")
	}
	run := []slack.RichTextSectionElement{text(visible.Text(face.Headline(c)), &slack.RichTextSectionTextStyle{Bold: true})}
	if first := clipLine(d.code, maxOneLine); first != "" {
		run = append(run, text(" · ", nil), text(first, &slack.RichTextSectionTextStyle{Code: true}))
	}
	if body = visible.Text(body); strings.TrimSpace(body) != "" {
		run = append(run, text(" · "+body, nil))
	}
	if s := since(c); s.shown() {
		run = append(run, text(sinceText, nil), s.element())
	}
	for _, w := range c.Warn {
		if quoted(w) <= maxLine {
			run = append(run, text("\n"+warning+" "+visible.Text(w), &slack.RichTextSectionTextStyle{Bold: true}))
		}
	}
	if last := visible.Text(c.Last); last != "" {
		run = append(run, text("\n", nil), text(last, &slack.RichTextSectionTextStyle{Code: true}))
	}
	blocks := []slack.Block{slack.NewRichTextBlock("", slack.NewRichTextSection(run...))}
	if plan != nil {
		blocks = append(blocks, plan)
	}
	return append(blocks, d.actions(false)...), nil
}

// maxTasks is how many steps of a plan are shown as tasks; longer plans are lines of text.
const maxTasks = 20

// planOf is how the steps of a plan went, as Slack draws the plans of agents
// (docs.slack.dev/reference/block-kit/blocks/plan-block). A card that asks is never drawn so: what
// is decided stands in full view, and Slack may fold a plan.
func planOf(c chat.Card) *slack.PlanBlock {
	lines := strings.Split(c.Body, "\n")[1:]
	if len(c.Steps) == 0 || len(c.Steps) > maxTasks || len(lines) != len(c.Steps) {
		return nil
	}
	var tasks []*slack.TaskCardBlock
	for i, state := range c.Steps {
		status := slack.TaskCardStatusPending
		switch state {
		case chat.StepRunning:
			status = slack.TaskCardStatusInProgress
		case chat.StepDone:
			status = slack.TaskCardStatusComplete
		case chat.StepFailed:
			status = slack.TaskCardStatusError
		case chat.StepWaiting:
		}
		title := visible.Text(strings.TrimPrefix(lines[i], state.Mark()))
		tasks = append(tasks, slack.NewTaskCardBlock(fmt.Sprintf("step-%d", i+1), clip(title, MaxHeader)).WithStatus(status))
	}
	return slack.NewPlanBlock(fmt.Sprintf("%d steps", len(tasks))).WithTasks(tasks...)
}

// clipLine is the first line of a text, with an ellipsis where anything is left out.
func clipLine(s string, n int) string {
	first, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if short := clip(first, n); short != first || !more {
		return short
	}
	return first + " …"
}

// whole draws the card with everything on it, or nil when that has no room.
func (d *drawing) whole() ([]slack.Block, []chat.File) {
	code, ok := d.codeBlocks()
	if !ok || slices.ContainsFunc(d.lines, func(l line) bool { return quoted(l.text) > maxLine || quoted(l.label) > maxLabel }) {
		return nil, nil
	}
	blocks, ok := d.join(code, d.lines, d.actions(false))
	if !ok {
		return nil, nil
	}
	return blocks, d.files(!d.exact, false)
}

// reduced draws as much as there is room for. Code comes first: words that the
// model wrote must not push out what it wants to run. It always succeeds.
func (d *drawing) reduced() ([]slack.Block, []chat.File) {
	room := MaxMessageJSON - jsonSize(d.header) - 100
	linesNeed := sizeOf(d.lineBlocks(d.lines, zoneHead, zoneFields, zoneSmall))
	code, ok := d.codeBlocks()
	full := d.actions(false)
	left := room - sizeOf(full)
	actions, partial := full, false
	if most := max(left/2, left-linesNeed); !ok || sizeOf(code) > most {
		actions, partial = d.actions(true), true
		left = room - sizeOf(actions)
		code = d.codeEnds(max(left/2, left-linesNeed))
	}
	left -= sizeOf(code)
	for limit := maxLine; limit >= 20; limit /= 2 {
		lines, cut := d.shorten(limit)
		if sizeOf(d.lineBlocks(lines, zoneHead, zoneFields, zoneSmall)) > left {
			continue
		}
		if blocks, ok := d.join(code, lines, actions); ok {
			return blocks, d.files(partial || !d.exact, cut)
		}
	}
	// Very many lines: as many of the first as there is room for.
	lines, _ := d.shorten(20)
	for n := len(lines) - 1; n > 0; n-- {
		some := append(lines[:n:n], line{zone: zoneSmall, text: fmt.Sprintf("%d more lines are in the attached file %s.", len(lines)-n, d.detailsName)})
		if n > 200 || sizeOf(d.lineBlocks(some, zoneHead, zoneFields, zoneSmall)) > left {
			continue
		}
		if blocks, ok := d.join(code, some, actions); ok {
			return blocks, d.files(partial || !d.exact, true)
		}
	}
	only := []line{{zone: zoneSmall, text: sayRest(d.detailsName)}}
	blocks, _ := d.join(code, only, actions)
	return blocks, d.files(partial || !d.exact, true)
}

// shorten cuts each line to limit bytes of JSON.
func (d *drawing) shorten(limit int) (out []line, cut bool) {
	for _, l := range d.lines {
		label := prefix(l.label, maxLabel)
		text := l.text
		if quoted(text) > limit || label != l.label {
			cut = true
			if label != l.label {
				label += "…"
			}
			text = strings.TrimSpace(prefix(text, limit)) + "… (the rest is in the attached file " + d.detailsName + ")"
		}
		out = append(out, line{l.zone, label, text, l.time})
	}
	return out, cut
}

// join puts the parts of a card in order, or returns false when they break a
// limit.
func (d *drawing) join(code []slack.Block, lines []line, actions []slack.Block) ([]slack.Block, bool) {
	blocks := []slack.Block{d.header}
	blocks = append(blocks, d.lineBlocks(lines, zoneHead)...)
	blocks = append(blocks, code...)
	blocks = append(blocks, d.lineBlocks(lines, zoneFields)...)
	blocks = append(blocks, d.lineBlocks(lines, zoneSmall)...)
	blocks = append(blocks, actions...)
	return blocks, len(blocks) <= MaxBlocks && jsonSize(blocks) <= MaxMessageJSON
}

// sizeOf is what blocks add to a message, in bytes of JSON.
func sizeOf(blocks []slack.Block) int {
	n := 0
	for _, b := range blocks {
		n += jsonSize(b) + 1
	}
	return n
}

// moment is a time that each reader sees on their own clock. format has Slack's tokens
// (docs.slack.dev/messaging/formatting-message-text, "Date formatting").
type moment struct {
	at     time.Time
	format string
}

func (m moment) shown() bool { return !m.at.IsZero() }

// fallback is what clients show that don't know the format.
func (m moment) fallback() string { return m.at.UTC().Format("15:04") + " UTC" }

// element is the moment in rich text.
func (m moment) element() slack.RichTextSectionElement {
	other := m.fallback()
	return slack.RichTextSectionDateElement{Type: slack.RTSEDate, Timestamp: slack.JSONTime(m.at.Unix()), Format: m.format, Fallback: &other}
}

// markup is the moment in mrkdwn.
func (m moment) markup() string {
	return fmt.Sprintf("<!date^%d^%s|%s>", m.at.Unix(), m.format, m.fallback())
}

// sinceText stands before the moment at which a run began.
const sinceText = " · started "

// since is the moment at which what a card is about began to run.
func since(c chat.Card) moment {
	if !c.Final {
		return moment{}
	}
	return moment{c.Since, "{ago}"}
}

// lineBlocks draws the lines of some zones.
func (d *drawing) lineBlocks(lines []line, zones ...zone) []slack.Block {
	var out []slack.Block
	for _, z := range zones {
		if z != zoneFields {
			out = append(out, smallBlocks(lines, z)...)
			continue
		}
		var run []slack.RichTextSectionElement
		used := 0
		flush := func() {
			if len(run) > 0 {
				out = append(out, slack.NewRichTextBlock("", slack.NewRichTextSection(run...)))
			}
			run, used = nil, 0
		}
		for _, l := range lines {
			if l.zone != z {
				continue
			}
			e := l.elements()
			n := jsonSize(e) + 40 // and the newline
			if used+n > MaxBlockJSON-100 {
				flush()
			}
			if len(run) > 0 {
				run = append(run, text("\n", nil))
			}
			run = append(run, e...)
			used += n
		}
		flush()
	}
	return out
}

func (l line) elements() []slack.RichTextSectionElement {
	if l.label == "" {
		if l.time.shown() {
			return []slack.RichTextSectionElement{text(l.text+sinceText, nil), l.time.element()}
		}
		return []slack.RichTextSectionElement{text(l.text, nil)}
	}
	if l.label == warning {
		return []slack.RichTextSectionElement{text(warning+" "+l.text, &slack.RichTextSectionTextStyle{Bold: true})}
	}
	return []slack.RichTextSectionElement{
		text(l.label+":", &slack.RichTextSectionTextStyle{Bold: true}), text(" "+l.text, nil),
	}
}

// smallElements is how many elements a context block takes
// (docs.slack.dev/reference/block-kit/blocks/context-block).
const smallElements = 10

// smallBlocks draws the lines of a zone in small print.
func smallBlocks(lines []line, z zone) []slack.Block {
	var out []slack.Block
	var run []slack.MixedElement
	for _, l := range lines {
		if l.zone != z {
			continue
		}
		s := l.text
		if l.label != "" {
			s = l.label + ": " + s
		}
		if l.time.shown() {
			run = append(run, slack.NewTextBlockObject(slack.MarkdownType, s+l.time.markup(), false, true))
		} else {
			run = append(run, plain(s, MaxPlainText))
		}
		if len(run) == smallElements {
			out = append(out, slack.NewContextBlock("", run...))
			run = nil
		}
	}
	if len(run) > 0 {
		out = append(out, slack.NewContextBlock("", run...))
	}
	return out
}

// codeBlocks shows the code whole, in more than one block only between lines:
// a line that were broken in two could be read as two commands. false when a
// line has no room in a block.
func (d *drawing) codeBlocks() ([]slack.Block, bool) {
	if d.code == "" {
		return nil, true
	}
	if b := slack.NewRichTextBlock(d.codeID(), preformatted(d.code)); jsonSize(b) <= MaxBlockJSON {
		return []slack.Block{b}, true
	}
	if len(d.code) > MaxMessageJSON {
		return nil, false
	}
	const room = MaxBlockJSON - 200
	var out []slack.Block
	var run strings.Builder
	used := 0
	for l := range strings.Lines(d.code) {
		n := quoted(l)
		if n > room {
			return nil, false
		}
		if used+n > room {
			out = append(out, slack.NewRichTextBlock("", preformatted(run.String())))
			run.Reset()
			used = 0
		}
		run.WriteString(l)
		used += n
	}
	return append(out, slack.NewRichTextBlock("", preformatted(run.String()))), true
}

// codeID marks the block that [CodeOf] reads: only exact code, and only when it
// is the text that the Edit button is for.
func (d *drawing) codeID() string {
	if !d.exact {
		return ""
	}
	for _, b := range d.buttons {
		if b.Edit != "" && b.Edit != d.card.Code {
			return ""
		}
	}
	return codeBlock
}

// codeEnds shows the beginning and the end of the code within room bytes of
// JSON, and says what is missing.
func (d *drawing) codeEnds(room int) []slack.Block {
	const markup = 600 // of three blocks, with the sentence
	room = max(room-markup, 100)
	head := prefix(d.code, min(room*2/3, MaxBlockJSON-200))
	if nl := strings.LastIndexByte(head, '\n'); nl > len(head)/2 {
		head = head[:nl+1]
	}
	rest := d.code[len(head):]
	tail := suffix(rest, min(room/3, MaxBlockJSON-200))
	if nl := strings.IndexByte(tail, '\n'); nl >= 0 && nl < len(tail)/2 {
		tail = tail[nl+1:]
	}
	missing := rest[:len(rest)-len(tail)]
	if missing == "" { // a line too long for one block
		say := saySplit(d.codeName)
		return ends(head, say, tail)
	}
	say := fmt.Sprintf(sayNotAllFits, measure(missing), d.codeName)
	return ends(head, say, tail)
}

func ends(head, say, tail string) []slack.Block {
	return []slack.Block{
		slack.NewRichTextBlock("", preformatted(head)),
		slack.NewRichTextBlock("", slack.NewRichTextSection(text(say, &slack.RichTextSectionTextStyle{Bold: true}))),
		slack.NewRichTextBlock("", preformatted(tail)),
	}
}

// prefix is the longest beginning of s that takes n bytes inside a JSON string.
func prefix(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += quotedRune(r); used > n {
			return s[:i]
		}
	}
	return s
}

// suffix is the longest end of s that takes n bytes inside a JSON string.
func suffix(s string, n int) string {
	at := max(0, len(s)-n)
	for at < len(s) && runeStart(s, at) != at {
		at++
	}
	for at < len(s) && quoted(s[at:]) > n {
		at = min(len(s), at+max(1, (quoted(s[at:])-n)/12))
		for at < len(s) && runeStart(s, at) != at {
			at++
		}
	}
	return s[at:]
}

// quotedRune is what a visible character takes inside a JSON string.
func quotedRune(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\n' || r == '\t':
		return 2
	case r < 0x80:
		return 1
	}
	return len(string(r))
}

// files are the two that the card itself makes.
func (d *drawing) files(code, details bool) []chat.File {
	var out []chat.File
	if code {
		out = append(out, chat.File{Name: d.codeName, Text: d.card.Code})
	}
	if details {
		out = append(out, chat.File{Name: d.detailsName, Text: face.Whole(d.card)})
	}
	return out
}

// actions draws the buttons and the menu, with a field for a reason before them when one of
// them asks for it. partial means that the code is not on the card as a whole.
func (d *drawing) actions(partial bool) []slack.Block {
	if len(d.buttons) == 0 {
		return nil
	}
	var out []slack.Block
	var elements []slack.BlockElement
	menu, inMenu := d.menu(partial)
	reason, label := false, askReason
	less := slices.DeleteFunc(slices.Clone(d.buttons), func(b chat.Button) bool { return b.More })
	more := slices.DeleteFunc(slices.Clone(d.buttons), func(b chat.Button) bool { return !b.More || inMenu[b.ID] })
	for _, b := range append(less, more...) {
		if verbOf(b) == VerbReason {
			reason = true
			if b.Style != chat.StyleDeny && label == askReason {
				label = "Reason"
			}
			if b.Write != "" {
				label = askWrite(b.Write) + ", or a reason to deny"
			}
		}
		elements = append(elements, d.button(b, partial))
	}
	if menu != nil {
		elements = append(elements, menu)
	}
	if reason {
		in := slack.NewPlainTextInputBlockElement(nil, reasonAction).WithMaxLength(MaxInput)
		out = append(out, slack.NewInputBlock(reasonBlock, plain(label, MaxPlainText), nil, in).WithOptional(true))
	}
	id := "cs.actions"
	if word(d.options.Thread, 200) {
		id += ":" + d.options.Thread
	}
	return append(out, slack.NewActionBlock(id, elements...))
}

// menu draws the choices that belong into one. Slack takes two to five; beyond those, and for
// an id that is too long, a choice stays a button
// (docs.slack.dev/reference/block-kit/block-elements/overflow-menu-element).
func (d *drawing) menu(partial bool) (*slack.OverflowBlockElement, map[chat.ButtonID]bool) {
	var options []*slack.OptionBlockObject
	in := map[chat.ButtonID]bool{}
	for _, b := range d.buttons {
		v := verbOf(b)
		if v != VerbEdit && (b.Confirm != "" || partial && approves(b)) {
			v = VerbConfirm
		}
		value, _ := actionID(v, b.ID)
		if b.More && len(value) <= maxOption && len(options) < maxMenu {
			options = append(options, slack.NewOptionBlockObject(value, short(b.Label, MaxButtonText, 120), nil))
			in[b.ID] = true
		}
	}
	if len(options) < minMenu {
		return nil, nil
	}
	return slack.NewOverflowBlockElement(menuAction, options...), in
}

// How many entries a menu has.
const minMenu, maxMenu = 2, 5

// approves reports whether a press may make something run.
func approves(b chat.Button) bool {
	return b.Style != chat.StyleDeny && b.Style != chat.StyleStop
}

func (d *drawing) button(b chat.Button, partial bool) *slack.ButtonBlockElement {
	id, _ := actionID(verbOf(b), b.ID)
	e := slack.NewButtonBlockElement(id, string(b.ID), short(b.Label, MaxButtonText, 120))
	high := d.card.Tone == chat.ToneHigh
	switch b.Style {
	case chat.StyleApprove:
		e.Style = slack.StylePrimary
		if high {
			e.Style = slack.StyleDanger
		}
	case chat.StyleStop:
		if d.card.Final { // on a card that asks it withdraws the question, and nothing runs
			e.Style = slack.StyleDanger
		}
	case chat.StyleDeny, chat.StyleEdit:
	}
	var ask []string
	if partial && approves(b) && b.ID != d.card.DetailsID {
		s := sayReadFirst(clip(visible.Text(d.codeName), 60))
		if d.card.Digest != "" {
			s += " Digest " + clip(visible.Text(d.card.Digest), 80) + "."
		}
		ask = append(ask, s)
	}
	if b.Confirm != "" {
		ask = append(ask, b.Confirm)
	}
	if len(ask) == 0 {
		return e
	}
	if first, _, more := strings.Cut(d.code, "\n"); first != "" {
		if more {
			first += " …"
		}
		ask = append(ask, first)
	}
	confirm := slack.NewConfirmationBlockObject(
		short(b.Label+"?", MaxConfirmTitle, 150), short(strings.Join(ask, "\n"), MaxConfirmText, 450),
		short(b.Label, MaxConfirmButton, 60), plain("Cancel", MaxConfirmButton),
	)
	if e.Style == slack.StyleDanger {
		confirm.Style = slack.StyleDanger
	}
	return e.WithConfirm(confirm)
}

// short is plain with a second limit in bytes of JSON, so that the buttons of a
// card always leave room for what they decide.
func short(s string, limit, bytes int) *slack.TextBlockObject {
	s = visible.Text(s)
	if quoted(s) > bytes {
		s = prefix(s, bytes-len("…")) + "…"
	}
	return plain(s, limit)
}
