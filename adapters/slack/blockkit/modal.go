package blockkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
	"countersign/adapters/chat/visible"
)

// The callback_ids of [EditModal] and [ConfirmModal].
const (
	CallbackEdit    = "cs.edit"
	CallbackConfirm = "cs.confirm"
)

// The block_id and action_id of the modal's one input.
const (
	inputBlock  = "cs.input"
	inputAction = "cs.text"
)

var (
	// ErrTooLong means that a text has no room in a modal's input.
	ErrTooLong = errors.New("blockkit: the text is too long to edit here; deny it and say in the thread what to change")
	// ErrUnseen means that a text has characters that its editor would not see.
	ErrUnseen = errors.New("blockkit: the text has invisible characters and can't be edited here; deny it and say in the thread what to change")
	// ErrPrivate means that a modal's private_metadata is not ours.
	ErrPrivate = errors.New("blockkit: this form is not one of ours or is damaged; open it again from the card")
)

// Private is what a modal carries to its submission: ids and nothing else. All
// are printable ASCII without spaces; Thread may be empty.
type Private struct {
	Channel string        `json:"channel"`          // the card's channel
	TS      string        `json:"ts"`               // the card's message
	Thread  string        `json:"thread,omitempty"` // the root of its thread
	Button  chat.ButtonID `json:"button"`
}

func (p Private) valid() bool {
	return word(p.Channel, 64) && word(p.TS, 64) && validButton(p.Button) && (p.Thread == "" || word(p.Thread, 200))
}

func (p Private) encode() (string, error) {
	if !p.valid() {
		return "", ErrPrivate
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPrivate, err)
	}
	return string(bytes.TrimSpace(b.Bytes())), nil
}

// ParsePrivate reads a submission's private_metadata. Anything that this
// package did not write is [ErrPrivate]: nothing may be decided from it.
func ParsePrivate(s string) (Private, error) {
	if len(s) > MaxPrivate || !utf8.ValidString(s) {
		return Private{}, ErrPrivate
	}
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.DisallowUnknownFields()
	var p Private
	if err := d.Decode(&p); err != nil {
		return Private{}, fmt.Errorf("%w: %w", ErrPrivate, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || !p.valid() {
		return Private{}, ErrPrivate
	}
	return p, nil
}

// EditModal asks what a command should become; the input begins with b.Edit,
// exactly. Of a plan it lists the steps. Errors: [ErrTooLong] over [MaxInput] characters,
// [ErrUnseen] when the editor could not see all of it, [ErrPrivate] when an id in p is not
// usable.
func EditModal(p Private, b chat.Button) (slack.ModalViewRequest, error) {
	if steps := chat.Steps(b.Edit); steps != nil {
		return editForm(p, stepBlocks(steps))
	}
	if utf16Len(b.Edit) > MaxInput {
		return slack.ModalViewRequest{}, ErrTooLong
	}
	if visible.Code(b.Edit) != b.Edit {
		return slack.ModalViewRequest{}, ErrUnseen
	}
	in := slack.NewPlainTextInputBlockElement(nil, inputAction).WithMultiline(true).WithMaxLength(MaxInput)
	in.InitialValue = b.Edit
	return editForm(p, []slack.Block{slack.NewInputBlock(inputBlock, plain(askInstead, MaxPlainText), plain(hintInstead, MaxPlainText), in)})
}

// Bounds of a list to tick (docs.slack.dev/reference/block-kit/block-elements/checkboxes-element).
const (
	maxTicks = 10
	maxTick  = 75 // characters
)

// stepBlocks list the steps of a plan, to untick those that are to be dropped.
func stepBlocks(steps []string) (blocks []slack.Block) {
	n := 0
	for some := range slices.Chunk(steps, maxTicks) {
		in := slack.NewCheckboxGroupsBlockElement(inputAction)
		for _, s := range some {
			n++
			head, code, _ := strings.Cut(s, "\n")
			first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
			var below *slack.TextBlockObject
			if first != "" {
				below = plain(first, maxTick)
			}
			in.Options = append(in.Options, slack.NewOptionBlockObject(strconv.Itoa(n), plain(head, maxTick), below))
		}
		in.InitialOptions = in.Options
		id := inputBlock
		if len(blocks) > 0 {
			id += strconv.Itoa(len(blocks))
		}
		blocks = append(blocks, slack.NewInputBlock(id, plain(askSteps, MaxPlainText), plain(hintSteps, MaxPlainText), in).WithOptional(len(steps) > maxTicks))
	}
	return blocks
}

// editForm is the form that edits a command.
func editForm(p Private, blocks []slack.Block) (slack.ModalViewRequest, error) {
	private, err := p.encode()
	if err != nil {
		return slack.ModalViewRequest{}, err
	}
	return slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: CallbackEdit, PrivateMetadata: private,
		Title: plain("Edit", MaxModalTitle), Submit: plain("Send", MaxModalTitle), Close: plain("Cancel", MaxModalTitle),
		Blocks: slack.Blocks{BlockSet: blocks},
	}, nil
}

// ConfirmModal asks once more before the press of b on the card c counts: its Confirm, what
// would run, and a reason, which begins with what the person wrote on the card.
func ConfirmModal(p Private, b chat.Button, c chat.Card, reason string) (slack.ModalViewRequest, error) {
	private, err := p.encode()
	if err != nil {
		return slack.ModalViewRequest{}, err
	}
	d := newDrawing(chat.Card{Code: c.Code, Attach: c.Attach}, CardOptions{})
	code, whole := d.codeBlocks()
	if whole = whole && sizeOf(code) <= maxView/2; !whole {
		code = d.codeEnds(maxView / 2)
	}
	ask := []string{visible.Text(face.Headline(c)), b.Confirm}
	if !whole || !d.exact {
		ask = append(ask, sayReadFirst(clip(visible.Text(d.codeName), 60)))
	}
	var blocks []slack.Block
	for i, s := range ask {
		if s != "" {
			blocks = append(blocks, slack.NewRichTextBlock("", slack.NewRichTextSection(text(s, &slack.RichTextSectionTextStyle{Bold: i == 0}))))
		}
	}
	in := slack.NewPlainTextInputBlockElement(nil, inputAction).WithMultiline(true).WithMaxLength(MaxInput)
	in.InitialValue = clip(visible.Text(reason), MaxInput)
	label := askWhy
	switch {
	case b.AskReason:
		label = "Reason"
	case b.Style == chat.StyleDeny:
		label = askReason
	}
	if b.Write != "" {
		label = askWrite(b.Write)
	}
	blocks = append(append(blocks, code...), slack.NewInputBlock(inputBlock, plain(label, MaxPlainText), nil, in).WithOptional(!b.AskReason))
	return slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: CallbackConfirm, PrivateMetadata: private,
		Title: plain(b.Label, MaxModalTitle), Submit: plain(b.Label, MaxModalTitle), Close: plain("Cancel", MaxModalTitle),
		Blocks: slack.Blocks{BlockSet: blocks},
	}, nil
}

