// Package embed draws posts, cards and forms as Discord messages and modals, and
// reads what comes back from their buttons. It is pure: values in, values out,
// safe for concurrent use. Its types encode to the JSON of Discord's HTTP API v10,
// so any client can send them.
//
// Discord parses all text of a message but an embed's footer, a button's label
// and a form's labels and values. So foreign text (the model's, a command's, a
// person's, a host's) is escaped, or stands in a code block or code span that it
// can't close. It makes no mention, no emoji, no time, no hidden part and no link;
// only addresses that the Markdown reader accepted become links, each written as
// it is and never behind a name. "@everyone" and "@here" get a space after the @
// besides, and every message tells Discord to mention nobody but whom [Message.Calling] names.
//
// Characters that a reader can't see (controls, bidi and zero-width characters,
// variation selectors, private use) are made visible as \u{202E} or \x1b, and so
// is the third of three backticks in a code block, as \x60. The emoji selector
// U+FE0F alone is removed, outside of code.
//
// Messages are of the classic form. The flag of Components V2 disables a message's
// content, which is what a notification shows of a card: what would be done, where, and
// how risky it is. It can't be taken back either, when a card becomes one line
// (docs.discord.com/developers/components/using-message-components).
//
// What does not fit a limit is never cut in silence: the message says so and a
// file carries the whole. The package does not talk to Discord, does not upload
// the files and does not decide who may press a button.
package embed

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
)

// Limits of Discord. Source, if none is named: the pages "Message" and "Component
// Reference" in docs.discord.com/developers. They speak of characters; this
// package counts UTF-16 units, of which a text has as many or more.
const (
	// MaxContent is a message's text. (The OpenAPI description says 4000, which
	// holds for accounts that pay.)
	MaxContent = 2000
	// MaxEmbedTotal bounds all text of a message's embeds together.
	MaxEmbedTotal = 6000
	// MaxTitle, MaxDescription, MaxFields, MaxFieldName, MaxFieldValue and
	// MaxFooter bound one embed.
	MaxTitle       = 256
	MaxDescription = 4096
	MaxFields      = 25
	MaxFieldName   = 256
	MaxFieldValue  = 1024
	MaxFooter      = 2048
	// MaxRows is how many rows of buttons a message has, MaxRow how many buttons
	// stand in one.
	MaxRows = 5
	MaxRow  = 5
	// MaxLabel is a button's label and MaxCustomID its custom_id, or a modal's.
	MaxLabel    = 80
	MaxCustomID = 100
	// MaxFiles is how many files one message takes.
	MaxFiles = 10
	// MaxFileName is an attachment's name.
	MaxFileName = 1024
	// MaxModalTitle and MaxInputLabel bound a modal's title and a label in it.
	MaxModalTitle = 45
	MaxInputLabel = 45
	// MaxInput is the text in an input of a modal, MaxDisplay the text above it.
	MaxInput   = 4000
	MaxDisplay = 4000
	// MaxMessages is how many messages the text of one reply may become; longer
	// ones become a head and a file. It is this program's own limit.
	MaxMessages = 5
)

// Flags of a message.
const (
	// FlagSuppressEmbeds keeps Discord from drawing previews of links. It hides
	// embeds too, so that no card has it.
	FlagSuppressEmbeds = 1 << 2
	// FlagSilent keeps a message from notifying anybody. It counts when the message
	// is created; an edit can't change it.
	FlagSilent = 1 << 12
)

// Message is one message. Encoded, it is a body for creating one, for the data of
// an interaction's answer, and for editing one, where it replaces everything:
// lists are sent when they are empty too, as Discord keeps what is left out.
//
// Files are uploaded with it, as the parts files[0], files[1] and so on of a
// multipart request whose payload_json is the message; Attachments names them.
type Message struct {
	Content         string       `json:"content"`
	Embeds          []Embed      `json:"embeds"`
	Components      []Row        `json:"components"`
	Attachments     []Attachment `json:"attachments"`
	AllowedMentions Mentions     `json:"allowed_mentions"`
	Flags           int          `json:"flags"`
	Files           []chat.File  `json:"-"`
}

// Silent is the message so that it notifies nobody.
func (m Message) Silent() Message {
	m.Flags |= FlagSilent
	return m
}

