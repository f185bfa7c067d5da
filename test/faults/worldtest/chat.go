package worldtest

import (
	"context"
	"strings"
	"time"
)

// Person is one of the people of every network. Those before Mallory may decide.
type Person string

// The people.
const (
	Alice   Person = "alice"
	Bob     Person = "bob"
	Carol   Person = "carol"
	Dave    Person = "dave"
	Mallory Person = "mallory"
)

// Deciders are those who may decide.
func Deciders() []Person { return []Person{Alice, Bob, Carol, Dave} }

// Button is a button of a message.
type Button struct{ ID, Label string }

// Shown is a message of the bot, as everybody sees it now.
type Shown struct {
	ID      string
	Keys    []string // of the posts that it shows; nil where the network has no such thing
	Text    string
	Buttons []Button
	// Card says that it asks, or asked, for a decision.
	Card bool
	// At is when it was posted, Changed when it was last edited; zero if it never was.
	At, Changed time.Time
}

// Settings are what a bot needs for a network.
type Settings interface {
	// Name is that of the network in the bot's configuration.
	Name() string
	// Env are the variables of the bot, Groups the part of the configuration that says who may decide, More what else it
	// needs, as YAML.
	Env() []string
	Groups() string
	More() string
}

// Network is a chat network with people in it.
type Network interface {
	Settings
	// Open lets somebody begin a thread; the number chooses the channel. Say speaks in one. Without an error the bot has
	// accepted the message. A thread is returned also with an error when it exists.
	Open(ctx context.Context, who Person, n int, text string) (thread string, err error)
	Say(ctx context.Context, who Person, thread, text string) error
	// Press presses a button; without an error the bot has answered.
	Press(ctx context.Context, who Person, thread string, m Shown, b Button) error
	// Thread returns the messages of the bot in a thread, in their order.
	Thread(thread string) ([]Shown, error)
	// Connected says that the network reaches the bot.
	Connected() bool
	// Stray are messages of the bot that stand where they should not.
	Stray() []string
	Close()
}

// approve finds the button that approves, and the id of the request.
func approve(m Shown) (b Button, request string, ok bool) {
	for _, b := range m.Buttons {
		if _, rest, found := strings.Cut(b.ID, "approve:"); found {
			id, _, _ := strings.Cut(rest, ".")
			return b, id, true
		}
	}
	return Button{}, "", false
}
