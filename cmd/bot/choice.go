package main

import (
	"maps"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"countersign/config"
)

// choice is the machine that a one-shot command works on, from its flags.
type choice struct{ target, container, ssh, tmux string }

// flags adds the flags to a command.
func (o *choice) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.target, "target", "", "configured target instead of the default one")
	c.Flags().StringVar(&o.container, "container", "", "container instead of a configured target, by its name or id")
	c.Flags().StringVar(&o.ssh, "ssh", "", "SSH host instead of a configured target: USER@HOST or USER@HOST:PORT")
	c.Flags().StringVar(&o.tmux, "tmux", "", "name of the agent in the names of its terminals")
}

// apply makes it the default target of a configuration.
func (o *choice) apply(f *config.File) error {
	if n := len(o.target) + len(o.container) + len(o.ssh); n > max(len(o.target), len(o.container), len(o.ssh)) {
		return config.Errorf("--target, --container and --ssh each name a machine; give one of them")
	}
	if o.tmux != "" {
		f.Agent.Name = o.tmux
	}
	f.Targets = maps.Clone(f.Targets)
	add := func(name string, t config.TargetConfig) error {
		f.Targets[name], f.Agent.Target = t, name
		return f.CheckTarget("--"+t.Kind, name, t)
	}
	switch {
	case o.target != "":
		f.Agent.Target = o.target
	case o.container != "":
		return add("container", config.TargetConfig{Kind: "container", Container: o.container})
	case o.ssh != "":
		t := config.TargetConfig{Kind: "ssh", Host: o.ssh}
		if who, rest, ok := strings.Cut(o.ssh, "@"); ok {
			t.User, t.Host = who, rest
		}
		if host, port, err := net.SplitHostPort(t.Host); err == nil {
			n, err := strconv.Atoi(port)
			if err != nil {
				return config.Errorf("--ssh has the port %q; write USER@HOST:PORT", port)
			}
			t.Host, t.Port = host, n
		}
		return add("ssh", t)
	}
	return nil
}
