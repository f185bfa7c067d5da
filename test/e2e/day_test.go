package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/test/needstest"
)

// dayConfig is a room with an asker, an approver and somebody who watches.
const dayConfig = `
targets:
  local: {kind: local, dir: %s, approvers: [oncall], labels: {env: production}}
groups:
  oncall: {web: [ben]}
  team: {web: [ann, carol]}
alerts:
  hooks:
    generic: {secret_env: GENERIC_HOOK_SECRET}
  default: {channel: web}
`

// dayModel is the agent of the day.
func dayModel(t *testing.T, dir string) string {
	conf := filepath.Join(dir, "checkout.conf")
	if err := os.WriteFile(conf, []byte("workers = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write, _ := json.Marshal(map[string]any{"path": conf, "content": "workers = 8\n"})
	reload, _ := json.Marshal(map[string]any{"command": "touch " + filepath.Join(dir, "reload"), "risk": "low", "mutation": true, "privesc": false, "why": "checkout takes the new number of workers"})
	look := func(command string) call {
		return call{"run_shell", `{"command":"` + command + `","risk":"low","mutation":false,"privesc":false,"why":"to see how it is set up"}`}
	}
	return model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "Checkout is slow") && results == 0:
			return turn{calls: []call{look("cat " + conf), look("uptime")}}
		case strings.Contains(user, "Checkout is slow"):
			return turn{text: "Checkout has only **2 workers** for the load that it has. Eight would do; I can change that and reload it."}
		case strings.Contains(user, "please do both") && results == 0:
			return turn{text: "I'll raise the workers and reload.", calls: []call{{"write_file", string(write)}, {"run_shell", string(reload)}}}
		case strings.Contains(user, "please do both"):
			return turn{text: "Done: checkout has 8 workers and was reloaded."}
		}
		return turn{text: "Noted."}
	}).URL
}

// guest is somebody in a browser of their own.
type guest struct {
	t    *testing.T
	name string
	ctx  context.Context
	log  func() string
}

func (b *bot) guest(t *testing.T, name string, width, height int) *guest {
	t.Helper()
	g := b.browser(t, name, width, height)
	g.enter(b.link(t, name))
	return g
}

// link is a one-time link for somebody; more are further words of the command.
func (b *bot) link(t *testing.T, name string, more ...string) string {
	t.Helper()
	out, errs, code := b.run("", append([]string{"login", name}, more...)...)
	if code != 0 {
		t.Fatalf("login %s: %s", name, errs)
	}
	return strings.TrimSpace(out)
}

// enter opens a link that signs the guest in.
func (g *guest) enter(link string) {
	g.t.Helper()
	g.do("opening the link", chromedp.Navigate(link), until(`document.querySelector('#me-name')?.textContent === '`+g.name+`'`))
}

// inFront has a browser's window in front: a press in another one decides nothing.
func inFront(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
	_, err = cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return v, err
}

// browser is an empty page in a browser of the guest's own.
func (b *bot) browser(t *testing.T, name string, width, height int) *guest {
	t.Helper()
	// A browser each: pages that are behind others are not drawn, and take no press.
	opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...),
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	browser, end := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil { // makes the tab, which lasts as long as its context
		t.Fatal(err)
	}
	g := &guest{t: t, name: name, ctx: ctx, log: b.log.String}
	g.do("its size", chromedp.EmulateViewport(int64(width), int64(height)), inFront)
	return g
}

func (g *guest) do(what string, steps ...page) {
	g.t.Helper()
	for _, st := range steps {
		ctx, cancel := context.WithTimeout(g.ctx, time.Minute)
		_, err := chromedp.Run(ctx, st)
		cancel()
		if err != nil {
			text, _ := chromedp.Run(g.ctx, chromedp.Evaluate[string](`document.body.innerText`))
			g.t.Fatalf("%s, %s: %v\n%s\n%s", g.name, what, err, text, g.log())
		}
	}
}

// picture keeps what is on the screen, in the documents with -pictures.
func (g *guest) picture(name string) {
	g.t.Helper()
	png, err := chromedp.Run(g.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		g.t.Fatal(err)
	}
	dir := g.t.TempDir()
	if shots := os.Getenv("WEB_SHOTS"); shots != "" {
		dir = shots
	} else if *pictures {
		dir = filepath.Join("..", "..", "docs")
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// pressed clicks a button by its text, when it takes a press.
func pressed(text string) page {
	found := `[...document.querySelectorAll('button, a')].find((b) => b.textContent.trim() === ` + fmt.Sprintf("%q", text) + ` && !b.disabled && b.offsetParent)`
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		if v, err = until("Boolean("+found+")")(ctx, t); err != nil {
			return v, err
		}
		return script(found+`.click()`)(ctx, t)
	}
}

// types sends keys one by one, as a keyboard does.
func types(keys string) page {
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		for _, r := range keys {
			down := *kb.Encode(r)[0]
			for _, p := range kb.Encode(r) {
				if p.Type == kb.KeyChar {
					down.Type, down.Text, down.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, p.Text, p.UnmodifiedText
				}
			}
			up := down
			up.Type, up.Text, up.UnmodifiedText = kb.KeyUp, "", ""
			for _, e := range []input.DispatchKeyEventParams{down, up} {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, e); err != nil {
					return v, err
				}
			}
		}
		return v, nil
	}
}

