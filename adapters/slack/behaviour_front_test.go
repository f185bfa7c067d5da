package slack_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// office is a desk that remembers who asked.
type office struct {
	mu       sync.Mutex
	asked    []chat.Inquiry
	overview chat.Overview
	stopped  []chat.ThreadID
	err      error
}

func (o *office) Overview(_ context.Context, q chat.Inquiry) (chat.Overview, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	return o.overview, o.err
}

func (o *office) Run(_ context.Context, q chat.Inquiry, words string) (chat.ThreadID, string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	if words != "disk-full directory=/Var" {
		return "", "There is no workflow `" + words + "`.", nil
	}
	return o.stopped[0], "", nil
}

func (o *office) Stop(_ context.Context, q chat.Inquiry) ([]chat.ThreadID, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	return o.stopped, o.err
}

func (o *office) inquiries() []chat.Inquiry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func full() *office {
	here, elsewhere := chat.ThreadID("slack:T1:C1:1700000000.000001"), chat.ThreadID("slack:T1:C2:1700000000.000002")
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return &office{
		stopped: []chat.ThreadID{here},
		overview: chat.Overview{
			Busy: []chat.Busy{{Thread: here, Doing: "running uptime <!here>"}},
			Approvals: []chat.Waiting{
				{Thread: here, ID: "a1", Title: "rm -rf /tmp/x `id`", Level: "high", Target: "web1", Expires: until},
				{Thread: elsewhere, ID: "a2", Title: "reboot", Level: "critical", Target: "db1", Expires: until, Mine: true},
				{Thread: elsewhere, ID: "a3", Title: "asked for elsewhere", Level: "low", Target: "db2", Expires: until},
			},
			Sessions: []chat.Session{{Thread: here, Name: "build", State: "idle", Attach: "tmux attach -t build"}},
		},
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	const link = "https://t1.slack.com/archives/C1/p1700000000000001?thread_ts=1700000000.000001&cid=C1"
	for _, tc := range []struct {
		rule, text string
		desk       func(*office)
		want, not  []string
		within     string // of the inquiry; "" none
	}{
		{"nothing is help", "", nil, []string{"status", "approvals", "sessions", "stop", "Mention me"}, nil, ""},
		{"help", " HELP ", nil, []string{"/countersign status"}, nil, ""},
		{"an unknown word", "`dance` now", nil, []string{"Unknown command", "dance", "/countersign status"}, nil, ""},
		{"status", "status", nil, []string{"running uptime <!here>", link}, nil, "slack:T1:C1:"},
		{"status when idle", "status", func(o *office) { o.overview = chat.Overview{} }, []string{"Idle"}, nil, "slack:T1:C1:"},
		{"approvals", "approvals", nil, []string{"HIGH", "web1", "rm -rf /tmp/x", "others decide", "03:04:05", "CRITICAL", "reboot", "you may decide", "asked for elsewhere"}, nil, "slack:T1:"},
		{"no approvals", "approvals", func(o *office) { o.overview = chat.Overview{} }, []string{"Nothing is waiting"}, nil, "slack:T1:"},
		{"sessions", "sessions", nil, []string{"build", "idle", "tmux attach -t build", link}, nil, "slack:T1:C1:"},
		{"no sessions", "sessions", func(o *office) { o.overview = chat.Overview{} }, []string{"No thread in this channel"}, nil, "slack:T1:C1:"},
		{"stop", "stop", nil, []string{"Stopped 1 thread", link}, nil, "slack:T1:C1:"},
		{"a workflow begins in a thread", "RUN disk-full directory=/Var", nil, []string{"Started", link}, nil, "slack:T1:C1:"},
		{"a workflow that there is not", "run nothing", nil, []string{"There is no workflow", "nothing"}, nil, "slack:T1:C1:"},
		{"stop when idle", "stop", func(o *office) { o.stopped = nil }, []string{"Nothing is running"}, nil, "slack:T1:C1:"},
		{"a failure is said", "status", func(o *office) { o.err = errors.New("the disk is full") }, []string{"Something went wrong"}, []string{"disk"}, "slack:T1:C1:"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			o := full()
			if tc.desk != nil {
				tc.desk(o)
			}
			s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk, c.Usergroups = o, func() []string { return []string{"SOPS"} } })
			s.server.SetUsergroup("SOPS", "UBOB")
			if err := s.server.Command(t.Context(), "UBOB", "C1", slack.SlashCommand, tc.text); err != nil {
				t.Fatal(err)
			}
			s.until("it is answered", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
			got := s.whispers("C1", "UBOB")[0]
			contains(t, "the answer", got, tc.want...)
			for _, n := range tc.not {
				if strings.Contains(got, n) {
					t.Errorf("the answer says %q: %s", n, got)
				}
			}
			for _, a := range slackfake.Mentions(s.server.Ephemerals("C1", "UBOB")[0]) {
				if !strings.HasPrefix(a, "link:https://t1.slack.com/") {
					t.Errorf("the answer has %s", a)
				}
			}
			q := o.inquiries()
			if tc.within == "" {
				if len(q) != 0 {
					t.Errorf("the desk was asked %+v", q)
				}
				return
			}
			if len(q) != 1 || q[0].Within != tc.within || q[0].From.ID != "slack:T1:UBOB" || !slices.Equal(q[0].Groups, []string{"SOPS"}) || q[0].ID == "" {
				t.Errorf("the desk was asked %+v", q)
			}
		})
	}
	t.Run("without a desk there is help", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		if err := s.server.Command(t.Context(), "UBOB", "C1", slack.SlashCommand, "stop"); err != nil {
			t.Fatal(err)
		}
		s.until("it is answered", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		contains(t, "the answer", s.whispers("C1", "UBOB")[0], "Mention me")
	})
	t.Run("a response address that fails is not the end", func(t *testing.T) {
		s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk = full() })
		s.server.FailNext("response_url", 1, slackfake.Answer{Status: 500})
		if err := s.server.Command(t.Context(), "UBOB", "C1", slack.SlashCommand, "stop"); err != nil {
			t.Fatal(err)
		}
		s.until("it is answered", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		contains(t, "the answer", s.whispers("C1", "UBOB")[0], "Stopped 1 thread")
	})
	for _, word := range []string{"stop", "status", "approvals", "sessions", "run disk-full directory=/Var"} {
		t.Run("people of another organisation are told nothing: "+word, func(t *testing.T) {
			o := full()
			s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk = o })
			if err := s.server.Command(t.Context(), "UEXT", "C1", slack.SlashCommand, word); err != nil {
				t.Fatal(err)
			}
			s.until("it is answered", func() bool { return len(s.whispers("C1", "UEXT")) == 1 })
			contains(t, "the answer", s.whispers("C1", "UEXT")[0], "people in this workspace")
			if q := o.inquiries(); len(q) != 0 {
				t.Errorf("the desk was asked %+v", q)
			}
		})
	}
	t.Run("a guest asks as a guest", func(t *testing.T) {
		o := full()
		s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk, c.Usergroups = o, func() []string { return []string{"SOPS"} } })
		s.server.SetUsergroup("SOPS", "UGUEST")
		if err := s.server.Command(t.Context(), "UGUEST", "C1", slack.SlashCommand, "stop"); err != nil {
			t.Fatal(err)
		}
		s.until("the desk is asked", func() bool { return len(o.inquiries()) == 1 })
		if q := o.inquiries()[0]; !q.From.Outside || len(q.Groups) != 0 {
			t.Errorf("the desk was asked %+v", q)
		}
	})
}

