// Package worldtest is a small world around built bots: a chat network with people
// in it, a model, a machine with a counter file, links that can go wrong, and the
// processes themselves, which can be killed, paused, stopped and started. Everything
// is looked at from outside; what was seen goes to test/faults/invariants.
//
// It does not know what goes wrong when: that is the scenarios' part.
package worldtest
