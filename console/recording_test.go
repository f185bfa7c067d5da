package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/chromedp"

	"countersign/adapters/chat"
	"countersign/targets/record"
	"countersign/test/needstest"
	"countersign/test/npmtest"
)

// shelf has recordings of one thread.
type shelf struct {
	thread chat.ThreadID // empty: every thread
	list   []Recording
	open   func(id string) (io.ReadCloser, error)
	err    error
}

func (s *shelf) Recordings(_ context.Context, th chat.ThreadID) ([]Recording, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.thread != "" && th != s.thread {
		return nil, chat.ErrGone
	}
	return s.list, nil
}

func (s *shelf) OpenRecording(_ context.Context, th chat.ThreadID, id string) (io.ReadCloser, error) {
	if s.thread != "" && th != s.thread {
		return nil, fmt.Errorf("another thread's: %w", chat.ErrGone)
	}
	return s.open(id)
}

// noted remembers that it was closed, and fails at its end if it is told to.
type noted struct {
	io.Reader
	closed chan struct{}
	fail   error
}

func newNoted(text string, fail error) *noted {
	return &noted{Reader: strings.NewReader(text), closed: make(chan struct{}), fail: fail}
}

func (n *noted) wasClosed(t *testing.T) {
	t.Helper()
	select {
	case <-n.closed:
	case <-time.After(20 * time.Second):
		t.Error("it was never closed")
	}
}

func (n *noted) Read(b []byte) (int, error) {
	c, err := n.Reader.Read(b)
	if errors.Is(err, io.EOF) && n.fail != nil {
		err = n.fail
	}
	return c, err
}

func (n *noted) Close() error {
	close(n.closed)
	return nil
}

func withRecordings(s *shelf) option { return func(c *Config) { c.Recordings = s } }

func TestRecordingsAreListedAndSent(t *testing.T) {
	started := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	large := strings.Repeat("0123456789abcdef", 1<<16)
	s := &shelf{list: []Recording{{ID: "ops.shared.1", Session: "ops", Pane: "<b>", Started: started, Duration: (90500 * time.Millisecond).Seconds(), Bytes: 1 << 20}}}
	body := newNoted(large, nil)
	var asked []string
	s.open = func(id string) (io.ReadCloser, error) {
		asked = append(asked, id)
		return body, nil
	}
	r := newRig(t, withRecordings(s))
	p := r.signIn("you")
	s.thread = p.start("hello")
	other := p.start("another one")
	path := "/api/threads/" + string(s.thread) + "/recordings"

	var me struct{ Terminal, Recordings bool }
	if p.get("/api/me", &me); !me.Terminal || !me.Recordings {
		t.Errorf("%+v", me)
	}
	if got := p.do("GET", path, ""); got.status != 200 || string(got.body) !=
		`{"recordings":[{"id":"ops.shared.1","session":"ops","pane":"\u003cb\u003e","started":"2026-03-01T02:00:00Z","duration":90.5,"bytes":1048576}]}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("GET", "/api/threads/"+string(other)+"/recordings", ""); got.status != 200 || string(got.body) != `{"recordings":[]}` {
		t.Errorf("another thread's: %d %s", got.status, got.body)
	}
	name := `a"b/../é;x=1`
	got := p.do("GET", path+"/"+url.PathEscape(name), "")
	kind, params, err := mime.ParseMediaType(got.header.Get("Content-Disposition"))
	if got.status != 200 || string(got.body) != large || got.header.Get("Content-Type") != "application/x-asciicast" ||
		err != nil || kind != "attachment" || params["filename"] != name+".cast" || got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %v, %d bytes", got.status, got.header, err, len(got.body))
	}
	body.wasClosed(t)
	if len(asked) != 1 || asked[0] != name {
		t.Errorf("asked for %q", asked)
	}
	if got := p.do("GET", "/api/threads/"+string(other)+"/recordings/ops.shared.1", ""); got.status != 404 || !strings.Contains(got.sentence(t), "gone") {
		t.Errorf("another thread's: %d %s", got.status, got.body)
	}
	if got := p.do("GET", path+"/"+strings.Repeat("x", 300), ""); got.status != 404 {
		t.Errorf("a long id: %d", got.status)
	}
	if got := p.do("POST", path, "{}"); got.status == 200 {
		t.Errorf("POST: %d", got.status)
	}
	if len(asked) != 1 {
		t.Errorf("asked for %q", asked)
	}
}

