package embed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
	"countersign/adapters/chat/visible"
)

// The files that a card adds where a message has no room.
const (
	codeFile    = "command.txt"
	detailsFile = "details.txt"
)

// Room that is kept on a card that does not fit, in UTF-16 units of its escaped
// form: for the code whatever else is said, for the rest of the description
// whatever the code is, for one text, and for a field's name.
const (
	codeRoom  = 3000
	wordsRoom = 300
	maxLine   = 900
	maxName   = 150
)

// Options is what a card needs to know of its post.
type Options struct {
	// Quiet cards notify nobody.
	Quiet bool
}

// Card draws a card: a text with the title, and an embed with the title, risk, code,
// preview, warnings, fields, body, the agent's reason, and who may decide in small print;
// then the buttons in the order given, and one for the details. A final card without a
// choice is one line.
//
// Notifications show the text alone, people can switch embeds off, and Discord drops
// them where the bot may not embed links. So the text of an open card has the code too
// (without code, the body), and the embed has it only where the text has no room.
// Then a file carries the whole, and the approving buttons open a form that shows it
// ([Buttons], [Modal]).
//
// Code is sent character for character in one code block. Discord draws no line
// breaks at its ends (the small print names them) and may draw a tab as spaces.
// Where the code has no room in the embed either, its beginning and end are shown with
// a sentence that says how much is left out; where a code block can't hold it, what
// can't be shown is made visible. In both cases "command.txt" carries the whole and the
// approving buttons ask for a confirmation that names the digest. Other texts that have
// no room end with a pointer to "details.txt". Files of the card come after those two.
//
// A button is left out, and a warning says so, when its id is empty, given twice,
// longer than 89 bytes or not printable ASCII, and from the 26th on: nothing may be
// decided by a button that can't be told apart. Files of the card from the ninth on
// are left out with a warning.
func Card(c chat.Card, o Options) Message {
	d := newDrawing(c)
	if c.Final && len(c.Details) > 0 {
		return d.oneLine(o)
	}
	e, files := d.draw()
	m := newMessage(d.content, 0, append(files, d.attach...))
	if o.Quiet {
		m = m.Silent()
	}
	if embedSize(e) > 0 {
		e.Color = color(c.Tone)
		m.Embeds = append(m.Embeds, e)
	}
	m.Components = d.rows()
	return m
}

// rows are the card's buttons, and below them the menu. One choice alone needs no menu.
func (d *drawing) rows() []Row {
	var buttons, more []Button
	for _, b := range d.buttons {
		if b.More {
			more = append(more, d.button(b))
		} else {
			buttons = append(buttons, d.button(b))
		}
	}
	if len(more) < 2 || len(buttons) > (MaxRows-1)*MaxRow {
		buttons, more = append(buttons, more...), nil
	}
	out := []Row{}
	for row := range slices.Chunk(buttons, MaxRow) {
		out = append(out, Row{Type: typeRow, Components: row})
	}
	if len(more) == 0 {
		return out
	}
	menu := Button{Type: typeMenu, CustomID: MenuID, Placeholder: labelMore}
	for _, b := range more {
		menu.Options = append(menu.Options, Option{Label: b.Label, Value: b.CustomID})
	}
	return append(out, Row{Type: typeRow, Components: []Button{menu}})
}

// maxOneLine is how much of a decided command stands in its one line, in characters.
const maxOneLine = 200

// maxWarned is how much of a warning stands on a decided card, in characters.
const maxWarned = 500

// oneLine draws a decided card with details: what was done where, the command, and how it
// ended.
func (d *drawing) oneLine(o Options) Message {
	s := "**" + clipEscaped(d.title, MaxTitle) + "**"
	first, _, more := strings.Cut(strings.TrimSpace(visible.Code(d.card.Code)), "\n")
	if short := clip(first, maxOneLine); short != first {
		first = short
	} else if more {
		first += " …"
	}
	if span, ok := codeSpan(first); ok && first != "" {
		s += " · " + span
	}
	began := started(d.card)
	began += warned(d.card)
	if last, ok := codeSpan(visible.Code(d.card.Last)); ok {
		began += "\n" + last
	}
	if body := visible.Text(d.card.Body); strings.TrimSpace(body) != "" {
		s += " · " + clipEscaped(body, MaxContent-utf16Len(s)-3-len(began))
	}
	s += began
	m := newMessage(s, 0, d.attach)
	if o.Quiet {
		m = m.Silent()
	}
	m.Components = d.rows()
	return m
}

