package config

import (
	"strings"

	"countersign/adapters/chat/network"
	"countersign/approvals/policy"
)

// HandoverConfig says where hand-overs are written, and at whose changes of shift.
type HandoverConfig struct {
	Channel string        `yaml:"channel,omitempty"` // "web", or one like slack:T0123:C0456
	Shifts  policy.Groups `yaml:"shifts,omitempty"`
}

func (h HandoverConfig) check(path string, has func(scheme string) bool) error {
	refs := policy.References(h.Shifts)
	scheme, _, _ := strings.Cut(h.Channel, ":")
	switch {
	case len(refs) != len(h.Shifts):
		return Errorf("%s: handover.shifts takes who is on call, as in {oncall: pagerduty, schedule: PI7DH85, level: 1}", path)
	case len(refs) > 0 && !has(scheme):
		return Errorf("%s: handover.channel is %q; use a channel like %s", path, h.Channel, network.Or(network.All(), network.Network.Example))
	}
	return nil
}