func TestRecordingsThatFail(t *testing.T) {
	s := &shelf{err: errors.New("secret path /srv/x")}
	s.open = func(string) (io.ReadCloser, error) { return nil, errors.New("secret path /srv/x") }
	r := newRig(t, withRecordings(s))
	p := r.signIn("you")
	path := "/api/threads/" + string(p.start("hello")) + "/recordings"
	for _, at := range []string{path, path + "/1"} {
		if got := p.do("GET", at, ""); got.status != 503 || strings.Contains(got.sentence(t), "/srv") {
			t.Errorf("%s: %d %s", at, got.status, got.body)
		}
	}
	// One that breaks off is seen to be broken.
	body := newNoted(strings.Repeat("half of it", 20000), errors.New("bad sector"))
	s.open = func(string) (io.ReadCloser, error) { return body, nil }
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path+"/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: cookieName, Value: p.cookie})
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("it looks whole")
	}
	body.wasClosed(t)
}

func TestAConsoleWithoutRecordings(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	path := "/api/threads/" + string(p.start("hello")) + "/recordings"
	var me struct{ Terminal, Recordings bool }
	if p.get("/api/me", &me); me.Terminal || me.Recordings {
		t.Errorf("%+v", me)
	}
	if got := p.do("GET", path, ""); got.status != 200 || string(got.body) != `{"recordings":[]}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("GET", path+"/1", ""); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

const (
	firstMark  = "run: df -h / (approved by ann)"
	secondMark = `run: <img src=x onerror="document.title='owned'">`
)

// taped records a short session with long silences.
func taped(t *testing.T) (dir string, info record.Info) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "recordings")
	synctest.Test(t, func(t *testing.T) {
		r, err := record.Open(record.Options{
			Dir: dir, Session: "countersign-ops-web-1", Pane: "shared", Cols: 100, Rows: 30,
			Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2hunter2", "[redacted]") },
		})
		if err != nil {
			t.Fatal(err)
		}
		prompt := "\x1b[32mdeploy@web-1\x1b[0m:\x1b[34m~\x1b[0m$ "
		r.Output([]byte(prompt))
		time.Sleep(time.Minute)
		r.Marker(firstMark)
		r.Output([]byte("df -h /\r\nFilesystem      Size  Used Avail Use% Mounted on\r\n/dev/vda1        25G   23G  1.1G  \x1b[1;31m96%\x1b[0m /\r\nBEFORE caf\xc3"))
		time.Sleep(300 * time.Millisecond)
		r.Output([]byte("\xa9\r\npassword hunter2hunter2\r\n" + prompt))
		time.Sleep(time.Hour)
		r.Marker(secondMark)
		r.Output([]byte("\x1b[2J\x1b[H"))
		for i := range 10 {
			r.Output(fmt.Appendf(nil, "\rremoving releases %3d%%", (i+1)*10))
			time.Sleep(100 * time.Millisecond)
		}
		r.Resize(90, 25)
		r.Output([]byte("\r\n\x1b[38;2;255;140;0mTHE END\x1b[0m 日本 ┌──┐ 😀\r\n" + prompt + "<b>data</b>"))
		time.Sleep(time.Second)
		r.Exit(0)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
	list, err := record.List(dir, record.Filter{})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return dir, list[0]
}

func shelfOf(dir string, i record.Info) *shelf {
	return &shelf{
		list: []Recording{
			{ID: i.ID, Session: i.Session, Pane: i.Pane, Started: i.Started, Duration: (time.Hour + time.Minute + 3*time.Second).Seconds(), Bytes: i.Bytes},
			{ID: "broken", Session: i.Session, Pane: "logs", Started: i.Started, Duration: (2 * time.Second).Seconds(), Bytes: 900},
			{ID: "gone", Session: i.Session, Pane: "logs", Started: i.Started, Duration: (2 * time.Second).Seconds(), Bytes: 3 << 20},
		},
		open: func(id string) (io.ReadCloser, error) {
			if id == "broken" {
				return io.NopCloser(strings.NewReader("{}\n")), nil
			}
			f, err := record.OpenFile(dir, id)
			if errors.Is(err, os.ErrNotExist) {
				err = chat.ErrGone
			}
			return f, err
		},
	}
}

func TestPlayingARecordingOnThePage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, info := taped(t)
	s := newScreenTest(t, withRecordings(shelfOf(dir, info)))
	s.ask()
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('#screen .xterm-rows')?.textContent.includes('LIVE-1') && !document.querySelector('#recordings').hidden`)
	s.is(`document.querySelector('#recordings-count').textContent === '3' && !document.querySelector('#recordings').open`)
	s.shot("40-recordings-closed")
	s.do("the list", click("#recordings summary"))
	s.is(`document.querySelectorAll('.recording').length === 3 && document.querySelector('.recording').textContent.includes('shared')`)
	s.do("playing", click("#recordings-list li:nth-child(1) button"), onScreen("#player"))
	s.until(`!document.querySelector('#player-play').disabled && document.querySelector('#player-screen .xterm-rows')?.textContent.includes('deploy@web-1')`)
	s.do("faster", click("#player-speed [data-speed='5']"))
	s.is(`[...document.querySelectorAll('#player-speed button')].map(b => b.getAttribute('aria-pressed')).join() === 'false,false,true'`)

	// It is played to its end, and the long silences are two seconds each.
	rows := `document.querySelector('#player-screen .xterm-rows').textContent`
	s.until(`document.querySelector('#player-play').getAttribute('aria-label') === 'Play' && ` + rows + `.includes('THE END')`)
	s.is(rows + `.includes('100%') && ` + rows + `.includes('┌──┐') && ` + rows + `.includes('<b>data</b>') && !` + rows + `.includes('BEFORE')`)
	s.is(`document.querySelector('#player-screen .xterm-rows').children.length === 25`)
	s.is(`document.querySelector('#player-time').textContent === '0:06 / 0:06'`)
	s.is(`getComputedStyle([...document.querySelectorAll('#player-screen .xterm-rows span')].find(e => e.textContent.includes('THE END'))).color === 'rgb(255, 140, 0)'`)
	s.is(`document.querySelectorAll('#player-ticks span').length === 2 && document.querySelector('#player-ticks span').getBoundingClientRect().left > document.querySelector('#player-ticks').getBoundingClientRect().left + 20`)
	s.is(`[...document.querySelectorAll('#player-marks .mark-text')].map(e => e.textContent).join('|') === ` + fmt.Sprintf("%q", firstMark+"|"+secondMark))
	s.is(`document.title.indexOf('owned') < 0 && !document.querySelector('#player-marks img')`)
	s.is(`document.querySelector('#player-marks li:nth-child(2) button').getAttribute('aria-current') === 'true'`)
	s.is(`document.querySelector('.xterm-screen').getBoundingClientRect().right <= innerWidth && document.documentElement.scrollWidth <= innerWidth`)
	s.shot("41-recording-end")

	// A marker leads back, whatever was shown since; the bar leads on.
	s.do("the first command", click("#player-marks li:nth-child(1) button"))
	s.until(rows + `.includes('BEFORE') && !` + rows + `.includes('THE END') && document.querySelector('#player-screen .xterm-rows').children.length === 30`)
	s.is(`document.querySelector('#player-time').textContent.startsWith('0:02 ') && document.querySelector('#player-marks li:nth-child(1) button').getAttribute('aria-current') === 'true'`)
	s.shot("42-recording-marker")
	s.do("to and fro", script(`{ const b = document.querySelector('#player-seek'); for (const v of [6, 0.1, 5, 0, 6.5, 2.5]) { b.value = v; b.dispatchEvent(new Event('input')); } }`))
	s.until(rows + `.includes('café') && ` + rows + `.includes('password [redacted]') && !` + rows + `.includes('THE END')`)
	s.is(`(` + rows + `.match(/BEFORE/g) || []).length === 1`)
	s.do("slower", click("#player-speed [data-speed='1']"), click("#player-play"))
	s.until(`document.querySelector('#player-play').getAttribute('aria-label') === 'Pause'`)
	s.do("pausing", click("#player-play"))
	s.is(`document.querySelector('#player-play').getAttribute('aria-label') === 'Play' && Number(document.querySelector('#player-seek').value) < 6`)

	// What cannot be played says so; the live view comes back.
	s.do("a broken one", click("#recordings-list li:nth-child(2) button"))
	s.until(`document.querySelector('#player-note').textContent.includes('play this recording') && document.querySelector('#player-play').disabled`)
	s.shot("43-recording-broken")
	s.clean()
	s.do("one that is gone", click("#recordings-list li:nth-child(3) button"))
	s.until(`document.querySelector('#player-note').textContent.includes('is gone')`)
	s.mu.Lock()
	s.errs = nil // the browser logs the 404
	s.mu.Unlock()
	s.do("once more", click("#recordings-list li:nth-child(1) button"))
	s.until(`!document.querySelector('#player-play').disabled && ` + rows + `.includes('deploy@web-1') && !` + rows + `.includes('BEFORE')`)
	s.do("back", click("#player-close"))
	s.until(`document.querySelector('#player').hidden && !document.querySelector('#live-view').hidden && document.querySelector('#screen .xterm-rows').textContent.includes('LIVE-1')`)
	s.is(`document.activeElement.tagName === 'SUMMARY'`)
	s.do("a pane ends it too", click("#recordings-list li:nth-child(1) button"), onScreen("#player"), click("#panes button:nth-child(2)"))
	s.until(`document.querySelector('#player').hidden && document.querySelector('#screen .xterm-rows').textContent.includes('LIVE-2')`)
	s.clean()
}

