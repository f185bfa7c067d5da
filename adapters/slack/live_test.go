package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/slack/slackfake"
)

var buttonValue = regexp.MustCompile(`"value":"([A-Z0-9]+)"`)

// value is the value of the button on the posted card.
func (a *answers) value() string {
	_, call := a.called("chat.postMessage")
	form, err := url.ParseQuery(strings.TrimPrefix(call, "chat.postMessage "))
	if err != nil {
		return ""
	}
	m := buttonValue.FindStringSubmatch(form.Get("blocks"))
	if m == nil {
		return ""
	}
	return m[1]
}

// posted waits until the card is there.
func (a *answers) posted(ctx context.Context) {
	select {
	case <-a.card:
	case <-ctx.Done():
	}
}

func pressFrame(envelope, value, user string) string {
	return fmt.Sprintf(`{"type":"interactive","envelope_id":%q,"payload":{"type":"block_actions","user":{"id":%q,"username":"alice"},"actions":[{"action_id":"countersign_doctor","value":%q}]}}`, envelope, user, value)
}

const helloFrame = `{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"}}`

func TestLiveShowsThatAPressArrives(t *testing.T) {
	a := newAnswers(t)
	acked := make(chan string, 10)
	sockets := make(chan int, 1)
	sockets <- 0
	a.mu.Lock()
	a.socket = func(ctx context.Context, c *websocket.Conn) {
		n := <-sockets
		sockets <- n + 1
		say(ctx, c, helloFrame)
		a.posted(ctx)
		if n == 0 { // refreshed while it waits: the next socket goes on
			say(ctx, c, `{"type":"disconnect","reason":"refresh_requested"}`)
			_, _, _ = c.Read(ctx)
			return
		}
		say(ctx, c, `{"type":"events_api","envelope_id":"own","payload":{"event":{"type":"message","channel":"C1","ts":"1700000000.000100"}}}`)
		say(ctx, c, `{"type":"events_api","envelope_id":"foreign","payload":{"event":{"type":"message","channel":"C1","ts":"1700000000.000200"}}}`)
		say(ctx, c, `{"type":"slash_commands","envelope_id":"command","payload":{}}`)
		say(ctx, c, pressFrame("other-value", "X", "U9"))
		say(ctx, c, strings.Replace(pressFrame("other-button", a.value(), "U9"), "countersign_doctor", "approve:1", 1))
		say(ctx, c, pressFrame("ours", a.value(), "U1"))
		for {
			_, raw, err := c.Read(ctx)
			if err != nil {
				return
			}
			var f struct {
				ID string `json:"envelope_id"`
			}
			_ = json.Unmarshal(raw, &f)
			acked <- f.ID
		}
	}
	a.mu.Unlock()
	var said []string
	o := Live(t.Context(), a.config(), LiveOptions{Channel: "C1", Wait: 10 * time.Second, Say: func(s string) { said = append(said, s) }})
	if o.Result != Passed || !strings.Contains(o.Text, "@alice (U1) pressed the button after") || !strings.Contains(o.Text, "came as an event") {
		t.Fatalf("%+v", o)
	}
	if len(said) < 3 || !strings.Contains(said[2], "waiting up to 10s") {
		t.Errorf("it waited in silence: %q", said)
	}
	if first, second := <-acked, <-acked; first != "own" || second != "ours" {
		t.Errorf("acknowledged: %s, %s", first, second)
	}
	select {
	case id := <-acked:
		t.Errorf("%s was acknowledged, so the bot never gets it", id)
	default:
	}
	if n, last := a.called("chat.update"); n != 1 || !strings.Contains(last, "alice+pressed+the+button") || strings.Contains(last, "actions") {
		t.Errorf("the card's last face: %d %s", n, last)
	}
	if _, card := a.called("chat.postMessage"); !strings.Contains(card, "nothing") || !strings.Contains(card, "unfurl_links=false") {
		t.Errorf("the card does not say that it is harmless: %s", card)
	}
}

func TestLiveRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	hello := func(text string) func(context.Context, *websocket.Conn) {
		return func(ctx context.Context, c *websocket.Conn) {
			say(ctx, c, text)
			_, _, _ = c.Read(ctx)
		}
	}
	for _, tc := range []struct {
		rule   string
		change func(*answers, *DoctorConfig, *LiveOptions)
		result Result
		want   string
		posts  int
	}{
		{"a channel by its name", func(_ *answers, _ *DoctorConfig, o *LiveOptions) { o.Channel = "#ops" }, Failed, "no channel id", 0},
		{"swapped tokens", func(_ *answers, c *DoctorConfig, _ *LiveOptions) { c.BotToken, c.AppToken = c.AppToken, c.BotToken }, Failed, "swapped", 0},
		{"Events over HTTP", func(_ *answers, c *DoctorConfig, _ *LiveOptions) { c.AppToken, c.SigningSecret = "", "x" }, Skipped, "running bot", 0},
		{"the bot runs here", func(_ *answers, c *DoctorConfig, _ *LiveOptions) { c.Running = true }, Failed, "stop the bot", 0},
		{"the bot runs elsewhere", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.socket = hello(`{"type":"hello","num_connections":2}`)
		}, Failed, "1 other sockets", 0},
		{"an unknown token", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.methods["auth.test"] = `{"ok":false,"error":"invalid_auth"}`
		}, Failed, "SLACK_BOT_TOKEN", 0},
		{"Socket Mode off", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.socket = hello(`{"type":"disconnect","reason":"link_disabled"}`)
		}, Failed, "Socket Mode is off", 0},
		{"a channel without the bot", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.methods["chat.postMessage?C1"] = `{"ok":false,"error":"not_in_channel"}`
		}, Failed, "/invite @ops", 1},
		{"nobody presses", func(_ *answers, _ *DoctorConfig, o *LiveOptions) { o.Wait = 30 * time.Millisecond }, Failed, "nobody pressed the button within 30ms", 1},
		{"Socket Mode is switched off while it waits", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.socket = func(ctx context.Context, c *websocket.Conn) {
				say(ctx, c, helloFrame)
				a.posted(ctx)
				say(ctx, c, `{"type":"disconnect","reason":"link_disabled"}`)
				_, _, _ = c.Read(ctx)
			}
		}, Failed, "switched off meanwhile", 1},
		{"a card that cannot be changed", func(a *answers, _ *DoctorConfig, _ *LiveOptions) {
			a.methods["chat.update?C1"] = `{"ok":false,"error":"cant_update_message"}`
			a.socket = func(ctx context.Context, c *websocket.Conn) {
				say(ctx, c, helloFrame)
				a.posted(ctx)
				say(ctx, c, pressFrame("e", a.value(), "U1"))
				_, _, _ = c.Read(ctx)
				_, _, _ = c.Read(ctx)
			}
		}, Failed, "cant_update_message", 1},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			a := newAnswers(t)
			cfg, o := a.config(), LiveOptions{Channel: "C1", Wait: 10 * time.Second, Say: func(string) {}}
			tc.change(a, &cfg, &o)
			out := Live(t.Context(), cfg, o)
			if out.Result != tc.result || !strings.Contains(out.Text, tc.want) || strings.ContainsAny(out.Text, "\n") || strings.Contains(out.Text, "-secret") {
				t.Errorf("%+v", out)
			}
			if n, _ := a.called("chat.postMessage"); n != tc.posts {
				t.Errorf("%d cards were posted", n)
			}
			if tc.posts == 1 && !strings.Contains(tc.want, "/invite") {
				if n, last := a.called("chat.update"); n != 1 || strings.Contains(last, "actions") {
					t.Errorf("the button stays: %d %s", n, last)
				}
			}
		})
	}
}

func TestLiveStopsWithItsContext(t *testing.T) {
	a := newAnswers(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := Live(ctx, a.config(), LiveOptions{Channel: "C1", Say: func(s string) {
		if strings.Contains(s, "waiting") {
			cancel()
		}
	}})
	if o.Result != Failed || !strings.Contains(o.Text, "stopped") {
		t.Errorf("%+v", o)
	}
	if n, last := a.called("chat.update"); n != 1 || !strings.Contains(last, "stopped") {
		t.Errorf("the button stays: %d %s", n, last)
	}
}

// docs.slack.dev/reference/methods/blocks.validate: Slack is asked about the form of cards before
// one is posted.
func TestLiveAsksSlackAboutTheFormOfCards(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		result Result
		want   string
	}{
		"accepted":  {`{"ok":true}`, Passed, "accepts the 5 forms"},
		"refused":   {`{"ok":false,"error":"invalid_blocks","errors":[{"pointer":"/2/elements","code":"failed_constraint","message":"too many"}]}`, Failed, "a card that asks (invalid_blocks: /2/elements too many)"},
		"not there": {`{"ok":false,"error":"unknown_method"}`, Skipped, "can't be asked"},
		"no JSON":   {`<html>`, Failed, "its answer is no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAnswers(t)
			a.methods["blocks.validate"] = c.answer
			if out := newDoctor(a.config()).validate(t.Context()); out.Result != c.result || !strings.Contains(out.Text, c.want) {
				t.Errorf("%+v", out)
			}
		})
	}
}

// The forms that Slack is asked about are those that the local Slack accepts, too.
func TestTheLocalSlackAcceptsTheFormsOfCards(t *testing.T) {
	s := slackfake.New(slackfake.Config{})
	defer s.Close()
	if out := newDoctor(DoctorConfig{BotToken: "xoxb-1", APIURL: s.URL()}).validate(t.Context()); out.Result != Passed {
		t.Errorf("%+v", out)
	}
}
