package config

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/tools/mcp"
	"countersign/tools/outside"
)

// Is reports whether a hop leads to the target.
func (t TargetConfig) Is(hop risk.Hop) bool {
	switch hop.Kind {
	case "ssh":
		user, host, ok := strings.Cut(hop.Name, "@")
		if !ok {
			user, host = t.User, hop.Name
		}
		return t.Kind == "ssh" && host == t.Host && user == t.User
	case "service":
		host, _, _ := strings.Cut(hop.Name, ":")
		return t.Kind == "ssh" && host == t.Host
	case "docker", "podman", "nerdctl":
		return t.Kind == "container" && hop.Name == t.Container
	}
	return false
}

// TargetConfig is one machine.
type TargetConfig struct {
	Kind string `yaml:"kind"` // local, ssh or container
	// Host, Port and User say where an SSH target is; User also names the account
	// inside a container.
	Host string `yaml:"host,omitempty"`
	Port int    `yaml:"port,omitempty"`
	User string `yaml:"user,omitempty"`
	// SSHConfig is an OpenSSH configuration file whose entry for Host fills what is
	// not said here.
	SSHConfig string `yaml:"ssh_config,omitempty"`
	// Identities are private keys; a certificate NAME-cert.pub beside one is used.
	Identities []string `yaml:"identities,omitempty" secret:"file"`
	KnownHosts []string `yaml:"known_hosts,omitempty"`
	// HostKey says what happens at a host whose key is not known: "strict" refuses,
	// "ask" lets people approve the key once, on a card with its fingerprint.
	HostKey string `yaml:"host_key,omitempty"`
	// Jump are the hosts on the way, in order: names of SSH targets, or
	// user@host:port.
	Jump []string `yaml:"jump,omitempty"`
	// Container is a container's name or id; Engine is its engine's socket, "docker"
	// or "podman", and is looked for when empty.
	Container string `yaml:"container,omitempty"`
	Engine    string `yaml:"engine,omitempty"`
	Tmux      *bool  `yaml:"tmux,omitempty"`
	Dir       string `yaml:"dir,omitempty"`
	// Roots are the directories outside of which the tools for files, searches, code and
	// git touch nothing; none means everywhere. Commands are not confined: they ask.
	Roots     []string          `yaml:"roots,omitempty"`
	Labels    map[string]string `yaml:"labels,omitempty"`
	Approvers policy.Groups     `yaml:"approvers"`
	// Approve says what an approval on the target takes beyond the policy.
	Approve TargetApproval `yaml:"approve,omitempty"`
	// Credential is per-approval if the bot has no key for an SSH target: it gets a
	// certificate from the signer for each login, and for each approved command, which runs as RunAs.
	Credential string `yaml:"credential,omitempty"`
	RunAs      string `yaml:"run_as,omitempty"`
	// Reads says which proven reads run unasked: "enforced" (under a lock; the default where
	// the target has one), "plain" (the default elsewhere) or "ask". See docs/gate.md.
	Reads string `yaml:"reads,omitempty"`
	// Rehearse is RehearseOff where commands are not rehearsed before their cards, and RehearseSudo where
	// the account may run rehearsal.Helper under sudo; "" rehearses them where the account is root.
	Rehearse string `yaml:"rehearse,omitempty"`
	// Receipts is ReceiptsOff where nobody looks at what approved commands really change.
	Receipts string `yaml:"receipts,omitempty"`
	// Users are the groups whose members may use the target, and Channels where
	// ("slack:C0123456", "web"); empty means everybody, everywhere.
	Users    policy.Groups `yaml:"users,omitempty"`
	Channels []string      `yaml:"channels,omitempty"`
	// Moderators may take the keyboard from others. The approvers may take it from
	// the bot.
	Moderators policy.Groups `yaml:"moderators,omitempty"`
}

// TargetApproval is what a target asks of approvals.
type TargetApproval struct {
	// Proof is passkey if an approval must be signed by the person's own device, or nothing.
	Proof string `yaml:"proof,omitempty"`
	// Require is ticket if a change there needs a ticket, or nothing.
	Require string `yaml:"require,omitempty"`
}

