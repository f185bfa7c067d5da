package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
)

var (
	// ErrTooLong means that a text has no room in a form's input.
	ErrTooLong = errors.New("embed: the text is too long to edit here; deny it and say in the thread what to change")
	// ErrUnseen means that a text has characters that its editor would not see.
	ErrUnseen = errors.New("embed: the text has invisible characters and can't be edited here; deny it and say in the thread what to change")
	// ErrForm means that a form did not come back as it went out.
	ErrForm = errors.New("embed: this form is not one of ours or is damaged; nothing was decided, open it again from the card")
)

// The custom_ids of a form's inputs.
const (
	inputText   = "cs.text"
	inputReason = "cs.why"
)

// Form is a modal: the data of an interaction's answer of the type 9.
type Form struct {
	CustomID   string `json:"custom_id"`
	Title      string `json:"title"`
	Components []Part `json:"components"`
}

// Part is one element of a form: text above the inputs (Type 10, with Content), or
// a row with one input (Type 1, with Components). Discord prefers a label around
// an input (type 18) since 2025 and takes both; clients that are older than that
// read only the row when the form comes back.
type Part struct {
	Type       int     `json:"type"`
	Content    string  `json:"content,omitempty"`
	Components []Input `json:"components,omitempty"`
}

// Input is a field that a person writes into.
type Input struct {
	Type        int    `json:"type"` // 4
	CustomID    string `json:"custom_id"`
	Style       int    `json:"style"` // 2: many lines
	Label       string `json:"label"`
	Value       string `json:"value,omitempty"`
	Placeholder string `json:"placeholder,omitempty"`
	Required    bool   `json:"required"`
	MaxLength   int    `json:"max_length"`
}

// many is the style of an input of many lines.
const many = 2

// Modal asks what a button asks before its press counts: its Confirm with what would
// run, a reason (which may stay empty), and for an Edit button what the text should become,
// beginning with b.Edit, exactly. b is from [Buttons] or [Posted]. Discord wants
// an input in a form, so that a button that only confirms offers the reason too.
//
// Errors: [ErrTooLong] when b.Edit is over [MaxInput], [ErrUnseen] when the editor
// could not see all of it, [ErrCustomID] when b.ID is not usable.
func Modal(b Choice) (Form, error) {
	if !validButton(b.ID) {
		return Form{}, ErrCustomID
	}
	title := clip(strings.Join(strings.Fields(uncalled(visible.Text(b.Label))), " "), MaxModalTitle)
	if title == "" {
		title = "-"
	}
	f := Form{CustomID: customID(VerbSent, b.ID), Title: title}
	if ask := display(b); ask != "" {
		f.Components = append(f.Components, Part{Type: typeDisplay, Content: ask})
	}
	if b.Edit != "" {
		switch {
		case utf16Len(b.Edit) > MaxInput:
			return Form{}, ErrTooLong
		case visible.Code(b.Edit) != b.Edit:
			return Form{}, ErrUnseen
		}
		f.CustomID = customID(VerbEdited, b.ID)
		f.add(Input{
			CustomID: inputText, Label: askInstead, Value: b.Edit, Required: true, MaxLength: MaxInput,
			Placeholder: hintInstead,
		})
	}
	if b.Edit == "" || b.AskReason {
		label := askReason
		if b.Write != "" {
			label = clip("Write "+visible.Text(b.Write)+" to approve", maxLabelled)
		}
		f.add(Input{CustomID: inputReason, Label: label, MaxLength: maxReason})
	}
	return f, nil
}

// Bounds of a menu (docs.discord.com/developers/components/reference, string select).
const (
	maxOptions = 25
	maxOption  = 100 // characters
)

