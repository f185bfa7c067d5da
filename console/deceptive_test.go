package console

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"countersign/adapters/chat"
	"countersign/approvals"
	cards "countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/test/needstest"
)

// deceptive is a request that wants to be taken for another one, and what gives it away.
type deceptive struct {
	kind string
	card chat.Card
	// tokens are what a person has to see; each is a part of the command or of the headline.
	tokens []string
}

// requested is the card of a request for a shell command.
func requested(target string, a approvals.Action) chat.Card {
	now := time.Now()
	a.Tool, a.Target = "run_shell", target
	return cards.New(approvals.Record{
		ID: "abcdefghij", Nonce: "NONCE", Thread: "web:1", Call: "c1", Requester: chat.User{ID: "web:alice", Name: "alice"}, Created: now, Action: a, Digest: a.Digest(),
		Claim:  approvals.Claim{Given: true, Risk: "low", Why: "Only looks at the state."},
		Engine: approvals.Judgement{Risk: "high", Effects: []string{"delete"}, Reasons: []string{"deletes files"}},
		Level:  "high", Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: 1, Groups: []string{"oncall"}}}, RequesterMay: true},
		State: approvals.Pending, ExpiresAt: now.Add(15 * time.Minute), Place: approvals.Place{Target: target, Env: "production", Production: true},
	}, "")
}

func shell(text string) approvals.Action {
	return approvals.Action{Kind: approvals.KindShell, Dir: "/srv/app", Bytes: []byte(text)}
}

// deceptions makes n requests, the same ones for the same seed.
func deceptions(n int, seed uint64) []deceptive {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	fill := func(size int) string { // harmless words that fill a card
		var b strings.Builder
		for b.Len() < size {
			b.WriteString(pick("--exclude=node_modules ", "-name '*.log' ", "--color=never ", "/var/log/nginx/access.log ", "| sort ", "| uniq -c ", "; uptime ", "# ok\n", "&& true "))
		}
		return b.String()[:size]
	}
	harm := func() string {
		return pick("rm -rf /srv/data", "mkfs.ext4 /dev/vdb1", "dd if=/dev/zero of=/dev/sda", "kubectl delete ns shop", "dropdb orders", "shutdown -h now")
	}
	look := func() string {
		return pick("ls -la /srv", "df -h", "systemctl status nginx", "grep -c error app.log", "du -sh /var/log")
	}
	var all []deceptive
	add := func(kind, target string, a approvals.Action, tokens ...string) {
		c := requested(target, a)
		for i, t := range tokens {
			tokens[i], _ = risk.Visible(t)
		}
		all = append(all, deceptive{kind, c, tokens})
	}
	for len(all) < n {
		h, target := harm(), "web-1"
		switch r.IntN(12) {
		case 0: // another host, at the end of a long name
			name := pick("db", "web", "cache") + "-" + strings.Repeat(pick("a", "prod-", "eu-west-"), 1+r.IntN(9))
			name = name[:min(len(name), 60)] + pick("1", "2", "l", "11")
			add("swapped host", name, shell(h), name, h)
		case 1: // behind many blanks
			add("behind blanks", target, shell(look()+strings.Repeat(pick(" ", "\t", "  "), 1+r.IntN(500))+"; "+h), h)
		case 2: // behind many lines
			add("behind lines", target, shell(look()+strings.Repeat("\n", 1+r.IntN(60))+h), h)
		case 3: // as a comment's next line
			add("after a comment", target, shell(look()+" # "+fill(r.IntN(300))+"\n"+h+"\n# done"), h)
		case 4: // at the end of a long command
			add("at the end", target, shell(look()+" "+strings.ReplaceAll(fill(100+r.IntN(3000)), "\n", " ")+"; "+h), h)
		case 5: // in the middle of one
			add("in the middle", target, shell(fill(r.IntN(2000))+"\n"+h+"\n"+fill(r.IntN(2000))), h)
		case 6: // characters that overwrite
			add("overwritten", target, shell(h+pick("\r", "\b\b\b\b\b\b\b\b", "\x1b[2K\x1b[1G", "\x1b[8m", "\u202e", "\u2066")+look()), h)
		case 7: // characters that nobody sees, or that look like others
			odd := pick("\u200b", "\u00ad", "\u2060", "\ufeff", "\u0430", "\u0435", "\u0455", "\u2011", "\uff0f", "\u2215")
			add("odd characters", target, shell("rm -rf /srv/c"+odd+"che"), "/srv/c", odd, "che")
		case 8: // one blank too many
			add("glob too broad", target, shell(pick("rm -rf /srv/app/cache/ *", "rm -rf /srv /app/cache", "chown -R www: / srv/app", "rm -rf ./ .* cache")), "")
			last := &all[len(all)-1]
			last.tokens = []string{last.card.Code}
		case 9: // a plan of which one step harms
			var steps []approvals.Action
			for range 2 + r.IntN(8) {
				a := shell(look())
				a.Tool, a.Target = "run_shell", target
				steps = append(steps, a)
			}
			at := r.IntN(len(steps))
			steps[at].Bytes = []byte(look() + strings.Repeat(" ", r.IntN(200)) + "; " + h)
			add("one step of a plan", target, approvals.Action{Kind: approvals.KindChange, Steps: steps}, h)
		case 10: // one word without a blank in which a line could break
			add("one long word", target, shell("tar cf /dev/null "+strings.Repeat(pick("a", "W", "é", "界"), r.IntN(1100))+";"+h), h)
		case 11: // a host within the command
			host := pick("shop-replica", "shop-primary") + "." + strings.Repeat(pick("eu.", "internal."), 1+r.IntN(8)) + pick("example.com", "exarnple.com")
			add("host in the command", target, shell("psql -h "+host+" -c 'DROP TABLE orders'"), host, "DROP TABLE")
		}
	}
	return all
}