// The values of a target's Rehearse.
const (
	RehearseOff  = "off"
	RehearseSudo = "sudo"
)

// ReceiptsOff is the one value of a target's Receipts.
const ReceiptsOff = "off"

// PerApproval is the Credential of a target whose commands need a certificate each.
const PerApproval = "per-approval"

// SignerConfig says where the signer of targets with PerApproval is.
type SignerConfig struct {
	URL string `yaml:"url,omitempty"` // https://HOST:PORT, or unix:/PATH
	// TokenFile has the word that the signer knows the bot by; relative to the configuration.
	TokenFile string `yaml:"token_file,omitempty" secret:"file"`
}

// checkCredential checks what a target without a key of the bot's says.
func (f File) checkCredential(at string, t TargetConfig) error {
	switch {
	case t.Credential == "" && t.RunAs == "":
	case t.Credential == "":
		return Errorf("%s has run_as, which means nothing without credential: %s; add or remove one", at, PerApproval)
	case t.Credential != PerApproval:
		return Errorf("%s has credential %q; use %s, or leave it out", at, t.Credential, PerApproval)
	case t.Kind != "ssh":
		return Errorf("%s has credential: %s, which only targets of kind ssh can have", at, PerApproval)
	case t.RunAs == "" || t.User == "" || t.RunAs == t.User:
		return Errorf("%s has credential: %s; add user: NAME (the read-only account) and run_as: NAME (another one, for approved commands)", at, PerApproval)
	case len(t.Identities) > 0:
		return Errorf("%s has credential: %s and identities; remove the keys, so that the bot has none", at, PerApproval)
	case t.Approve.Proof == "":
		return Errorf("%s has credential: %s, and the signer counts only signed votes; add approve: {proof: passkey}", at, PerApproval)
	case f.Signer.URL == "" || f.Signer.TokenFile == "":
		return Errorf("%s has credential: %s; add signer: {url: ..., token_file: FILE}", at, PerApproval)
	}
	return nil
}

// In reports whether a target may be used in a channel.
func (t TargetConfig) In(channel string) bool {
	return len(t.Channels) == 0 || slices.Contains(t.Channels, channel)
}

// Terminals reports whether terminals are wanted.
func (t TargetConfig) Terminals() bool { return t.Tmux == nil || *t.Tmux }

var targetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$`)

// CheckTarget checks one target.
func (f File) CheckTarget(at, name string, t TargetConfig) error {
	if !targetName.MatchString(name) {
		return Errorf("%s: a target's name has letters, digits, '.', '-' and '_', 48 at most", at)
	}
	wrong := func(keys map[string]bool) error {
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if keys[k] {
				return Errorf("%s has kind %q, for which %s means nothing; remove it", at, t.Kind, k)
			}
		}
		return nil
	}
	remote := map[string]bool{
		"host": t.Host != "", "port": t.Port != 0, "ssh_config": t.SSHConfig != "", "identities": len(t.Identities) > 0,
		"known_hosts": len(t.KnownHosts) > 0, "host_key": t.HostKey != "", "jump": len(t.Jump) > 0,
	}
	boxed := map[string]bool{"container": t.Container != "", "engine": t.Engine != ""}
	var err error
	switch t.Kind {
	case "local":
		remote["user"] = t.User != ""
		maps.Copy(remote, boxed)
		err = wrong(remote)
	case "ssh":
		if err = wrong(boxed); err != nil {
			break
		}
		switch {
		case t.Host == "":
			return Errorf("%s has kind ssh and no host; add host: NAME", at)
		case t.Port < 0 || t.Port > 65535:
			return Errorf("%s has port %d; use 1 to 65535", at, t.Port)
		case t.HostKey != "" && t.HostKey != "strict" && t.HostKey != "ask":
			return Errorf("%s has host_key %q; use strict or ask", at, t.HostKey)
		}
	case "container":
		if t.Container == "" {
			return Errorf("%s has kind container and no container; add container: NAME", at)
		}
		err = wrong(remote)
	default:
		return Errorf("%s has kind %q; use local, ssh or container", at, t.Kind)
	}
	if err != nil {
		return err
	}
	if _, err := approvals.ParseReads(t.Reads); err != nil {
		return Errorf("%s.reads: %v", at, err)
	}
	if t.Receipts != "" && t.Receipts != ReceiptsOff {
		return Errorf("%s.receipts is %q; use %s, or leave it out", at, t.Receipts, ReceiptsOff)
	}
	if t.Rehearse != "" && t.Rehearse != RehearseOff && t.Rehearse != RehearseSudo {
		return Errorf("%s.rehearse is %q; use %s or %s, or leave it out", at, t.Rehearse, RehearseOff, RehearseSudo)
	}
	if t.Dir != "" && !filepath.IsAbs(t.Dir) && t.Kind != "local" {
		return Errorf("%s has dir %q; use an absolute path", at, t.Dir)
	}
	for _, root := range t.Roots {
		if !filepath.IsAbs(root) {
			return Errorf("%s has the root %q; use absolute paths", at, root)
		}
	}
	if !policy.ValidProof(t.Approve.Proof) {
		return Errorf("%s has approve.proof %q; use passkey, or leave it out", at, t.Approve.Proof)
	}
	if !policy.ValidRequire(t.Approve.Require) {
		return Errorf("%s has approve.require %q; use ticket, or leave it out", at, t.Approve.Require)
	}
	if err := f.checkCredential(at, t); err != nil {
		return err
	}
	for key, groups := range map[string][]string{"approvers": t.Approvers, "users": t.Users, "moderators": t.Moderators} {
		for _, g := range groups {
			if _, ok := policy.ParseReference(g); ok {
				continue // checkOnCall looks at them
			}
			if _, ok := f.Groups[g]; !ok {
				return Errorf("%s has the %s %q, which is not one of the groups (%s)", at, key, g, strings.Join(slices.Sorted(maps.Keys(f.Groups)), ", "))
			}
		}
	}
	return nil
}

// Harness is the target of what the bot does by itself, such as fetching a page. The
// approvers of the default target decide it, what MCP servers do, and what programs outside may run.
const Harness = "harness"

// Spot is what the configuration says of a channel and a target.
type Spot struct {
	Target string // its name; one that is not configured has its own, and nobody who may approve
	Config TargetConfig
	Mode   policy.Mode
	Until  time.Time
}

// Spot looks a channel ("slack:C0123456", "web") and a target up; target is a name
// or the id of a machine ("ssh:web-1#SHA256:...").
func (f File) Spot(channel, target string) Spot {
	s := Spot{Target: target}
	for _, name := range []string{target, NameOf(target)} {
		if t, ok := f.Targets[name]; ok {
			s.Target, s.Config = name, t
			break
		}
	}
	if target == Harness || strings.HasPrefix(target, mcp.Target("")) || strings.HasPrefix(target, outside.Prefix) {
		s.Config.Approvers = f.Targets[f.Agent.Target].Approvers
	}
	mode, until := f.Agent.Mode, f.Agent.Until
	network, id, _ := strings.Cut(channel, ":")
	if c, ok := f.Channel(network, id); ok && c.Mode != "" {
		mode, until = c.Mode, c.Until
	}
	var err error
	if s.Mode, err = policy.ParseMode(mode); err != nil {
		s.Mode = policy.Mode(mode) // which the policy does not know, and refuses
	}
	s.Until = until
	return s
}

// NameOf is the configured name in the id of a machine, "kind:name#proof".
func NameOf(id string) string {
	id, _, _ = strings.Cut(id, "#")
	if kind, name, ok := strings.Cut(id, ":"); ok && slices.Contains([]string{"local", "ssh", "container"}, kind) {
		return name
	}
	return id
}

// ChannelOf is the channel of a thread, as rules name it.
func ChannelOf(thread string) string {
	if parts := strings.Split(thread, ":"); len(parts) == 4 {
		return parts[0] + ":" + parts[2]
	}
	return "web"
}
