package worldtest

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/adapters/discord/discordfake"
	"countersign/adapters/slack/slackfake"
	"countersign/internal/failpoint"
	"countersign/test/needstest"
)

var (
	_ = flag.Int64("faults.seed", 1, "not used here: nothing is random")
	_ = flag.Int("faults.rounds", 1, "not used here")
)

// script is a program in the place of the bot, which says what a bot says when it is
// ready and then does something.
func script(t *testing.T, trap, then string) *Bot {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot")
	text := "#!/bin/sh\n" + trap + "\necho 'msg=\"the web console listens\" url=http://127.0.0.1:1' >&2\n" + then + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &Bot{Name: "b", Dir: t.TempDir(), binary: path, env: []string{"PATH=" + os.Getenv("PATH")}}
	t.Cleanup(b.Kill)
	return b
}

const (
	goes  = "trap 'exit 0' TERM"
	waits = "while :; do sleep 0.02; done"
)

func TestAProcessComesAndGoes(t *testing.T) {
	b := script(t, goes, waits)
	if b.Alive() {
		t.Error("alive before the start")
	}
	for range 2 {
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !b.Alive() || b.URL() != "http://127.0.0.1:1" {
			t.Errorf("alive %v at %q", b.Alive(), b.URL())
		}
		b.Kill()
		if b.Alive() {
			t.Error("alive after SIGKILL")
		}
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.End(10 * time.Second); err != nil || b.Alive() {
		t.Errorf("SIGTERM: %v", err)
	}
	if !strings.Contains(b.Log(), "console listens") || b.Deaths() != 0 {
		t.Errorf("%d deaths\n%s", b.Deaths(), b.Log())
	}
}

func TestEndSaysWhatWasNotInGoodOrder(t *testing.T) {
	for name, c := range map[string]struct{ trap, want string }{
		"another code":   {"trap 'exit 3' TERM", "code 3"},
		"it does not go": {"trap '' TERM", "did not end within"},
	} {
		t.Run(name, func(t *testing.T) {
			b := script(t, c.trap, waits)
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := b.End(500 * time.Millisecond); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if b.Alive() {
				t.Error("it is still there")
			}
		})
	}
}

func TestAProcessThatDiesByItselfIsStartedAgainAndOneThatWasKilledIsNot(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	b := script(t, goes, "[ -e "+once+" ] || { : > "+once+"; kill -9 $$; }\n"+waits)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.keep(ctx) }()
	if err := b.Start(t.Context(), At(failpoint.EventStored, 1)); err != nil && !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s\n%s", what, b.Log())
			}
		}
	}
	until("the second life", func() bool { return b.Deaths() == 1 && b.Alive() })
	b.Kill()
	time.Sleep(100 * time.Millisecond) // five looks of keep
	if b.Alive() {
		t.Error("it was started again after somebody killed it")
	}
	cancel()
	<-done
}

func TestWhatSlackShowsOfAPost(t *testing.T) {
	for _, c := range []struct {
		metadata, keys string
		card           bool
	}{
		{`{"event_type":"countersign_post","event_payload":{"key":"reply/3","part":0}}`, "reply/3#0", false},
		{`{"event_payload":{"key":"approval/abc","part":0}}`, "approval/abc#0", true},
		{`{"event_payload":{"log":[{"key":"call/1"},{"key":"call/2"}]}}`, "call/1 call/2", false},
		{`{"event_payload":{"passing":true}}`, "", false},
		{``, "", false},
	} {
		keys, card := slackKeys([]byte(c.metadata))
		if got := strings.Join(keys, " "); got != c.keys || card != c.card {
			t.Errorf("%s: %q %v", c.metadata, got, card)
		}
	}
	m := Shown{Buttons: []Button{{"cs.decide:deny:abc.n1", "Deny"}, {"cs.decide:approve:abc.n1", "Approve"}}}
	if b, request, ok := approve(m); !ok || b.Label != "Approve" || request != "abc" {
		t.Errorf("%+v %q %v", b, request, ok)
	}
	if _, _, ok := approve(Shown{Buttons: m.Buttons[:1]}); ok {
		t.Error("a card without Approve is not open")
	}
}

func TestWhatAMessageOfTheBotMeans(t *testing.T) {
	p := post("t", Shown{Text: "Report a-1 ran.\n\nReport a-2 talk.", Keys: []string{"reply/1#0"}})
	if len(p.Answers) != 2 || p.Answers["a-1"] != "ran" || p.Failure || p.Asks != "" {
		t.Errorf("%+v", p)
	}
	if p := post("t", Shown{Text: "The model cannot be reached. Nothing in this thread is lost. Say `go on` to try again."}); !p.Failure {
		t.Errorf("%+v", p)
	}
	p = post("t", Shown{Card: true, Text: "run_shell (MEDIUM)\necho a-1 >> /c/a-1; echo ran-a-1", Buttons: []Button{{ID: "approve:x.y"}}})
	if p.Asks != "a-1" || !p.Open || p.Answers != nil {
		t.Errorf("%+v", p)
	}
}

func TestTheLinksLeadToTheFakes(t *testing.T) {
	s, err := NewSlack(slackfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(strings.Join(s.Env(), " "), "SLACK_API_URL=http://"+s.Link.Address()+"/api/") {
		t.Errorf("%v", s.Env())
	}
	d, err := NewDiscord(discordfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !strings.Contains(strings.Join(d.Env(), " "), d.Link.Address()) || len(d.channels) != 3 {
		t.Errorf("%v", d.Env())
	}
	if got := Jumps(Jump{time.Second, time.Hour}, Jump{2500 * time.Millisecond, -time.Hour}); got != "FAULTS_CLOCK=3600@1000,-3600@2500" {
		t.Error(got)
	}
}

func TestAServerThatFailsOver(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("starts two servers")
	}
	p := NewPostgres(t)
	if _, err := p.primary.ask(t.Context(), "CREATE TABLE kept(n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := p.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.primary.ask(t.Context(), "INSERT INTO kept VALUES (8)"); err != nil {
		t.Fatal(err)
	}
	if err := p.FailOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := p.standby.ask(t.Context(), "SELECT sum(n) FROM kept"); err != nil || got != "15" {
		t.Errorf("%q %v", got, err)
	}
}
