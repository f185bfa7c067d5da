package slack_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
)

// forwarded are the attachments of a message that forwards another, as Slack makes them.
func forwarded(s *scene) json.RawMessage {
	s.t.Helper()
	file := s.server.AddFile("C1", "lag.txt", "text/plain", []byte("lag 912"))
	return json.RawMessage(`[{"is_share":true,"is_msg_unfurl":true,"id":1,"ts":"1790003400.000200","channel_id":"C2","channel_name":"alerts","author_id":"UBOB","author_name":"Bob",
		"from_url":"https://example.slack.com/archives/C2/p1790003400000200","fallback":"[1:00 PM] Bob: db-1","text":"db-1: replication lag &lt;900 s&gt;, see <@UALICE>","mrkdwn_in":["text"],
		"files":[{"id":"` + file + `","name":"lag.txt","mimetype":"text/plain","size":7,"url_private":"` + s.server.FileURL(file) + `"}]}]`)
}

// TestWhatIsHeard holds the rules of who is listened to where.
func TestWhatIsHeard(t *testing.T) {
	t.Parallel()
	rules := func(c *slack.Config) {
		c.Channel = func(id string) slack.ChannelRules {
			switch id {
			case "CMENTION":
				return slack.ChannelRules{MentionOnly: true}
			case "CALERT":
				return slack.ChannelRules{Bots: []string{"BALERT"}}
			}
			return slack.ChannelRules{}
		}
	}
	for _, tc := range []struct {
		rule string
		do   func(s *scene)
		want []string
	}{
		{"a mention starts a thread under its message", func(s *scene) {
			ts := s.mention("", "what is wrong?")
			if ev := s.bot.got()[0]; ev.Thread != s.thread(ts) || ev.From.ID != "slack:T1:UALICE" || ev.From.Name != "alice" || ev.From.Bot || ev.Invited {
				s.t.Errorf("the event is %+v", ev)
			}
		}, []string{"what is wrong?"}},
		{"without a mention nothing starts", func(s *scene) { s.say(slackfake.Message{Text: "what is wrong?"}) }, []string{}},
		{"a mention in somebody's thread joins that thread", func(s *scene) {
			root := s.say(slackfake.Message{Text: "the disk is full"})
			s.mention(root, "look")
			if ev := s.bot.got()[0]; ev.Thread != s.thread(root) {
				s.t.Errorf("the thread is %s", ev.Thread)
			}
		}, []string{"look"}},
		{"follow-ups in a known thread need no mention", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{Thread: ts, Text: "b"})
			s.say(slackfake.Message{Thread: ts, User: "UBOB", Text: "c"})
		}, []string{"a", "b", "c"}},
		{"in an unknown thread they are ignored", func(s *scene) {
			ts := s.say(slackfake.Message{Text: "a"})
			s.say(slackfake.Message{Thread: ts, Text: "b"})
		}, []string{}},
		{"where mentions are required each follow-up needs one", func(s *scene) {
			s.server.AddChannel(slackfake.Channel{ID: "CMENTION"})
			ts := s.say(slackfake.Message{Channel: "CMENTION", Text: "<@UBOT> a", Mention: true})
			s.say(slackfake.Message{Channel: "CMENTION", Thread: ts, Text: "b"})
			s.say(slackfake.Message{Channel: "CMENTION", Thread: ts, Text: "<@UBOT> c", Mention: true})
		}, []string{"a", "c"}},
		{"direct messages need no mention", func(s *scene) {
			dm := s.server.DM("UALICE")
			ts := s.say(slackfake.Message{Channel: dm, Text: "a"})
			s.say(slackfake.Message{Channel: dm, Thread: ts, Text: "b"})
			if ev := s.bot.got(); ev[0].Thread != chat.ThreadID("slack:T1:"+dm+":"+ts) || ev[1].Thread != ev[0].Thread {
				s.t.Errorf("the threads are %s and %s", ev[0].Thread, ev[1].Thread)
			}
		}, []string{"a", "b"}},
		{"its own messages are not heard", func(s *scene) {
			th := s.begun()
			s.post(th, chat.Post{Key: "a", Text: "<@UBOT> hello"})
			s.settled()
		}, []string{"hello"}},
		{"other bots are not heard, even with a mention", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{BotID: "BALERT", User: "UALERT", Thread: ts, Text: "<@UBOT> b", Mention: true})
			s.say(slackfake.Message{BotID: "BALERT", Subtype: "bot_message", Thread: ts, Text: "c"})
		}, []string{"a"}},
		{"a bot that was invited is heard as a bot", func(s *scene) {
			s.server.AddChannel(slackfake.Channel{ID: "CALERT"})
			s.say(slackfake.Message{Channel: "CALERT", BotID: "BALERT", Subtype: "bot_message", Text: "disk full"})
			if ev := s.bot.got()[0]; !ev.Invited || !ev.From.Bot || ev.From.ID != "slack:T1:BALERT" {
				s.t.Errorf("the event is %+v", ev)
			}
			s.say(slackfake.Message{Channel: "CALERT", BotID: "BOTHER", Subtype: "bot_message", Text: "me too"})
			s.say(slackfake.Message{Channel: "CALERT", BotID: "BALERT", User: "UEXT", Text: "of a partner"})
		}, []string{"disk full", "of a partner"}},
		{"joins and topics are not read", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{Subtype: "channel_join", Text: "<@UALICE> has joined"})
			s.say(slackfake.Message{Subtype: "channel_topic", Thread: ts, Text: "set the topic <@UBOT>"})
			s.say(slackfake.Message{Channel: s.server.DM("UALICE"), Subtype: "channel_topic", Text: "x"})
		}, []string{"a"}},
		{"a reply that is shown in the channel too is read", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{Thread: ts, Subtype: "thread_broadcast", Text: "b"})
		}, []string{"a", "b"}},
		{"a message with files and no words is read", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{Thread: ts, Files: []string{s.server.AddFile("C1", "x.log", "text/plain", []byte("x"))}})
		}, []string{"a", "(see the attached files)"}},
		{"a forwarded message is a file of somebody else's words", func(s *scene) {
			ts := s.say(slackfake.Message{Text: "<@UBOT> can you look at this?", Mention: true, Attachments: forwarded(s)})
			s.say(slackfake.Message{Thread: ts, Attachments: forwarded(s)})
			for _, ev := range s.bot.got() {
				if len(ev.Files) != 2 || ev.Files[0].Name != "forwarded message by Bob in #alerts, 2026-09-21 15:10 UTC" || ev.Files[0].Text != "db-1: replication lag <900 s>, see @alice" || ev.Files[1].Text != "lag 912" {
					s.t.Errorf("the files are %+v", ev.Files)
				}
			}
		}, []string{"can you look at this?", "(see the forwarded message)"}},
		{"of an alert that is forwarded its blocks are read", func(s *scene) {
			s.say(slackfake.Message{Channel: s.server.DM("UALICE"), Attachments: json.RawMessage(`[{"is_share":true,"author_name":"Grafana","footer":"Posted in #alerts","fallback":"[no preview available]",
				"message_blocks":[{"team":"T1","channel":"C2","message":{"blocks":[{"type":"header","text":{"type":"plain_text","text":"CPU 97 %"}}]}}]}]`)})
			if f := s.bot.got()[0].Files; len(f) != 1 || f[0].Name != "forwarded message by Grafana in #alerts" || f[0].Text != "CPU 97 %" {
				s.t.Errorf("the files are %+v", f)
			}
		}, []string{"(see the forwarded message)"}},
		{"a thread that began with a forward is read with it", func(s *scene) {
			root := s.say(slackfake.Message{User: "UBOB", Text: "hm", Attachments: forwarded(s)})
			s.mention(root, "what is this?")
			if f := s.bot.got()[0].Files; len(f) != 1 || f[0].Name != chat.Earlier || !strings.Contains(f[0].Text, "bob: hm\n[forwarded message by Bob") || !strings.Contains(f[0].Text, "replication lag <900 s>") {
				s.t.Errorf("the files are %+v", f)
			}
		}, []string{"what is this?"}},
		{"the two events of a mention are one", func(s *scene) {
			s.mention("", "a")
			s.settled()
			if n := len(s.server.Deliveries()); n != 2 {
				s.t.Errorf("Slack sent %d events", n)
			}
		}, []string{"a"}},
		{"a mention without words is a question too", func(s *scene) { s.mention("", "") }, []string{""}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{}, rules)
			tc.do(s)
			s.settled()
			same(t, "heard", s.bot.texts(), tc.want)
		})
	}
}

