// Package certificate is what the bot, the signer and the runner on a host have in common: the request
// for a certificate, the command that a certificate forces, and an action as people's devices signed
// it.
package certificate

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a certificate is for.
type Kind string

// The kinds. Only Change needs votes.
const (
	Watch  Kind = "watch"  // to look at the host, as an account that can change nothing
	Change Kind = "change" // to run one approved action, once
	Follow Kind = "follow" // to read what an action that was let run prints; who began it may stop it, too
)

// MaxRequest is how long a request may be, in bytes.
const MaxRequest = 1 << 20

// Request asks the signer for a certificate.
type Request struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"` // as the signer's configuration names it
	// Key is the public key that the certificate is for, as a line of authorized_keys. Its private
	// part never leaves the bot's memory.
	Key string `json:"key"`

	// Approval is the request that people decided, and Step which step of a plan is meant, from 1; 0
	// is no plan. Of Change and Follow.
	Approval string `json:"approval,omitempty"`
	Step     int    `json:"step,omitempty"`
	// Action is what people approved, byte for byte as its digest was calculated, and Votes are what
	// their devices signed. Of Change.
	Action []byte `json:"action,omitempty"`
	Votes  []Vote `json:"votes,omitempty"`
}

// Vote is a signed vote.
type Vote struct {
	Statement []byte          `json:"statement"`
	Response  json.RawMessage `json:"response"` // as the browser gave it
}

// Reply is the signer's answer.
type Reply struct {
	Certificate string `json:"certificate,omitempty"` // a line of authorized_keys
	Error       string `json:"error,omitempty"`       // why there is none, as a sentence
	// Authorities are the public keys of the authority, as lines of authorized_keys: that of now, and
	// the next one during a rotation. For a GET.
	Authorities []string `json:"authorities,omitempty"`
	// Origin is where people sign at the signer's own page, "" if it has none. For a GET and an Ask.
	Origin string `json:"origin,omitempty"`
	// Nonce is what a vote must hold to be fresh (passkey.Statement.Fresh). For an Ask without a page.
	Nonce string `json:"nonce,omitempty"`
	// Link is where the Statement is signed, with one of the Keys: public parts, by their ids. For an Ask.
	Link      string            `json:"link,omitempty"`
	Statement []byte            `json:"statement,omitempty"`
	Keys      map[string][]byte `json:"keys,omitempty"`
}

// Ask has the signer show an action to the person who is to sign it, at /ask. Of the statement, the signer
// takes what only the bot knows: whose vote it is, why, and by which policy.
type Ask struct {
	Action    []byte `json:"action"`
	Statement []byte `json:"statement"`
}

// digestVersion is that of approvals.Action.Digest, which a test compares.
const digestVersion = "countersign-action-v3\n"

// Digest is the digest of an action, which people approve.
func Digest(action []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(append([]byte(digestVersion), action...)))
}

// Action is an approvals.Action, field by field, which a test compares.
type Action struct {
	Tool       string            `json:"tool"`
	Kind       string            `json:"kind"`
	Target     string            `json:"target"` // "ssh:NAME#SHA256:..."
	User       string            `json:"user,omitempty"`
	Dir        string            `json:"dir,omitempty"`
	Session    string            `json:"session,omitempty"`
	Pane       string            `json:"pane,omitempty"`
	Locked     bool              `json:"locked,omitempty"`
	Shell      string            `json:"shell,omitempty"`
	Foreground string            `json:"foreground,omitempty"`
	Path       string            `json:"path,omitempty"`
	Paths      []string          `json:"paths,omitempty"`
	Bytes      []byte            `json:"bytes,omitempty"`
	Args       json.RawMessage   `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Files      map[string]string `json:"files,omitempty"`
	Steps      []json.RawMessage `json:"steps,omitempty"`
	Preview    string            `json:"preview,omitempty"`
	Whole      bool              `json:"whole,omitempty"`
}

// ReadAction reads an action. One that isn't shell text for a separate process is an error.
func ReadAction(raw []byte) (a Action, err error) {
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, errors.New("the action can't be read")
	}
	if len(a.Steps) == 0 && (a.Kind != "shell" || len(a.Bytes) == 0 || a.Pane != "" || a.Session != "" || a.Env["process"] != Environment) {
		return a, errors.New("only a command that runs outside of terminals can be given a certificate")
	}
	return a, nil
}

// Environment is the value of "process" in an action's Env: the runner makes the environment.
const Environment = "as the runner starts it"

// StepOf is the action of a step of a plan, from 1, or the action itself for step 0.
func StepOf(raw []byte, step int) ([]byte, error) {
	a, err := ReadAction(raw)
	switch {
	case err != nil:
		return nil, err
	case step == 0 && len(a.Steps) == 0:
		return raw, nil
	case step < 1 || step > len(a.Steps):
		return nil, errors.New("this plan doesn't have such a step")
	}
	return a.Steps[step-1], nil
}

// Name is the name of a run on a host: that of the request, and of the step where it is a plan's.
func Name(approval string, step int) string {
	if step == 0 {
		return approval
	}
	return approval + "." + strconv.Itoa(step)
}

// Job is the command that a certificate forces, as the runner reads it.
type Job struct {
	Kind   Kind
	Name   string // of the run
	Key    string // names the key that the certificate is for; of Change and Follow
	Digest string // of the action
}

// Command is the command for sshd, given where the runner is. Nothing in it needs quotes.
func (j Job) Command(runner string) string {
	return strings.TrimRight(strings.Join([]string{runner, string(j.Kind), j.Name, j.Key, j.Digest}, " "), " ")
}

// KeyName names a public key in a job.
func KeyName(key []byte) string { return fmt.Sprintf("%x", sha256.Sum256(key)) }

// State is the directory of the runner's records on a host, with a subdirectory for each account.
const State = "/var/lib/countersign-runner"
