package doctor

import (
	"context"
	"fmt"
	"net/http"

	"countersign/adapters/chat/network"
	"countersign/bot/networks"
	"countersign/config"
)

// again is the fix of what a network said that needs no other.
const again = "correct that and run bot doctor again"

// networks runs the checks of each network that has one of its secrets.
func (d *doctor) networks(ctx context.Context, e config.Env, f config.File) error {
	for _, a := range networks.Accounts(e, f) {
		if err := d.network(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (d *doctor) network(ctx context.Context, a networks.Account) error {
	live := a.Live != nil && a.Scheme == a.Kind && d.live != ""
	if a.Missing() {
		if live {
			d.print(a.Scheme+" live", fails("%s is not set", a.Token).withFix("set the app up first: bot %s manifest", a.Kind))
		} else {
			d.print(a.Scheme, skips("%s is not set", a.Token))
		}
		return nil
	}
	look := networks.Look{
		Running:   d.running,
		Transport: d.clocks.wrap(http.DefaultTransport), // which heeds the environment's proxy, as the bot's own does
	}
	before := d.report.count["FAIL"]
	for _, c := range a.Checks(a, look) {
		err := d.do(ctx, check{name: a.Says(c.Name), run: func(ctx context.Context) result {
			o := c.Run(ctx)
			return fromNetwork(network.Outcome{Result: o.Result, Text: a.Says(o.Text)})
		}})
		if err != nil {
			return err
		}
	}
	switch {
	case !live:
		return nil
	case d.report.count["FAIL"] > before:
		d.print(a.Scheme+" live", skips("repair what failed on %s first", a.Title))
		return nil
	}
	return d.do(ctx, check{name: a.Scheme + " live", limit: liveLimit, loud: true, run: func(ctx context.Context) result {
		return fromNetwork(a.Live(ctx, a, look, d.live, func(s string) {
			_, _ = fmt.Fprintf(d.alive, "...  %s live: %s\n", a.Scheme, s)
		}))
	}})
}

// fromNetwork is what a network's own check said. What needs no fix stays one text.
func fromNetwork(o network.Outcome) result {
	switch o.Result {
	case network.Failed:
		return fromSentence("FAIL", o.Text, again)
	case network.Noted:
		return fromSentence("warn", o.Text, "")
	case network.Skipped:
		return result{label: "skip", text: o.Text}
	case network.Passed:
	}
	return result{label: "ok", text: o.Text}
}