// StepsMenu asks in a message which steps of a plan are to run; ok is false for a button that drops none.
func StepsMenu(b Choice) (m Message, ok bool) {
	steps := chat.Steps(b.Edit)
	if len(steps) == 0 || len(steps) > maxOptions || !validButton(b.ID) {
		return m, false
	}
	menu := Button{Type: typeMenu, CustomID: customID(VerbKeep, b.ID), MinValues: 1, MaxValues: len(steps)}
	for i, s := range steps {
		head, code, _ := strings.Cut(s, "\n")
		first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
		menu.Options = append(menu.Options, Option{
			Label: clip(visible.Text(head), maxOption), Value: strconv.Itoa(i + 1), Description: clip(visible.Text(first), maxOption), Default: true,
		})
	}
	m = Notice(saySteps)
	m.Components = []Row{{Type: typeRow, Components: []Button{menu}}}
	return m, true
}

// maxFormCode is how much of a form's text is kept for code, in UTF-16 units.
const maxFormCode = MaxDisplay * 7 / 10

// formHolds reports whether a form shows all of a code.
func formHolds(code string) bool { return utf16Len(fence("", code)) <= maxFormCode }

// display is the text above the inputs of a form: what is asked, and what would run.
func display(b Choice) string {
	ask := strings.TrimSpace(visible.Text(b.Confirm))
	if b.Code == "" {
		return clipEscaped(ask, MaxDisplay)
	}
	code := fence("", b.Code)
	if !formHolds(b.Code) {
		code = codeEnds(b.Code, maxFormCode, b.File)
	}
	if ask = clipEscaped(ask, MaxDisplay-maxFormCode-1); ask == "" {
		return code
	}
	return ask + "\n" + code
}

// maxLabelled bounds an input's label, in characters
// (discord.com/developers/docs/components/reference#label).
const maxLabelled = 45

// maxReason bounds a reason, in UTF-16 units. It is this program's own limit.
const maxReason = 1000

func (f *Form) add(in Input) {
	in.Type, in.Style = typeInput, many
	f.Components = append(f.Components, Part{Type: typeRow, Components: []Input{in}})
}

// Values is what a form came back with.
type Values struct {
	Button chat.ButtonID
	Reason string // without the space around it; may be empty
	// Text is what an Edit button's text was changed to, when Edited is true.
	Text   string
	Edited bool
}

// submitted is the data of an interaction of the type 5. Inputs stand in rows, or
// in labels.
type submitted struct {
	CustomID   string `json:"custom_id"`
	Components []struct {
		Type       int     `json:"type"`
		Components []typed `json:"components"`
		Component  *typed  `json:"component"`
	} `json:"components"`
}

type typed struct {
	Type     int    `json:"type"`
	CustomID string `json:"custom_id"`
	Value    string `json:"value"`
}

// ModalValues reads the data of a modal submit interaction, as JSON. A form that is
// not ours, that has an input that ours has not or has one twice, whose text is
// missing, empty or too long, is [ErrForm] or [ErrCustomID]: nothing may be decided
// from it.
func ModalValues(data []byte) (Values, error) {
	var s submitted
	if err := json.Unmarshal(data, &s); err != nil {
		return Values{}, fmt.Errorf("%w: %w", ErrForm, err)
	}
	verb, id, err := ParseCustomID(s.CustomID)
	switch {
	case err != nil:
		return Values{}, err
	case !verb.Form():
		return Values{}, ErrForm
	}
	got := map[string]string{}
	for _, part := range s.Components {
		inputs := part.Components
		switch {
		case part.Type == typeDisplay:
			continue
		case part.Type == typeLabel && part.Component != nil:
			inputs = append(inputs, *part.Component)
		case part.Type != typeRow:
			return Values{}, ErrForm
		}
		for _, in := range inputs {
			_, twice := got[in.CustomID]
			known := in.CustomID == inputReason || in.CustomID == inputText && verb == VerbEdited
			if in.Type != typeInput || !known || twice || utf16Len(in.Value) > MaxInput {
				return Values{}, ErrForm
			}
			got[in.CustomID] = in.Value
		}
	}
	v := Values{Button: id, Reason: strings.TrimSpace(got[inputReason]), Text: got[inputText], Edited: verb == VerbEdited}
	if v.Edited && strings.TrimSpace(v.Text) == "" {
		return Values{}, ErrForm
	}
	return v, nil
}
