package e2e

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/cli/incident"
	"countersign/test/needstest"
)

var pictures = flag.Bool("pictures", false, "write docs/console.png and its like")

func chromium(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("chromium"); err == nil {
		return path
	}
	const how = "the demo is driven with chromium: apt-get install chromium"
	if os.Getenv("CI") == "true" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}

var link = regexp.MustCompile(`http://\S+/#code=\S+`)

// startDemo starts "bot demo" and returns its link; the demo ends with the test.
func startDemo(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(binary, "demo")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if u := link.FindString(sc.Text()); u != "" {
			go func() {
				for sc.Scan() { // the pipe must be read to its end
				}
			}()
			return u
		}
	}
	t.Fatal("the demo printed no link")
	return ""
}

// page is one thing done to the page.
type page = chromedp.Action[chromedp.Void]

func visible(css string) page { return chromedp.WaitVisible(chromedp.CSS(css)) }

// press clicks a card's button until the card takes it: the page refuses a
// press right after it scrolled by itself, so that nobody approves by accident.
func press(style string) page {
	button := chromedp.Click(chromedp.CSS(".card.open button[data-style=" + style + "]"))
	taken := chromedp.Poll[chromedp.Void](`!document.querySelector('.card.open button[data-style=`+style+`]:not(.busy)')`,
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(2*time.Second))
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		for range 5 {
			if v, err = button(ctx, t); err != nil {
				return v, err
			}
			if v, err = taken(ctx, t); err == nil {
				return v, nil
			}
		}
		return v, err
	}
}

func keys(css, text string) page { return chromedp.SendKeys(chromedp.CSS(css), text) }
func script(js string) page      { return chromedp.Evaluate[chromedp.Void]("void (" + js + ")") }
func until(js string) page {
	return chromedp.Poll[chromedp.Void](js, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(40*time.Second))
}

// TestDemo drives the demo as a newcomer would: open the link, send the
// message, watch reads run, reload while a card waits, approve it, see the
// model's lie beside the engine's word, deny, and read the end.
func TestDemo(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	browser := chromium(t)
	url := startDemo(t)
	opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...),
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	actx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(actx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	do := func(what string, steps ...page) {
		t.Helper()
		for _, st := range steps {
			if _, err := chromedp.Run(ctx, st); err != nil {
				text, _ := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
				t.Fatalf("%s: %v\n%s", what, err, text)
			}
		}
	}
	do("in front", inFront)
	read := func(css string) string {
		t.Helper()
		text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(css)))
		if err != nil {
			t.Fatalf("%s cannot be read: %v", css, err)
		}
		return text
	}
	picture := func(name string) {
		t.Helper()
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if *pictures {
			dir = filepath.Join("..", "..", "docs")
		}
		if err := os.WriteFile(filepath.Join(dir, name), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(level string) page {
		return until(`(document.querySelector('.card.open .chip.risk')?.textContent ?? '').includes('` + level + `') && !document.querySelector('.card.open button[data-style=approve]')?.disabled`)
	}
	do("log in by the link", chromedp.Navigate(url), visible("#text"))
	address, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(address, "code") {
		t.Errorf("the code stays in the address: %s", address)
	}
	do("send the message", keys("#text", incident.Opening+kb.Enter))
	do("the first card asks", open("medium"))
	picture("console.png")
	body := read("#log")
	for _, want := range []string{"exit 0", "over its quota"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q:\n%s", want, body)
		}
	}
	do("reload while it waits", chromedp.Reload(), visible(".card.open"), open("medium"))
	do("watch the terminal", visible("#term-toggle"), script(`document.querySelector('#term').hidden && document.querySelector('#term-toggle').click()`),
		until(`document.querySelector('#screen')?.textContent.includes('tail -n 3')`))
	picture("terminal.png")
	do("talk while it waits", keys("#text", "why?"+kb.Enter), until(`document.querySelector('#log').textContent.includes('The card is still open.')`), open("medium"))
	do("approve", press("approve"))
	do("the second card asks", open("high"))
	body = read(".card.open")
	if !strings.Contains(body, "The agent called this harmless. It deletes a whole directory.") {
		t.Errorf("the disagreement is not in words:\n%s", body)
	}
	picture("disagreement.png")
	do("deny with a reason", script(`[...document.querySelectorAll('.card.open .links button')].find((b) => b.textContent === 'More').click()`), keys(".card.open input.reason", "those are orders"), press("deny"))
	do("the plan asks", until(`[...document.querySelectorAll('.card.open button')].some((b) => b.textContent === 'Approve all 2' && !b.disabled)`))
	body = read(".card.open")
	for _, want := range []string{"Run 2 steps", "Change checkout.conf", "log_level = info", "touch run/reload"} {
		if !strings.Contains(body, want) {
			t.Errorf("the plan does not show %q:\n%s", want, body)
		}
	}
	picture("plan.png")
	do("approve all", press("approve"))
	do("the end", until(`document.querySelector('#log').textContent.includes('Checkout accepts orders again')`))
	body = read("#log")
	for _, want := range []string{"those are orders", "Right, the archive stays", "healthy: last order", "log level set back"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q:\n%s", want, body)
		}
	}
	do("take the change back", until(`document.querySelector('#log').textContent.includes('2 of 2 done')`),
		until(`[...document.querySelectorAll('.card button')].some((b) => b.textContent === 'Undo step 1' && !b.disabled)`),
		script(`[...document.querySelectorAll('.card button')].find((b) => b.textContent === 'Undo step 1').click()`),
		until(`(document.querySelector('.card.open')?.textContent ?? '').includes('log_level = debug')`))
	picture("undo.png")
	do("approve that", press("approve"), until(`[...document.querySelectorAll('.card.line')].some((c) => c.textContent.includes('Undo'))`))
	do("on a phone", chromedp.EmulateViewport(390, 844), script(`document.querySelector('#term').hidden || document.querySelector('#term-close').click()`))
	do("the list is out of the way", until(`document.querySelector('#side').getBoundingClientRect().right <= 0`))
	picture("phone.png")
	wide, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > document.documentElement.clientWidth`))
	if err != nil {
		t.Fatal(err)
	}
	if wide {
		t.Error("the page is wider than a phone")
	}
}