// Mentions tells Discord whom a message mentions, whatever it says: the people that [Message.Calling] named,
// and nobody else. Left out, Discord would look for users, roles and everyone in it.
type Mentions struct{ users []string }

// MarshalJSON implements json.Marshaler.
func (m Mentions) MarshalJSON() ([]byte, error) {
	if len(m.users) == 0 {
		return []byte(`{"parse":[]}`), nil
	}
	return json.Marshal(struct {
		Parse []string `json:"parse"`
		Users []string `json:"users"`
	}{[]string{}, m.users})
}

// snowflake is what Discord's ids look like.
var snowflake = regexp.MustCompile(`^[0-9]{15,20}$`)

// Calling is the message with mentions of people, by their ids, before its text, if they fit: Discord
// notifies them when it is posted.
func (m Message) Calling(people []string) Message {
	users := slices.DeleteFunc(slices.Clone(people), func(id string) bool { return !snowflake.MatchString(id) })
	text := "<@" + strings.Join(users, "> <@") + "> "
	if len(users) == 0 || utf16Len(text+m.Content) > MaxContent {
		return m
	}
	m.Content, m.AllowedMentions = strings.TrimSpace(text+m.Content), Mentions{users}
	return m
}

// Embed is a framed box with a coloured bar. Title, Description and Fields are
// Discord's Markdown; the footer is plain text.
type Embed struct {
	Title       string  `json:"title,omitempty"`
	Description string  `json:"description,omitempty"`
	Color       int     `json:"color,omitempty"` // 0xRRGGBB
	Fields      []Field `json:"fields,omitempty"`
	Footer      *Footer `json:"footer,omitempty"`
}

// Field is a labelled text of an embed; inline ones stand side by side.
type Field struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Inline bool   `json:"inline"`
}

// Footer is the small print of an embed.
type Footer struct {
	Text string `json:"text"`
}

// The types of components that this package makes.
const (
	typeRow     = 1
	typeButton  = 2
	typeMenu    = 3
	typeInput   = 4
	typeDisplay = 10
	typeLabel   = 18 // only read: other clients wrap an input in it
)

// Row is one row of buttons, or the menu.
type Row struct {
	Type       int      `json:"type"` // 1
	Components []Button `json:"components"`
}

// Button is one button, or the menu.
type Button struct {
	Type     int    `json:"type"`            // 2, or 3 for the menu
	Style    int    `json:"style,omitempty"` // 1 blue, 2 grey, 3 green, 4 red
	Label    string `json:"label,omitempty"`
	CustomID string `json:"custom_id"`
	// Placeholder and Options are the menu's. What was chosen is in the option's value, as the
	// custom_id that a button would have.
	Placeholder string   `json:"placeholder,omitempty"`
	Options     []Option `json:"options,omitempty"`
	MinValues   int      `json:"min_values,omitempty"` // how many can be chosen; Discord's own are 1 and 1
	MaxValues   int      `json:"max_values,omitempty"`
}

// Option is one entry of the menu.
type Option struct {
	Label       string `json:"label"`
	Value       string `json:"value"`
	Description string `json:"description,omitempty"`
	Default     bool   `json:"default,omitempty"` // it's chosen at first
}

// Attachment names one of a message's files.
type Attachment struct {
	ID       string `json:"id"` // the file's place in Files, a number in a string as all ids are
	Filename string `json:"filename"`
}

// newMessage is a message with its files, of which there are at most [MaxFiles].
func newMessage(content string, flags int, files []chat.File) Message {
	m := Message{Content: content, Embeds: []Embed{}, Components: []Row{}, Attachments: []Attachment{}, Flags: flags, Files: files}
	for i, f := range files {
		name := clip(visible.Text(f.Name), MaxFileName/2)
		if strings.TrimSpace(name) == "" {
			name = "file.txt"
		}
		m.Attachments = append(m.Attachments, Attachment{ID: strconv.Itoa(i), Filename: name})
	}
	return m
}

// measure says how long a text is.
func measure(s string) string {
	lines := strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1
	if lines == 1 {
		return fmt.Sprintf("1 line, %d bytes", len(s))
	}
	return fmt.Sprintf("%d lines, %d bytes", lines, len(s))
}
