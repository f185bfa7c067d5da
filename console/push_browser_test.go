package console

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/chromedp"

	"countersign/console/api"
	"countersign/test/needstest"
)

// TestNotificationsInTheBrowser goes the way of a notification: a browser subscribes, its worker
// shows what came, and the page opens the card. No browser reaches its vendor's push service here,
// so the page's call for a subscription is answered by the local one, and what that got is handed
// to the worker.
func TestNotificationsInTheBrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk := &stage{}
	with, service, sender := pushing(t, desk)
	s := newScreenTest(t, with, func(c *Config) { c.Users = members("you") })
	s.in(launch(chromium(t))) // its own browser: a window beside others has no notifications
	var mu sync.Mutex
	var worker serviceworker.RegistrationID
	if err := chromedp.Listen(s.own, func(ev any) {
		if e, ok := ev.(*serviceworker.EventWorkerRegistrationUpdated); ok {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range e.Registrations {
				worker = r.RegistrationID
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	b := service.Subscribe(sender.PublicKey())
	raw, err := json.Marshal(b.Subscription())
	if err != nil {
		t.Fatal(err)
	}
	allow := func(setting cdpbrowser.PermissionSetting) step {
		return cmd(cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{Permission: &cdpbrowser.PermissionDescriptor{Name: "notifications"}, Setting: setting, Origin: s.url})
	}
	s.ask()
	s.do("watching the worker", cmd(serviceworker.Enable, cdp.Empty{}), allow("denied"))
	s.press("the dialog", "#settings")
	s.until(`document.querySelector('#settings-box').open && document.querySelector('#notify-state').textContent.includes('blocks notifications') && document.querySelector('#notify-here').disabled`)
	s.do("closing it", click("#settings-box .choices button"), allow("granted"))
	s.press("the dialog again", "#settings")
	s.until(`document.querySelector('#settings-box').open`)
	s.press("on, without a push service", "#notify-here")
	s.until(`document.querySelector('#notify-error').textContent.startsWith('The browser couldn’t subscribe: ')`)
	s.do("a push service", script(`{
		let sub = null;
		const make = () => ({ toJSON: () => (`+string(raw)+`), unsubscribe: async () => { sub = null; return true; } });
		PushManager.prototype.subscribe = async (o) => { if (o.applicationServerKey !== '`+sender.PublicKey()+`' || !o.userVisibleOnly) throw new Error('wrong key'); return sub = make(); };
		PushManager.prototype.getSubscription = async () => sub;
	}`))
	s.press("on", "#notify-here")
	s.until(`document.querySelector('#notify-here').textContent === 'Stop on this device' && document.querySelector('#notify-devices li').textContent.includes('(this one)')`)
	s.do("wishes", script(`{ const set = (id, v) => { document.getElementById(id).value = v; }; set('notify-least', 'medium'); set('notify-from', '22:00'); set('notify-to', '07:00'); document.getElementById('notify-sound').checked = true;
		document.getElementById('notify-from').dispatchEvent(new Event('change', { bubbles: true })); }`))
	s.until(`document.querySelector('#notify-kept').textContent === 'Saved.'`)
	s.shot("50-notifications")
	s.show(look{name: "phone", width: 390, height: 844, scheme: "dark"})
	s.is(`document.querySelector('#settings-box').scrollWidth <= document.querySelector('#settings-box').clientWidth`)
	s.shot("51-notifications-phone")
	s.show(looks[0])
	s.do("no quiet hours", script(`{ for (const id of ['notify-from', 'notify-to']) document.getElementById(id).value = ''; document.getElementById('notify-to').dispatchEvent(new Event('change', { bubbles: true })); }`))
	s.do("closing it", click("#settings-box .choices button"))

	now := time.Now()
	var cards []api.HomeCard
	for i := range 4 { // the one that is asked for is not the first
		c := *question()
		c.Title, c.Risk, c.Expires = fmt.Sprintf("Restart nginx on web-%d", i), "low risk", now.Add(time.Duration(i+5)*time.Minute)
		cards = append(cards, api.HomeCard{ID: fmt.Sprint("q", i), Thread: "slack:T1:C1:1.1", At: now.Add(-time.Minute), Card: c})
	}
	cards[3].Card.Risk = "high risk"
	desk.set(api.Home{Yours: cards})
	deadline := time.Now().Add(30 * time.Second)
	for len(b.Got()) == 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	got := b.Got()
	if len(got) != 1 || !strings.Contains(got[0].Body, "Restart nginx on web-3") || !strings.Contains(got[0].Body, `"sound":true`) {
		t.Fatalf("%+v", got)
	}
	s.until(`navigator.serviceWorker.controller !== null`)
	s.do("listing", script(`globalThis.shown = []; setInterval(async () => { globalThis.shown = await (await navigator.serviceWorker.ready).getNotifications(); }, 50)`))
	for try := 1; ; try++ { // a push service delivers again what a worker that just began missed
		s.do("it comes", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			mu.Lock()
			defer mu.Unlock()
			_, err := cdp.Call(ctx, t, serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{Origin: s.url, RegistrationID: worker, Data: got[0].Body})
			return err
		}))
		err := chromedp.Do(s.ctx, chromedp.Poll[chromedp.Void](`globalThis.shown.some((n) => n.title === 'Restart nginx on web-3' && n.body === 'high risk · Slack' && n.tag === 'q3' && n.data.card === 'q3' && !n.silent)`, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(15*time.Second)))
		if err == nil {
			break
		}
		if try == 3 {
			s.failed()
			t.Fatal(err)
		}
	}

	// The worker tells the page which card, as when the notification is pressed.
	s.do("pressing it", script(`navigator.serviceWorker.dispatchEvent(new MessageEvent('message', { data: { card: 'q3' } }))`))
	s.until(`document.activeElement.closest('[data-card=q3]') !== null`)
	s.is(`(() => { const b = document.querySelector('[data-card=q3] button[data-style=approve]').getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; })()`)
	s.shot("52-from-a-notification")
	s.show(look{name: "phone", width: 390, height: 844, scheme: "dark"})
	s.do("in a new window", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#c=q2"))
	s.until(`document.activeElement?.closest('[data-card=q2]') !== null && location.hash === ''`)
	s.is(`(() => { const b = document.querySelector('[data-card=q2] button[data-style=approve]').getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; })()`)
	s.shot("53-from-a-notification-phone")
	s.do("one that is decided", chromedp.Navigate(s.url+"/#c=gone"))
	s.until(`document.querySelector('#send-error').textContent === 'That card is decided already.'`)

	// It can be installed.
	s.do("installing", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		out, err := cdp.Call(ctx, t, cdppage.GetInstallabilityErrors, cdp.Empty{})
		for _, e := range out.InstallabilityErrors {
			if err == nil && e.ErrorID != "in-incognito" {
				err = fmt.Errorf("the page can't be installed: %s", e.ErrorID)
			}
		}
		return err
	}))
	s.clean()
}