func TestSeekingInALongRecording(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"version":3,"term":{"cols":100,"rows":30}}` + "\n")
	for i := range 20000 {
		fmt.Fprintf(&b, `[0.01,"o","\u001b[32mline %d.\u001b[0m level=info msg=\"order accepted\" took=12ms\r\n"]`+"\n", i)
	}
	b.WriteString(`[0.01,"o","to`) // what a crash leaves
	s := newScreenTest(t, withRecordings(&shelf{
		list: []Recording{{ID: "x", Session: "ops", Pane: "shared"}},
		open: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(b.String())), nil },
	}))
	s.ask()
	s.do("the terminal", click("#term-toggle"))
	s.until(`!document.querySelector('#recordings').hidden`)
	s.do("playing", click("#recordings summary"), click("#recordings-list button"), onScreen("#player"))
	s.until(`!document.querySelector('#player-play').disabled && document.querySelector('#player-marks').hidden`)
	rows := `document.querySelector('#player-screen .xterm-rows').textContent`
	seek := func(to ...string) step {
		return script(`{ const b = document.querySelector('#player-seek'); for (const v of [` + strings.Join(to, ",") + `]) { b.value = v; b.dispatchEvent(new Event('input')); } }`)
	}
	s.do("to the end", seek("200"))
	s.until(rows + `.includes('line 19999.') && document.querySelector('#player-play').getAttribute('aria-label') === 'Play'`)
	s.do("back", seek("150", "20", "100"))
	s.until(rows + `.includes('line 9995.') && !` + rows + `.includes('line 10005.')`)
	s.do("further back", seek("1"))
	s.until(rows + `.includes('line 95.') && !` + rows + `.includes('line 105.')`)
	s.clean()
}