// seen is a script that draws a card as the console does and reports which tokens are
// nowhere on it in full sight, without Details. A card that keeps a part back until it
// was opened is opened first; blocked says that.
const seen = `(async (c, tokens) => {
  const { renderCard } = await import('/card.js');
  const list = document.querySelector('#messages') || document.querySelector('#scroll');
  const box = document.createElement('div');
  box.className = 'message content';
  const node = renderCard('web:1', c, new Date().toISOString());
  box.append(node);
  list.append(box);
  const more = [...node.querySelectorAll('.show-all')].filter((b) => !b.hidden && b.offsetParent);
  const blocked = more.length > 0;
  const hides = (style) => ['hidden', 'clip', 'auto', 'scroll'].includes(style);
  const visible = (rect, from) => {
    if (rect.width <= 0 || rect.height <= 0) return false;
    const page = document.documentElement.clientWidth;
    if (rect.left < -0.5 || rect.right > page + 0.5) return false;
    for (let e = from; e && box.contains(e); e = e.parentElement) {
      const s = getComputedStyle(e), r = e.getBoundingClientRect();
      if (s.visibility !== 'visible' || Number(s.opacity) < 0.5 || parseFloat(s.fontSize) < 12) return false;
      if ((hides(s.overflowX) && (rect.left < r.left - 1 || rect.right > r.right + 1)) || (hides(s.overflowY) && (rect.top < r.top - 1 || rect.bottom > r.bottom + 1))) return false;
    }
    return true;
  };
  const look = () => {
    const nodes = [];
    let text = '';
    const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const n = walk.currentNode, p = n.parentElement;
      if (!p.offsetParent || p.closest('.details, .offscreen, .decide, [hidden]')) continue;
      nodes.push([text.length, n]);
      text += n.data;
    }
    return tokens.filter((token) => {
      for (let at = text.indexOf(token); at >= 0; at = text.indexOf(token, at + 1)) {
        let all = true;
        for (const [from, n] of nodes) {
          const a = Math.max(at - from, 0), b = Math.min(at + token.length - from, n.data.length);
          if (a >= b) continue;
          for (let i = a; i < b; i++) {
            if (/\s/.test(n.data[i])) continue;
            const range = document.createRange();
            range.setStart(n, i);
            range.setEnd(n, i + 1);
            const rects = [...range.getClientRects()];
            if (!rects.length || !rects.every((r) => visible(r, n.parentElement))) all = false;
          }
        }
        if (all) return false;
      }
      return true;
    });
  };
  const before = look();
  more.forEach((b) => b.click());
  const after = look();
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth || node.scrollWidth > node.clientWidth + 1;
  if (!box.dataset.keep) box.remove();
  return { before, after, blocked, wide };
})`

// Whatever a request hides, and however: what decides it can be read on the open card of a
// phone, or the card cannot be approved before all of it was opened.
func TestADeceptiveRequestShowsWhatDecidesIt(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t)
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("signing in", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch),
		chromedp.Navigate(link), onScreen("#empty"))
	n, opened := 40, 0
	if needstest.Whole(t) {
		n = 1000
	}
	for i, d := range deceptions(n, 7) {
		c, err := json.Marshal(d.card)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := json.Marshal(d.tokens)
		if err != nil {
			t.Fatal(err)
		}
		got, err := chromedp.Run(s.ctx, chromedp.Evaluate[struct {
			Before, After []string
			Blocked, Wide bool
		}](fmt.Sprintf("%s(%s, %s)", seen, c, tokens), chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%d, %s: %v", i, d.kind, err)
		}
		if got.Blocked {
			opened++
		}
		switch {
		case len(got.After) > 0:
			t.Errorf("%d, %s: %q is not on the card even when all of it is open: %s", i, d.kind, got.After, d.card.Code)
		case len(got.Before) > 0 && !got.Blocked:
			t.Errorf("%d, %s: %q is not on the card, which can be approved as it is: %s", i, d.kind, got.Before, d.card.Code)
		case got.Wide:
			t.Errorf("%d, %s: the card is wider than the screen", i, d.kind)
		}
	}
	if opened == 0 || opened > n/2 {
		t.Errorf("%d of %d cards keep something back", opened, n)
	}
	t.Logf("%d of %d cards have to be opened before they can be approved", opened, n)
	s.clean()
}
