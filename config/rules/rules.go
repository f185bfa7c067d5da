// Package rules is the part of the configuration that a reload replaces: who may decide
// what, where, and what the classifier knows.
//
// It reads no file and decides nothing by itself: approvals/policy does.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/config"
)

// Rules are those of one configuration. They are immutable.
type Rules struct {
	File   config.File
	Policy *policy.Policy
	Engine *risk.Engine
}

// New checks a configuration's rules and returns them.
func New(f config.File) (*Rules, error) {
	engine, err := risk.New(f.Risk)
	if err != nil {
		return nil, config.Errorf("%v", err)
	}
	pol, err := policy.New(f.Policy, f.Groups, engine.Classify)
	if err != nil {
		return nil, config.Errorf("%v", err)
	}
	return &Rules{File: f, Policy: pol, Engine: engine}, nil
}

// MayUse says why somebody may not use a target in a channel; "" when they may.
func (r *Rules) MayUse(channel string, by chat.User, groups []string, target string) string {
	t, ok := r.File.Targets[target]
	switch {
	case !ok:
		return fmt.Sprintf("there is no target %s; the targets are %s", target, strings.Join(slices.Sorted(maps.Keys(r.File.Targets)), ", "))
	case !t.In(channel):
		return fmt.Sprintf("the target %s may not be used in this channel; use one of its channels (%s), or ask who runs the bot to add this "+
			"one to targets.%s.channels", target, strings.Join(t.Channels, ", "), target)
	case len(t.Users) > 0 && !r.Policy.Eligible(t.Users, by, groups):
		return fmt.Sprintf("the target %s is for people of %s only; ask one of them", target, strings.Join(r.Policy.Who(t.Users), " or "))
	}
	return ""
}

// Reads are the proven reads that run unasked on a target with or without a lock.
func (r *Rules) Reads(target string, lock bool) approvals.Reads {
	return approvals.Effective(approvals.Reads(r.File.Targets[target].Reads), approvals.Reads(r.File.Policy.Reads), lock)
}