// warned are the warnings of a decided card, each on a line.
func warned(c chat.Card) string {
	var b strings.Builder
	for _, w := range c.Warn {
		b.WriteString("\n⚠ **" + clipEscaped(visible.Text(w), maxWarned) + "**")
	}
	return b.String()
}

// Choice is a button of a card, with what its form shows.
type Choice struct {
	chat.Button
	// Code is what would run, made visible; "" where the form asks nothing about it.
	Code string
	// File is the name of the attached file that has the code.
	File string
}

// Buttons are the buttons that [Card] draws, with all that must be confirmed in
// their Confirm: give the one that was pressed to [Modal].
func Buttons(c chat.Card) []Choice {
	d := newDrawing(c)
	d.draw()
	var out []Choice
	for _, b := range d.buttons {
		v := d.verb(b)
		ask := ""
		if v == VerbRead {
			ask = readFirst(d.exact && d.code != "" && formHolds(d.code), d.wholeFile(), c.Digest) + "\n" + d.summary
		}
		b.Confirm = strings.Trim(ask+"\n"+b.Confirm, "\n")
		shown := Choice{Button: b, File: d.wholeFile()}
		if b.Confirm != "" && b.Edit == "" && d.open() {
			shown.Code = fenceable(d.what())
		}
		out = append(out, shown)
	}
	return out
}

// readFirst is what the form of a button says that approves something the message does
// not show whole. whole says that the form does.
func readFirst(whole bool, file, digest string) string {
	s := sayReadFirst(file)
	if whole {
		s = sayExact
	}
	if digest != "" {
		s += " Digest " + digest + "."
	}
	return s
}

// color is a tone's colour.
func color(t chat.Tone) int {
	switch t {
	case chat.ToneLow:
		return 0x3498DB
	case chat.ToneMedium:
		return 0xF1C40F
	case chat.ToneHigh:
		return 0xE74C3C
	case chat.ToneGood:
		return 0x2ECC71
	case chat.ToneBad:
		return 0x992D22
	case chat.ToneNeutral:
	}
	return 0x95A5A6
}

// zone is where on a card a line stands.
type zone int

const (
	zoneHead  zone = iota // above the code
	zoneBelow             // below the code, before the fields
	zoneWarn              // the same, marked
	zoneFields
	zoneSmall
)

// line is one text of a card, already visible and not yet escaped.
type line struct {
	zone           zone
	label, text    string
	before, markup string // of ours, around text
}

// relative is a moment in markup: each reader sees how far away it is, and that stays true.
// discord.com/developers/docs/reference#message-formatting-timestamp-styles
func relative(t time.Time) string { return fmt.Sprintf("<t:%d:R>", t.Unix()) }

// started says in markup when what a card is about began to run, or "".
func started(c chat.Card) string {
	if !c.Final || c.Since.IsZero() {
		return ""
	}
	return " · started " + relative(c.Since)
}

// drawing is a card on its way to a message.
type drawing struct {
	card    chat.Card
	title   string // visible
	lines   []line
	summary string // visible: the title
	content string // the message's text
	told    bool   // content has all of what is decided, or nothing is
	body    string // visible; what is decided where there is no code
	code    string // fenceable
	exact   bool   // code is what the card says, to the character
	partial bool   // the embed does not show all of code; set by draw
	buttons []chat.Button
	// detailsID is the id of the button that shows the details, or "".
	detailsID chat.ButtonID
	attach    []chat.File
	// The names of the two files, that none of the card's own has.
	codeName, detailsName string
}

