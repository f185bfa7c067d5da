package report

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/store"
	"countersign/store/keyring"
)

// Sign signs a payload, and returns the signature and the id of its key.
type Sign func(ctx context.Context, payload []byte) (sig []byte, keyID string, err error)

// Signer signs with the key of a store's record, which its checkpoints are signed with, too.
func Signer(db store.DB) Sign {
	return func(ctx context.Context, payload []byte) ([]byte, string, error) {
		seed, err := keyring.SharedKey(ctx, db, audit.LogKey)
		if err != nil {
			return nil, "", err
		}
		key := ed25519.NewKeyFromSeed(seed)
		id := sha256.Sum256(key.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // it is one
		return ed25519.Sign(key, payload), hex.EncodeToString(id[:]), nil
	}
}

// The types of a statement (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md)
// in an envelope (https://github.com/secure-systems-lab/dsse/blob/master/envelope.md).
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	// changeType is that of the predicate, a change.
	changeType = "urn:countersign:change:v1"
)

type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     change    `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// change is the predicate.
type change struct {
	Request   string            `json:"request"`
	Incident  string            `json:"incident"` // the thread
	Action    string            `json:"action"`   // the digest that people approved
	Tool      string            `json:"tool"`
	Target    string            `json:"target"`
	User      string            `json:"user,omitempty"`
	Dir       string            `json:"dir,omitempty"`
	Command   string            `json:"command,omitempty"`
	Before    map[string]string `json:"before,omitempty"` // SHA-256 of the files that it depended on
	Approvers []string          `json:"approvers"`
	Signed    int               `json:"signed"` // approvals by passkey
	By        string            `json:"by,omitempty"`
	Policy    string            `json:"policy"`
	Rule      string            `json:"rule,omitempty"`
	Asked     time.Time         `json:"asked"`
	Ended     time.Time         `json:"ended,omitzero"`
	State     string            `json:"state"`
	Outcome   string            `json:"outcome,omitempty"`
}

// pae is what is signed of an envelope.
func pae(kind string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
}

// statements writes a signed statement for each change that ran.
func (e *exporter) statements() error {
	if e.parts.Sign == nil {
		return nil
	}
	for i := range e.inc.Records {
		r := &e.inc.Records[i]
		if r.State != approvals.Done && r.State != approvals.OutcomeUnknown {
			continue
		}
		payload, err := e.json(e.statement(r))
		if err != nil {
			return err
		}
		name := "statements/" + string(r.ID) + ".intoto.json"
		sig, id, err := e.parts.Sign(e.ctx, pae(payloadType, payload))
		if err != nil {
			e.leave("%s: it cannot be signed", name)
			continue
		}
		raw, err := json.Marshal(envelope{payloadType, payload, []signature{{id, sig}}})
		if err != nil {
			return err
		}
		err = e.add(name, maxLine, func(f *file) error {
			_, err := io.WriteString(f, string(raw)+"\n")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) statement(r *approvals.Record) statement {
	a := r.Action
	s := statement{Type: statementType, PredicateType: changeType, Predicate: change{
		Request: string(r.ID), Incident: string(r.Thread), Action: r.Digest.String(), Tool: a.Tool, Target: a.Target, User: a.User, Dir: a.Dir, Command: e.cleanCommand(shellText(a)),
		Approvers: []string{}, By: string(r.Basis.Kind), Policy: r.Policy, Rule: r.Rule, Asked: r.Created.UTC(), Ended: r.Ended, State: string(r.State), Outcome: e.clean(r.Outcome.Note),
	}}
	for _, v := range r.Votes {
		if v.Counts() {
			s.Predicate.Approvers = append(s.Predicate.Approvers, string(v.User.ID))
			if v.Passkey != nil {
				s.Predicate.Signed++
			}
		}
	}
	for name, sum := range a.Files {
		if raw, err := hex.DecodeString(sum); err == nil && len(raw) == sha256.Size {
			if s.Predicate.Before == nil {
				s.Predicate.Before = map[string]string{}
			}
			s.Predicate.Before[name] = sum
		}
	}
	// A file is its new content. Of anything else only what was done is known.
	s.Subject = []subject{{a.Target, map[string]string{"sha256": r.Digest.String()}}}
	if a.Kind == approvals.KindChange && a.Path != "" && len(a.Bytes) > 0 {
		sum := sha256.Sum256(a.Bytes)
		s.Subject = []subject{{a.Target + ":" + a.Path, map[string]string{"sha256": hex.EncodeToString(sum[:])}}}
	}
	return s
}

// shellText is the text of a command; a file's content is none.
func shellText(a approvals.Action) string {
	if a.Kind != approvals.KindShell {
		return ""
	}
	return string(a.Bytes)
}
