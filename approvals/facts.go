package approvals

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"countersign/store"
)

// facts are what a request stood on beside its action, without a text that could have a secret. The
// names of its members are those of a Record, so that who has the record can calculate its hash.
type facts struct {
	ID        ID        `json:"id"`
	Thread    string    `json:"thread"`
	Requester person    `json:"requester"`
	Created   time.Time `json:"created"`
	Level     string    `json:"level"`
	Require   struct {
		Needs []need `json:"needs,omitempty"`
		Proof string `json:"proof"`
	} `json:"require"`
	Votes []ballot `json:"votes,omitempty"`
	Basis struct {
		Kind BasisKind `json:"kind"`
		Of   ID        `json:"of"`
	} `json:"basis"`
	Place struct {
		Target     string `json:"target"`
		Env        string `json:"env"`
		Production bool   `json:"production"`
	} `json:"place"`
}

type (
	person struct {
		ID string `json:"id"`
	}
	need struct {
		Count int `json:"count"`
	}
	ballot struct {
		User    person    `json:"user"`
		Approve bool      `json:"approve"`
		At      time.Time `json:"at"`
		Meets   []int     `json:"meets,omitempty"`
		Glass   bool      `json:"glass"`
	}
)

// Facts is the hash of who asked when and where, what it needed, who voted and what approved it, for the
// chain of decisions.
func (r Record) Facts() string {
	f := facts{ID: r.ID, Thread: string(r.Thread), Requester: person{string(r.Requester.ID)}, Created: r.Created, Level: r.Level}
	f.Require.Proof = r.Require.Proof
	for _, n := range r.Require.Needs {
		f.Require.Needs = append(f.Require.Needs, need{n.Count})
	}
	for _, v := range r.Votes {
		f.Votes = append(f.Votes, ballot{person{string(v.User.ID)}, v.Approve, v.At, v.Meets, v.Glass})
	}
	f.Basis.Kind, f.Basis.Of = r.Basis.Kind, r.Basis.Of
	f.Place.Target, f.Place.Env, f.Place.Production = r.Place.Target, r.Place.Env, r.Place.Production
	raw, err := json.Marshal(f)
	if err != nil {
		store.Abort(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
