package discord

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/chat/visible"
	"countersign/adapters/discord/gateway"
)

func TestIDs(t *testing.T) {
	for _, bad := range []string{
		"", "discord", "discord:1:2", "discord:1:2:3:4", "slack:1:2:3", "discord:x:2:3", "discord:1:2:0", "discord:1:2:03", "discord:1::3",
		"discord:@you:2:3", "discord:1:2:3/../4", "discord:1:2:123456789012345678901",
	} {
		if _, err := parseThread(chat.ThreadID(bad)); !errors.Is(err, chat.ErrGone) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "1", "1:", "1:2:x", "1:2,", "1:2,x", "x:2", "1:2:log:log"} {
		if _, err := parseRef(chat.MessageRef(bad)); !errors.Is(err, chat.ErrGone) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := created(from(at)); !got.Equal(at) {
		t.Errorf("the first id of %s is of %s", at, got)
	}
}

func FuzzIDs(f *testing.F) {
	f.Add("discord:1:2:3", "1:2,3:log")
	f.Add("discord:@me:2:2", "1:2")
	f.Fuzz(func(t *testing.T, id, message string) {
		if th, err := parseThread(chat.ThreadID(id)); err == nil && string(th.id()) != id {
			t.Errorf("%q became %q", id, th.id())
		}
		if r, err := parseRef(chat.MessageRef(message)); err == nil && string(r.String()) != message {
			t.Errorf("%q became %q", message, r.String())
		}
	})
}

// lone is an adapter that knows who it is and is connected to nothing.
func lone(t testing.TB) *Adapter {
	t.Helper()
	a, err := New(Config{Token: "token", Guilds: []string{"1"}, Known: func(context.Context, chat.ThreadID) (bool, error) { return true, nil }})
	if err != nil {
		t.Fatal(err)
	}
	a.me = identity{user: "7", app: "7", name: "ops"}
	a.places.put("30", place{guild: "1", name: "incidents"})
	return a
}

func TestPlainText(t *testing.T) {
	a := lone(t)
	people := []*discordgo.User{{ID: "8", Username: "bob", GlobalName: "Bob"}}
	for text, want := range map[string]string{
		"<@7> restart web":              "restart web",
		"<@!7>: restart web":            "restart web",
		" <@7> <@7>, hello":             "hello",
		"<@7>":                          "",
		"  indented\n  twice":           "  indented\n  twice",
		"ask <@8> and <@7>":             "ask @Bob and @ops",
		"ask <@9>":                      "ask <@9>",
		"look at <#30> and <#31>":       "look at #incidents and <#31>",
		"nice <:ok:123> <a:wave:12>":    "nice :ok: :wave:",
		"a <b> &amp; <@x> <@&5> `<@7>`": "a <b> &amp; <@x> <@&5> `@ops`",
	} {
		if got := a.plain(message{text: text, mentions: people}); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestAThreadIsNamedInWords(t *testing.T) {
	a := lone(t)
	people := []*discordgo.User{{ID: "8", Username: "bob", GlobalName: "Bob\u202e"}}
	for text, want := range map[string]string{
		"<@7> the disk is full\nplease look":      "the disk is full",
		"<@7> rm \u202egol.txt":                   `rm \u{202E}gol.txt`,
		"<@7> a\u200bb\x1b[31m\tc":                `a\u{200B}b [31m c`,
		"<@7> ask <@8>, <@9> or <@!9>":            `ask @Bob\u{202E}, @someone or @someone`,
		"<@7> tell <@&55> in <#30> and <#99>":     "tell @role in #incidents and #channel",
		"<@7> run </ask me:4> by <t:1700000000>":  "run /ask me by 2023-11-14 22:13 UTC",
		"<@7> <t:1700000000:R> <id:guide> <:a:5>": "2023-11-14 22:13 UTC guide :a:",
		"<@7> a <b> <t:x>":                        "a <b> <t:x>",
		"<@7> " + strings.Repeat("x", 60):         strings.Repeat("x", 49) + "…",
		"<@7>":                                    "ops",
	} {
		if got := a.title(message{text: text, mentions: people}); got != want {
			t.Errorf("%q names its thread %q, want %q", text, got, want)
		}
	}
}

func FuzzTitle(f *testing.F) {
	f.Add("<@7> the disk\nis full")
	f.Add(strings.Repeat("é", 300))
	f.Add("<@7> \x00\x1b[31m")
	f.Add("<<@1>@2> <#3> \u202e")
	a := lone(f)
	f.Fuzz(func(t *testing.T, text string) {
		got := a.title(message{text: text})
		if n := utf8.RuneCountInString(got); n == 0 || n > maxTitle || strings.ContainsAny(got, "\n\r\t") || reference.MatchString(got) || visible.Text(got) != got {
			t.Errorf("%q names its thread %q", text, got)
		}
	})
}

func TestNew(t *testing.T) {
	known := func(context.Context, chat.ThreadID) (bool, error) { return true, nil }
	for says, cfg := range map[string]Config{
		"Known is required":    {Token: "t", Guilds: []string{"1"}},
		"no server is allowed": {Token: "t", Known: known},
		`"ops" is none`:        {Token: "t", Known: known, Guilds: []string{"ops"}},
		"there is no token":    {Known: known, Guilds: []string{"1"}},
		"DISCORD_API_URL":      {Token: "t", Known: known, Guilds: []string{"1"}, APIURL: "discord"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", cfg.Guilds, err, says)
		}
	}
}

func TestPace(t *testing.T) {
	t.Run("at most forty calls a second, the urgent ones first, and drafts only where there is room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			var mu sync.Mutex
			var order []scribe.Urgency
			begin := time.Now()
			call := func(prio scribe.Urgency) func(context.Context) error {
				return func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, prio)
					return nil
				}
			}
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { _ = p.do(t.Context(), scribe.Quiet, call(scribe.Quiet)) })
			}
			synctest.Wait()
			if err := p.do(t.Context(), scribe.Passing, call(scribe.Passing)); !errors.Is(err, scribe.ErrBusy) {
				t.Errorf("a draft: %v", err)
			}
			if err := p.do(t.Context(), scribe.First, call(scribe.First)); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 2*gateway.CallEvery {
				t.Errorf("an approval waited %s", took)
			}
			wg.Wait()
			if took := time.Since(begin); took < (100-gateway.CallBurst-1)*gateway.CallEvery {
				t.Errorf("101 calls took %s", took)
			}
		})
	})
	t.Run("who gives up takes no turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			for range gateway.CallBurst + 1 {
				if err := p.do(t.Context(), scribe.Normal, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), gateway.CallEvery/2)
			defer cancel()
			if err := p.do(ctx, scribe.Normal, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it was let in: %v", err)
			}
			begin := time.Now()
			if err := p.do(t.Context(), scribe.Normal, func(context.Context) error { return nil }); err != nil || time.Since(begin) > gateway.CallEvery {
				t.Errorf("the next: %v after %s", err, time.Since(begin))
			}
		})
	})
}

func TestShards(t *testing.T) {
	for _, c := range []struct {
		guild  string
		shards int
		want   int
	}{{direct, 4, 0}, {"4194304", 4, 1}, {"8388608", 4, 2}, {"8388608", 1, 0}} {
		if got := shardOf(thread{guild: c.guild}, c.shards); got != c.want {
			t.Errorf("%s of %d is on %d", c.guild, c.shards, got)
		}
	}
}
