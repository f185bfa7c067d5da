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
// A nil event without an error is of a kind that nobody wants. An error means that
// nobody gets the event: what could be decoded of it may lack fields.
func decode(kind string, raw []byte) (event any, key string, err error) {
	defer func() {
		// The decoders are discordgo's.
		if p := recover(); p != nil {
			event, key, err = nil, "", fmt.Errorf("its decoder panicked: %v", p)
		}
	}()
	switch kind {
	case "MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE":
		raw = knownParts(raw)
	case "INTERACTION_CREATE":
		raw = mapField(raw, "message", knownParts)
	}
	switch kind {
	case "MESSAGE_CREATE":
		return decodeAs(raw, func(e *discordgo.MessageCreate) (string, bool) {
			return messageKey(e.Message, true)
		})
	case "MESSAGE_UPDATE":
		e, key, err := decodeAs(raw, func(e *discordgo.MessageUpdate) (string, bool) {
			return messageKey(e.Message, false)
		})
		if m, ok := e.(*discordgo.MessageUpdate); ok && m.Author == nil {
			return nil, "", nil // no edit by a person: the preview of a link came
		}
		return e, key, err
	case "MESSAGE_DELETE":
		return decodeAs(raw, func(e *discordgo.MessageDelete) (string, bool) {
			return messageKey(e.Message, false)
		})
	case "MESSAGE_DELETE_BULK":
		return decodeAs(raw, func(e *discordgo.MessageDeleteBulk) (string, bool) {
			return e.ChannelID, e.ChannelID != "" && len(e.Messages) > 0
		})
	case "INTERACTION_CREATE":
		return decodeAs(raw, func(e *discordgo.InteractionCreate) (string, bool) {
			return interactionKey(e.Interaction)
		})
	case "CHANNEL_CREATE":
		return decodeAs(raw, func(e *discordgo.ChannelCreate) (string, bool) { return channelKey(e.Channel) })
	case "CHANNEL_UPDATE":
		return decodeAs(raw, func(e *discordgo.ChannelUpdate) (string, bool) { return channelKey(e.Channel) })
	case "CHANNEL_DELETE":
		return decodeAs(raw, func(e *discordgo.ChannelDelete) (string, bool) { return channelKey(e.Channel) })
	case "THREAD_CREATE":
		return decodeAs(raw, func(e *discordgo.ThreadCreate) (string, bool) { return channelKey(e.Channel) })
	case "THREAD_UPDATE":
		return decodeAs(raw, func(e *discordgo.ThreadUpdate) (string, bool) { return channelKey(e.Channel) })
	case "THREAD_DELETE":
		return decodeAs(raw, func(e *discordgo.ThreadDelete) (string, bool) { return channelKey(e.Channel) })
	case "GUILD_CREATE":
		return decodeAs(raw, func(e *discordgo.GuildCreate) (string, bool) { return guildKey(e.Guild) })
	case "GUILD_DELETE":
		return decodeAs(raw, func(e *discordgo.GuildDelete) (string, bool) { return guildKey(e.Guild) })
	}
	return nil, "", nil
}

// The fields of a message that are read: those without which it is none, and those
// that may be left out, of which each entry is looked at by itself.
var (
	requiredFields = []string{"id", "channel_id", "guild_id", "author", "member", "webhook_id", "type", "content", "mentions", "attachments", "timestamp", "edited_timestamp"}
	optionalFields = []string{"embeds", "components", "sticker_items"}
)

// knownParts is a message without what nobody reads, such as the message that it
// replies to, and without the parts that discordgo does not know: Discord adds
// kinds of components, and what somebody said does not depend on them. A message that is
// forwarded is looked at likewise. What is no object stays as it is.
func knownParts(raw json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all == nil {
		return raw
	}
	out := map[string]json.RawMessage{}
	for _, name := range requiredFields {
		if v, ok := all[name]; ok {
			out[name] = v
		}
	}
	for _, name := range optionalFields {
		var list, known []json.RawMessage
		if json.Unmarshal(all[name], &list) != nil {
			continue
		}
		for _, part := range list {
			if decodes(name, part) {
				known = append(known, part)
			}
		}
		if known != nil {
			out[name] = encoded(known)
		}
	}
	var snapshots, seen []map[string]json.RawMessage
	if json.Unmarshal(all["message_snapshots"], &snapshots) == nil {
		for _, s := range snapshots {
			kept := map[string]json.RawMessage{"message": knownParts(s["message"])}
			if decodes("message_snapshots", encoded(kept)) {
				seen = append(seen, kept)
			}
		}
	}
	if seen != nil {
		out["message_snapshots"] = encoded(seen)
	}
	var ref discordgo.MessageReference
	if json.Unmarshal(all["message_reference"], &ref) == nil && ref.MessageID != "" {
		out["message_reference"] = encoded(ref)
	}
	if poll := all["poll"]; len(poll) > 0 && string(poll) != "null" {
		out["poll"] = json.RawMessage("{}") // that there is one is enough
	}
	return encoded(out)
}

// decodes reports whether discordgo knows a part of a message.
func decodes(name string, part json.RawMessage) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return string(part) != "null" && json.Unmarshal(encoded(map[string][]json.RawMessage{name: {part}}), new(discordgo.Message)) == nil
}

// mapField changes one field of an object.
func mapField(raw json.RawMessage, name string, change func(json.RawMessage) json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all[name] == nil {
		return raw
	}
	all[name] = change(all[name])
	return encoded(all)
}

// encoded is JSON that was decoded a moment ago.
func encoded(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return out
}

func decodeAs[T any](raw []byte, check func(*T) (string, bool)) (any, string, error) {
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

func messageKey(m *discordgo.Message, whole bool) (string, bool) {
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

func channelKey(c *discordgo.Channel) (string, bool) {
	if c == nil {
		return "", false
	}
	return c.ID, c.ID != ""
}

func guildKey(g *discordgo.Guild) (string, bool) {
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

// interactionKey gives each person's interactions in a channel an order of their
// own: Discord waits 3 s for an answer, so a click does not wait for messages.
func interactionKey(i *discordgo.Interaction) (string, bool) {
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
