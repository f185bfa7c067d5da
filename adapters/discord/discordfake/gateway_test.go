package discordfake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestIdentifyGetsReadyAndItsGuilds(t *testing.T) {
	p := play(t, Config{})
	a := p.dial("/?v=9&encoding=json")
	if h := a.wantOp(opHello).val(); h.int("heartbeat_interval") != 41250 {
		t.Errorf("hello is %v", h.v)
	}
	a.send(opIdentify, identifyWith(nil))
	ready := a.want("READY")
	if ready.str("user.id") != p.BotID() || ready.str("resume_gateway_url") != p.resumeURL() || ready.str("session_id") == "" ||
		ready.str("application.id") != p.AppID() || ready.at("guilds").len() != 1 || ready.int("v") != 9 {
		t.Errorf("ready is %v", ready.v)
	}
	g := a.want("GUILD_CREATE")
	if g.str("id") != p.guild || g.str("channels.0.id") != p.ch || g.at("members").len() != 1 {
		t.Errorf("the guild is %v", g.v)
	}
	if p.Online() != 1 || p.Identifies() != 1 {
		t.Errorf("%d online, %d identifies", p.Online(), p.Identifies())
	}
}

func TestClosedWithACode(t *testing.T) {
	big := strings.Repeat("x", maxPayload)
	for _, c := range []struct {
		rule  string
		query string
		do    func(*stage, *app)
		code  int
	}{
		{"a version that is not served", "/?v=8&encoding=json", nil, CloseInvalidVersion},
		{"no version at all", "", nil, CloseInvalidVersion},
		{"a wrong token", "", func(_ *stage, a *app) { a.send(opIdentify, identifyWith(map[string]any{"token": "no"})) }, CloseAuthFailed},
		{"a shard outside the number of shards", "", func(_ *stage, a *app) { a.send(opIdentify, identifyWith(map[string]any{"shard": []int{2, 2}})) }, CloseInvalidShard},
		{"no intents", "", func(_ *stage, a *app) { a.send(opIdentify, identifyWith(map[string]any{"intents": nil})) }, CloseInvalidIntents},
		{"an intent that does not exist", "", func(_ *stage, a *app) { a.send(opIdentify, identifyWith(map[string]any{"intents": 1 << 30})) }, CloseInvalidIntents},
		{"a privileged intent that is switched off", "", func(_ *stage, a *app) {
			a.send(opIdentify, identifyWith(map[string]any{"intents": IntentMessageContent}))
		}, CloseDisallowedIntent},
		{"identifying twice", "", func(_ *stage, a *app) {
			a.send(opIdentify, identifyWith(nil))
			a.send(opIdentify, identifyWith(nil))
		}, CloseAlreadyAuthed},
		{"presence before identifying", "", func(_ *stage, a *app) { a.send(3, map[string]any{}) }, CloseNotAuthenticated},
		{"an unknown op", "", func(_ *stage, a *app) { a.send(99, nil) }, CloseUnknownOpcode},
		{"no JSON", "", func(_ *stage, a *app) { a.raw([]byte("{")) }, CloseDecodeError},
		{"more than 4096 bytes", "", func(_ *stage, a *app) { a.send(3, big) }, CloseDecodeError},
		{"more than 120 sends in a minute", "", func(_ *stage, a *app) {
			for range 121 {
				a.send(opHeartbeat, nil)
			}
		}, CloseRateLimited},
		{"a seq that was never sent", "", func(p *stage, a *app) {
			b := p.login(nil)
			a.send(opResume, map[string]any{"token": "token", "session_id": b.id, "seq": 1000})
		}, CloseInvalidSeq},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			q := c.query
			if q == "" && c.rule != "no version at all" {
				q = "/?v=10&encoding=json"
			}
			a := p.dial(q)
			if c.do != nil {
				c.do(p, a)
			}
			if got := a.code(); got != c.code {
				t.Errorf("closed with %d, want %d", got, c.code)
			}
		})
	}
}

func TestTransportCompressionAndETFAreRefused(t *testing.T) {
	p := play(t, Config{})
	for _, q := range []string{"/?v=10&encoding=json&compress=zlib-stream", "/?v=10&encoding=etf"} {
		_, resp, err := websocket.Dial(p.ctx, p.gatewayURL()+q, nil)
		if err == nil || resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s was accepted: %v", q, err)
		}
	}
}

