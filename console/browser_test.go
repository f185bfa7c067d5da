package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/chat"
	"countersign/store/mem"
	"countersign/test/needstest"
)

// shots is where the pictures go: set WEB_SHOTS to keep them.
func shots(t *testing.T) string {
	if dir := os.Getenv("WEB_SHOTS"); dir != "" {
		return dir
	}
	return t.TempDir()
}

func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(5, func() int {
		code := m.Run()
		if chromiums.end != nil {
			chromiums.end()
		}
		return code
	}))
}

func chromium(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const how = "the page is looked at with chromium: apt-get install chromium"
	if os.Getenv("CI") == "true" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}

// incident answers as the bot would: it looks, asks, and goes on after a click.
type incident struct {
	fakeBot
	a *Adapter
	t *testing.T
	// buttons is what else the bot does about a press, if it is of its own; nil is nothing.
	buttons func(chat.Click) bool
}

func (b *incident) Deliver(ctx context.Context, ev chat.Event) error {
	if err := b.fakeBot.Deliver(ctx, ev); err != nil {
		return err
	}
	switch {
	case ev.Text == "stop":
		b.post(ev.Thread, chat.Post{Key: "stopped", Text: "Stopped. Nothing is running."})
	case strings.Contains(ev.Text, "disk"):
		b.post(ev.Thread, chat.Post{Key: "look", Quiet: true, Text: "I looked at `web-1`. The root file system is **96 % full**, and most of it is one directory:\n\n" +
			"| Directory | Size | Age of the newest file |\n|---|---:|---|\n| /var/log/journal | 3.1 GiB | now |\n| /var/cache/apt | 1.9 GiB | 41 days |\n| /home/deploy/releases | 12.4 GiB | 6 h |\n\n" +
			"```\n$ df -h /\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/vda1        25G   23G  1.1G  96% /\n```\n\n" +
			"Old releases are the safest thing to remove: `current` points to *release 212*, and nothing has the others open. See [the runbook](https://example.com/runbook)."})
		b.post(ev.Thread, chat.Post{Key: "card", Card: question()})
		b.a.ShowProgress(ctx, ev.Thread, chat.Progress{Key: "scan", Status: "running du -sh /home/deploy/releases/*", Text: "412M\t/home/deploy/releases/209\n415M\t/home/deploy/releases/210\n415M\t/home/deploy/releases/211"})
	}
	return nil
}

func question() *chat.Card {
	return &chat.Card{
		Title: "Approve this command on web-1?", Tone: chat.ToneHigh,
		Code: "find /home/deploy/releases -mindepth 1 -maxdepth 1 -type d ! -name 212 -mtime +14 -print0 |\n  xargs -0 rm -rf --",
		Warn: []string{"It deletes files for good.", "The model calls this medium; the engine calls it high."},
		Fields: []chat.Field{
			{Name: "Target", Value: "web-1 (ssh, production)"}, {Name: "Directory", Value: "/home/deploy"},
			{Name: "Why", Value: "Free about 12 GiB on /, which is 96 % full."}, {Name: "Risk", Value: "high: rm -r through xargs"},
			{Name: "Needs", Value: "1 of oncall, none yet; expires in 15 min"},
		},
		Choose: []chat.Button{
			{ID: "deny:1", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove, Confirm: "This deletes files on a production machine and cannot be undone."},
			{ID: "edit:1", Label: "Edit", Style: chat.StyleEdit, Edit: "find /home/deploy/releases -mindepth 1 -maxdepth 1 -type d ! -name 212 -mtime +14 -print0 |\n  xargs -0 rm -rf --"},
			{ID: "stop:1", Label: "Stop", Style: chat.StyleStop},
		},
	}
}