// TestADayInTheOperationsRoom plays a day with three people at two replicas, in a browser each: an
// alert and what the agent found, a plan that is approved on a phone by the address that a
// notification opens, a terminal that one types in and another one watches, an undo, a
// recording that is found by what it shows, and a search.
func TestADayInTheOperationsRoom(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	work, err := os.MkdirTemp("", "shop") //nolint:usetesting // short enough to be read on a picture
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	f := newReplicas(t, 2, fmt.Sprintf(dayConfig, work), dayModel(t, work), "GENERIC_HOOK_SECRET=0123456789abcdef0123456789abcdef")
	ann, ben, carol := f.bots[0].guest(t, "ann", 1280, 800), f.bots[1].guest(t, "ben", 390, 844), f.bots[1].guest(t, "carol", 1280, 800)

	// 1. An alert comes, and the agent looks.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.bots[1].url+"/hooks/generic", strings.NewReader(`{"key":"checkout","title":"Checkout is slow","text":"p95 is 4 s","labels":{"severity":"critical","team":"shop"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%+v %v", res, err)
	}
	_ = res.Body.Close()
	ann.do("the alert's conversation", until(`document.querySelector('.thread')?.textContent.includes('Checkout is slow')`), script(`document.querySelector('.thread').click()`),
		until(`document.querySelector('#log').textContent.includes('only 2 workers')`))
	ann.picture("day-1-alert")

	// 2. A plan, approved on a phone. The address is the one that a notification opens.
	ann.do("asking", keys("#text", "please do both"+kb.Enter), until(`document.querySelector('.card.open')?.textContent.includes('Run 2 steps')`))
	api := f.bots[1].login("ben")
	var request string
	eventually(t, "a card for ben", func() bool {
		var home struct{ Yours []struct{ ID string } }
		if st, err := api.do("GET", "/api/home", nil, &home); err == nil && st == http.StatusOK && len(home.Yours) == 1 {
			request = home.Yours[0].ID
		}
		return request != ""
	}, f.logs)
	ben.do("the notification's address", script(`location.hash = '#c=`+request+`'`), until(`document.querySelector('.card.open')?.getBoundingClientRect().bottom <= innerHeight && !document.querySelector('.card.open [data-style=approve]').disabled`))
	ben.picture("day-2-phone")
	ben.do("approving", press("approve"))
	ann.do("the end", until(`document.querySelector('#log').textContent.includes('checkout has 8 workers')`))

	// 3. Ben types in a terminal, and carol watches.
	ben.do("a larger screen", chromedp.EmulateViewport(1280, 800), until(`document.querySelector('.thread') !== null`), script(`document.querySelector('.thread').click()`), until(`document.querySelector('#log').textContent.includes('checkout has 8 workers')`))
	carol.do("the conversation", until(`document.querySelector('.thread')?.textContent.includes('Checkout is slow')`), script(`document.querySelector('.thread').click()`), until(`document.querySelector('#log').textContent.includes('checkout has 8 workers')`))
	for _, g := range []*guest{ben, carol} {
		g.do("the terminal", script(`document.querySelector('#term').hidden && document.querySelector('#term-toggle').click()`), until(`document.querySelector('#screen .xterm-screen') !== null && !document.querySelector('#hands').hidden`))
	}
	ben.do("taking control", pressed("Take control"), until(`document.querySelector('#hands-take').textContent === 'Give back'`), script(`document.querySelector('#screen textarea').focus()`),
		types("cat checkout.conf && echo looks right\r"))
	carol.do("seeing it", until(`document.querySelector('#screen').textContent.includes('workers = 8')`))
	carol.picture("day-3-terminal")
	ben.do("giving it back", pressed("Give back"), until(`document.querySelector('#log').textContent.includes('ben had the keyboard')`))

	// 4. The change is taken back.
	ann.do("undoing", pressed("Undo step 1"), until(`document.querySelector('.card.open')?.textContent.includes('Undo a change to checkout.conf')`))
	ann.picture("day-4-undo")
	ben.do("approving the undo", until(`document.querySelector('#log .card.open') !== null`), script(`document.querySelector('#log .card.open').scrollIntoView({ block: 'center' })`), pressed("Approve"))
	eventually(t, "the old configuration", func() bool {
		raw, err := os.ReadFile(filepath.Join(work, "checkout.conf"))
		return err == nil && string(raw) == "workers = 2\n"
	}, f.logs)

	// 5. What was on the screen is found in the recordings, and the conversation by its words.
	var holder *bot // a recording is a file of the replica that has the terminal, and up to a second behind it
	var said string
	readers := map[*bot]*person{}
	for _, b := range f.bots {
		readers[b] = b.login("carol")
	}
	eventually(t, "a recording with what was on the screen", func() bool {
		said = ""
		for _, b := range f.bots {
			list := chatList{}
			st, err := readers[b].do("GET", "/api/lists/recordings?q=looks+right", nil, &list)
			if said += fmt.Sprintln(st, err, list); err == nil && st == http.StatusOK && len(list.Rows) > 0 {
				holder = b
			}
		}
		return holder != nil
	}, func() string { return said + f.logs() })
	g := holder.guest(t, "carol", 1280, 800)
	g.do("the recordings", script(`location.hash = '#l=recordings'`), until(`!document.querySelector('#listed-find').hidden`), keys("#listed-query", "looks right"), until(`document.querySelector('.listed-table')?.textContent.includes('looks right')`))
	g.picture("day-5-recordings")
	g.do("playing it", script(`document.querySelector('.listed-table a').click()`), until(`!document.querySelector('#player').hidden && !document.querySelector('#player-play').disabled`))
	carol.do("searching", keys("#query", "workers"), until(`document.querySelectorAll('.thread').length === 1 && document.querySelector('.thread').textContent.includes('workers')`))
}

// chatList is what the day reads of a list.
type chatList struct {
	Rows []struct{ Thread string }
}