func TestHomeAndAssistant(t *testing.T) {
	t.Parallel()
	t.Run("the home page shows what waits", func(t *testing.T) {
		s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk = full() })
		if err := s.server.OpenHome(t.Context(), "UBOB"); err != nil {
			t.Fatal(err)
		}
		s.until("it is there", func() bool { return s.server.Home("UBOB") != nil })
		contains(t, "the page", string(s.server.Home("UBOB")), "reboot", "build")
	})
	t.Run("a guest's shows nothing of others", func(t *testing.T) {
		s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Desk = full() })
		if err := s.server.OpenHome(t.Context(), "UGUEST"); err != nil {
			t.Fatal(err)
		}
		s.until("it is there", func() bool { return s.server.Home("UGUEST") != nil })
		page := string(s.server.Home("UGUEST"))
		contains(t, "the page", page, "reboot")
		for _, n := range []string{"not for these eyes", "build", "uptime"} {
			if strings.Contains(page, n) {
				t.Errorf("the page says %q", n)
			}
		}
	})
	t.Run("without a desk there is none", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		if err := s.server.OpenHome(t.Context(), "UBOB"); err != nil {
			t.Fatal(err)
		}
		s.end()
		if s.server.Home("UBOB") != nil {
			t.Error("there is one")
		}
	})
	t.Run("an assistant thread begins with questions", func(t *testing.T) {
		s := play(t, slackfake.Config{AssistantStatus: true})
		channel, root, err := s.server.AssistantThread(t.Context(), "UBOB")
		if err != nil {
			t.Fatal(err)
		}
		s.until("they are there", func() bool { return s.server.SuggestedPrompts(channel, root) != nil })
		s.say(slackfake.Message{User: "UBOB", Channel: channel, Thread: root, Text: "help"})
		if ev := s.bot.got()[0]; ev.Thread != chat.ThreadID("slack:T1:"+channel+":"+root) || ev.From.ID != "slack:T1:UBOB" {
			t.Errorf("the event is %+v", ev)
		}
	})
	t.Run("people of other workspaces are told once that they are not read", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		s.server.AddChannel(slackfake.Channel{ID: "CSHARED", ExtShared: true})
		s.say(slackfake.Message{User: "UEXT", Channel: "CSHARED", Text: "<@UBOT> a", Mention: true})
		s.say(slackfake.Message{User: "UALICE", Channel: "CSHARED", Text: "<@UBOT> b", Mention: true})
		s.settled()
		s.until("they are told", func() bool { return len(s.whispers("CSHARED", "UEXT")) > 0 })
		s.end()
		same(t, "heard", s.bot.texts(), []string{"b"})
		got := s.whispers("CSHARED", "UEXT")
		if len(got) != 1 || !strings.Contains(got[0], "only work for people in this workspace") {
			t.Errorf("they were told %q", got)
		}
	})
}

