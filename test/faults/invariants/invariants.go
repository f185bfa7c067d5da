// Package invariants holds what was seen of a bot from outside against what it
// promises: who said what and when it was accepted, what people read, what was
// pressed, and what really happened on the machine. Every check is a pure function
// of that, so each is tested against histories that are made to break it.
//
// It starts nothing and asks nobody: what needs the bot itself, such as its own
// check of the audit chain, is done by those who have one.
package invariants

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Said is a message of a person.
type Said struct {
	// ID is in the text, and in what answers it.
	Thread, ID string
	// Sent is before anything went out, Accepted after the acknowledgement came; zero means that none came, and then the
	// message may have an answer or none.
	Sent, Accepted time.Time
}

// Outcome is what an answer says of the command that a message asked for.
type Outcome string

// The outcomes. Those that are not listed here count as Failed.
const (
	Talk    Outcome = "talk"    // nothing was asked for
	Ran     Outcome = "ran"     // the command ran
	Refused Outcome = "refused" // it did not: denied, expired or withdrawn
	Unknown Outcome = "unknown" // it may have run
	Failed  Outcome = "failed"  // an error, from which nothing follows
)

// Post is a message of the bot as people see it in the end. Posts of a thread are
// in their order.
type Post struct {
	Thread string
	// Keys name the post where the network shows such a thing; two messages of one key are one post shown twice.
	Keys []string
	// Answers says what became of each message that the post answers; nil for others.
	Answers map[string]Outcome
	// Asks is the message whose command the post asks approval for; "" for others. Open says that it still has buttons.
	Asks string
	Open bool
	// Failure says in words that the turn cannot go on.
	Failure bool
	// Half says that the text breaks off: a reply that was shown while it came, and was never finished.
	Half bool
	// At is when it was first shown, Changed when its text was last changed; zero if it never was. A draft becomes the
	// reply or the failure at its end.
	At, Changed time.Time
	Text        string
}

// Vote is somebody's press of a button, or the words that do the same.
type Vote struct {
	// On is the message whose command the card was about.
	On, Person string
	Approve    bool
	// Valid says that the person may decide.
	Valid bool
	// Sent is before it went out.
	Sent time.Time
}

// Effect is one run of a command on the machine.
type Effect struct{ ID string }

// Seen is everything of one world.
type Seen struct {
	Said    []Said
	Posts   []Post
	Votes   []Vote
	Effects []Effect
}

// Violation is one broken promise.
type Violation struct{ Rule, Detail string }

func (v Violation) String() string { return v.Rule + ": " + v.Detail }

// The rules, as Violation.Rule has them.
const (
	RuleAnswered = "each accepted message is answered, or its failure is said"
	RuleOnce     = "an approved command runs at most once"
	RuleVoted    = "nothing runs without the vote of somebody who may decide"
	RuleTruth    = "what an answer says of a command is what happened"
	RuleOrder    = "answers of a thread keep the order of its messages"
	RuleVisible  = "a post is shown once"
	RuleShown    = "what ran was shown on a card"
	RuleWhole    = "no half of a reply stays"
	RuleSettled  = "no card waits for a decision that was made"
)

// Check returns every violation of every rule.
func Check(s Seen) []Violation {
	var out []Violation
	for _, c := range []func(Seen) []Violation{Answered, Once, Voted, Shown, Truth, Order, Visible, Whole, Settled} {
		out = append(out, c(s)...)
	}
	return out
}

// Answered finds accepted messages that nobody answered.
func Answered(s Seen) (out []Violation) {
	for _, m := range s.Said {
		if !m.Accepted.IsZero() && !answered(s, m) {
			out = append(out, Violation{RuleAnswered, fmt.Sprintf("%s in %s has no answer", m.ID, m.Thread)})
		}
	}
	return out
}

func answered(s Seen, m Said) bool {
	return slices.ContainsFunc(s.Posts, func(p Post) bool {
		_, ok := p.Answers[m.ID]
		return p.Thread == m.Thread && (ok || p.Failure && p.shown().After(m.Sent))
	})
}

// shown is when the post got the text that it has.
func (p Post) shown() time.Time {
	if p.Changed.IsZero() {
		return p.At
	}
	return p.Changed
}

// Once finds commands that ran more than once.
func Once(s Seen) (out []Violation) {
	runs := runs(s)
	for _, id := range sorted(runs) {
		if n := runs[id]; n > 1 {
			out = append(out, Violation{RuleOnce, fmt.Sprintf("the command of %s ran %d times", id, n)})
		}
	}
	return out
}