// TestWhatAnAlertSays: the words of alerting bots stand in attachments or blocks.
func TestWhatAnAlertSays(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{}, func(c *slack.Config) {
		c.Channel = func(string) slack.ChannelRules { return slack.ChannelRules{Bots: []string{"BALERT"}} }
	})
	for i, tc := range []struct {
		rule   string
		fields map[string]any
		want   []string
	}{
		{"attachments", map[string]any{"text": "FIRING", "attachments": []any{map[string]any{
			"pretext": "two alerts", "title": "Disk full", "text": "on db1", "fields": []any{map[string]any{"title": "used", "value": "99%"}},
		}}}, []string{"FIRING", "two alerts", "Disk full", "on db1", "used: 99%"}},
		{"a fallback", map[string]any{"text": "", "attachments": []any{map[string]any{"fallback": "db1 is down"}}}, []string{"db1 is down"}},
		{"blocks", map[string]any{"text": "", "blocks": []any{map[string]any{
			"type": "section", "text": map[string]any{"type": "mrkdwn", "text": "db2 is slow"},
		}}}, []string{"db2 is slow"}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			ev := map[string]any{"channel": "C1", "channel_type": "channel", "bot_id": "BALERT", "subtype": "bot_message", "ts": "1700000000.00000" + string(rune('1'+i))}
			maps.Copy(ev, tc.fields)
			if err := s.server.Emit(t.Context(), "message", ev); err != nil {
				t.Fatal(err)
			}
			got := s.bot.got()
			contains(t, "the event", got[len(got)-1].Text, tc.want...)
		})
	}
}

