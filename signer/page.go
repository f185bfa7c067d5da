package signer

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"countersign/approvals/passkey"
	"countersign/signer/wire"
)

// The page on which people sign is drawn from the action that they sign, so whoever has taken over the
// bot can't show them another one.

const (
	askLife   = 10 * time.Minute
	maxAsks   = 8         // open links of one person: a flood ends that person's oldest, and nobody else's
	maxAction = 256 << 10 // bytes; a card that the bot can show whole is shorter
)

//go:embed page
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"visible": visible,
	"row":     func(name string, value any) any { return struct{ Name, Value any }{name, value} },
	"host": func(target string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(target, "ssh:"), "#")
		return name
	},
	"runs": func(a wire.Action) bool { return a.Env["process"] == wire.Environment },
}).ParseFS(files, "page/page.html"))

// ask is what somebody is asked to sign, for as long as its link lives.
type ask struct {
	passkey.Statement
	Action          wire.Action
	Steps           []wire.Action // of a plan
	Keys            map[string][]byte
	Challenge, Site string
	Console         string // where the signature goes, and the person with it
	until           time.Time
}

// ask keeps what the bot wants somebody to sign, and returns the link to it.
func (s *Signer) ask(r wire.Ask) (wire.Reply, error) {
	now := s.now()
	if s.c.Origin == "" {
		return wire.Reply{Nonce: s.c.nonce(now)}, nil
	}
	st, err := passkey.Decode(r.Statement)
	if err != nil {
		return wire.Reply{}, err
	}
	a := &ask{Statement: st, Keys: map[string][]byte{}, Site: s.c.site.ID, Console: s.c.console.Origin, until: now.Add(min(askLife, s.c.Within))}
	if a.Action, a.Steps, err = whole(r.Action); err != nil {
		return wire.Reply{}, err
	}
	for id, k := range s.c.keys {
		if consoleUser+k.owner == st.Owner {
			a.Keys[id] = k.public
		}
	}
	switch {
	case len(a.Keys) == 0:
		return wire.Reply{}, fmt.Errorf("%+q has no passkey at the signer; make one at %s/register, and have its line added to the signer's configuration", clip(st.Owner), s.c.site.Origin)
	case st.For != passkey.ForApprove && st.For != passkey.ForGlass || !approval.MatchString(st.Request):
		return wire.Reply{}, errors.New("this is no request to approve something")
	case len(r.Action)+len(r.Statement) > maxAction:
		return wire.Reply{}, errors.New("this is too long to be read on the signer's page; put it into a script on the host")
	}
	a.Digest, a.Nonce, a.At, a.Fresh = wire.Digest(r.Action), rand.Text(), now.UTC(), s.c.nonce(now)
	encoded := a.Encode()
	a.Challenge = base64.RawURLEncoding.EncodeToString(passkey.Challenge(encoded))
	s.mu.Lock()
	defer s.mu.Unlock()
	open := append(slices.DeleteFunc(s.asks[a.Owner], func(a *ask) bool { return !now.Before(a.until) }), a)
	s.asks[a.Owner] = open[max(0, len(open)-maxAsks):]
	return wire.Reply{Origin: s.c.site.Origin, Link: s.c.site.Origin + "/sign/" + a.Nonce, Statement: encoded, Keys: a.Keys}, nil
}

// whole reads an action and its steps. It must be byte for byte what its fields say, so that none is drawn
// to nobody, or read in two ways.
func whole(raw []byte) (a wire.Action, steps []wire.Action, err error) {
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

// show answers with the page of a link, or with the one on which a passkey is made.
func (s *Signer) show(w http.ResponseWriter, r *http.Request) {
	page, data, link := "register", any(s.c.site.ID), r.PathValue("link")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
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
	if page == "over" {
		w.WriteHeader(http.StatusNotFound)
	}
	_ = pages.ExecuteTemplate(w, page, data) // who asked may have left
}

// visible is foreign text as HTML. What a reader wouldn't see for what it is stands there by its number.
func visible(v any) template.HTML {
	s := fmt.Sprintf("%s", v)
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			fmt.Fprintf(&b, "<mark>\\x%02x</mark>", s[i])
		case r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == 0x2800 || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			fmt.Fprintf(&b, "<mark>U+%04X</mark>", r)
		default:
			b.WriteString(template.HTMLEscapeString(string(r)))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each of its characters is escaped
}