func (b *incident) Click(_ context.Context, c chat.Click) (chat.Answer, error) {
	b.mu.Lock()
	b.clicks = append(b.clicks, c)
	b.mu.Unlock()
	if b.buttons != nil && b.buttons(c) {
		return chat.Answer{OK: true}, nil
	}
	if strings.HasPrefix(string(c.Button), "undo:") {
		b.post(c.Thread, chat.Post{Key: "undo", Card: face(b.t, "undo-command")})
		return chat.Answer{OK: true, Notice: "Undo needs approval."}, nil
	}
	face := question()
	face.Choose, face.Final, face.Warn = nil, true, nil
	if c.Button == "deny:1" {
		face.Title, face.Tone = "Denied by you", chat.ToneBad
		face.Fields = append(face.Fields, chat.Field{Name: "Reason", Value: c.Reason})
		return chat.Answer{OK: true, Notice: "You denied it.", Card: face}, nil
	}
	if c.Button == "edit:1" {
		face.Title, face.Code = "Withdrawn: edited by you", c.Text
		return chat.Answer{OK: true, Notice: "You changed it.", Card: face}, nil
	}
	if c.Button == "stop:1" {
		face.Title = "Withdrawn by you"
		return chat.Answer{OK: true, Notice: "Stopping.", Card: face}, nil
	}
	face.Title, face.Tone = "Approved by you, done in 2.1 s, exit 0", chat.ToneGood
	if networkOf(c.Thread) != "" {
		return chat.Answer{OK: true, Notice: "You approved it.", Card: face}, nil
	}
	b.post(c.Thread, chat.Post{Key: "scan", Quiet: true, Text: "Done. `/` is at **47 %** now; 12.2 GiB came free, and the site answers in 80 ms.", Files: []chat.File{{Name: "removed.txt", Text: "/home/deploy/releases/198\n/home/deploy/releases/199\n", Cut: true}}})
	return chat.Answer{OK: true, Notice: "You approved it.", Card: face}, nil
}

func (b *incident) post(t chat.ThreadID, p chat.Post) {
	if _, err := b.a.Post(context.Background(), t, p); err != nil {
		b.t.Error(err)
	}
}

// paintedPanes shows colours of every kind and box drawing.
type paintedPanes struct {
	botTypes
}

func (paintedPanes) Panes(context.Context, chat.ThreadID) ([]Pane, error) {
	return []Pane{
		{ID: "%1", Session: "countersign-ops-web-1", Name: "shared", Attach: "ssh -t web-1 tmux attach -r -t =countersign-ops-web-1", State: "running"},
		{ID: "%2", Session: "countersign-ops-web-1", Name: "logs", Attach: "ssh -t web-1 tmux attach -r -t =countersign-ops-web-1", State: "idle"},
	}, nil
}

func (paintedPanes) Watch(_ context.Context, _ chat.ThreadID, pane string) (Screen, error) {
	live := make(chan []byte, 1)
	live <- []byte("\r\n\x1b[32mdeploy@web-1\x1b[0m:\x1b[34m~\x1b[0m$ echo LIVE-" + pane[1:] + "\r\nLIVE-" + pane[1:])
	snap := "\x1b[32mdeploy@web-1\x1b[0m:\x1b[34m~\x1b[0m$ df -h /\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/vda1        25G   23G  1.1G  \x1b[1;31m96%\x1b[0m /\n" +
		"\x1b[38;2;255;140;0mtruecolor\x1b[0m \x1b[38;5;141mpalette\x1b[0m \x1b[7mreverse\x1b[0m ┌──┬──┐ \x1b[48;2;30;60;90m background \x1b[0m"
	return Screen{Snapshot: []byte(snap), Live: live, Width: 100, Height: 30}, nil
}

// screenTest is a browser in front of a console.
type screenTest struct {
	t    *testing.T
	own  context.Context
	ctx  context.Context // own, for two minutes
	bot  *incident
	url  string
	dir  string
	srv  *httptest.Server
	mu   sync.Mutex
	errs []string
}

// serve serves at an address, so that a test can come back at the same one.
func serve(t *testing.T, a *Adapter, addr string) *httptest.Server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: Server(a.Handler())}
	srv.Start()
	return srv
}

func newScreenTest(t *testing.T, options ...option) *screenTest {
	t.Helper()
	path := chromium(t)
	cfg := Config{
		DB:          mem.Open(),
		DoorConfig:  DoorConfig{Key: testKey, Users: members("you")},
		PageConfig:  PageConfig{Title: "Countersign"},
		PartsConfig: PartsConfig{Panes: paintedPanes{}},
	}
	for _, o := range options {
		o(&cfg)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Origin == itself {
		cfg.Origin = "http://" + l.Addr().String()
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: Server(a.Handler())}
	srv.Start()
	bot := &incident{a: a, t: t}
	run, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(run, bot) }()

	s := &screenTest{t: t, bot: bot, url: srv.URL, dir: shots(t), srv: srv}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		s.srv.Close()
	})
	s.browser(path)
	return s
}

