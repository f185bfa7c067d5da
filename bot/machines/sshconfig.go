package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"countersign/config"
	"countersign/targets/ssh"
)

// sshConfig makes the SSH target's configuration: what its ssh_config says, and over
// it what the target says itself.
func (m *Machine) sshConfig() (ssh.Config, error) {
	home, _ := os.UserHomeDir() // without one, nothing is looked for in it
	c, err := m.hopConfig(m.Config, home)
	if err != nil {
		return c, err
	}
	c.Name, c.Dir, c.Log = m.Name, m.Config.Dir, m.opts.Log
	if m.Config.Credential == config.PerApproval {
		if c.Credentials, err = newCredentials(m.Name, m.opts); err != nil {
			return c, err
		}
		c.RunAs = m.Config.RunAs
	}
	if len(m.Config.Jump) > 0 {
		c.Jump = nil
		for _, j := range m.Config.Jump {
			h, err := m.jump(j, c.Hop, home)
			if err != nil {
				return c, err
			}
			c.Jump = append(c.Jump, h)
		}
	}
	if len(m.Config.KnownHosts) > 0 {
		c.KnownHosts = nil
		for _, f := range m.Config.KnownHosts {
			c.KnownHosts = append(c.KnownHosts, tilde(f, home))
		}
	} else if len(c.KnownHosts) == 0 {
		c.KnownHosts = []string{filepath.Join(home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"}
	}
	if m.opts.Env.Shared() {
		c.Approved = m.opts.Keys.Known
	} else {
		c.KnownHosts = append(c.KnownHosts, m.opts.HostKeys)
	}
	return c, nil
}

// hopConfig is where a target is and who logs in, without the way there.
func (m *Machine) hopConfig(t config.TargetConfig, home string) (ssh.Config, error) {
	c := ssh.Config{Hop: ssh.Hop{Host: t.Host}}
	if t.SSHConfig != "" {
		var err error
		if c, err = ssh.Import(tilde(t.SSHConfig, home), t.Host); err != nil {
			return c, err
		}
	}
	c.Port = cmp.Or(t.Port, c.Port)
	c.User = cmp.Or(t.User, c.User)
	if len(t.Identities) > 0 {
		c.Identities = nil
		for _, f := range t.Identities {
			c.Identities = append(c.Identities, tilde(f, home))
		}
	}
	return c, m.complete(&c.Hop, home)
}

// complete fills in what OpenSSH takes when nothing is said: the account's name and
// its usual keys and agent.
func (m *Machine) complete(h *ssh.Hop, home string) error {
	if h.User == "" {
		u, err := user.Current()
		if err != nil {
			return fmt.Errorf("no user is given for %s, and the bot's own has no name; add user: NAME", h.Host)
		}
		h.User = u.Username
	}
	if len(h.Identities) == 0 {
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			file := filepath.Join(home, ".ssh", name)
			if _, err := os.Stat(file); err == nil {
				h.Identities = append(h.Identities, file)
			}
		}
	}
	if h.Agent == "" {
		h.Agent = m.opts.Env.SSHAuthSock
	}
	return nil
}

// jump is a host on the way: another target's name, or user@host:port, with the
// keys of the target where nothing else is said.
func (m *Machine) jump(word string, own ssh.Hop, home string) (ssh.Hop, error) {
	if t, ok := m.opts.File.Targets[word]; ok {
		if t.Kind != "ssh" {
			return ssh.Hop{}, fmt.Errorf("jump names the target %q, which is not reached by SSH", word)
		}
		c, err := m.hopConfig(t, home)
		return c.Hop, err
	}
	h := ssh.Hop{User: own.User, Identities: own.Identities, Agent: own.Agent, Certificates: own.Certificates, Host: word}
	if who, rest, ok := strings.Cut(word, "@"); ok {
		h.User, h.Host = who, rest
	}
	if host, port, err := net.SplitHostPort(h.Host); err == nil {
		n, err := strconv.Atoi(port)
		if err != nil {
			return h, fmt.Errorf("jump has the port %q; write user@host:port", port)
		}
		h.Host, h.Port = host, n
	}
	return h, nil
}

// tilde expands a leading ~.
func tilde(file, home string) string {
	if rest, ok := strings.CutPrefix(file, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	return file
}

// OpenedBy lists the accounts of a host with certificates that a key of the bot's opens without one: its own
// usual keys, those of all targets, and its agent's. The error means that there may be more: a host that turns logins
// away for a while tells nothing about a key.
func (m *Machine) OpenedBy(ctx context.Context) (users []string, err error) {
	c, err := m.sshConfig()
	if err != nil {
		return nil, err
	}
	c.Credentials = nil
	home, _ := os.UserHomeDir() // as above
	held, agent := slices.Clone(c.Identities), c.Agent
	for _, t := range m.opts.File.Targets {
		if t.Kind == "ssh" {
			h, err := m.hopConfig(t, home)
			if err != nil {
				return nil, err
			}
			held = append(held, h.Identities...)
		}
	}
	slices.Sort(held)
	var untold error
	opens := func(user, key, agent string) bool {
		c.User, c.Identities, c.Certificates, c.Agent = user, nil, nil, agent
		if key != "" {
			c.Identities = []string{key}
		}
		t, err := ssh.New(c)
		if err != nil {
			return false
		}
		_, perr := t.Probe(ctx)
		_ = t.Close() // nothing was begun
		if _, refused := errors.AsType[*ssh.AuthError](perr); perr != nil && !refused {
			untold = fmt.Errorf("whether a key of the bot logs in as %s: %w", user, perr)
		}
		return perr == nil
	}
	for _, user := range []string{c.User, c.RunAs} {
		if agent != "" && opens(user, "", agent) || slices.ContainsFunc(slices.Compact(held), func(key string) bool { return opens(user, key, "") }) {
			users = append(users, user)
		}
	}
	return users, cmp.Or(ctx.Err(), untold)
}