func TestPayloadCompression(t *testing.T) {
	p := play(t, Config{})
	a := p.login(map[string]any{"compress": true})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.zlib < 2 {
		t.Errorf("%d payloads were compressed", a.zlib)
	}
}

func TestAMessageReachesWhoMaySeeIt(t *testing.T) {
	for _, c := range []struct {
		rule    string
		intents int
		grant   int
		say     func(*stage) (string, error)
		content string
		comes   bool
	}{
		{"a message in a guild comes without its content", intents, 0, func(p *stage) (string, error) { return p.Say(p.ann, p.ch, "hi") }, "", true},
		{"with MESSAGE_CONTENT it comes whole", intents | IntentMessageContent, IntentMessageContent, func(p *stage) (string, error) { return p.Say(p.ann, p.ch, "hi") }, "hi", true},
		{"the switch alone is not enough", intents, IntentMessageContent, func(p *stage) (string, error) { return p.Say(p.ann, p.ch, "hi") }, "", true},
		{"a mention of the bot comes whole", intents, 0, func(p *stage) (string, error) { return p.Say(p.ann, p.ch, "<@"+p.BotID()+"> hi") }, "<@1000000000000000001> hi", true},
		{"a direct message comes whole", intents, 0, func(p *stage) (string, error) { return p.Say(p.ann, p.DM(p.ann), "hi") }, "hi", true},
		{"without DIRECT_MESSAGES none comes", IntentGuilds, 0, func(p *stage) (string, error) { return p.Say(p.ann, p.DM(p.ann), "hi") }, "", false},
		{"without GUILD_MESSAGES none comes", IntentGuilds, 0, func(p *stage) (string, error) { return p.Say(p.ann, p.ch, "hi") }, "", false},
		{"of a hidden channel none comes", intents, 0, func(p *stage) (string, error) {
			p.SetOverwrites(p.ch, Overwrite{User: p.BotID(), Deny: PermViewChannel})
			return p.Say(p.ann, p.ch, "<@"+p.BotID()+"> hi")
		}, "", false},
		{"a reply that pings the bot comes whole", intents, 0, func(p *stage) (string, error) {
			m := p.good(p.post(p.ch, `{"content":"done"}`)).str("id")
			return p.Reply(p.ann, p.ch, m, true, "thanks")
		}, "thanks", true},
		{"a reply without a ping does not", intents, 0, func(p *stage) (string, error) {
			m := p.good(p.post(p.ch, `{"content":"done"}`)).str("id")
			return p.Reply(p.ann, p.ch, m, false, "thanks")
		}, "", true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{Privileged: c.grant})
			a := p.login(map[string]any{"intents": c.intents})
			id := must2(t)(c.say(p))
			if !c.comes {
				if got := a.quiet(); slices.Contains(got, "MESSAGE_CREATE") {
					t.Errorf("%v came", got)
				}
				return
			}
			for {
				m := a.want("MESSAGE_CREATE")
				if m.str("id") != id {
					continue
				}
				if m.str("content") != c.content || m.str("author.id") != p.ann {
					t.Errorf("the message is %v", m.v)
				}
				return
			}
		})
	}
}