// chromiums is the one browser of the tests. Each of them has a window and a session of its own in it.
var chromiums struct {
	once sync.Once
	ctx  context.Context
	end  func()
}

// sharedBrowser starts the browser that the tests share.
func sharedBrowser(path string) context.Context {
	chromiums.once.Do(func() {
		chromiums.ctx, chromiums.end = launch(path)                     //nolint:fatcontext // once
		if err := chromedp.Do(chromiums.ctx, script("0")); err != nil { // it starts with its first step
			panic(err)
		}
	})
	return chromiums.ctx
}

// launch starts chromium with a profile of its own.
func launch(path string) (ctx context.Context, end func()) {
	profile, err := os.MkdirTemp("", "web-profile") // not a test's: chromium may still write there when it has ended
	if err != nil {
		panic(err)
	}
	alloc, endAlloc := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-background-timer-throttling", true), chromedp.Flag("disable-backgrounding-occluded-windows", true),
		chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.WindowSize(1280, 860),
	)
	tab, endTab := chromedp.NewContext(alloc)
	return tab, func() {
		_ = chromedp.Cancel(tab)
		endTab()
		endAlloc()
		_ = os.RemoveAll(profile)
	}
}

// browser opens a window for s that shares nothing with others.
func (s *screenTest) browser(path string) {
	tab, end := chromedp.NewContext(sharedBrowser(path), chromedp.WithNewBrowserContext())
	s.in(tab, func() {
		_ = chromedp.Cancel(tab)
		end()
	})
}

// in has s use a tab until the test ends.
func (s *screenTest) in(tab context.Context, end func()) {
	t := s.t
	t.Helper()
	ctx, endTime := context.WithTimeout(tab, 6*time.Minute) // a thousand cards, on a busy machine
	s.own, s.ctx = tab, ctx
	t.Cleanup(func() {
		endTime()
		end()
	})
	err := chromedp.Listen(tab, func(ev any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			text := ev.ExceptionDetails.Text
			if x := ev.ExceptionDetails.Exception; x != nil {
				text += " " + x.Description
			}
			s.errs = append(s.errs, text)
		case *log.EventEntryAdded: // refusals of the content security policy come here
			if ev.Entry.Level == log.EntryLevelError {
				s.errs = append(s.errs, ev.Entry.Text+" "+ev.Entry.URL)
			}
		}
	})
	if err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	s.do("listening", cmd(log.Enable, cdp.Empty{}), cmd(runtime.Enable, cdp.Empty{}),
		cmd(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})) // the window of one test has the focus
}

// another is a second browser in front of the same console, which shares nothing
// with the first.
func (s *screenTest) another() *screenTest {
	s.t.Helper()
	out := &screenTest{t: s.t, bot: s.bot, url: s.url, dir: s.dir, srv: s.srv}
	out.browser(chromium(s.t))
	return out
}

type step = chromedp.Action[chromedp.Void]

