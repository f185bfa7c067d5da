package discordfake

import (
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// A client that resumes with the last number it saw gets every message once and in order, however often it is cut off and whatever
// happens in between.
func TestResumingLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &stage{Server: New(Config{}), t: t, ctx: t.Context()}
		defer p.Close()
		p.guild = p.AddGuild(Guild{})
		p.ann = p.AddUser(User{})
		p.AddMember(p.guild, p.ann)
		p.ch = p.AddChannel(Channel{Guild: p.guild})
		a := p.login(nil)
		said, seen := []string{}, []string{}
		read := func() {
			for len(seen) < len(said) {
				e := a.next()
				if e.T == "MESSAGE_CREATE" {
					seen = append(seen, e.val().str("id"))
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"say", "say", "read", "cut", "silence"}).Draw(rt, "step") {
			case "say":
				id, err := p.Say(p.ann, p.ch, "x")
				if err != nil {
					rt.Fatal(err)
				}
				said = append(said, id)
			case "read":
				read()
			case "silence":
				p.Silence(true)
				id, err := p.Say(p.ann, p.ch, "x")
				p.Silence(false)
				if err != nil {
					rt.Fatal(err)
				}
				said = append(said, id)
				a = p.resumeWith(a, a.seq)
			case "cut":
				p.DropConnections(rapid.SampledFrom([]int{0, CloseUnknownError}).Draw(rt, "code"))
				a = p.resumeWith(a, a.seq)
			}
		}
		// What is on its way over the last connection, and what a resume brings again after the last number that was read.
		a = p.resumeWith(a, a.seq)
		read()
		for i := range said {
			if seen[i] != said[i] {
				rt.Fatalf("saw %v, said %v", seen, said)
			}
		}
		if p.Identifies() != 1 {
			rt.Fatalf("%d identifies", p.Identifies())
		}
	})
}

// FuzzGateway holds the gateway against any payload: it must not panic, and never has a session for a wrong token.
func FuzzGateway(f *testing.F) {
	good, _ := json.Marshal(identifyWith(nil))
	for _, d := range []string{string(good), `{"token":"token","session_id":"x","seq":0}`, `{"token":"no","intents":0,"properties":{}}`, `null`, `[]`, `{"token":5}`, `{"token":"token","properties":{},"intents":1,"shard":[0]}`} {
		for _, op := range []int{1, 2, 3, 6, 77} {
			f.Add(op, d)
		}
	}
	s := New(Config{IdentifyWindow: -1, SessionLimit: 1 << 30})
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, op int, d string) {
		if !json.Valid([]byte(d)) {
			t.Skip()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		k := &conn{id: 1, version: 10, wake: make(chan struct{}, 1)}
		s.op(k, op, json.RawMessage(d))
		if k.session != nil {
			var id struct {
				Token string `json:"token"`
			}
			if json.Unmarshal([]byte(d), &id) != nil || id.Token != "token" && id.Token != "Bot token" {
				t.Errorf("%s got a session", strconv.Quote(d))
			}
			delete(s.sessions, k.session.id)
		}
		s.identifies = nil
	})
}