func TestPeopleMayOnlyWhatDiscordLetsThem(t *testing.T) {
	p := play(t, Config{})
	th := must2(t)(p.StartThread(p.ann, p.ch, "", "t"))
	own := must2(t)(p.Say(p.ann, p.ch, "x"))
	p.Lock(th, true)
	stranger := p.AddUser(User{})
	for rule, err := range map[string]error{
		"a stranger cannot write":         second(p.Say(stranger, p.ch, "x")),
		"nobody writes in a locked one":   second(p.Say(p.ann, th, "x")),
		"a message has 2000 characters":   second(p.Say(p.ann, p.ch, strings.Repeat("x", 2001))),
		"an empty message is not sent":    second(p.Say(p.ann, p.ch, " \n")),
		"others' messages are not edited": p.EditMessage(p.ben, p.ch, own, "y"),
		"others' messages stay":           p.DeleteMessage(p.ben, p.ch, own),
		"a channel that is not there":     second(p.Say(p.ann, "1", "x")),
	} {
		if !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// must2 takes the results of a function that returns an id.
func must2(t *testing.T) func(string, error) string {
	return func(id string, err error) string {
		t.Helper()
		mustDo(t, err)
		return id
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second(_ string, err error) error { return err }

func TestEditsAndDeletesOfPeopleAreEvents(t *testing.T) {
	p := play(t, Config{Privileged: IntentMessageContent})
	a := p.login(map[string]any{"intents": intents | IntentMessageContent})
	id := must2(t)(p.Say(p.ann, p.ch, "one", Upload{Name: "log.txt", Data: []byte("l")}))
	if m := a.want("MESSAGE_CREATE"); m.str("attachments.0.filename") != "log.txt" || m.int("attachments.0.size") != 1 {
		t.Errorf("the message is %v", m.v)
	}
	mustDo(t, p.EditMessage(p.ann, p.ch, id, "two"))
	if m := a.want("MESSAGE_UPDATE"); m.str("content") != "two" || m.str("edited_timestamp") == "" {
		t.Errorf("the edit is %v", m.v)
	}
	mustDo(t, p.DeleteMessage(p.ann, p.ch, id))
	if m := a.want("MESSAGE_DELETE"); m.str("id") != id || m.str("channel_id") != p.ch || m.str("guild_id") != p.guild {
		t.Errorf("the delete is %v", m.v)
	}
	if got := p.Shown(p.ch); len(got) != 0 {
		t.Errorf("people see %+v", got)
	}
}

func TestAResumeReplaysWhatWasMissed(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.DropConnections(0)
	a.code()
	if err := p.Wait(p.ctx, func() bool { return p.Connections() == 0 }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		must2(t)(p.Say(p.ann, p.ch, fmt.Sprint("<@", p.BotID(), "> ", i)))
	}
	b := p.resumeWith(a, a.seq)
	for i := range 3 {
		e := b.next()
		if e.T != "MESSAGE_CREATE" || !strings.HasSuffix(e.val().str("content"), fmt.Sprint(i)) || e.S != a.seq+1+i {
			t.Errorf("event %d is %s %s", i, e.T, e.D)
		}
	}
	if e := b.next(); e.T != "RESUMED" {
		t.Errorf("then came %q", e.T)
	}
	must2(t)(p.Say(p.ann, p.ch, "after"))
	b.want("MESSAGE_CREATE")
	if o := p.Opens(); len(o) != 2 || o[0].Resume || !o[1].Resume {
		t.Errorf("opens are %+v", o)
	}
	if p.Identifies() != 1 || p.Resumes() != 1 {
		t.Errorf("%d identifies, %d resumes", p.Identifies(), p.Resumes())
	}
}

func TestASessionThatIsGoneCannotResume(t *testing.T) {
	for _, c := range []struct {
		rule string
		end  func(*stage, *app)
	}{
		{"the client closed with 1000", func(_ *stage, a *app) { _ = a.ws.Close(websocket.StatusNormalClosure, "") }},
		{"it was away for too long", func(p *stage, a *app) {
			p.DropConnections(CloseUnknownError)
			a.code()
			_ = p.Wait(p.ctx, func() bool { return p.Connections() == 0 })
			p.Advance(DefaultResumeWindow + time.Second)
		}},
		{"Discord closed with 4009", func(p *stage, a *app) { p.DropConnections(CloseSessionTimedOut); a.code() }},
		{"Discord forgot it", func(p *stage, a *app) { p.ForgetSessions(); p.DropConnections(0); a.code() }},
		{"op 9 said so", func(p *stage, a *app) { p.InvalidateSessions(false); a.wantOp(opInvalid) }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			a := p.login(nil)
			c.end(p, a)
			if err := p.Wait(p.ctx, func() bool { return p.Online() == 0 }); err != nil {
				t.Fatal(err)
			}
			b := p.resumeWith(a, a.seq)
			if e := b.wantOp(opInvalid); string(e.D) != "false" {
				t.Errorf("op 9 says %s", e.D)
			}
		})
	}
}

func TestASessionThatCanResume(t *testing.T) {
	for rule, end := range map[string]func(*stage, *app){
		"the client closed with 4900": func(_ *stage, a *app) { _ = a.ws.Close(4900, "") },
		"Discord closed with 4000":    func(p *stage, a *app) { p.DropConnections(CloseUnknownError); a.code() },
		"op 7": func(p *stage, a *app) {
			p.Reconnect()
			a.wantOp(opReconnect)
			_ = a.ws.Close(4900, "")
		},
		"op 9 with true": func(p *stage, a *app) {
			p.InvalidateSessions(true)
			if e := a.wantOp(opInvalid); string(e.D) != "true" {
				t.Errorf("op 9 says %s", e.D)
			}
			_ = a.ws.Close(4900, "")
		},
		"a newer connection takes over": func(*stage, *app) {},
	} {
		t.Run(rule, func(t *testing.T) {
			p := play(t, Config{})
			a := p.login(nil)
			end(p, a)
			b := p.resumeWith(a, a.seq)
			b.want("RESUMED")
		})
	}
}

func TestFaultsOfTheGateway(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.RequestHeartbeats()
	a.wantOp(opHeartbeat)
	a.send(opHeartbeat, a.seq)
	a.wantOp(opHeartbeatAck)

	p.FailResumes(1, GatewayFault{Op: 9})
	if e := p.resumeWith(a, a.seq).wantOp(opInvalid); string(e.D) != "false" {
		t.Errorf("op 9 says %s", e.D)
	}
	p.FailIdentifies(1, GatewayFault{Close: CloseDisallowedIntent})
	b := p.dial("/?v=10&encoding=json")
	b.send(opIdentify, identifyWith(nil))
	if c := b.code(); c != CloseDisallowedIntent {
		t.Errorf("closed with %d", c)
	}
	p.RefuseOpens(1)
	if _, resp, err := websocket.Dial(p.ctx, p.gatewayURL()+"/?v=10", nil); err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a refused open: %v", err)
	}
}

func TestWithoutHeartbeatsTheConnectionIsClosed(t *testing.T) {
	p := play(t, Config{Heartbeat: 50 * time.Millisecond})
	if got := p.dial("/?v=10&encoding=json").code(); got != CloseUnknownError {
		t.Errorf("closed with %d", got)
	}
}

func TestASilentGatewaySaysNothing(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.Silence(true)
	a.send(opHeartbeat, nil)
	must2(t)(p.Say(p.ann, p.ch, "missed"))
	b := p.dial("/?v=10&encoding=json")
	if err := p.Wait(p.ctx, func() bool { return p.Connections() == 2 }); err != nil {
		t.Fatal(err)
	}
	p.Silence(false)
	a.send(opHeartbeat, nil)
	if e := a.next(); e.Op != opHeartbeatAck {
		t.Errorf("first came %+v", e)
	}
	select {
	case e := <-b.events:
		t.Errorf("a connection of the silent time got %+v", e)
	default:
	}
	// What was missed is still there for a resume.
	p.resumeWith(a, a.seq).want("MESSAGE_CREATE")
}

func TestTheIdentifyBudget(t *testing.T) {
	p := play(t, Config{SessionLimit: 2})
	p.login(nil)
	if g := p.good(p.do("GET", "/gateway/bot", nil)); g.int("session_start_limit.remaining") != 1 || g.int("session_start_limit.total") != 2 {
		t.Errorf("the budget is %v", g.v)
	}
	a := p.login(nil)
	b := p.dial("/?v=10&encoding=json")
	b.send(opIdentify, identifyWith(nil))
	if b.code() != CloseAuthFailed || a.code() != CloseAuthFailed || !p.TokenReset() {
		t.Error("the token was not reset")
	}
	p.bad(p.do("GET", "/users/@me", nil), 401, 0)
}

func TestMaxConcurrency(t *testing.T) {
	p := play(t, Config{IdentifyWindow: DefaultIdentifyWindow, MaxConcurrency: 2, Shards: 4})
	p.login(map[string]any{"shard": []int{0, 4}})
	p.login(map[string]any{"shard": []int{1, 4}}) // another key
	a := p.dial("/?v=10&encoding=json")
	a.send(opIdentify, identifyWith(map[string]any{"shard": []int{2, 4}})) // the key of shard 0
	if e := a.wantOp(opInvalid); string(e.D) != "false" {
		t.Errorf("op 9 says %s", e.D)
	}
	p.Advance(DefaultIdentifyWindow)
	a.send(opIdentify, identifyWith(map[string]any{"shard": []int{2, 4}}))
	a.want("READY")
}

func TestShardsGetTheirGuilds(t *testing.T) {
	p := play(t, Config{Shards: 2})
	one := p.AddGuild(Guild{ID: fmt.Sprint(1 << 22)}) // 1 % 2
	ch := p.AddChannel(Channel{Guild: one})
	p.AddMember(one, p.ann)
	a := p.login(map[string]any{"shard": []int{0, 2}})
	b := p.login(map[string]any{"shard": []int{1, 2}})
	must2(t)(p.Say(p.ann, ch, "in one"))
	must2(t)(p.Say(p.ann, p.DM(p.ann), "direct"))
	must2(t)(p.Say(p.ann, p.ch, "at home"))
	want := map[*app]int{a: 1, b: 1} // direct messages go to shard 0
	if onShard(p.guild, [2]int{1, 2}) {
		want[b]++
	} else {
		want[a]++
	}
	for x, n := range want {
		if got := slices.DeleteFunc(x.quiet(), func(s string) bool { return s != "MESSAGE_CREATE" }); len(got) != n {
			t.Errorf("a shard got %d messages, want %d", len(got), n)
		}
	}
	if s := p.Sessions(); len(s) != 2 || s[1].Shard != 1 || s[1].Shards != 2 {
		t.Errorf("sessions are %+v", s)
	}
}

func TestBrokenEvents(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	mustDo(t, p.InjectUnknownComponent(p.ann, p.ch))
	if m := a.want("MESSAGE_CREATE"); m.int("components.0.type") != 240 {
		t.Errorf("the message is %v", m.v)
	}
	mustDo(t, p.InjectAuthorless(p.ann, p.ch))
	if m := a.want("MESSAGE_CREATE"); m.at("author").v != nil {
		t.Errorf("the message is %v", m.v)
	}
	mustDo(t, p.Inject(p.guild, "BRAND_NEW", json.RawMessage(`{"x":1}`)))
	a.want("BRAND_NEW")
	if p.Inject("", "X", json.RawMessage(`{`)) == nil {
		t.Error("broken JSON was sent")
	}
	id := must2(t)(p.Say(p.ann, p.ch, "x"))
	mustDo(t, p.Redeliver(p.ch, id))
	if one, two := a.want("MESSAGE_CREATE"), a.want("MESSAGE_CREATE"); one.str("id") != two.str("id") {
		t.Error("redelivered as another message")
	}
}

func TestGuildsComeAndGo(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	g := p.AddGuild(Guild{Name: "second"})
	if v := a.want("GUILD_CREATE"); v.str("id") != g {
		t.Errorf("the guild is %v", v.v)
	}
	p.RemoveGuild(g)
	if v := a.want("GUILD_DELETE"); v.str("id") != g || v.at("unavailable").v != nil {
		t.Errorf("the guild is %v", v.v)
	}
	p.bad(p.do("GET", "/guilds/"+g, nil), 404, 10004)
	c := p.AddChannel(Channel{Guild: p.guild})
	a.want("CHANNEL_CREATE")
	p.DeleteChannel(c)
	a.want("CHANNEL_DELETE")
	p.bad(p.do("GET", "/channels/"+c, nil), 404, 10003)
	r := p.AddRole(p.guild, Role{Name: "approver"})
	a.want("GUILD_ROLE_CREATE")
	p.AddMember(p.guild, p.ann, r)
	p.AddMember(p.guild, p.BotID(), p.BotRole(p.guild), r)
	if m := a.want("GUILD_MEMBER_UPDATE"); m.str("user.id") != p.BotID() {
		t.Errorf("without GUILD_MEMBERS came %v", m.v)
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		s := New(Config{})
		g := s.AddGuild(Guild{})
		s.AddChannel(Channel{Guild: g})
		for range 3 {
			ws, _, err := websocket.Dial(t.Context(), s.gatewayURL()+"/?v=10&encoding=json", nil)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := json.Marshal(map[string]any{"op": opIdentify, "d": identifyWith(nil)})
			mustDo(t, ws.Write(t.Context(), websocket.MessageText, b))
			t.Cleanup(func() { _ = ws.CloseNow() })
		}
		s.Close()
		s.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > before+1 {
		select {
		case <-tick.C:
		case <-deadline:
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}