func TestCorrections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		do   func(s *scene)
		want []string
	}{
		{"an edit in a known thread replaces the message under a new id", func(s *scene) {
			ts := s.mention("", "a")
			b := s.say(slackfake.Message{Thread: ts, Text: "b"})
			if err := s.server.Edit(s.t.Context(), "C1", b, "c"); err != nil {
				s.t.Fatal(err)
			}
			ev := s.bot.got()
			if was, now := ev[1], ev[2]; now.Replaces == "" || now.Replaces != was.Ref || now.ID == was.ID || now.Thread != was.Thread {
				s.t.Errorf("%+v was corrected by %+v", was, now)
			}
		}, []string{"a", "b", "c"}},
		{"an edit of the message that began the thread counts", func(s *scene) {
			ts := s.mention("", "a")
			if err := s.server.Edit(s.t.Context(), "C1", ts, "<@UBOT> b"); err != nil {
				s.t.Fatal(err)
			}
			if ev := s.bot.got(); ev[1].Thread != ev[0].Thread || ev[1].Replaces != ev[0].Ref {
				s.t.Errorf("%+v was corrected by %+v", ev[0], ev[1])
			}
		}, []string{"a", "b"}},
		{"two edits are two events", func(s *scene) {
			ts := s.mention("", "a")
			for _, text := range []string{"b", "c"} {
				if err := s.server.Edit(s.t.Context(), "C1", ts, text); err != nil {
					s.t.Fatal(err)
				}
			}
			if ev := s.bot.got(); ev[1].ID == ev[2].ID {
				s.t.Errorf("both have the id %s", ev[1].ID)
			}
		}, []string{"a", "b", "c"}},
		{"an edit elsewhere is none of the bot's business", func(s *scene) {
			ts := s.say(slackfake.Message{Text: "a"})
			if err := s.server.Edit(s.t.Context(), "C1", ts, "<@UBOT> b"); err != nil {
				s.t.Fatal(err)
			}
		}, []string{}},
		{"a link preview is no edit", func(s *scene) {
			ts := s.mention("", "see https://x.example")
			msg := map[string]any{"type": "message", "user": "UALICE", "text": "<@UBOT> see <https://x.example>", "ts": ts, "edited": map[string]any{"user": "UALICE", "ts": ts}, "attachments": []any{map[string]any{"title": "x"}}}
			if err := s.server.Emit(s.t.Context(), "message", map[string]any{
				"subtype": "message_changed", "channel": "C1", "channel_type": "channel", "ts": "1700000000.000009", "message": msg, "previous_message": msg,
			}); err != nil {
				s.t.Fatal(err)
			}
		}, []string{"see https://x.example"}},
		{"a message that was deleted is taken back", func(s *scene) {
			ts := s.mention("", "a")
			b := s.say(slackfake.Message{Thread: ts, Text: "rm everything"})
			if err := s.server.Delete(s.t.Context(), "C1", b); err != nil {
				s.t.Fatal(err)
			}
			if ev := s.bot.got(); ev[2].Replaces != ev[1].Ref || ev[2].ID == ev[1].ID || ev[2].From.ID != ev[1].From.ID {
				s.t.Errorf("%+v was taken back by %+v", ev[1], ev[2])
			}
		}, []string{"a", "rm everything", "(this message was deleted)"}},
		{"a root that was deleted from under its replies is taken back", func(s *scene) {
			ts := s.mention("", "a")
			s.say(slackfake.Message{Thread: ts, Text: "b"})
			if err := s.server.Delete(s.t.Context(), "C1", ts); err != nil {
				s.t.Fatal(err)
			}
			if ev := s.bot.got(); len(ev) == 3 && ev[2].Replaces != ev[0].Ref {
				s.t.Errorf("%+v was taken back by %+v", ev[0], ev[2])
			}
		}, []string{"a", "b", "(this message was deleted)"}},
		{"what the bot itself edits and deletes is no correction", func(s *scene) {
			th := s.begun()
			r := s.post(th, chat.Post{Key: "a", Text: "one"})
			s.edit(th, r, chat.Post{Key: "a", Text: "two"})
		}, []string{"hello"}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{})
			tc.do(s)
			s.settled()
			same(t, "heard", s.bot.texts(), tc.want)
		})
	}
}

