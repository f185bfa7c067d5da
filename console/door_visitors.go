package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"countersign/store"
)

// What an [Access] is about.
const (
	SignedIn       = "signed in"
	SignInRefused  = "sign-in refused"
	SignedOut      = "signed out" // by the person, or because the session was over
	WatchLinkMade  = "watch link made"
	WatchLinkUsed  = "watch link used" // from an address that had not used it before
	WatchLinkEnded = "watch link ended"
	TokenMade      = "token made"
	TokenEnded     = "token ended" // by the person, or because it was over
)

// How somebody came in.
const (
	byLink  = "link"
	byOIDC  = "oidc"
	byWatch = "watch link"
	// byPasskey is a passkey that its owner's device has proved to have.
	byPasskey = "passkey"
)

// Access is one thing that happened at the console's door.
type Access struct {
	What string `json:"what"` // one of the constants of this package
	// Name is the person: who signed in or out, who made or ended a link. It is
	// empty where nobody proved a name: most refusals, uses of a link, and links
	// that were over.
	Name    string    `json:"name,omitempty"`
	How     string    `json:"how,omitempty"` // "link" (a sign-in code), "oidc", "passkey" or "watch link"
	Address string    `json:"address"`       // where the request came from, see [DoorConfig.Proxies]
	Agent   string    `json:"agent,omitempty"`
	Note    string    `json:"note,omitempty"` // more, for people: at most a sentence
	At      time.Time `json:"at"`
}

const (
	maxAgent = 200 // bytes that are kept of what a browser calls itself
	// Refused sign-ins are written to the store, and anybody can have one.
	refusalsBurst = 30
	refusalsEvery = 2 * time.Second
)

// visitor is where a request comes from, as an [Access] shows it.
type visitor struct{ address, agent string }

// visitors tells where requests come from, and puts into the audit who comes and goes.
type visitors struct {
	ground
	proxies      []netip.Prefix
	audit        func(store.Tx, Access) // nil: there is none
	refusals     *refusals
	loginsByAddr *limiter // attempts with no right code
}

func (vs *visitors) visitor(r *http.Request) visitor {
	agent := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, r.UserAgent())
	if len(agent) > maxAgent {
		agent = agent[:maxAgent]
	}
	return visitor{vs.address(r), strings.ToValidUTF8(agent, "")}
}

// mayTry counts an attempt with no right code.
func (vs *visitors) mayTry(v visitor) bool { return vs.loginsByAddr.allow(neighbourhood(v.address)) }

// record puts x into the audit, in tx.
func (vs *visitors) record(tx store.Tx, v visitor, x Access) {
	if vs.audit == nil {
		return
	}
	x.Address, x.Agent, x.At = v.address, v.agent, vs.now().UTC()
	vs.audit(tx, x)
}

// recordRefusal puts a refused sign-in into the audit, in a transaction of its
// own. Those that come too fast are counted and told with the next one.
func (vs *visitors) recordRefusal(ctx context.Context, v visitor, name, how, why string) {
	if vs.audit == nil {
		return
	}
	missed, ok := vs.refusals.take(vs.now())
	if !ok {
		return
	}
	if missed > 0 {
		why += fmt.Sprintf(" (and %d more refusals that are not listed)", missed)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := vs.db.Update(ctx, func(tx store.Tx) error {
		vs.record(tx, v, Access{What: SignInRefused, Name: name, How: how, Note: why})
		return nil
	})
	if err != nil {
		vs.log.ErrorContext(ctx, "a refused sign-in is not in the audit", "error", err)
	}
}

// refusals lets some through and counts the others.
type refusals struct {
	mu     sync.Mutex
	pace   *rate.Limiter
	missed int
}

func newRefusals() *refusals {
	return &refusals{pace: rate.NewLimiter(rate.Every(refusalsEvery), refusalsBurst)}
}

func (f *refusals) take(now time.Time) (missed int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pace.AllowN(now, 1) {
		f.missed++
		return 0, false
	}
	missed, f.missed = f.missed, 0
	return missed, true
}

// address is where a request came from. Proxies that are known to be ours write
// it into X-Forwarded-For, each at the right end; what is left of the first
// address that is none of theirs was written by somebody who may lie.
func (vs *visitors) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host // not a network address, as with a Unix socket
	}
	at = plain(at)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !vs.ownProxy(at) {
			break
		}
		next, ok := parseHop(hop)
		if !ok {
			break
		}
		at = next
	}
	return at.String()
}

func (vs *visitors) ownProxy(at netip.Addr) bool {
	return slices.ContainsFunc(vs.proxies, func(p netip.Prefix) bool { return p.Contains(at) })
}

// parseHop reads one entry of X-Forwarded-For; some proxies add the port.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if at, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return plain(at), true
	}
	at, err := netip.ParseAddrPort(s)
	return plain(at.Addr()), err == nil
}

func plain(at netip.Addr) netip.Addr { return at.Unmap().WithZone("") }

// neighbourhood is what one visitor can easily have many addresses of: the
// network of an IPv6 address.
func neighbourhood(address string) string {
	if at, err := netip.ParseAddr(address); err == nil && at.Is6() {
		if p, err := at.Prefix(64); err == nil {
			return p.String()
		}
	}
	return address
}
