// Package wire is what the bot, the signer and the runner on a host say to each other: the request
// for a certificate, the command that a certificate forces, and an action as people's devices signed
// it.
package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Kind is what a certificate is for.
type Kind string

// The kinds. Only Change needs votes.
const (
	Watch  Kind = "watch"  // to look at the host, as an account that can change nothing
	Change Kind = "change" // to run one approved action, once
	Follow Kind = "follow" // to read what an action that was let run prints, and to stop it
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
}

// digestVersion is that of approvals.Action.Digest, which a test compares.
const digestVersion = "countersign-action-v3\n"

// Digest is the digest of an action, which people approve.
func Digest(action []byte) string {
	sum := sha256.Sum256(append([]byte(digestVersion), action...))
	return hex.EncodeToString(sum[:])
}

// Action is what a signer and a runner need of an approvals.Action.
type Action struct {
	Kind    string            `json:"kind"`
	Target  string            `json:"target"` // "ssh:NAME#SHA256:..."
	User    string            `json:"user"`
	Dir     string            `json:"dir"`
	Shell   string            `json:"shell"`
	Session string            `json:"session"`
	Pane    string            `json:"pane"`
	Bytes   []byte            `json:"bytes"`
	Env     map[string]string `json:"env"`
	Files   map[string]string `json:"files"`
	Steps   []json.RawMessage `json:"steps"`
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

var name = regexp.MustCompile(`^[a-z0-9]{10}(\.[1-9][0-9]{0,3})?$`)

// Job is the command that a certificate forces, as the runner reads it.
type Job struct {
	Kind   Kind
	Name   string // of the run
	Digest string // of the action
}

// Command is the command for sshd, given where the runner is. Nothing in it needs quotes.
func (j Job) Command(runner string) string {
	return strings.TrimRight(strings.Join([]string{runner, string(j.Kind), j.Name, j.Digest}, " "), " ")
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseJob reads the runner's arguments.
func ParseJob(args []string) (Job, error) {
	var j Job
	if len(args) > 0 {
		j.Kind = Kind(args[0])
	}
	want := map[Kind]int{Watch: 1, Follow: 2, Change: 3}[j.Kind]
	if want == 0 || len(args) != want {
		return Job{}, errors.New("the arguments are watch, change NAME DIGEST, or follow NAME")
	}
	if want > 1 {
		if j.Name = args[1]; !name.MatchString(j.Name) {
			return Job{}, fmt.Errorf("%q is no name of a run", j.Name)
		}
	}
	if want > 2 {
		if j.Digest = args[2]; !digest.MatchString(j.Digest) {
			return Job{}, fmt.Errorf("%q is no digest", j.Digest)
		}
	}
	return j, nil
}

// Frame is what the bot sends a runner first, as a line of JSON, before the bytes of the action.
type Frame struct {
	Action int `json:"action"`          // how many bytes follow
	Limit  int `json:"limit,omitempty"` // seconds after which the command is ended; 0 is none
	// Skip are bytes of each stream that the bot has already; it is for Follow.
	Skip [2]int64 `json:"skip,omitempty"`
	// Peek asks only how the run is now.
	Peek bool `json:"peek,omitempty"`
}

// Stop is the line that ends a run.
const Stop = "stop\n"

// Stream is what a chunk of a runner's output is.
type Stream byte

// The streams.
const (
	Out Stream = 1 + iota
	Err
	Tell // an Event, as JSON
)

// Event is what a runner says of a run.
type Event struct {
	Began time.Time `json:"began,omitzero"`
	Why   string    `json:"why,omitempty"`  // it was not run, as a clause that follows "was not run: "
	None  bool      `json:"none,omitempty"` // the host has no record of it
	// Ended is set with the exit code; 128+n is a signal. Lost means that nothing tells how it ended.
	Ended time.Time `json:"ended,omitzero"`
	Code  int       `json:"code,omitempty"`
	Lost  bool      `json:"lost,omitempty"`
}

// MaxChunk is how long a chunk may be, in bytes.
const MaxChunk = 64 << 10

// WriteChunk writes a chunk: its stream, its length in four bytes, and its bytes.
func WriteChunk(w io.Writer, s Stream, b []byte) error {
	for {
		n := min(len(b), MaxChunk)
		head := []byte{byte(s), 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[1:], uint32(n))
		if _, err := w.Write(append(head, b[:n]...)); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// ReadChunk reads a chunk into buf, which has MaxChunk bytes.
func ReadChunk(r io.Reader, buf []byte) (Stream, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxChunk || head[0] < byte(Out) || head[0] > byte(Tell) {
		return 0, nil, errors.New("the host answers with something else than a runner does")
	}
	_, err := io.ReadFull(r, buf[:n])
	return Stream(head[0]), buf[:n], err
}