// cmd is a command of the protocol as a step.
func cmd[P, R any](c cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func click(css string) step        { return chromedp.Click(chromedp.CSS(css)) }
func onScreen(css string) step     { return chromedp.WaitVisible(chromedp.CSS(css)) }
func typing(css, text string) step { return chromedp.SendKeys(chromedp.CSS(css), text) }
func script(js string) step        { return chromedp.Evaluate[chromedp.Void](js) }

func (s *screenTest) do(what string, steps ...step) {
	s.t.Helper()
	if err := chromedp.Do(s.ctx, steps...); err != nil {
		s.failed()
		s.t.Fatalf("%s: %v", what, err)
	}
}

// failed leaves a picture and the page's text, also where the test's time is over.
func (s *screenTest) failed() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.own, 10*time.Second)
	defer cancel()
	s.ctx = ctx
	s.shot("failed")
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body.innerText + '\nin the field: ' + JSON.stringify(document.querySelector('#text')?.value)`))
	s.t.Logf("the page: %s (%v)", text, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.errs {
		s.t.Logf("the browser complains: %s", e)
	}
}

func (s *screenTest) shot(name string) {
	s.t.Helper()
	png, err := chromedp.Run(s.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		s.t.Logf("no picture of %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(s.dir, name+".png"), png, 0o600); err != nil {
		s.t.Error(err)
	}
}

// until waits for a JavaScript expression to be true.
func (s *screenTest) until(js string) {
	s.t.Helper()
	s.do("waiting for "+js, chromedp.Poll[chromedp.Void](js, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)))
}

func (s *screenTest) is(js string) {
	s.t.Helper()
	ok, err := chromedp.Run(s.ctx, chromedp.Evaluate[bool](js))
	if err != nil || !ok {
		s.t.Errorf("not so: %s (%v)", js, err)
	}
}

func (s *screenTest) clean() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.errs {
		s.t.Errorf("the browser complains: %s", e)
	}
	s.errs = nil
}

func colours(name string) step {
	return cmd(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t)

	// A person without a link is told what to do.
	s.do("the first page", colours("dark"), chromedp.Navigate(s.url), onScreen("#login-form"))
	s.shot("01-login")
	s.mu.Lock()
	s.errs = nil // the browser logs the 401 of a page that is not signed in
	s.mu.Unlock()

	// The link signs in, once, and leaves no code in the address.
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("signing in", chromedp.Navigate("about:blank"), chromedp.Navigate(link), onScreen("#empty"))
	s.is(`location.hash === '' && !document.cookie && performance.getEntriesByType('navigation').length === 1`)
	s.shot("02-empty")

	// The first message starts a conversation.
	s.do("writing", chromedp.KeyEvent("/"))
	s.is(`document.activeElement.id === 'text'`)
	// The driver sends the character as an event of its own, which a real keyboard does not.
	s.do("emptying it", script(`document.activeElement.value = ''`))
	s.do("sending", chromedp.KeyEvent("The disk on web-1 is almost full, the site throws 500s.\nWhat can go?"[:55]), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('.card.open button[data-style=approve]:not(:disabled)') !== null && document.querySelector('.doing') !== null`)
	s.is(`location.hash.startsWith('#t=') && document.querySelector('#text').value === ''`)
	s.is(`document.querySelector('.card .code').textContent === ` + fmt.Sprintf("%q", question().Code))
	s.is(`[...document.querySelectorAll('.decide .choices button')].map(b => b.textContent).join() === 'Deny,Approve,Edit,Stop'`)
	s.is(`document.title.startsWith('(1) ')`)
	s.shot("03-card-dark")
	s.do("light", colours("light"))
	s.shot("04-card-light")
	s.do("dark", colours("dark"))

	// No single key approves; the way there is the button and the dialog.
	s.do("leaving the field", chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("a"))
	s.is(`document.querySelector('#told').textContent !== '' && !document.querySelector('dialog[open]')`)
	s.do("keys", chromedp.KeyEvent("j"))
	s.is(`document.activeElement.classList.contains('card')`)
	s.shot("05-focused-card")
	s.do("to the button", chromedp.KeyEvent("a"))
	s.is(`document.activeElement.dataset.style === 'approve'`)
	s.do("pressing", chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.is(`document.activeElement.id === 'confirm-no'`)
	s.shot("06-confirm")
	s.do("a second Enter cancels", chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#confirm[open]') === null`)
	if n := len(s.bot.clicks); n != 0 {
		t.Fatalf("%d clicks so far", n)
	}

	// The terminal shows what was there, what comes, and colours, under the policy.
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1')`)
	s.is(`getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find(e => e.textContent.includes('truecolor'))).color === 'rgb(255, 140, 0)'`)
	s.is(`document.querySelector('#attach-line').textContent.includes('tmux attach -r')`)
	s.is(`parseFloat(getComputedStyle(document.querySelector('.xterm-rows')).fontSize) >= 11`) // it scrolls sideways rather than be too small to read
	s.shot("07-terminal")
	s.do("another pane", click("#panes button:nth-child(2)"))
	s.until(`document.querySelector('.xterm-rows').textContent.includes('LIVE-2')`)
	s.do("closing it", click("#term-close"))

	// Approving. A press right after the button moved does not count, so wait until it stands.
	s.until(`(() => {
		const at = document.querySelector('.card.open button[data-style=approve]').getBoundingClientRect();
		const here = at.x + ' ' + at.y;
		if (globalThis.there !== here) [globalThis.there, globalThis.since] = [here, performance.now()];
		return performance.now() - globalThis.since > 700;
	})()`)
	s.decide("approve", ".card.open button[data-style=approve]")
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.until(`!document.querySelector('#confirm-yes').disabled`)
	s.decide("confirm", "#confirm-yes")
	s.until(`document.querySelector('.card.tone-good') !== null && document.querySelectorAll('.card button[data-style]').length === 0 && !document.querySelector('.doing')`)
	s.until(`document.querySelector('.file-name')?.textContent === 'removed.txt'`)
	s.shot("08-approved")
	s.do("stop", click("#stop"))
	s.until(`document.querySelector('#log').textContent.includes('Nothing is running')`)

	// It is all there after a reload.
	s.do("reload", chromedp.Reload())
	s.until(`document.querySelector('.card.tone-good') !== null && document.querySelectorAll('.message').length === 6`)
	s.do("help", chromedp.KeyEvent("?"))
	s.until(`document.querySelector('#keys[open]') !== null`)
	s.shot("09-keys")
	s.do("closing it", chromedp.KeyEvent(kb.Escape))
	s.clean()
	s.bot.mu.Lock()
	defer s.bot.mu.Unlock()
	if len(s.bot.clicks) != 1 || s.bot.clicks[0].Button != "approve:1" || s.bot.clicks[0].From.ID != "web:you" {
		t.Errorf("clicks %+v", s.bot.clicks)
	}
}

// ask starts a conversation whose card waits.
func (s *screenTest) ask() {
	s.t.Helper()
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("a conversation", colours("dark"), chromedp.Navigate(link), onScreen("#empty"), typing("#text", "The disk on web-1 is almost full"), click("#send"))
	s.until(`document.querySelector('.card.open button[data-style=edit]:not(:disabled)') !== null`)
}

func (s *screenTest) clicks() []chat.Click {
	s.bot.mu.Lock()
	defer s.bot.mu.Unlock()
	return slices.Clone(s.bot.clicks)
}

func TestEditingACommandOnThePage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.ask()
	s.decide("edit", ".card.open button[data-style=edit]")
	s.until(`document.querySelector('#edit[open]') !== null && document.activeElement.id === 'edit-value'`)
	s.is(`document.querySelector('#edit-value').value === ` + fmt.Sprintf("%q", question().Code))
	s.is(`document.querySelector('#edit-yes').disabled`)
	s.shot("10-edit")
	s.do("emptying it", script(`{ const f = document.querySelector('#edit-value'); f.value = ' \n'; f.dispatchEvent(new Event('input')); }`))
	s.is(`document.querySelector('#edit-yes').disabled`)
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))
	s.until(`document.querySelector('#edit[open]') === null`)
	s.decide("edit again", ".card.open button[data-style=edit]")
	s.until(`document.querySelector('#edit[open]') !== null`)
	s.is(`document.querySelector('#edit-value').value === ` + fmt.Sprintf("%q", question().Code))
	// An Enter starts a line here, and sends nothing.
	s.do("writing", script(`document.querySelector('#edit-value').select()`), typing("#edit-value", "ls -la  /home"), chromedp.KeyEvent(kb.Enter), typing("#edit-value", "df"))
	s.until(`document.querySelector('#edit-value').value === "ls -la  /home\ndf" && !document.querySelector('#edit-yes').disabled`)
	if n := len(s.clicks()); n != 0 {
		t.Fatalf("%d clicks so far", n)
	}
	s.decide("using it", "#edit-yes")
	s.until(`document.querySelector('.card h3').textContent === 'Withdrawn: edited by you' && document.querySelectorAll('.card button[data-style]').length === 0`)
	if c := s.clicks(); len(c) != 1 || c[0].Button != "edit:1" || c[0].Text != "ls -la  /home\ndf" || c[0].Reason != "" {
		t.Errorf("%+v", c)
	}
	s.clean()
}