func newDrawing(c chat.Card) *drawing {
	d := &drawing{
		card: c, code: fenceable(c.Code), attach: c.Attach,
		codeName: face.FreeName(codeFile, c.Attach), detailsName: face.FreeName(detailsFile, c.Attach),
	}
	if body := visible.Text(c.Body); strings.TrimSpace(body) != "" {
		d.body = body
	}
	d.exact = d.code == c.Code
	d.title = visible.Text(face.Headline(c))
	if utf16Len(escape(d.title)) > MaxTitle {
		d.add(zoneHead, "", c.Title)
	}
	lines, head := face.Lines(c), ""
	for _, l := range lines {
		switch l.Part {
		case face.Risk, face.Context:
			head = strings.TrimPrefix(head+" · "+l.Text, " · ")
		case face.Preview:
			d.add(zoneBelow, "", l.Text)
		case face.Warning:
			d.add(zoneWarn, "", l.Text)
		case face.Field, face.Body, face.Why: // below what is ours to say
		}
	}
	d.add(zoneHead, "", head)
	d.chooseButtons()
	if most := MaxFiles - 2; len(c.Attach) > most {
		d.attach = c.Attach[:most:most]
		var names []string
		for _, f := range c.Attach[most:] {
			names = append(names, f.Name)
		}
		d.add(zoneWarn, "", fmt.Sprintf("%d more files have no room on this message: %s.", len(names), strings.Join(names, ", ")))
	}
	d.say()
	for _, l := range lines {
		switch l.Part {
		case face.Field:
			d.add(zoneFields, l.Label, l.Text)
		case face.Body:
			if !d.open() || d.code != "" || !d.told {
				d.add(zoneFields, "", l.Text)
			}
			if began := started(c); began != "" && strings.TrimSpace(l.Text) != "" {
				d.lines[len(d.lines)-1].markup = began
			}
		case face.Why:
			d.add(zoneFields, "", l.Label+": “"+l.Text+"”")
		case face.Risk, face.Context, face.Preview, face.Warning:
		}
	}
	switch footer := strings.Join(strings.Fields(visible.Text(c.Footer)), " "); {
	case c.Expires.IsZero() || c.Final:
		d.add(zoneSmall, "", c.Footer)
	case footer == "": // an embed's footer shows no markup
		d.lines = append(d.lines, line{zone: zoneFields, before: "-# ", markup: "Expires " + relative(c.Expires)})
	default:
		d.lines = append(d.lines, line{zone: zoneFields, before: "-# ", text: footer, markup: " · expires " + relative(c.Expires)})
	}
	d.add(zoneSmall, "State", face.State(c))
	if len(c.Details) == 0 || !d.told || !d.exact { // the details have it
		d.add(zoneSmall, "Digest", c.Digest)
	}
	d.describeCode()
	return d
}

func (d *drawing) add(z zone, label, text string) {
	if text = visible.Text(text); strings.TrimSpace(text) != "" {
		d.lines = append(d.lines, line{zone: z, label: strings.TrimSpace(visible.Text(label)), text: text})
	}
}

// chooseButtons keeps the buttons that can be told apart.
func (d *drawing) chooseButtons() {
	var left []string
	d.buttons, left = face.Buttons(d.card, MaxRows*MaxRow, validButton)
	for _, label := range left {
		d.add(zoneWarn, "", fmt.Sprintf(sayNoButton, label))
	}
	taken := func(b chat.Button) bool { return b.ID == d.card.DetailsID }
	if id := d.card.DetailsID; len(d.card.Details) > 0 && validButton(id) && !slices.ContainsFunc(d.buttons, taken) && len(d.buttons) < MaxRows*MaxRow {
		d.buttons = append(d.buttons, chat.Button{ID: id, Label: "Details"})
		d.detailsID = id
	}
}

// describeCode says what a reader of the code block can't see.
func (d *drawing) describeCode() {
	if !d.exact {
		d.add(zoneWarn, "", sayInvisible(d.codeName))
		return
	}
	// Discord shows no line breaks at the ends of a code block.
	for _, edge := range []struct {
		what string
		n    int
	}{{"starts", len(d.code) - len(strings.TrimLeft(d.code, "\n"))}, {"ends", len(d.code) - len(strings.TrimRight(d.code, "\n"))}} {
		switch edge.n {
		case 0:
		case 1:
			d.add(zoneSmall, "", sayBreak(edge.what))
		default:
			d.add(zoneSmall, "", fmt.Sprintf(sayBreaks, edge.what, edge.n))
		}
	}
}

// say writes the message's text: the title, and on an open card what
// is decided, where there is room for all of it.
func (d *drawing) say() {
	s := d.title
	if s == "" {
		s = "(no title)"
	}
	d.summary = s
	d.content = clipEscaped(s, MaxContent/4)
	if !d.open() || d.what() == "" {
		d.told = true
		return
	}
	shown := escape(d.body)
	if d.code != "" {
		shown = fence("", d.code)
	}
	whole := escape(s) + "\n" + shown
	if d.told = utf16Len(escape(s)) <= MaxContent/4 && utf16Len(whole) <= MaxContent; d.told {
		d.content = whole
		return
	}
	note := sayReadWhole(d.wholeFile())
	if d.card.Digest != "" {
		note += " Digest " + strings.Join(strings.Fields(visible.Text(d.card.Digest)), " ")
	}
	d.content += "\n" + clipEscaped(note, MaxContent/4)
}

