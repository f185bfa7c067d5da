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
	"countersign/targets/certificate"
)

var approval = regexp.MustCompile(`^[a-z0-9]{10}$`)

// nonce is what a vote must hold to be fresh. It says when it was given, which only the signer can write.
func (c *Config) nonce(at time.Time) string {
	text := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte(text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

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

// judge decides about a request by nothing but the configuration, the signatures and the time: what it is
// entitled to, and who approved it. Its errors are sentences.
func (c *Config) judge(r certificate.Request, now time.Time) (certificate.Job, []string, error) {
	t, ok := c.Targets[r.Target]
	job := certificate.Job{Kind: r.Kind}
	switch {
	case !ok:
		return job, nil, fmt.Errorf("the signer doesn't know a target %q; add it to its configuration", clip(r.Target))
	case r.Kind == certificate.Watch:
		return job, nil, nil
	case !approval.MatchString(r.Approval) || r.Step < 0:
		return job, nil, errors.New("this is no name of a request")
	case r.Kind != certificate.Change && r.Kind != certificate.Follow:
		return job, nil, errors.New("the signer doesn't know this kind of certificate; update it")
	}
	if job.Name = certificate.Name(r.Approval, r.Step); r.Kind == certificate.Follow {
		return job, nil, nil
	}
	step, err := certificate.StepOf(r.Action, r.Step)
	if err != nil {
		return job, nil, err
	}
	a, err := certificate.ReadAction(step)
	switch {
	case err != nil:
		return job, nil, err
	case len(a.Steps) > 0:
		return job, nil, errors.New("a plan is run step by step")
	case a.Target != "ssh:"+r.Target+"#"+t.HostKey:
		return job, nil, fmt.Errorf("what was approved is for %s, and this host is ssh:%s#%s", clip(a.Target), r.Target, t.HostKey)
	case !slices.Contains(t.Users, a.User):
		return job, nil, fmt.Errorf("on %s nothing may run as %s", r.Target, a.User)
	}
	job.Digest = certificate.Digest(step)
	who, err := c.votes(r, t, now)
	return job, who, err
}

// votes returns who approved the request, or why that isn't enough.
func (c *Config) votes(r certificate.Request, t Target, now time.Time) ([]string, error) {
	digest := certificate.Digest(r.Action)
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
			return nil, fmt.Errorf("a vote is signed by a passkey that the signer doesn't know; if it is right, add it for %+q", clip(s.Owner))
		case s.Owner != consoleUser+k.owner:
			return nil, fmt.Errorf("a vote of %+q is signed by a passkey of %s", clip(s.Owner), k.owner)
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
	for _, n := range t.Approvals {
		have := len(slices.DeleteFunc(slices.Clone(n.Of), func(one string) bool { return !slices.Contains(who, one) }))
		if have < n.Count && glass == "" {
			return nil, fmt.Errorf("%d of %s must approve, and %d did", n.Count, strings.Join(n.Of, ", "), have)
		}
	}
	return who, nil
}

// consoleUser begins the names of people in what they sign: those of the console.
const consoleUser = "web:"
