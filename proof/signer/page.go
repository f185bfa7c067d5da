package signer

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"countersign/approvals/passkey"
	"countersign/targets/certificate"
)

// The page on which people sign is drawn from the action that they sign, so whoever has taken over the
// bot can't show them another one.

const (
	askLife   = 10 * time.Minute
	maxAsks   = 8         // open links of one person: a flood ends that person's oldest, and nobody else's
	maxAction = 256 << 10 // bytes; a card that the bot can show whole is shorter
)

// Draw writes a page of proof/signer/page, or a file of it, to a browser.
type Draw func(w io.Writer, name string, data any) error

// ask is what somebody is asked to sign, for as long as its link lives.
type ask struct {
	passkey.Statement
	Action          certificate.Action
	Steps           []certificate.Action // of a plan
	Keys            map[string][]byte
	Challenge, Site string
	Console         string // where the signature goes, and the person with it
	until           time.Time
}

// ask keeps what the bot wants somebody to sign, and returns the link to it.
func (s *Signer) ask(r certificate.Ask) (certificate.Reply, error) {
	now := s.now()
	if s.c.Origin == "" {
		return certificate.Reply{Nonce: s.c.nonce(now)}, nil
	}
	st, err := passkey.Decode(r.Statement)
	if err != nil {
		return certificate.Reply{}, err
	}
	a := &ask{Statement: st, Keys: map[string][]byte{}, Site: s.c.site.ID, Console: s.c.console.Origin, until: now.Add(min(askLife, s.c.Within))}
	if a.Action, a.Steps, err = whole(r.Action); err != nil {
		return certificate.Reply{}, err
	}
	for id, k := range s.c.keys {
		if consoleUser+k.owner == st.Owner {
			a.Keys[id] = k.public
		}
	}
	switch {
	case len(a.Keys) == 0:
		return certificate.Reply{}, fmt.Errorf("%+q has no passkey at the signer; make one at %s/register, and have its line added to the signer's configuration", clip(st.Owner), s.c.site.Origin)
	case st.For != passkey.ForApprove && st.For != passkey.ForGlass || !approval.MatchString(st.Request):
		return certificate.Reply{}, errors.New("this is no request to approve something")
	case len(r.Action)+len(r.Statement) > maxAction:
		return certificate.Reply{}, errors.New("this is too long to be read on the signer's page; put it into a script on the host")
	}
	a.Digest, a.Nonce, a.At, a.Fresh = certificate.Digest(r.Action), rand.Text(), now.UTC(), s.c.nonce(now)
	encoded := a.Encode()
	a.Challenge = base64.RawURLEncoding.EncodeToString(passkey.Challenge(encoded))
	s.mu.Lock()
	defer s.mu.Unlock()
	open := append(slices.DeleteFunc(s.asks[a.Owner], func(a *ask) bool { return !now.Before(a.until) }), a)
	s.asks[a.Owner] = open[max(0, len(open)-maxAsks):]
	return certificate.Reply{Origin: s.c.site.Origin, Link: s.c.site.Origin + "/sign/" + a.Nonce, Statement: encoded, Keys: a.Keys}, nil
}

// whole reads an action and its steps. It must be byte for byte what its fields say, so that none is drawn
// to nobody, or read in two ways.
func whole(raw []byte) (a certificate.Action, steps []certificate.Action, err error) {
	err = json.Unmarshal(raw, &a)
	if again, bad := json.Marshal(a); err != nil || bad != nil || !bytes.Equal(again, raw) {
		return a, nil, errors.New("the action can't be read; update the bot or the signer")
	}
	for _, r := range a.Steps {
		step, within, err := whole(r)
		if err != nil || len(within) > 0 {
			return a, nil, cmp.Or(err, errors.New("a step of a plan is no plan"))
		}
		steps = append(steps, step)
	}
	return a, steps, nil
}

// show answers with the page of a link, or with another one.
func (s *Signer) show(w http.ResponseWriter, r *http.Request) {
	link, data := r.PathValue("link"), any(s.c.site.ID)
	page := strings.TrimPrefix(r.URL.Path, "/")
	if link != "" {
		page, data = "over", nil
		s.mu.Lock()
		for _, a := range slices.Concat(slices.Collect(maps.Values(s.asks))...) {
			if a.Nonce == link && s.now().Before(a.until) {
				page, data = "sign", a
			}
		}
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(page)), "text/html; charset=utf-8"))
	if page == "over" {
		w.WriteHeader(http.StatusNotFound)
	}
	_ = s.draw(w, page, data) // who asked may have left
}
