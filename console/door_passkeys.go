package console

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"countersign/adapters/chat"
	"countersign/console/display"
	"countersign/store"
)

// Passkeys keeps the passkeys that people sign approvals with. An error that wraps a [RefusalError] is
// for the person; its methods are safe for concurrent use.
type Passkeys interface {
	PasskeySignIn
	// Passkeys are the person's own and those of others that wait for a confirmation which this
	// person may give.
	Passkeys(ctx context.Context, user string, groups []string) (mine, waiting []Passkey, err error)
	// BeginPasskey is what their browser needs to make one.
	BeginPasskey(ctx context.Context, user string) (NewPasskey, error)
	// AddPasskey registers one. tx is given in to note in the same transaction what allowed it,
	// when the operator's link did.
	AddPasskey(ctx context.Context, user, name string, response json.RawMessage, invited func(tx store.Tx) bool) (Passkey, error)
	// AskPasskey is what the person signs to confirm somebody else's, and ConfirmPasskey takes it.
	AskPasskey(ctx context.Context, user string, groups []string, id string) (chat.Signing, error)
	ConfirmPasskey(ctx context.Context, user string, groups []string, signed chat.Signed) (Passkey, error)
	// EndPasskey removes one of the person's own.
	EndPasskey(ctx context.Context, user, id string) error
}

// PasskeySignIn signs people in with their passkeys. It is safe for concurrent use.
type PasskeySignIn interface {
	// SignInSite is the host that signs people in with passkeys, and what their device signs there
	// for a text that is good once.
	SignInSite(once string) (site string, challenge []byte)
	// Signed reports why no confirmed passkey has signed that. It only reads: anybody can ask.
	Signed(ctx context.Context, once string, response json.RawMessage) error
	// SignedIn returns the confirmed passkey with which a device has signed that, and notes its use.
	SignedIn(tx store.Tx, once string, response json.RawMessage) (Passkey, error)
	// Stands reports whether a person's passkey is registered still, and confirmed.
	Stands(tx store.Tx, user, id string) bool
}

// RefusalError is a sentence for the person who asked for what can't be done.
type RefusalError string

// Error implements error.
func (r RefusalError) Error() string { return string(r) }

// Passkey is a passkey as people see it.
type Passkey struct {
	ID    string    `json:"id"`
	Owner string    `json:"owner"` // by name
	Name  string    `json:"name"`
	Added time.Time `json:"added"`
	By    string    `json:"by,omitempty"` // who confirmed it; "" is nobody yet
	Used  time.Time `json:"used,omitzero"`
	// Print are the first digits of its digest, for people to compare and for countersign verify.
	Print string `json:"print"`
	// Signer is the line of the key for the signer's configuration, to its owner; "" where no target
	// asks the signer.
	Signer string `json:"signer,omitempty"`
}

// NewPasskey is what a browser needs to make a passkey.
type NewPasskey struct {
	Challenge  string   `json:"challenge"` // base64url
	Site       string   `json:"site"`
	Title      string   `json:"title"` // what the device shows as the site's name
	User       string   `json:"user"`
	Handle     string   `json:"handle"` // base64url
	Algorithms []int    `json:"algorithms"`
	Known      []string `json:"known"` // ids of those that the person has
}

// passkeys answers people about theirs.
type passkeys struct {
	ground
	passkeys Passkeys // nil: there are none
	sessions *sessions
	title    string
}

func shownPasskeys(list []Passkey) []Passkey {
	out := []Passkey{}
	for _, k := range list {
		k.Name, k.Owner = display.Text(k.Name), display.Text(k.Owner)
		out = append(out, k)
	}
	return out
}

func (ps *passkeys) list(w http.ResponseWriter, r *http.Request, s session) error {
	mine, waiting, err := ps.passkeys.Passkeys(r.Context(), s.user, s.groups)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"mine": shownPasskeys(mine), "waiting": shownPasskeys(waiting), "invited": s.invited})
}

func (ps *passkeys) begin(w http.ResponseWriter, r *http.Request, s session) error {
	n, err := ps.passkeys.BeginPasskey(r.Context(), s.user)
	if err != nil {
		return err
	}
	n.Title = ps.title
	return answer(w, http.StatusOK, n)
}

func (ps *passkeys) add(w http.ResponseWriter, r *http.Request, s session) error {
	var body struct {
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	k, err := ps.passkeys.AddPasskey(r.Context(), s.user, body.Name, body.Response, func(tx store.Tx) bool {
		row, ok := store.Load[sessionRow](tx, []byte(s.id))
		if !ok || !row.Invited {
			return false
		}
		row.Invited = false
		store.Save(tx, []byte(s.id), row)
		return true
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, shownPasskeys([]Passkey{k})[0])
}

func (ps *passkeys) ask(w http.ResponseWriter, r *http.Request, s session) error {
	o, err := ps.passkeys.AskPasskey(r.Context(), s.user, s.groups, r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, o)
}

func (ps *passkeys) confirm(w http.ResponseWriter, r *http.Request, s session) error {
	var body chat.Signed
	if err := read(w, r, &body); err != nil {
		return err
	}
	k, err := ps.passkeys.ConfirmPasskey(r.Context(), s.user, s.groups, body)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, shownPasskeys([]Passkey{k})[0])
}

func (ps *passkeys) end(w http.ResponseWriter, r *http.Request, s session) error {
	id := r.PathValue("id")
	if err := ps.passkeys.EndPasskey(r.Context(), s.user, id); err != nil {
		return err
	}
	return ps.sessions.end(w, r, s, "their passkey was removed", func(_ []byte, row sessionRow) bool { return row.Passkey == id })
}