func TestFilesOfPeople(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	root := s.mention("", "a")
	read := func(files ...string) []chat.File {
		s.say(slackfake.Message{Thread: root, Text: "files", Files: files})
		ev := s.bot.got()
		return ev[len(ev)-1].Files
	}
	add := func(name, kind, text string) string { return s.server.AddFile("C1", name, kind, []byte(text)) }
	for _, tc := range []struct {
		rule  string
		files []string
		want  []string // parts of each file's text
		cut   []bool
	}{
		{"a text file is read", []string{add("a.log", "text/plain", "line 1\nline 2\n")}, []string{"line 1\nline 2\n"}, []bool{false}},
		{"as are other kinds of text", []string{add("a.json", "application/json", `{"a":1}`)}, []string{`{"a":1}`}, []bool{false}},
		{"64 KiB exactly are read whole", []string{add("b.log", "text/plain", strings.Repeat("x", 64<<10))}, []string{strings.Repeat("x", 64<<10)}, []bool{false}},
		{"of more the beginning is read, and that is said", []string{add("c.log", "text/plain", strings.Repeat("é", 40<<10))}, []string{"\n[cut here: the file is larger than 64 KiB]"}, []bool{true}},
		{"a picture is not read, and that is said", []string{add("d.png", "image/png", "\x89PNG")}, []string{"[not read: image/png is no text file]"}, []bool{true}},
		{"neither is a binary that calls itself text", []string{add("e.txt", "text/plain", "a\x00b")}, []string{"binary data"}, []bool{true}},
		{"however large it is", []string{add("f.txt", "text/plain", strings.Repeat("a\x00", 64<<10))}, []string{"binary data"}, []bool{true}},
		{"a sixth file is not read, and that is said", []string{
			add("1", "text/plain", "1"), add("2", "text/plain", "2"), add("3", "text/plain", "3"), add("4", "text/plain", "4"), add("5", "text/plain", "5"), add("6", "text/plain", "6"),
		}, []string{"1", "2", "3", "4", "5", "only the first 5 files"}, []bool{false, false, false, false, false, true}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			got := read(tc.files...)
			if len(got) != len(tc.want) {
				t.Fatalf("got %d files", len(got))
			}
			for i, f := range got {
				if !strings.Contains(f.Text, tc.want[i]) || f.Cut != tc.cut[i] || strings.ContainsRune(f.Text, '\uFFFD') {
					t.Errorf("file %d has %.80q, cut: %t", i, f.Text, f.Cut)
				}
			}
		})
	}
	t.Run("a file that Slack does not give out is said to be unread", func(t *testing.T) {
		s := play(t, slackfake.Config{Scopes: []string{"app_mentions:read", "channels:history", "chat:write", "users:read"}})
		root = s.mention("", "a")
		read := func(id string) []chat.File {
			s.say(slackfake.Message{Thread: root, Text: "files", Files: []string{id}})
			return s.bot.got()[1].Files
		}
		if got := read(s.server.AddFile("C1", "x.log", "text/plain", []byte("x")))[0]; got.Text == "" || strings.Contains(got.Text, "<") {
			t.Errorf("the file has %q", got.Text)
		}
	})
}

