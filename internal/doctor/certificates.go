package doctor

import (
	"context"
	"slices"
	"strings"

	"countersign/bot/machines"
	"countersign/signer/enroll"
)

// certificates compares what a host trusts with what the signer signs with. That certificates to look
// are taken was seen when it was reached.
func (p *targetCheck) certificates(ctx context.Context) result {
	signer, err := machines.Signer(p.m.Options())
	if err != nil {
		return fails("%v", err)
	}
	keys, err := signer.Authorities(ctx)
	if err != nil {
		return fails("%v", err)
	}
	again := "bot target enroll " + p.m.Name + " --install root@HOST"
	raw, err := p.m.Target.FS().ReadFile(ctx, enroll.Authorities, 64<<10)
	if err != nil {
		return warns("the authorities that it trusts can't be read (%v)", err).withFix("%s", again)
	}
	var trusted []string
	for l := range strings.Lines(string(raw)) {
		if l = strings.TrimSpace(l); l != "" {
			trusted = append(trusted, l)
		}
	}
	for _, k := range keys {
		if !slices.Contains(trusted, k) {
			return fails("it doesn't trust an authority of the signer").withFix("%s", again)
		}
	}
	for _, k := range trusted {
		if !slices.Contains(keys, k) {
			return warns("it still trusts an authority that the signer no longer has").withFix("%s", again)
		}
	}
	if _, err := p.m.Target.FS().Stat(ctx, enroll.Runner); err != nil {
		return fails("the runner isn't there (%v)", err).withFix("%s", again)
	}
	return fine("approved commands run as %s, each with its own certificate", p.m.Config.RunAs)
}