// open reports whether the card waits for a press.
func (d *drawing) open() bool { return !d.card.Final && len(d.buttons) > 0 }

// what is what the buttons decide about.
func (d *drawing) what() string {
	if d.code != "" {
		return d.code
	}
	return d.body
}

// wholeFile is the name of the file that has what the buttons decide about.
func (d *drawing) wholeFile() string {
	if d.code != "" {
		return d.codeName
	}
	return d.detailsName
}

// draw makes the embed and the card's own files.
func (d *drawing) draw() (Embed, []chat.File) {
	whole := d.wholeCode()
	if e := d.embed(whole, d.lines); fits(e) {
		return e, d.files(false)
	}
	return d.reduced(whole)
}

// wholeCode is the code for the embed, "" where the text has it.
func (d *drawing) wholeCode() string {
	if d.code == "" || d.open() && d.told {
		return ""
	}
	return fence("", d.code)
}

// reduced draws as much as there is room for. Code comes first: words that the
// model wrote must not push out what it wants to run. It always succeeds.
func (d *drawing) reduced(code string) (Embed, []chat.File) {
	words := d.embed("", d.lines)
	room := min(MaxDescription-utf16Len(words.Description), MaxEmbedTotal-embedSize(words)) - separator
	room = min(max(room, codeRoom), MaxDescription-wordsRoom)
	if utf16Len(code) > room {
		d.partial = true
		code = codeEnds(d.code, room, d.codeName)
	}
	for limit := maxLine; limit >= 20; limit /= 2 {
		lines, cut := d.shorten(limit)
		if e := d.embed(code, lines); fits(e) {
			return e, d.files(cut)
		}
	}
	// Very many lines: as many of the first as there is room for.
	lines, _ := d.shorten(20)
	for n := min(len(lines)-1, 100); n > 0; n-- {
		some := append(lines[:n:n], line{zone: zoneSmall, text: fmt.Sprintf("%d more lines are in the attached file %s.", len(lines)-n, d.detailsName)})
		if e := d.embed(code, some); fits(e) {
			return e, d.files(true)
		}
	}
	return d.embed(code, []line{{zone: zoneSmall, text: sayRest(d.detailsName)}}), d.files(true)
}

// shorten cuts each line to limit UTF-16 units.
func (d *drawing) shorten(limit int) (out []line, cut bool) {
	for _, l := range d.lines {
		label := escapedPrefix(l.label, maxName)
		text := l.text
		if label != l.label || utf16Len(escape(text)) > limit {
			cut = true
			if label != l.label {
				label += "…"
			}
			text = strings.TrimSpace(escapedPrefix(text, limit)) + "… (the rest is in the attached file " + d.detailsName + ")"
		}
		out = append(out, line{l.zone, label, text, l.before, l.markup})
	}
	return out, cut
}

// embed puts the parts of a card in order, whatever the limits. A labelled line
// that is no field of an embed stands in the description.
func (d *drawing) embed(code string, lines []line) Embed {
	e := Embed{}
	if !d.open() || !d.told { // the text has it
		e.Title = clipEscaped(d.title, MaxTitle)
	}
	var head, body, small []string
	for _, l := range lines {
		name, value := escape(l.label), l.before+escape(l.text)+l.markup
		switch {
		case l.zone == zoneHead:
			head = append(head, value)
		case l.zone == zoneBelow:
			body = append(body, value)
		case l.zone == zoneWarn:
			body = append(body, "⚠ **"+value+"**")
		case l.zone == zoneSmall:
			s := uncalled(strings.Join(strings.Fields(l.text), " "))
			if l.label != "" {
				s = uncalled(l.label) + ": " + s
			}
			small = append(small, s)
		case name == "":
			body = append(body, value)
		case len(e.Fields) < MaxFields && utf16Len(name) <= MaxFieldName && utf16Len(value) <= MaxFieldValue:
			e.Fields = append(e.Fields, Field{Name: name, Value: value, Inline: utf16Len(value) <= 40})
		default:
			// The line break becomes visible before the text is escaped: what stands before it
			// is no longer at a line's end.
			body = append(body, name+": "+l.before+escape(strings.ReplaceAll(l.text, "\n", `\x0a`))+l.markup)
		}
	}
	if code != "" {
		head = append(head, code)
	}
	e.Description = strings.Join(append(head, body...), "\n")
	if len(small) > 0 {
		e.Footer = &Footer{Text: strings.Join(small, " · ")}
	}
	return e
}