// Input is what was typed into the modal, or the numbers that were ticked; "" when nothing was.
func Input(v slack.View) string {
	if v.State == nil {
		return ""
	}
	var ticked []string
	for _, block := range v.State.Values {
		for _, o := range block[inputAction].SelectedOptions {
			ticked = append(ticked, o.Value)
		}
	}
	if len(ticked) > 0 {
		return strings.Join(ticked, " ")
	}
	return v.State.Values[inputBlock][inputAction].Value
}

// maxView is how many bytes of JSON a modal may have; Slack refuses over 250 kB
// (docs.slack.dev/reference/methods/views.open, view_too_large).
const maxView = 200_000

// DetailsModal shows a card's code and details to the person who asked for them. What has no
// room ends with a sentence that says how much is missing.
func DetailsModal(c chat.Card) slack.ModalViewRequest {
	d := newDrawing(chat.Card{Code: c.Code}, CardOptions{})
	const room = maxView - 10_000
	code, ok := d.codeBlocks()
	if !ok || sizeOf(code) > room/2 {
		code = d.codeEnds(room / 2)
	}
	for _, f := range c.Details {
		if value := visible.Text(f.Value); strings.TrimSpace(value) != "" {
			d.lines = append(d.lines, line{zone: zoneFields, label: visible.Text(f.Name), text: value})
		}
	}
	var fields []slack.Block
	for limit := maxLine; limit >= 20; limit /= 2 {
		lines := d.lines
		for i, l := range lines {
			if quoted(l.text) > limit {
				lines = slices.Clone(lines)
				short := prefix(l.text, limit)
				lines[i].text = fmt.Sprintf("%s… (%s more)", strings.TrimSpace(short), measure(l.text[len(short):]))
			}
		}
		fields = d.lineBlocks(lines, zoneFields)
		if sizeOf(fields)+sizeOf(code) <= room && len(fields)+len(code) < MaxBlocks {
			break
		}
	}
	blocks := append([]slack.Block{slack.NewRichTextBlock("", slack.NewRichTextSection(text(visible.Text(face.Headline(c)), &slack.RichTextSectionTextStyle{Bold: true})))}, code...)
	return slack.ModalViewRequest{
		Type: slack.VTModal, Title: plain("Details", MaxModalTitle), Close: plain("Close", MaxModalTitle),
		Blocks: slack.Blocks{BlockSet: append(blocks, fields...)},
	}
}
