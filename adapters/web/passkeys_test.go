package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/store"
)

// drawer keeps no passkeys; db is where sessions are.
type drawer struct{ db store.DB }

func (drawer) Passkeys(_ context.Context, user string, _ []string) (mine, waiting []Passkey, err error) {
	return []Passkey{{ID: "1", Owner: user, Name: "phone\u202e"}}, nil, nil
}

func (drawer) BeginPasskey(_ context.Context, user string) (NewPasskey, error) {
	return NewPasskey{User: user}, nil
}

func (d drawer) AddPasskey(ctx context.Context, user, name string, _ json.RawMessage, invited func(tx store.Tx) bool) (k Passkey, err error) {
	if name == "" {
		return Passkey{}, RefusalError("A name, please.")
	}
	k = Passkey{ID: "2", Owner: user, Name: name}
	err = d.db.Update(ctx, func(tx store.Tx) error {
		if invited(tx) {
			k.By = "the link"
		}
		return nil
	})
	return k, err
}

func (drawer) AskPasskey(context.Context, string, []string, string) (chat.Signing, error) {
	return chat.Signing{}, nil
}

func (drawer) ConfirmPasskey(context.Context, string, []string, chat.Signed) (Passkey, error) {
	return Passkey{}, nil
}
func (drawer) EndPasskey(context.Context, string, string) error { return nil }

func TestAnOperatorsLinkLetsOnePasskeyInUnconfirmed(t *testing.T) {
	r := newRig(t)
	add := func(p *person) Passkey {
		t.Helper()
		got := p.do("POST", "/api/passkeys", `{"name":"phone","response":{}}`)
		var k Passkey
		if err := json.Unmarshal(got.body, &k); got.status != http.StatusCreated || err != nil {
			t.Fatalf("%d %s %v", got.status, got.body, err)
		}
		return k
	}
	plain := r.signIn("you")
	if k := add(plain); k.By != "" {
		t.Errorf("a usual link: %+v", k)
	}
	p := r.enter("you", PasskeyCode(testKey, "you", r.clock.now()))
	if k := add(p); k.By == "" {
		t.Errorf("the operator's link: %+v", k)
	}
	if k := add(p); k.By != "" {
		t.Errorf("the operator's link a second time: %+v", k)
	}
	if got := p.do("POST", "/api/passkeys", `{"name":"","response":{}}`); got.status != http.StatusConflict || !strings.Contains(string(got.body), "A name, please.") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("GET", "/api/passkeys", ""); got.status != http.StatusOK || strings.Contains(string(got.body), "\u202e") {
		t.Errorf("%d %s", got.status, got.body)
	}
}
