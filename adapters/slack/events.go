package slack

import (
	"encoding/json"
	"fmt"

	slackapi "github.com/slack-go/slack"
)

// The shapes of the Events API, as far as the bot reads them
// (docs.slack.dev/reference/events). The library's own parser reads an event
// five times and all of its blocks, which was a third of the time to an
// acknowledgement.

// callback is the outer event.
type callback struct {
	Type      string          `json:"type"`
	Challenge string          `json:"challenge"` // url_verification
	TeamID    string          `json:"team_id"`
	Event     json.RawMessage `json:"event"`
}

// occurrence is the inner event: what happened.
type occurrence struct {
	body
	Type        string `json:"type"`
	Channel     string `json:"channel"`
	ChannelType string `json:"channel_type"`
	UserTeam    string `json:"user_team"`
	EventTS     string `json:"event_ts"`
	Tab         string `json:"tab"` // app_home_opened
	// Message and Previous are set where a message was changed or deleted.
	Message   *body  `json:"message"`
	Previous  *body  `json:"previous_message"`
	Old       string `json:"old_channel_id"` // channel_id_changed
	New       string `json:"new_channel_id"`
	Assistant struct {
		Channel string `json:"channel_id"`
		Root    string `json:"thread_ts"`
	} `json:"assistant_thread"`

	team string
}

// body is what a message says.
type body struct {
	SubType     string          `json:"subtype"`
	User        string          `json:"user"`
	Bot         string          `json:"bot_id"`
	Text        string          `json:"text"`
	TS          string          `json:"ts"`
	Root        string          `json:"thread_ts"`
	Edited      *edited         `json:"edited"`
	Files       []slackapi.File `json:"files"`
	Attachments []attachment    `json:"attachments"`
	Blocks      json.RawMessage `json:"blocks"`
}

type edited struct {
	TS string `json:"ts"`
}

// heard are the events that are read; all others are acknowledged and left.
var heard = map[string]bool{
	"app_mention": true, "message": true, "app_home_opened": true, "assistant_thread_started": true, "agent_session_stopped": true,
	"tokens_revoked": true, "app_uninstalled": true, "channel_id_changed": true,
}

// parseEvent reads the payload of an event. ok is false for events of which the
// bot takes no notice.
func parseEvent(payload []byte) (ev occurrence, ok bool, err error) {
	var c callback
	if err := json.Unmarshal(payload, &c); err != nil {
		return ev, false, fmt.Errorf("slack: the event is no JSON: %w", err)
	}
	var kind struct {
		Type string `json:"type"`
	}
	if c.Type != "event_callback" {
		return ev, false, nil
	}
	if err := json.Unmarshal(c.Event, &kind); err != nil {
		return ev, false, fmt.Errorf("slack: the event has an unknown form: %w", err)
	}
	if !heard[kind.Type] {
		return ev, false, nil
	}
	if err := json.Unmarshal(c.Event, &ev); err != nil {
		return ev, false, fmt.Errorf("slack: the event %s has an unknown form: %w", kind.Type, err)
	}
	ev.team = c.TeamID
	return ev, true, nil
}

// lane is what an event has to keep its order within.
func (ev *occurrence) lane() string {
	if root := ev.thread(); root != "" {
		return "m/" + ev.Channel + "/" + root
	}
	return "other"
}

// thread is the root of the thread that an event is about, "" where it is about none.
func (ev *occurrence) thread() string {
	b := &ev.body
	if ev.Previous != nil {
		b = ev.Previous
	} else if ev.Message != nil {
		b = ev.Message
	}
	return orElse(b.Root, b.TS)
}
