package signer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/approvals/passkey"
	"countersign/signer/wire"
)

// verdict is what a request is entitled to.
type verdict struct {
	job       wire.Job
	target    string
	principal string
	from      []string
	who       []string // approved it
}

var approval = regexp.MustCompile(`^[a-z0-9]{10}$`)

// nonce is what a vote must hold to be fresh. It says when it was given, which only the signer can write.
func (c *Config) nonce(at time.Time) string {
	text := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte(text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

// Nonce is one of now.
func (s *Signer) Nonce() string { return s.c.nonce(s.now()) }

// fresh reports whether a nonce is the signer's, and not too old by the signer's own clock.
func (c *Config) fresh(nonce string, now time.Time) bool {
	text, _, _ := strings.Cut(nonce, ".")
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !hmac.Equal([]byte(c.nonce(time.Unix(at, 0))), []byte(nonce)) {
		return false
	}
	age := now.Sub(time.Unix(at, 0))
	return age > -time.Second && age <= c.Within
}

// judge decides about a request by nothing but the configuration, the signatures and the time. Its
// errors are sentences.
func (c *Config) judge(r wire.Request, now time.Time) (verdict, error) {
	t, ok := c.Targets[r.Target]
	if !ok {
		return verdict{}, fmt.Errorf("the signer doesn't know a target %q; add it to its configuration", clip(r.Target))
	}
	v := verdict{job: wire.Job{Kind: r.Kind}, target: r.Target, principal: Principal(r.Target, r.Kind), from: t.From}
	if r.Kind == wire.Watch {
		return v, nil
	}
	if !approval.MatchString(r.Approval) || r.Step < 0 {
		return verdict{}, errors.New("this is no name of a request")
	}
	v.job.Name = wire.Name(r.Approval, r.Step)
	if r.Kind == wire.Follow {
		return v, nil
	}
	if r.Kind != wire.Change {
		return verdict{}, errors.New("the signer doesn't know this kind of certificate; update it")
	}
	step, err := wire.StepOf(r.Action, r.Step)
	if err != nil {
		return verdict{}, err
	}
	a, err := wire.ReadAction(step)
	if err != nil {
		return verdict{}, err
	}
	switch {
	case len(a.Steps) > 0:
		return verdict{}, errors.New("a plan is run step by step")
	case a.Target != "ssh:"+r.Target+"#"+t.HostKey:
		return verdict{}, fmt.Errorf("what was approved is for %s, and this host is ssh:%s#%s", clip(a.Target), r.Target, t.HostKey)
	case !slices.Contains(t.Users, a.User):
		return verdict{}, fmt.Errorf("on %s nothing may run as %s", r.Target, a.User)
	}
	v.job.Digest = wire.Digest(step)
	if v.who, err = c.votes(r, t, now); err != nil {
		return verdict{}, err
	}
	return v, nil
}

// Principal is the name in a certificate that lets somebody into an account of a host.
func Principal(target string, kind wire.Kind) string {
	if kind == wire.Watch {
		return "countersign-watch:" + target
	}
	return "countersign-change:" + target
}

// maxVotes bounds the votes of a request.
const maxVotes = 20

// votes returns who approved the request, or why that isn't enough.
func (c *Config) votes(r wire.Request, t Target, now time.Time) ([]string, error) {
	if len(r.Votes) > maxVotes {
		return nil, fmt.Errorf("a request has at most %d votes", maxVotes)
	}
	digest := wire.Digest(r.Action)
	var who []string
	glass := ""
	for _, vote := range r.Votes {
		s, err := passkey.Decode(vote.Statement)
		if err != nil {
			return nil, err
		}
		k, known := c.keys[passkey.KeyOf(vote.Response)]
		switch {
		case !known:
			return nil, fmt.Errorf("a vote is signed by a passkey that the signer doesn't know; if it is right, add it for %s", printable(s.Owner))
		case s.Owner != consoleUser+k.owner:
			return nil, fmt.Errorf("a vote of %s is signed by a passkey of %s", printable(s.Owner), k.owner)
		case s.For != passkey.ForApprove && s.For != passkey.ForGlass, s.Request != r.Approval, s.Digest != digest:
			return nil, fmt.Errorf("%s signed something else", k.owner)
		case !c.fresh(s.Fresh, now):
			return nil, fmt.Errorf("the vote of %s is older than %s, or wasn't asked for by the signer; ask again", k.owner, c.Within)
		case slices.Contains(who, k.owner):
			return nil, fmt.Errorf("%s voted twice", k.owner)
		}
		p := passkey.Proof{Statement: vote.Statement, Response: vote.Response, Site: c.site, KeyID: passkey.KeyOf(vote.Response), Public: k.public}
		if _, err := p.Check(); err != nil {
			return nil, fmt.Errorf("the vote of %s: %w", k.owner, err)
		}
		who = append(who, k.owner)
		if s.For == passkey.ForGlass && slices.Contains(t.BreakGlass, k.owner) {
			glass = k.owner
		}
	}
	if glass != "" {
		return who, nil
	}
	for _, n := range t.Approvals {
		have := 0
		for _, one := range n.Of {
			if slices.Contains(who, one) {
				have++
			}
		}
		if have < n.Count {
			return nil, fmt.Errorf("%d of %s must approve, and %d did", n.Count, strings.Join(n.Of, ", "), have)
		}
	}
	return who, nil
}

// consoleUser begins the names of people in what they sign: those of the console.
const consoleUser = "web:"

// printable is a foreign name without what a terminal obeys.
func printable(s string) string {
	for _, r := range clip(s) {
		if r < ' ' || r > '~' {
			return hex.EncodeToString([]byte(clip(s)))
		}
	}
	return clip(s)
}
