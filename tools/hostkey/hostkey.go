// Package hostkey is the tool trust_host_key. People see the key of an SSH host that the bot
// connects to for the first time. Once they approve it, it is added to the bot's own known hosts: a
// file, or rows that all replicas share ([Keys]).
//
// It never trusts a key that is not on a card, and never replaces a key: a host whose key changed
// or is revoked is refused. It runs nothing on the machine, and decides neither who may approve nor
// for which targets.
package hostkey

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/ssh"
	"countersign/tools"
)

// Name is the tool's name, for messages that tell the model to propose it.
const Name = "trust_host_key"

//go:embed trust_host_key.md
var description string

// Config says which hosts people may be asked about.
type Config struct {
	// Targets are the SSH targets whose host keys may be approved on a card, by name.
	Targets map[string]backend.Target
	// Allowed returns "" if the caller may trust a target's host, otherwise the reason why not.
	Allowed func(c tools.Call, target string) string
	// Strict reports whether the host at an address (host:port), reached on the way to a target,
	// must never be asked about, because it belongs to another target. nil means that none is.
	Strict func(target, address string) bool
	// File is the bot's own known_hosts file, which all Targets read. It is ignored if Keys is set.
	File string
	// Keys stores the approved keys and is read by all Targets; nil means InFile(File).
	Keys Keys
}

// New returns the tool.
func New(c Config) tools.Tool {
	if c.Keys == nil {
		c.Keys = InFile(c.File)
	}
	return tool{c, slices.Sorted(maps.Keys(c.Targets))}
}

type tool struct {
	Config
	names []string
}

// Spec implements tools.Tool.
func (t tool) Spec() tools.Spec {
	return tools.Spec{
		Name: Name, Description: description, Level: risk.High,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"target": {Type: "string", Enum: t.names, Description: "Target with the unknown host."},
			},
			Required: []string{"target"},
		}),
	}
}

// Plan implements tools.Tool. It connects until the host has presented its key, which leaves only a
// line in its sshd's log.
func (t tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Target string `json:"target"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	target := t.Targets[args.Target]
	if target == nil {
		return tools.Plan{}, tools.Invalid("people cannot be asked about the host of %s; they can about %s", tools.Quote(args.Target), strings.Join(t.names, ", "))
	}
	if why := t.Allowed(c, args.Target); why != "" {
		return tools.Plan{}, tools.Failed("%s", why)
	}
	shown, err := t.untrustedKey(ctx, args.Target, target)
	if err != nil {
		return tools.Plan{}, err
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: target.ID(), Bytes: []byte(shown.Line), Args: c.Args,
		Preview: preview(shown), Whole: true,
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "looking at the host key of " + args.Target + " again"})
		now, err := t.untrustedKey(ctx, args.Target, target)
		switch {
		case err != nil:
			return tools.Result{}, err
		case now.Line != shown.Line:
			return tools.Result{}, tools.Failed("%s now shows the key %s for %s, and not %s for %s as it did on the card; nothing was trusted, "+
				"and somebody may be attacking: tell people before anything else",
				args.Target, now.Fingerprint, now.Address, shown.Fingerprint, shown.Address)
		}
		if err := t.Keys.Trust(ctx, shown.Line); errors.Is(err, ssh.ErrOtherKey) || errors.Is(err, ssh.ErrRevoked) {
			return tools.Result{}, tools.Failed("the key of %s was not trusted, because people decided something else about that host "+
				"meanwhile; tell them: %w", args.Target, err)
		} else if err != nil {
			return tools.Result{}, tools.Failed("the key of %s was not trusted, because it could not be stored; check the bot's data directory "+
				"or its database: %w", args.Target, err)
		}
		text := fmt.Sprintf("The host %s (%s) is known now, by its key %s.", shown.Host, shown.Address, shown.Fingerprint)
		sink(tools.Event{Kind: tools.Info, Text: text})
		sink(tools.Event{Kind: tools.Completed, Text: "trusted"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// untrustedKey returns the key that a target's host presents, if it is not trusted yet. Every other
// outcome is an error for the model.
func (t tool) untrustedKey(ctx context.Context, name string, target backend.Target) (*ssh.UnknownHostError, error) {
	_, err := target.Probe(ctx)
	if err == nil {
		// The result of Probe is cached; reading a file asks the host again if the connection was
		// lost since.
		_, err = target.FS().Stat(ctx, "/")
	}
	var (
		unknown *ssh.UnknownHostError
		changed *ssh.ChangedHostError
		revoked *ssh.RevokedHostError
	)
	switch {
	case err == nil:
		return nil, tools.Failed("the host of %s is known, so nothing has to be trusted; go on with what you wanted to do there", name)
	case errors.As(err, &changed), errors.As(err, &revoked):
		return nil, tools.Failed("the host key of %s cannot be trusted on a card: %w", name, err)
	case !errors.As(err, &unknown):
		return nil, tools.Failed("the host of %s has shown no key, so there is nothing to trust: %w", name, err)
	case t.Strict != nil && t.Strict(name, unknown.Address):
		return nil, tools.Failed("the host %s, met on the way to %s, is also that of a target with host_key strict, so a person has to add "+
			"its key to known_hosts by hand: %w", unknown.Address, name, err)
	}
	return unknown, nil
}

// preview shows people where the key was seen, how to verify it, and the line to be stored.
func preview(e *ssh.UnknownHostError) string {
	return fmt.Sprintf(`Trust this SSH host's key from now on, for every target of this bot.

Host:        %s
Address:     %s
Key type:    %s
Fingerprint: %s

Compare the fingerprint first. On the host's own console, run:
%s

known_hosts gets this line:
%s
`, e.Host, e.Address, e.Key.Type(), e.Fingerprint, compare(e.Key.Type()), e.Line)
}

// compare returns the command that prints the fingerprint on the host. The files are those of
// HostKey in sshd_config(5).
func compare(keyType string) string {
	var name string
	switch {
	case keyType == "ssh-ed25519":
		name = "ed25519"
	case strings.HasPrefix(keyType, "ecdsa-"):
		name = "ecdsa"
	case keyType == "ssh-rsa":
		name = "rsa"
	default:
		return "for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; done"
	}
	return "ssh-keygen -lf /etc/ssh/ssh_host_" + name + "_key.pub"
}