// Voted finds commands that ran though nobody who may decide had approved them.
func Voted(s Seen) (out []Violation) {
	runs := runs(s)
	for _, id := range sorted(runs) {
		if !slices.ContainsFunc(s.Votes, func(v Vote) bool { return v.On == id && v.Valid && v.Approve }) {
			out = append(out, Violation{RuleVoted, fmt.Sprintf("the command of %s ran, and nobody who may decide approved it", id)})
		}
	}
	return out
}

// Shown finds commands that ran and that no card of the end is about.
func Shown(s Seen) (out []Violation) {
	for _, id := range sorted(runs(s)) {
		if !slices.ContainsFunc(s.Posts, func(p Post) bool { return p.Asks == id }) {
			out = append(out, Violation{RuleShown, fmt.Sprintf("the command of %s ran, and no card is about it", id)})
		}
	}
	return out
}

// Truth finds answers that say something else than what happened.
func Truth(s Seen) (out []Violation) {
	runs := runs(s)
	for _, p := range s.Posts {
		for _, id := range sorted(p.Answers) {
			switch o, n := p.Answers[id], runs[id]; {
			case o == Ran && n == 0:
				out = append(out, Violation{RuleTruth, fmt.Sprintf("the answer says that the command of %s ran, and it did not", id)})
			case (o == Refused || o == Talk) && n > 0:
				out = append(out, Violation{RuleTruth, fmt.Sprintf("the answer to %s says %s, and the command ran", id, o)})
			}
		}
	}
	return out
}

// Order finds messages that were answered before others that had been accepted
// before they were sent. A message that was answered by a failure has no place. Talk does
// not wait for what asks people: it is answered while their card is open.
func Order(s Seen) (out []Violation) {
	threads := map[string][]Said{}
	for _, m := range s.Said {
		threads[m.Thread] = append(threads[m.Thread], m)
	}
	for _, thread := range sorted(threads) {
		at, how := map[string]int{}, map[string]Outcome{}
		for i, p := range s.Posts {
			for id, o := range p.Answers {
				if _, ok := at[id]; !ok && p.Thread == thread {
					at[id], how[id] = i, o
				}
			}
		}
		said := threads[thread]
		for _, a := range said {
			for _, b := range said {
				first, ok1 := at[a.ID]
				second, ok2 := at[b.ID]
				if how[a.ID] != Talk && how[b.ID] == Talk {
					continue
				}
				if ok1 && ok2 && !a.Accepted.IsZero() && a.Accepted.Before(b.Sent) && second < first {
					out = append(out, Violation{RuleOrder, fmt.Sprintf("%s was accepted before %s was sent, and is answered after it", a.ID, b.ID)})
				}
			}
		}
	}
	return out
}

// Visible finds what is shown twice: posts with one key, two answers to one
// message, two cards about one command.
func Visible(s Seen) (out []Violation) {
	seen := map[[3]string]int{}
	for _, p := range s.Posts {
		for _, k := range p.Keys {
			seen[[3]string{"the post " + k, p.Thread, k}]++
		}
		for id := range p.Answers {
			seen[[3]string{"the answer to " + id, p.Thread, ""}]++
		}
		if p.Asks != "" {
			seen[[3]string{"the card about " + p.Asks, p.Thread, ""}]++
		}
	}
	keys := make([][3]string, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [3]string) int { return cmp.Or(strings.Compare(a[1], b[1]), strings.Compare(a[0], b[0])) })
	for _, k := range keys {
		if n := seen[k]; n > 1 {
			out = append(out, Violation{RuleVisible, fmt.Sprintf("%s is shown %d times in %s", k[0], n, k[1])})
		}
	}
	return out
}

// Whole finds replies that break off and that nobody finishes any more.
func Whole(s Seen) (out []Violation) {
	for _, p := range s.Posts {
		if p.Half {
			out = append(out, Violation{RuleWhole, fmt.Sprintf("%v in %s breaks off: %q", p.Keys, p.Thread, p.Text)})
		}
	}
	return out
}

// Settled finds cards that still have buttons though their message was answered.
func Settled(s Seen) (out []Violation) {
	for _, p := range s.Posts {
		if p.Asks == "" || !p.Open {
			continue
		}
		if slices.ContainsFunc(s.Posts, func(q Post) bool { _, ok := q.Answers[p.Asks]; return ok && q.Thread == p.Thread }) {
			out = append(out, Violation{RuleSettled, fmt.Sprintf("the card about %s still has buttons, and the answer is there", p.Asks)})
		}
	}
	return out
}

// Silent are the accepted messages of threads that have not come to their end: what
// those who wait, wait for.
func Silent(s Seen) (ids []string) {
	for _, m := range s.Said {
		if !m.Accepted.IsZero() && !answered(s, m) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func runs(s Seen) map[string]int {
	n := map[string]int{}
	for _, e := range s.Effects {
		n[e.ID]++
	}
	return n
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