// TestTheTokenStaysWithSlack: whoever shares a remote file chooses its address.
func TestTheTokenStaysWithSlack(t *testing.T) {
	t.Parallel()
	other := slackfake.New(slackfake.Config{})
	t.Cleanup(other.Close)
	s := play(t, slackfake.Config{})
	if err := s.server.Emit(t.Context(), "message", map[string]any{
		"channel": s.server.DM("UALICE"), "channel_type": "im", "user": "UALICE", "ts": "1700000000.000001", "subtype": "file_share", "text": "look",
		"files": []any{map[string]any{"id": "F1", "name": "x.log", "mimetype": "text/plain", "mode": "external", "is_external": true, "url_private": other.URL() + "auth.test"}},
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(other.Calls()); n != 0 {
		t.Errorf("another host was asked: %+v", other.Calls())
	}
	if f := s.bot.got()[0].Files; len(f) != 1 || !f[0].Cut || !strings.HasPrefix(f[0].Text, "[not read:") {
		t.Errorf("the files are %+v", f)
	}
}

func TestTheStoreDecidesWhatIsAcknowledged(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	broken := errors.New("the disk is full")
	t.Run("a message that was not stored comes again", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		fails := 2
		s.bot.onDeliver(func(chat.Event) error {
			if fails > 0 {
				fails--
				return broken
			}
			return nil
		})
		s.mention("", "a")
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("nothing is acknowledged before it is stored", func(t *testing.T) {
		s := play(t, slackfake.Config{RetryDelays: []time.Duration{}})
		s.bot.onDeliver(func(chat.Event) error { return broken })
		if _, err := s.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Text: "<@UBOT> a", Mention: true}); !errors.Is(err, slackfake.ErrLost) {
			t.Errorf("Slack was told %v", err)
		}
	})
	t.Run("whether the thread is known must be known", func(t *testing.T) {
		s := play(t, slackfake.Config{RetryDelays: []time.Duration{}}, func(c *slack.Config) {
			c.Known = func(context.Context, chat.ThreadID) (bool, error) { return false, broken }
		})
		ts := s.mention("", "a")
		if _, err := s.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Thread: ts, Text: "b"}); !errors.Is(err, slackfake.ErrLost) {
			t.Errorf("Slack was told %v", err)
		}
	})
	t.Run("an acknowledgement that is lost makes no second event", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		s.server.ForgetAck(2)
		s.mention("", "a")
		s.settled()
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("after a restart the repeat has the same id, and the store knows it", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		ts := s.mention("", "a")
		s.restart()
		s.say(slackfake.Message{Text: "<@UBOT> a", Mention: true, TS: ts})
		ev := s.bot.got()
		if len(ev) < 2 || ev[0].ID != ev[1].ID {
			t.Errorf("the events are %+v", ev)
		}
	})
}