// embedSize is what Discord counts of an embed.
func embedSize(e Embed) int {
	n := utf16Len(e.Title) + utf16Len(e.Description)
	for _, f := range e.Fields {
		n += utf16Len(f.Name) + utf16Len(f.Value)
	}
	if e.Footer != nil {
		n += utf16Len(e.Footer.Text)
	}
	return n
}

// fits reports whether an embed that [drawing.embed] made keeps the limits.
func fits(e Embed) bool {
	return utf16Len(e.Description) <= MaxDescription && (e.Footer == nil || utf16Len(e.Footer.Text) <= MaxFooter) && embedSize(e) <= MaxEmbedTotal
}

// codeEnds shows the beginning and the end of fenceable code within room UTF-16
// units, and says what is missing. file has the whole.
func codeEnds(code string, room int, file string) string {
	const markup = 300 // of two code blocks, with the sentence
	room -= markup
	head := prefix(code, room*2/3)
	if nl := strings.LastIndexByte(head, '\n'); nl > len(head)/2 {
		head = head[:nl]
	}
	rest := code[len(head):]
	tail := suffix(rest, room/3)
	if nl := strings.IndexByte(tail, '\n'); nl >= 0 && nl < len(tail)/2 {
		tail = tail[nl+1:]
	}
	missing := rest[:len(rest)-len(tail)]
	say := fmt.Sprintf(sayNotAllFits, measure(missing), clip(visible.Text(file), maxName/2))
	return fence("", head) + "\n**" + escape(say) + "**\n" + fence("", tail)
}

// files are the two that the card itself makes.
func (d *drawing) files(details bool) []chat.File {
	var out []chat.File
	if d.partial || !d.exact || d.code != "" && !d.told {
		out = append(out, chat.File{Name: d.codeName, Text: d.card.Code})
	}
	if details || d.code == "" && !d.told {
		out = append(out, chat.File{Name: d.detailsName, Text: face.Whole(d.card)})
	}
	return out
}

// Button styles.
const (
	styleGrey  = 2
	styleGreen = 3
	styleRed   = 4
)

func (d *drawing) button(b chat.Button) Button {
	label := clip(strings.TrimSpace(uncalled(visible.Text(b.Label))), MaxLabel)
	if label == "" {
		label = "-"
	}
	style := styleGrey
	switch b.Style {
	case chat.StyleApprove:
		style = styleGreen
		if d.card.Tone == chat.ToneHigh {
			style = styleRed
		}
	case chat.StyleStop:
		if d.card.Final { // on a card that asks it withdraws the question, and nothing runs
			style = styleRed
		}
	case chat.StyleDeny, chat.StyleEdit:
	}
	return Button{Type: typeButton, Style: style, Label: label, CustomID: customID(d.verb(b), b.ID)}
}

// verb is the verb that a button needs, after draw.
func (d *drawing) verb(b chat.Button) Verb {
	switch {
	case b.Edit != "" && b.Edit == d.card.Code && d.exact && !d.partial:
		return VerbEdit
	case b.Edit != "":
		return VerbRework
	case b.ID == d.detailsID:
		return VerbDecide
	case (!d.exact || !d.told) && !d.card.Final && b.Style != chat.StyleDeny && b.Style != chat.StyleStop:
		return VerbRead
	case b.Confirm != "":
		return VerbConfirm
	case b.AskReason:
		return VerbReason
	}
	return VerbDecide
}

// Details is a message with a card's code and details, for the person who asked for them.
// What has no room is in a file.
func Details(c chat.Card) Message {
	d := newDrawing(chat.Card{Title: c.Title, Tone: c.Tone, Env: c.Env, Production: c.Production, Code: c.Code, Final: true})
	lines := []line{}
	for _, f := range c.Details {
		if value := visible.Text(f.Value); strings.TrimSpace(value) != "" {
			lines = append(lines, line{zone: zoneBelow, text: visible.Text(f.Name) + ": " + value})
		}
	}
	code := ""
	if d.code != "" {
		code = fence("", d.code)
	}
	e := d.embed(code, lines)
	var files []chat.File
	if !fits(e) || !d.exact {
		files = []chat.File{{Name: detailsFile, Text: face.Whole(c)}}
		e = d.embed("", []line{{zone: zoneBelow, text: sayInFile(detailsFile)}})
	}
	m := newMessage("", 0, files)
	m.Embeds = append(m.Embeds, e)
	return m
}
