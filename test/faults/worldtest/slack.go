package worldtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/network"
)

// Slack is a local Slack behind a link.
type Slack struct {
	*slackfake.Server
	// Link carries both the API and the sockets.
	Link  *network.Proxy
	front *http.Server
	wg    sync.WaitGroup
}

// slackChannels is how many channels the threads are in.
const slackChannels = 3

// NewSlack starts a local Slack. Slack itself tries again at once, after a minute and
// after five; here that comes sooner and more often, so that a day of faults is short,
// and lasts a minute in all: the bot needs 20 s to call a silent socket dead.
func NewSlack(cfg slackfake.Config) (*Slack, error) {
	if cfg.RetryDelays == nil {
		cfg.RetryDelays = []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second, 10 * time.Second, 20 * time.Second, 20 * time.Second}
	}
	s := &Slack{Server: slackfake.New(cfg)}
	members := []string{"UBOT"}
	for _, p := range append(Deciders(), Mallory) {
		s.AddUser(slackfake.User{ID: slackUser(p), Name: string(p)})
		members = append(members, slackUser(p))
	}
	for i := range slackChannels {
		s.AddChannel(slackfake.Channel{ID: fmt.Sprint("CF", i), Name: fmt.Sprint("faults", i), Members: members})
	}
	s.SetUsergroup("SONCALL", slackUser(Carol), slackUser(Dave))
	if err := s.open(); err != nil {
		s.Server.Close()
		return nil, err
	}
	return s, nil
}

func slackUser(p Person) string { return "U" + strings.ToUpper(string(p)) }

// open puts the link before the fake. The addresses in its answers, of sockets and of
// files, have to lead through the link as well, so a small front stands between the
// two and changes them.
func (s *Slack) open() error {
	base, err := url.Parse(s.URL())
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if s.Link, err = network.New(ln.Addr().String()); err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: base.Host}) },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = bytes.ReplaceAll(body, []byte(base.Host), []byte(s.Link.Address()))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return nil
		},
		// What the fake cuts is cut, and no answer is made up.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     nil,
	}
	s.front = &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.front.Serve(ln) })
	return nil
}

// Close implements Network.
func (s *Slack) Close() {
	s.Link.Close()
	_ = s.front.Close()
	s.wg.Wait()
	s.Server.Close()
}

// Name implements Network.
func (s *Slack) Name() string { return "slack" }

// Env implements Network.
func (s *Slack) Env() []string {
	return []string{"SLACK_BOT_TOKEN=xoxb-1", "SLACK_APP_TOKEN=xapp-1", "SLACK_API_URL=http://" + s.Link.Address() + "/api/"}
}

// Groups implements Network: two by name, two by a user group.
func (s *Slack) Groups() string {
	return fmt.Sprintf("slack: [%s, %s], slack_usergroups: [SONCALL]", slackUser(Alice), slackUser(Bob))
}

// More implements Network.
func (s *Slack) More() string { return "" }

// Connected implements Network.
func (s *Slack) Connected() bool { return s.Sockets() > 0 }

// Open implements Network.
func (s *Slack) Open(ctx context.Context, who Person, n int, text string) (string, error) {
	channel := fmt.Sprint("CF", n%slackChannels)
	ts, err := s.Server.Say(ctx, slackfake.Message{User: slackUser(who), Channel: channel, Text: "<@UBOT> " + text, Mention: true})
	if ts == "" {
		return "", err
	}
	return channel + "/" + ts, err
}

// Say implements Network.
func (s *Slack) Say(ctx context.Context, who Person, thread, text string) error {
	channel, root, _ := strings.Cut(thread, "/")
	_, err := s.Server.Say(ctx, slackfake.Message{User: slackUser(who), Channel: channel, Thread: root, Text: text})
	return err
}

// Press implements Network.
func (s *Slack) Press(ctx context.Context, who Person, thread string, m Shown, b Button) error {
	channel, _, _ := strings.Cut(thread, "/")
	_, err := s.Server.Press(ctx, slackUser(who), channel, m.ID, b.ID)
	return err
}

// Thread implements Network.
func (s *Slack) Thread(thread string) ([]Shown, error) {
	channel, root, _ := strings.Cut(thread, "/")
	var out []Shown
	for _, m := range s.Messages(channel, root) {
		if m.BotID != "BBOT" || m.Deleted {
			continue
		}
		sh := Shown{ID: m.TS, Text: m.Plain(), Buttons: slackButtons(m.Blocks), At: slackTime(m.TS), Changed: m.Changed}
		sh.Keys, sh.Card = slackKeys(m.Metadata)
		out = append(out, sh)
	}
	return out, nil
}

func slackKeys(metadata json.RawMessage) (keys []string, card bool) {
	var md struct {
		Payload struct {
			Key  string `json:"key"`
			Part any    `json:"part"`
			Log  []struct {
				Key string `json:"key"`
			} `json:"log"`
		} `json:"event_payload"`
	}
	_ = json.Unmarshal(metadata, &md)
	for _, l := range md.Payload.Log {
		keys = append(keys, l.Key)
	}
	if k := md.Payload.Key; k != "" {
		keys = append(keys, fmt.Sprintf("%s#%v", k, md.Payload.Part))
		card = strings.HasPrefix(k, "approval/")
	}
	return keys, card
}

func slackButtons(blocks json.RawMessage) (out []Button) {
	var all []struct {
		Elements []struct {
			ActionID string `json:"action_id"`
			Text     struct {
				Text string `json:"text"`
			} `json:"text"`
		} `json:"elements"`
	}
	_ = json.Unmarshal(blocks, &all)
	for _, b := range all {
		for _, e := range b.Elements {
			if e.ActionID != "" {
				out = append(out, Button{e.ActionID, e.Text.Text})
			}
		}
	}
	return out
}

func slackTime(ts string) time.Time {
	sec, micro, _ := strings.Cut(ts, ".")
	a, _ := strconv.ParseInt(sec, 10, 64)
	b, _ := strconv.ParseInt(micro, 10, 64)
	return time.Unix(a, b*1000)
}

// Stray implements Network: messages of the bot in a channel itself.
func (s *Slack) Stray() (out []string) {
	for i := range slackChannels {
		channel := fmt.Sprint("CF", i)
		for _, m := range s.Messages(channel, "") {
			if m.BotID == "BBOT" && !m.Deleted && m.ThreadTS == "" {
				out = append(out, channel+": "+m.Plain())
			}
		}
	}
	return out
}
