package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/bot/machines"
	"countersign/proof/signer/enroll"
	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// certificates compares what a host trusts with what the signer signs with. That certificates to look
// are taken was seen when it was reached.
func (p *targetCheck) certificates(ctx context.Context) result {
	signer, err := machines.Signer(p.m.Options())
	if err != nil {
		return fails("%v", err)
	}
	state, err := signer.State(ctx)
	if err != nil {
		return fails("%v", err)
	}
	keys := state.Authorities
	again := "on the signer's machine, countersign-signer enroll " + p.m.Name + "; then run its script on the host"
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
	if ways, err := p.ways(ctx); len(ways) > 0 {
		return fails("%s", strings.Join(ways, "; ")).withFix("%s", again)
	} else if err != nil {
		return warns("what the read-only account may do there can't be told (%v)", err)
	}
	return fine("approved commands run as %s, each with its own certificate", p.m.Config.RunAs)
}

// signatures says on which page people sign.
func (p *targetCheck) signatures(ctx context.Context) result {
	signer, err := machines.Signer(p.m.Options())
	if err != nil {
		return fails("%v", err)
	}
	state, err := signer.State(ctx)
	if err != nil {
		return fails("%v", err)
	}
	if state.Origin == "" {
		return fine("people sign in the console, where a bot that was taken over could show them another command; origin in signer.yaml gives the signer its own page")
	}
	if err := page(ctx, state.Origin); err != nil {
		return warns("people sign at %s, which can't be reached from here (%v)", state.Origin, err).withFix("let people's browsers reach it, or correct origin in signer.yaml")
	}
	return fine("people sign at %s, which the signer serves", state.Origin)
}

// page reports whether the signer's page answers at its address.
func page(ctx context.Context, origin string) error {
	ctx, stop := context.WithTimeout(ctx, pageTimeout)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/register", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err == nil && (answer.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("Countersign signer"))) {
		return fmt.Errorf("something else answers at %s (%s)", origin, answer.Status)
	}
	return err
}

const pageTimeout = 10 * time.Second

// outside says in lines what lets the read-only account do something outside of its lock.
const outside = `u=$(id -un) n=$(id -u)
for g in $(id -Gn); do case " $1 " in *" $g "*) echo "the read-only account is in the group $g, which can change the system" ;; esac; done
grep -q '^Seccomp:.*2' /proc/self/status || echo "the read-only account's commands run without their lock"
[ ! -e "/var/lib/systemd/linger/$u" ] || echo "the read-only account has services of its own (loginctl enable-linger)"
if [ -d /run/systemd/system ] && [ "$(readlink "/etc/systemd/system/user@$n.service")" != /dev/null ]; then echo "the read-only account may have services of its own (user@$n.service isn't masked)"; fi
for p in /proc/[0-9]*; do
  grep -qs "^Uid:[[:space:]]*$n[[:space:]]" "$p/status" && grep -q '^Seccomp:[[:space:]]*0' "$p/status" || continue
  case $(cat "$p/comm" 2>/dev/null) in sshd* | countersign-run*) ;; ?*) echo "a process of the read-only account runs outside of its lock ($(cat "$p/comm"))" ;; esac
done`

// ways are what opens a host that takes certificates beside them: services of the read-only account, and
// keys of the bot.
func (p *targetCheck) ways(ctx context.Context) ([]string, error) {
	var out bytes.Buffer
	c, err := door.Start(ctx, p.m.Target, door.Look, nil, backend.Spec{Argv: []string{"sh", "-c", outside, "sh", enroll.Groups}, Dir: "/", Stdout: &out})
	if err != nil {
		return nil, err
	}
	if _, err := c.Wait(); err != nil {
		return nil, err
	}
	var ways []string
	for l := range strings.Lines(out.String()) {
		ways = append(ways, strings.TrimSpace(l))
	}
	users, err := p.m.OpenedBy(ctx)
	for _, user := range users {
		ways = append(ways, "a key of the bot logs in as "+user+" without any certificate")
	}
	return ways, err
}
