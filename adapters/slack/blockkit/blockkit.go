// Package blockkit draws posts, cards, modals and the home page for Slack's
// Block Kit. It is pure: values in, values out, safe for concurrent use.
//
// Foreign text (the model's, a command's, a person's, a host's) is kept apart
// from markup by structure and not by escaping: it goes into rich_text elements
// of the type text, into raw_text cells and into plain_text objects with emoji
// off, none of which Slack parses. No mrkdwn object is made at all, and no
// element that mentions or notifies anybody. The one string that Slack does
// parse, [Message.Text], is escaped.
//
// Characters that a reader can't see (controls, bidi and zero-width characters,
// variation selectors, private use) are made visible as \u{202E} or \x1b. The
// emoji selector U+FE0F alone is removed, outside of code.
//
// What does not fit a limit is never cut in silence: the message says so and a
// file carries the whole. The package does not talk to Slack, does not upload
// the files and does not decide who may press a button.
package blockkit

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
)

// Limits of Slack's Block Kit, counted in characters unless said otherwise.
// Source, if none is named: the reference of the block or object in
// docs.slack.dev/reference/block-kit. Where it is not said whether Slack counts
// bytes, UTF-16 units or code points, this package counts the largest.
const (
	// MaxText is what chat.postMessage recommends for the text field; more than
	// 40,000 are truncated.
	MaxText = 4000
	// MaxBlockJSON bounds the JSON of one rich_text block, in bytes. Slack
	// documents no limit; a section's text has 3,000.
	MaxBlockJSON = 3000
	// MaxMessageJSON bounds the JSON of all blocks of one message, in bytes.
	// Slack documents 12,000 for the markdown blocks of a message and answers
	// msg_blocks_too_long for others too: measured at 13,297 with markdown
	// blocks (slackapi/bolt-js issue 2509) and with 11,341 characters of text in
	// many rich_text elements (issue 2867), so markup counts.
	MaxMessageJSON = 12000
	// MaxBlocks is how many blocks are used of the 50 that a message may have.
	MaxBlocks = 45
	// MaxHomeBlocks is how many are used of the 100 that a view may have.
	MaxHomeBlocks = 90
	// MaxHeader is a header block's text.
	MaxHeader = 150
	// MaxPlainText is a text object's text.
	MaxPlainText = 3000
	// MaxTableRows and MaxTableColumns bound a table block; a message may have
	// one table.
	MaxTableRows    = 100
	MaxTableColumns = 20
	// MaxTableJSON bounds a table block's JSON, in bytes: half a message. Larger
	// tables become aligned text.
	MaxTableJSON = 6000
	// MaxMessages is how many messages one reply may become; longer ones become
	// a head and a file. It is this program's own limit.
	MaxMessages = 4
	// MaxButtonText, MaxValue and MaxActionID bound a button.
	MaxButtonText = 75
	MaxValue      = 2000
	MaxActionID   = 255
	// MaxConfirmTitle and the others bound a confirmation dialog.
	MaxConfirmTitle  = 100
	MaxConfirmText   = 300
	MaxConfirmButton = 30
	// MaxModalTitle bounds a modal's title and its two buttons.
	MaxModalTitle = 24
	// MaxInput is the longest text in an input of a modal.
	MaxInput = 3000
	// MaxPrivate is a view's private_metadata.
	MaxPrivate = 3000
	// MaxButtons is how many buttons a card shows. Slack allows 25 in an actions
	// block; this is this program's own limit, so that they can't crowd out what
	// they decide.
	MaxButtons = 10
	// MaxURL is a button's url.
	MaxURL = 3000
)

// Message is one chat message: Text is always set, and is what notifications,
// screen readers and clients without blocks show. It is escaped for mrkdwn, to
// be sent with parse "none" and link_names off. Files are uploaded into the
// same thread after the message.
type Message struct {
	Text   string
	Blocks []slack.Block
	Files  []chat.File
}

// userID is what Slack's ids of people look like.
var userID = regexp.MustCompile(`^[UW][A-Z0-9]{2,20}$`)

// Calling is the message with mentions of people, by their ids, before it: Slack notifies them when it is
// posted.
func (m Message) Calling(people []string) Message {
	people = slices.DeleteFunc(slices.Clone(people), func(id string) bool { return !userID.MatchString(id) })
	if len(people) == 0 {
		return m
	}
	var elements []slack.RichTextSectionElement
	for _, id := range people {
		elements = append(elements, slack.NewRichTextSectionUserElement(id, nil), slack.NewRichTextSectionTextElement(" ", nil))
	}
	m.Text = "<@" + strings.Join(people, "> <@") + "> " + m.Text
	m.Blocks = append([]slack.Block{slack.NewRichTextBlock("", slack.NewRichTextSection(elements...))}, m.Blocks...)
	return m
}

// WithoutInput is the message without the fields that people write into, and
// whether it had one: Slack knows inputs in messages only since late, and refuses
// the whole message where it does not.
func (m Message) WithoutInput() (Message, bool) {
	isInput := func(b slack.Block) bool { return b.BlockType() == slack.MBTInput }
	if !slices.ContainsFunc(m.Blocks, isInput) {
		return m, false
	}
	m.Blocks = slices.DeleteFunc(slices.Clone(m.Blocks), isInput)
	return m, true
}

// WithoutPlan is the message with its plan as lines of text, and whether it had one: not every
// workspace knows Slack's blocks for the plans of agents, and Slack refuses the whole message
// where it does not.
func (m Message) WithoutPlan() (Message, bool) {
	i := slices.IndexFunc(m.Blocks, func(b slack.Block) bool { return b.BlockType() == slack.MBTPlan })
	if i < 0 {
		return m, false
	}
	plan, ok := m.Blocks[i].(*slack.PlanBlock)
	if !ok {
		return m, false
	}
	var lines []string
	for _, task := range plan.Tasks {
		lines = append(lines, stateOf(task.Status).Mark()+task.Title)
	}
	m.Blocks = slices.Clone(m.Blocks)
	m.Blocks[i] = slack.NewRichTextBlock("", slack.NewRichTextSection(text(strings.Join(lines, "\n"), nil)))
	return m, true
}

func stateOf(s slack.TaskCardStatus) chat.StepState {
	switch s {
	case slack.TaskCardStatusInProgress:
		return chat.StepRunning
	case slack.TaskCardStatusComplete:
		return chat.StepDone
	case slack.TaskCardStatusError:
		return chat.StepFailed
	case slack.TaskCardStatusPending:
	}
	return chat.StepWaiting
}

// CardOptions is what a card needs to know of its place.
type CardOptions struct {
	// Thread, when it is not empty and at most 200 printable ASCII characters
	// without spaces, becomes part of the id of the block that has the buttons.
	Thread string
}