func TestTheStopButtonOfACard(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.ask()
	s.decide("stop", ".card.open button[data-style=stop]")
	s.until(`document.querySelector('.card h3').textContent === 'Withdrawn by you'`)
	if c := s.clicks(); len(c) != 1 || c[0].Button != "stop:1" || c[0].Text != "" {
		t.Errorf("%+v", c)
	}
	s.clean()
}

func TestThePageOnAPhone(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t)
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch), colours("dark"),
		chromedp.Navigate(link), onScreen("#empty"))
	s.shot("20-phone-empty")
	fits := `document.documentElement.scrollWidth <= 390 && document.querySelector('#scroll').scrollWidth <= 390`
	s.is(fits)
	s.do("writing", typing("#text", "The disk on web-1 is almost full"), click("#send"))
	s.until(`document.querySelector('.card.open button[data-style=approve]:not(:disabled)') !== null && document.querySelector('.doing') !== null`)
	s.is(fits)
	s.is(`[...document.querySelectorAll('.decide .choices button')].every(b => b.offsetHeight >= 44)`)
	s.shot("21-phone-end")
	s.do("up", script(`document.querySelector('.card').scrollIntoView(); document.querySelector('#scroll').scrollBy(0, -20)`))
	s.shot("22-phone-card")
	s.do("the top", script(`document.querySelector('#scroll').scrollTo(0, 0)`))
	s.shot("23-phone-top")
	s.do("the list", click("#menu"))
	s.until(`document.querySelector('#side').getBoundingClientRect().left === 0`)
	s.shot("24-phone-list")
	s.do("closing it", click("#side-close"))
	s.until(`getComputedStyle(document.querySelector('#side')).visibility === 'hidden'`)
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1')`)
	s.is(fits)
	s.shot("25-phone-terminal")
	s.do("closing it", click("#term-close"))
	s.do("why", typing(".reason", "wrong host"))
	s.decide("denying", ".card.open button[data-style=deny]")
	s.until(`document.querySelector('.card.tone-bad') !== null`)
	s.is(`document.querySelector('.card.tone-bad').textContent.includes('wrong host')`)
	s.do("light", colours("light"))
	s.shot("26-phone-denied-light")
	s.clean()
}

