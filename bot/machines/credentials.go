package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"countersign/approvals"
	"countersign/proof/signer/client"
	"countersign/store"
	"countersign/targets/certificate"
)

// credentials gets the certificates of one target: it shows the signer what people's devices signed.
type credentials struct {
	target string
	db     store.DB
	signer *client.Client
}

func newCredentials(target string, o *Options) (*credentials, error) {
	signer, err := Signer(o)
	return &credentials{target: target, db: o.DB, signer: signer}, err
}

// Signer is the client of the configured signer.
func Signer(o *Options) (*client.Client, error) {
	file := o.Env.Beside(o.File.Signer.TokenFile)
	return client.New(o.File.Signer.URL, func() (string, error) {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("the token of the signer can't be read: %w", err)
		}
		return strings.TrimSpace(string(raw)), nil
	})
}

// Watch implements ssh.Credentials.
func (c *credentials) Watch(ctx context.Context, key string) (string, error) {
	return c.signer.Issue(ctx, certificate.Request{Kind: certificate.Watch, Target: c.target, Key: key})
}

// Follow implements ssh.Credentials.
func (c *credentials) Follow(ctx context.Context, approval, key string) (string, error) {
	voted, step, err := c.voted(ctx, approval)
	if err != nil {
		return "", err
	}
	return c.signer.Issue(ctx, certificate.Request{Kind: certificate.Follow, Target: c.target, Key: key, Approval: string(voted.ID), Step: step})
}

// Change implements ssh.Credentials.
func (c *credentials) Change(ctx context.Context, approval, key string) (string, []byte, error) {
	voted, step, err := c.voted(ctx, approval)
	if err != nil {
		return "", nil, err
	}
	r := certificate.Request{Kind: certificate.Change, Target: c.target, Key: key, Approval: string(voted.ID), Step: step}
	if r.Action, err = json.Marshal(voted.Action); err != nil {
		return "", nil, err
	}
	for _, v := range voted.Votes {
		if v.Counts() && v.Passkey != nil {
			r.Votes = append(r.Votes, certificate.Vote{Statement: v.Passkey.Statement, Response: v.Passkey.Response})
		}
	}
	action, err := certificate.StepOf(r.Action, step)
	if err != nil {
		return "", nil, err
	}
	cert, err := c.signer.Issue(ctx, r)
	return cert, action, err
}

// voted returns the request that people voted on for an approval, and which of its steps that is.
func (c *credentials) voted(ctx context.Context, approval string) (r approvals.Record, step int, err error) {
	id := approvals.ID(approval)
	err = c.db.View(ctx, func(tx store.Tx) error {
		var ledger approvals.Ledger
		var ok bool
		if r, ok = ledger.Get(tx, id); ok && r.Basis.Kind == approvals.ByPlan {
			step = r.Basis.Step
			r, ok = ledger.Get(tx, r.Basis.Of)
		}
		if !ok {
			return fmt.Errorf("there is no request %s, so there is no certificate for it", approval)
		}
		return nil
	})
	return r, step, err
}