// web is a scene whose events come over HTTP.
func web(t *testing.T, sc slackfake.Config) *scene {
	t.Helper()
	f := &front{}
	sc.HTTPEvents = f.listen(t)
	s := stage(t, sc, func(c *slack.Config) { c.AppToken, c.Desk = "", full() })
	f.set(s.Handler())
	s.start()
	s.ready()
	return s
}

func signed(secret, path, body string, at time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(body)))
	ts := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + ts + ":" + body))
	r.Header.Set("X-Slack-Request-Timestamp", ts)
	r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return r
}

func TestRequestsThatAreNotSlacks(t *testing.T) {
	t.Parallel()
	s := web(t, slackfake.Config{})
	event := `{"type":"event_callback","team_id":"T1","event":{"type":"app_mention","channel":"C1","user":"UALICE","text":"a","ts":"1700000000.000001"}}`
	now := time.Now()
	for _, tc := range []struct {
		rule string
		req  *http.Request
		want int
	}{
		{"a right one is taken", signed("secret", "/slack/events", event, now), 200},
		{"a wrong secret", signed("other", "/slack/events", event, now), 401},
		{"an empty secret", signed("", "/slack/events", event, now), 401},
		{"an old one", signed("secret", "/slack/events", event, now.Add(-6*time.Minute)), 401},
		{"one from the future", signed("secret", "/slack/events", event, now.Add(6*time.Minute)), 401},
		{"none at all", httptest.NewRequest(http.MethodPost, "/slack/events", strings.NewReader(event)), 401},
		{"a body that is too large", signed("secret", "/slack/events", strings.Repeat(" ", 2<<20), now), 413},
		{"no JSON", signed("secret", "/slack/events", "{", now), 400},
		{"an event of a kind that is new", signed("secret", "/slack/events", `{"type":"event_callback","event":{"type":"brand_new"}}`, now), 200},
		{"an interaction that is none", signed("secret", "/slack/interactivity", "payload=%7B", now), 400},
		{"a command without a signature", httptest.NewRequest(http.MethodPost, "/slack/commands", strings.NewReader("command=x")), 401},
		{"a wrong method", httptest.NewRequest(http.MethodGet, "/slack/events", nil), 405},
		{"a wrong path", signed("secret", "/slack/other", event, now), 404},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, tc.req)
			if w.Code != tc.want {
				t.Errorf("the answer is %d %s", w.Code, w.Body)
			}
		})
	}
	same(t, "heard", s.bot.texts(), []string{"a"})
	t.Run("without a secret nothing is taken", func(t *testing.T) {
		cfg := s.cfg
		cfg.AppToken, cfg.SigningSecret = "xapp-1", ""
		w := httptest.NewRecorder()
		adapter(t, cfg).Handler().ServeHTTP(w, signed("", "/slack/events", event, time.Now()))
		if w.Code != 401 {
			t.Errorf("the answer is %d", w.Code)
		}
	})
	t.Run("before and after Run nothing is taken", func(t *testing.T) {
		s.end()
		for range 2 {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, signed("secret", "/slack/events", event, time.Now()))
			if w.Code != 503 {
				t.Errorf("the answer is %d", w.Code)
			}
		}
		if s.Ready() == nil {
			t.Error("it says that it listens")
		}
	})
}

