// Package faults is the fault suite: the built bot is driven from outside while
// processes, links, disks, models and networks fail, and what people saw and what
// happened on the machine is held against what the bot promises.
//
//	go test ./test/faults/...                                       about a minute
//	go test ./test/faults/... -faults.seed 7 -faults.rounds 50      a long run
//
// A failure prints its seed; the same seed makes the same plan again. What the
// threads of the bot do meanwhile is not repeated exactly, so a rare failure may need
// more rounds of it. docs/reliability.md has the scenarios.
//
// It has no code outside of tests: the parts are test/faults/network (links),
// test/faults/model (a double of the model), test/faults/worldtest (processes and people) and
// test/faults/invariants (the promises).
package faults