func TestThePageSaysWhenTheConnectionIsLost(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("a conversation", colours("dark"), chromedp.Navigate(link), onScreen("#empty"),
		typing("#text", "hello"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelectorAll('.message').length === 1`)
	s.srv.Listener.Close()
	s.srv.CloseClientConnections()
	s.until(`!document.querySelector('#banner').hidden`)
	s.do("writing", typing("#text", "are you there?"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#send-error').textContent.includes('reach the bot')`)
	s.until(`document.querySelector('#text').value === 'are you there?' && document.querySelectorAll('.message').length === 1`)
	s.shot("30-offline")
	s.srv.Close()
	s.srv = serve(t, s.bot.a, s.srv.Listener.Addr().String())
	s.do("again", click("#send"))
	s.until(`document.querySelectorAll('.message').length === 2 && document.querySelector('#banner').hidden && document.querySelector('#text').value === ''`)
}

// The list of conversations may come late: it opens nothing over what was begun meanwhile.
func TestTheListComesLate(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	lists, late := make(chan struct{}, 100), make(chan struct{})
	come := sync.OnceFunc(func() { close(late) })
	t.Cleanup(come)
	h := s.srv.Config.Handler
	s.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := r.URL.Path == "/api/threads" && r.Method == http.MethodGet
		if list {
			<-late
		}
		h.ServeHTTP(w, r)
		if list {
			lists <- struct{}{}
		}
	})
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("a conversation", chromedp.Navigate(link), onScreen("#empty"), typing("#text", "hello"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelectorAll('.message').length === 1`)
	s.do("a mark", script(`document.querySelector('.message').dataset.mark = 'the first'`))
	come()
	<-lists
	<-lists // what followed the first has happened when the next is asked for
	s.is(`document.querySelector('.message').dataset.mark === 'the first'`)
}