func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	t.Run("the address can be verified", func(t *testing.T) {
		if err := web(t, slackfake.Config{}).server.Challenge(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a message that was not stored comes again", func(t *testing.T) {
		s := web(t, slackfake.Config{})
		fails := 2
		s.bot.onDeliver(func(chat.Event) error {
			if fails--; fails >= 0 {
				return errors.New("the disk is full")
			}
			return nil
		})
		s.mention("", "a")
		same(t, "heard", s.bot.texts(), []string{"a"})
		if d := s.server.Deliveries(); len(d) < 3 || d[len(d)-1].Attempt == 0 {
			t.Errorf("the deliveries are %+v", d)
		}
	})
	t.Run("an acknowledgement that is lost makes no second event", func(t *testing.T) {
		s := web(t, slackfake.Config{})
		s.server.ForgetAck(1)
		s.mention("", "a")
		s.settled()
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("presses, forms and commands come too", func(t *testing.T) {
		s := web(t, slackfake.Config{})
		th, card, _ := s.asked()
		s.press("UBOB", card, "edit:1", nil)
		s.until("the form is open", func() bool { return len(s.server.Views("UBOB")) == 1 })
		s.bot.onClick(func(c chat.Click) (chat.Answer, error) {
			return chat.Answer{OK: c.Text == "reload", Notice: "No.", Card: decided()}, nil
		})
		var under *slackfake.ViewError
		if err := s.server.SubmitView(t.Context(), "UBOB", s.server.Views("UBOB")[0].ID, map[string]string{"cs.text": "reboot"}); !errors.As(err, &under) {
			t.Errorf("the form says %v", err)
		}
		if err := s.server.SubmitView(t.Context(), "UBOB", s.server.Views("UBOB")[0].ID, map[string]string{"cs.text": "reload"}); err != nil {
			t.Error(err)
		}
		s.showing(th, "Approved")
		if err := s.server.Command(t.Context(), "UBOB", "C1", slack.SlashCommand, "stop"); err != nil {
			t.Error(err)
		}
		s.until("it is answered", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
	})
	t.Run("an interaction's form has to be whole", func(t *testing.T) {
		s := web(t, slackfake.Config{})
		view := map[string]any{"type": "view_submission", "user": map[string]any{"id": "UBOB"}, "view": map[string]any{"callback_id": "cs.edit", "private_metadata": "{}"}}
		raw, err := json.Marshal(view)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, signed("secret", "/slack/interactivity", url.Values{"payload": {string(raw)}}.Encode(), time.Now()))
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != 200 || !strings.Contains(string(body), "incomplete form") || len(s.bot.clicked()) != 0 {
			t.Errorf("the answer is %d %s", w.Code, body)
		}
	})
}

// tricks are texts that mean something to Slack where they are not escaped.
var tricks = []string{
	"<!here>", "<!channel>", "<@UBOB>", "<#C1>", "<!subteam^S1>", "@here", "@channel", "@everyone", "<https://evil.example|https://good.example>", "[https://good.example](https://evil.example)",
	"[good](https://evil.example)", "![x](https://evil.example/x.png)", "<!date^1^{date}^https://evil.example|x>", "&lt;!here&gt;", "`", "```", "*", "_", "|", "\n", " ", "> ", "- ", "# ", "&", "<", ">", "\u202e", "\x00", "word",
	"| a | b |\n|---|---|\n| <!here> | @here |\n",
}

func text(t *rapid.T, name string) string {
	return strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(tricks), rapid.StringN(0, 8, 40)), 0, 12).Draw(t, name), "")
}

// TestNothingThatIsPostedIsActive: whatever the model writes or a command prints,
// nobody is called and no link looks like another.
func TestNothingThatIsPostedIsActive(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{NoEcho: true})
	th := s.begun()
	n, logs := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		key := strconv.Itoa(n)
		var p chat.Post
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0:
			p = chat.Post{Key: key, Text: text(rt, "text")}
		case 1:
			logs++ // the lines of a log are edits, of which a minute has only so many
			p = chat.Post{Key: key, Text: text(rt, "text"), Log: logs < 15}
		case 2:
			p = chat.Post{Key: key, Card: &chat.Card{
				Title: text(rt, "title"), Code: text(rt, "code"), Body: text(rt, "body"), Warn: []string{text(rt, "warning")},
				Fields: []chat.Field{{Name: text(rt, "name"), Value: text(rt, "value")}}, Digest: text(rt, "digest"),
				Choose: []chat.Button{{ID: "a:1", Label: text(rt, "label"), Style: chat.StyleApprove, Confirm: text(rt, "confirm")}},
			}}
		case 3:
			p = chat.Post{Key: key, Text: text(rt, "text")}
			s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "invalid_blocks"})
		}
		before := len(s.ours(th))
		if _, err := s.Post(t.Context(), th, p); err != nil {
			rt.Fatalf("%+v was not posted: %v", p, err)
		}
		all := s.ours(th)
		for _, m := range all[max(0, before-1):] {
			for _, a := range slackfake.Mentions(m) {
				target, label, ok := strings.Cut(strings.TrimPrefix(a, "link:"), "|")
				if !strings.HasPrefix(a, "link:") || !ok || !strings.Contains(label, target) {
					rt.Fatalf("%q is active in %s %s", a, m.Text, m.Blocks)
				}
			}
		}
	})
}
