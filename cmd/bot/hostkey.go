package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/approvals/policy"
	"countersign/targets/backend"
	"countersign/targets/ssh"
	"countersign/tools"
	"countersign/tools/hostkey"
)

// trustTools is the tool that asks people to trust a host key, where some target
// wants that.
func (b *bot) trustTools() ([]tools.Tool, error) {
	asked := map[string]backend.Target{}
	strict := map[string]bool{} // by address
	for name, m := range b.machines {
		switch {
		case m.cfg.Kind != "ssh":
		case m.asks():
			asked[name] = m.target
		default:
			c, err := m.sshConfig()
			if err != nil {
				return nil, config.Errorf("targets.%s: %v", name, err)
			}
			strict[net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, ssh.DefaultPort)))] = true
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	return []tools.Tool{hostkey.New(hostkey.Config{
		Targets: asked, Keys: b.keys, Allowed: b.mayTrust,
		Strict: func(_, address string) bool { return strict[address] },
	})}, nil
}

// mayTrust is allowed, and refuses where the mode would let the key be trusted with
// nobody having compared it.
func (b *bot) mayTrust(c tools.Call, target string) string {
	if why := b.allowed(c, target); why != "" {
		return why
	}
	p := b.place(chat.ThreadID(c.Thread), target)
	if p.Mode == policy.Trusting && time.Now().Before(p.Until) {
		return fmt.Sprintf("in mode trusting nobody would compare the host key of %s on a card; a person has to add it to known_hosts by hand, or the mode has to end first", target)
	}
	return ""
}

// asks reports whether an unknown host key of the machine may be trusted on a card.
func (m *machine) asks() bool { return m.cfg.HostKey == "ask" }

// unreached says of a machine whose host is not known what can be done about it.
func (m *machine) unreached(err error) error {
	if _, unknown := errors.AsType[*ssh.UnknownHostError](err); !unknown {
		return err
	}
	if m.asks() {
		return fmt.Errorf("%w; propose %s for %s so that people can compare its fingerprint", err, hostkey.Name, m.name)
	}
	return fmt.Errorf("%w; host_key is strict for %s, so no tool can do that: a person has to add the key to known_hosts by hand", err, m.name)
}
