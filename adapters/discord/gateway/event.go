package gateway

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bwmarrin/discordgo"
)

// errIncomplete says that an event lacks what every event of its kind has.
var errIncomplete = errors.New("it lacks what every event of its kind has")

// decode reads one dispatch. key is the conversation whose order it belongs to.
// A nil event without an error is of a kind that nobody wants. The library would
// hand out what it could decode of a broken event, with nil fields; an error
// here means that nobody gets it.
func decode(kind string, raw []byte) (event any, key string, err error) {
	defer func() {
		// The decoders of the library are not ours.
		if p := recover(); p != nil {
			event, key, err = nil, "", fmt.Errorf("its decoder panicked: %v", p)
		}
	}()
	switch kind {
	case "MESSAGE_CREATE":
		return sound(raw, func(e *discordgo.MessageCreate) (string, bool) {
			return message(e.Message, true)
		})
	case "MESSAGE_UPDATE":
		e, key, err := sound(raw, func(e *discordgo.MessageUpdate) (string, bool) {
			return message(e.Message, false)
		})
		if m, ok := e.(*discordgo.MessageUpdate); ok && m.Author == nil {
			return nil, "", nil // no edit by a person: the preview of a link came
		}
		return e, key, err
	case "MESSAGE_DELETE":
		return sound(raw, func(e *discordgo.MessageDelete) (string, bool) {
			return message(e.Message, false)
		})
	case "MESSAGE_DELETE_BULK":
		return sound(raw, func(e *discordgo.MessageDeleteBulk) (string, bool) {
			return e.ChannelID, e.ChannelID != "" && len(e.Messages) > 0
		})
	case "INTERACTION_CREATE":
		return sound(raw, func(e *discordgo.InteractionCreate) (string, bool) {
			return interaction(e.Interaction)
		})
	case "CHANNEL_CREATE":
		return sound(raw, func(e *discordgo.ChannelCreate) (string, bool) { return channel(e.Channel) })
	case "CHANNEL_UPDATE":
		return sound(raw, func(e *discordgo.ChannelUpdate) (string, bool) { return channel(e.Channel) })
	case "CHANNEL_DELETE":
		return sound(raw, func(e *discordgo.ChannelDelete) (string, bool) { return channel(e.Channel) })
	case "THREAD_CREATE":
		return sound(raw, func(e *discordgo.ThreadCreate) (string, bool) { return channel(e.Channel) })
	case "THREAD_UPDATE":
		return sound(raw, func(e *discordgo.ThreadUpdate) (string, bool) { return channel(e.Channel) })
	case "THREAD_DELETE":
		return sound(raw, func(e *discordgo.ThreadDelete) (string, bool) { return channel(e.Channel) })
	case "GUILD_CREATE":
		return sound(raw, func(e *discordgo.GuildCreate) (string, bool) { return guild(e.Guild) })
	case "GUILD_DELETE":
		return sound(raw, func(e *discordgo.GuildDelete) (string, bool) { return guild(e.Guild) })
	}
	return nil, "", nil
}

func sound[T any](raw []byte, check func(*T) (string, bool)) (any, string, error) {
	e := new(T)
	if err := json.Unmarshal(raw, e); err != nil {
		return nil, "", err
	}
	key, ok := check(e)
	if !ok {
		return nil, "", errIncomplete
	}
	return e, key, nil
}

func message(m *discordgo.Message, whole bool) (string, bool) {
	if m == nil || m.ID == "" || m.ChannelID == "" {
		return "", false
	}
	if m.Author == nil {
		return m.ChannelID, !whole
	}
	for _, a := range m.Attachments {
		if a == nil {
			return "", false
		}
	}
	for _, u := range m.Mentions {
		if u == nil {
			return "", false
		}
	}
	return m.ChannelID, m.Author.ID != ""
}

func channel(c *discordgo.Channel) (string, bool) {
	if c == nil {
		return "", false
	}
	return c.ID, c.ID != ""
}

func guild(g *discordgo.Guild) (string, bool) {
	if g == nil || g.ID == "" {
		return "", false
	}
	for _, c := range g.Channels {
		if c == nil {
			return "", false
		}
	}
	for _, r := range g.Roles {
		if r == nil {
			return "", false
		}
	}
	for _, t := range g.Threads {
		if t == nil {
			return "", false
		}
	}
	return g.ID, true
}

// interaction gives each person's interactions in a channel an order of their
// own: Discord waits 3 s for an answer, so a click does not wait for messages.
func interaction(i *discordgo.Interaction) (string, bool) {
	if i == nil || i.ID == "" || i.AppID == "" || i.Token == "" {
		return "", false
	}
	who := i.User
	if i.Member != nil {
		who = i.Member.User
	}
	if who == nil || who.ID == "" {
		return "", false
	}
	key := "interaction/" + i.ChannelID + "/" + who.ID
	switch d := i.Data.(type) {
	case discordgo.MessageComponentInteractionData:
		return key, d.CustomID != "" && i.Message != nil && i.Message.ID != "" && i.ChannelID != ""
	case discordgo.ModalSubmitInteractionData:
		return key, d.CustomID != ""
	case discordgo.ApplicationCommandInteractionData:
		return key, d.Name != ""
	}
	return "", false
}
