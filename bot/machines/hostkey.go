package machines

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"

	"countersign/config"
	"countersign/targets/backend"
	"countersign/targets/ssh"
	"countersign/tools"
	"countersign/tools/hostkey"
)

// TrustTools is the tool that asks people to trust a host key, where some target wants
// that. allowed says why a call may not trust one on a target, "" when it may.
func (s Set) TrustTools(allowed func(c tools.Call, target string) string) ([]tools.Tool, error) {
	var keys hostkey.Keys
	asked := map[string]backend.Target{}
	strict := map[string]bool{} // by address
	for name, m := range s {
		switch {
		case m.Config.Kind != "ssh":
		case m.Asks():
			asked[name], keys = m.Target, m.opts.Keys
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
		Targets: asked, Keys: keys, Allowed: allowed,
		Strict: func(_, address string) bool { return strict[address] },
	})}, nil
}

// Asks reports whether an unknown host key of the machine may be trusted on a card.
func (m *Machine) Asks() bool { return m.Config.HostKey == "ask" }

// unreached says of a machine whose host is not known what can be done about it.
func (m *Machine) unreached(err error) error {
	if _, unknown := errors.AsType[*ssh.UnknownHostError](err); !unknown {
		return err
	}
	if m.Asks() {
		return fmt.Errorf("%w; propose %s for %s so that people can compare its fingerprint", err, hostkey.Name, m.Name)
	}
	return fmt.Errorf("%w; host_key is strict for %s, so no tool can do that: a person has to add the key to known_hosts by hand", err, m.Name)
}