func TestARecordingOnAPhone(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, info := taped(t)
	s := newScreenTest(t, withRecordings(shelfOf(dir, info)))
	s.do("a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch))
	s.ask()
	s.do("the terminal", click("#term-toggle"))
	s.until(`!document.querySelector('#recordings').hidden`)
	s.do("playing", click("#recordings summary"), click("#recordings-list li:nth-child(1) button"), onScreen("#player"))
	s.until(`document.querySelector('#player-play').getAttribute('aria-label') === 'Pause'`)
	s.do("the second command", click("#player-marks li:nth-child(2) button"))
	s.until(`document.querySelector('#player-screen .xterm-rows')?.textContent.includes('THE END')`)
	s.is(`document.documentElement.scrollWidth <= 390 && document.querySelector('.player-bar').scrollWidth <= 390`)
	s.shot("44-recording-phone")
	s.clean()
}

// The player of the format's authors shows the same.
func TestAnotherPlayerPlaysOurRecordings(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, info := taped(t)
	page := http.NewServeMux()
	page.Handle("/player/", http.StripPrefix("/player/", http.FileServer(http.Dir(anotherPlayer(t)))))
	page.HandleFunc("/x.cast", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, info.ID+".cast"))
	})
	page.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="/player/asciinema-player.css"><div id="box"></div><script src="/player/asciinema-player.min.js"></script>
<script>
const p = AsciinemaPlayer.create('/x.cast', document.getElementById('box'), { autoPlay: true, speed: 5, idleTimeLimit: 2, fit: 'width' });
globalThis.marks = [];
p.addEventListener('marker', (m) => marks.push(m.label));
p.addEventListener('ended', () => { globalThis.ended = true; });
</script>`)
	})
	srv := httptest.NewServer(page)
	defer srv.Close()
	s := newScreenTest(t)
	s.do("another player", chromedp.Navigate(srv.URL))
	s.until(`globalThis.ended === true`)
	text := `document.querySelector('.ap-term').textContent`
	s.until(text + `.includes('THE END')`)
	s.is(text + `.includes('100%') && ` + text + `.includes('<b>data</b>') && !` + text + `.includes('BEFORE')`)
	s.is(`marks.join('|') === ` + fmt.Sprintf("%q", firstMark+"|"+secondMark))
	s.shot("45-another-player")
	s.clean()
}

// anotherPlayer installs the player into a directory of the test and returns
// where its files are.
func anotherPlayer(t *testing.T) string {
	t.Helper()
	dir := npmtest.Packages(t, filepath.Join("testdata", "asciinema"), "check recordings against another player")
	return filepath.Join(dir, "node_modules", "asciinema-player", "dist", "bundle")
}
