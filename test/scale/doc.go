// Package scale measures several replicas on one PostgreSQL: how many turns they do,
// how long people wait, what a thread costs, how soon the owner of a thread hears of
// what came in elsewhere, and how long a replica that was killed is missed.
//
// It has no code of its own: all of it is a test, whose plain run is small and checks
// that every message is answered once and in order. The replicas are processes (the
// test's own program, started again) with the real store, membership, agent, gate,
// outbox and sender. The model, the tool and the network are doubles that take no time,
// so the figures are those of the bot and its database alone: it measures no model, no
// chat network and no terminal. What the doubles stand for is in replica_test.go.
//
// docs/benchmarks.md has the commands and the figures.
package scale
