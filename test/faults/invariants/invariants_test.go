package invariants

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seed   = flag.Int64("faults.seed", 1, "the seed of the random histories")
	rounds = flag.Int("faults.rounds", 1, "how many random histories are checked, in hundreds")
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }

// A good day: one message is talked about, one is run, one denied, one failed and
// one is lost by the network.
func good() Seen {
	return Seen{
		Said: []Said{
			{"t1", "a", at(0), at(1)}, {"t1", "b", at(2), at(3)}, {"t1", "c", at(4), at(5)}, {"t2", "d", at(0), at(1)}, {"t2", "lost", at(7), time.Time{}},
			{"t3", "e", at(0), at(1)},
		},
		Posts: []Post{
			{Thread: "t1", Keys: []string{"r1"}, Answers: map[string]Outcome{"a": Talk}, At: at(2)},
			{Thread: "t2", Keys: []string{"r1"}, Failure: true, At: at(3)},
			{Thread: "t1", Keys: []string{"c1"}, Asks: "b", At: at(4)},
			{Thread: "t1", Keys: []string{"r2"}, Answers: map[string]Outcome{"b": Ran, "c": Talk}, At: at(9)},
			{Thread: "t3", Keys: []string{"c1"}, Asks: "e", At: at(4)},
			{Thread: "t3", Keys: []string{"r1"}, Answers: map[string]Outcome{"e": Refused}, At: at(9)},
		},
		Votes:   []Vote{{"b", "mallory", true, false, at(5)}, {"b", "bob", true, true, at(6)}, {"e", "bob", false, true, at(6)}},
		Effects: []Effect{{"b"}},
	}
}

func TestAGoodDayBreaksNothing(t *testing.T) {
	if v := Check(good()); len(v) > 0 {
		t.Errorf("%v", v)
	}
	if v := Check(Seen{}); len(v) > 0 {
		t.Errorf("nothing at all: %v", v)
	}
}

func TestADraftFromBeforeTheMessageMayBecomeItsFailure(t *testing.T) {
	s := good()
	s.Posts[1].At, s.Posts[1].Changed = at(-1), at(3)
	if v := Check(s); len(v) > 0 {
		t.Errorf("%v", v)
	}
}

func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Seen)
		want  string // rule and what stands in the detail
	}{
		{"an accepted message is not answered", func(s *Seen) { s.Posts = s.Posts[1:] }, RuleAnswered + ": a in t1"},
		{"it is answered in another thread", func(s *Seen) { s.Posts[0].Thread = "t9" }, RuleAnswered + ": a in t1"},
		{"a failure was said before the message", func(s *Seen) { s.Posts[1].At = at(-1) }, RuleAnswered + ": d in t2"},
		{"a draft from before the message became a failure before it", func(s *Seen) { s.Posts[1].At, s.Posts[1].Changed = at(-2), at(-1) },
			RuleAnswered + ": d in t2"},
		{"a command ran twice", func(s *Seen) { s.Effects = append(s.Effects, Effect{"b"}) }, RuleOnce + ": the command of b ran 2 times"},
		{"a command ran on the vote of a stranger", func(s *Seen) { s.Votes = s.Votes[:1] }, RuleVoted + ": the command of b ran"},
		{"a command ran that was denied", func(s *Seen) { s.Effects = append(s.Effects, Effect{"e"}) }, RuleVoted + ": the command of e ran"},
		{"a command ran that nobody asked for", func(s *Seen) { s.Effects = append(s.Effects, Effect{"zz"}) }, RuleVoted + ": the command of zz ran"},
		{"a command ran that no card showed", func(s *Seen) { s.Posts[2].Asks = "" }, RuleShown + ": the command of b ran"},
		{"the answer claims a run", func(s *Seen) { s.Effects = nil }, RuleTruth + ": the answer says that the command of b ran"},
		{"the answer denies a run", func(s *Seen) { s.Posts[3].Answers["b"] = Refused }, RuleTruth + ": the answer to b says refused"},
		{"answers in the wrong order", func(s *Seen) { s.Posts[0], s.Posts[3] = s.Posts[3], s.Posts[0] }, RuleOrder + ": a was accepted before b was sent"},
		{"a post is there twice", func(s *Seen) { s.Posts = append(s.Posts, Post{Thread: "t1", Keys: []string{"r1"}}) }, RuleVisible + ": the post r1 is shown 2 times in t1"},
		{"an answer is there twice", func(s *Seen) {
			s.Posts = append(s.Posts, Post{Thread: "t1", Keys: []string{"r9"}, Answers: map[string]Outcome{"a": Talk}})
		}, RuleVisible + ": the answer to a is shown 2 times in t1"},
		{"a card is there twice", func(s *Seen) { s.Posts = append(s.Posts, Post{Thread: "t1", Asks: "b"}) }, RuleVisible + ": the card about b is shown 2 times"},
		{"a reply breaks off", func(s *Seen) { s.Posts[1].Half = true }, RuleWhole + ": [r1] in t2 breaks off"},
		{"a decided card has buttons", func(s *Seen) { s.Posts[2].Open = true }, RuleSettled + ": the card about b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.spoil(&s)
			found := Check(s)
			if !slices.ContainsFunc(found, func(v Violation) bool { return strings.HasPrefix(v.String(), c.want) }) {
				t.Errorf("found %v, want %q", found, c.want)
			}
			for _, v := range found { // and nothing else, but what follows from it
				if rule, _, _ := strings.Cut(c.want, ":"); v.Rule != rule && rule != RuleOrder && rule != RuleAnswered {
					if v.Rule != RuleTruth && v.Rule != RuleShown {
						t.Errorf("also found %v", v)
					}
				}
			}
		})
	}
}

func TestWhatIsNoViolation(t *testing.T) {
	for name, change := range map[string]func(*Seen){
		"a message that was not accepted may be answered": func(s *Seen) {
			s.Posts = append(s.Posts, Post{Thread: "t2", Answers: map[string]Outcome{"lost": Talk}})
		},
		"an unknown outcome fits a run":    func(s *Seen) { s.Posts[3].Answers["b"] = Unknown },
		"and none":                         func(s *Seen) { s.Posts[3].Answers["b"] = Unknown; s.Effects = nil },
		"an approved command need not run": func(s *Seen) { s.Posts[3].Answers["b"] = Failed; s.Effects = nil },
		"messages that overlap may be answered in any order": func(s *Seen) {
			s.Said[1].Sent = at(0)
			s.Posts[0], s.Posts[3] = s.Posts[3], s.Posts[0]
			s.Said[2].Sent = at(0)
		},
		"two threads may use one key": func(s *Seen) { s.Posts[1].Keys = []string{"r2"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			change(&s)
			if v := Check(s); len(v) > 0 {
				t.Errorf("%v", v)
			}
		})
	}
}

func TestSilent(t *testing.T) {
	s := good()
	if got := Silent(s); got != nil {
		t.Errorf("%v", got)
	}
	s.Posts = nil
	if got, want := Silent(s), []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// random makes a history in which every promise is kept.
func random(rng *rand.Rand) Seen {
	var s Seen
	for th := range 1 + rng.IntN(3) {
		thread, pending := fmt.Sprint("t", th), map[string]Outcome{}
		clock := 0
		flush := func() {
			if len(pending) > 0 {
				s.Posts = append(s.Posts, Post{Thread: thread, Keys: []string{fmt.Sprint("r", clock)}, Answers: maps.Clone(pending), At: at(clock)})
				clear(pending)
			}
		}
		for i := range rng.IntN(8) {
			id := fmt.Sprintf("%d-%d", th, i)
			m := Said{thread, id, at(clock), at(clock + 1)}
			clock += 2
			if rng.IntN(6) == 0 {
				m.Accepted = time.Time{}
				s.Said = append(s.Said, m)
				continue
			}
			s.Said = append(s.Said, m)
			pending[id] = Talk
			if rng.IntN(2) == 0 {
				s.Posts = append(s.Posts, Post{Thread: thread, Keys: []string{"c" + id}, Asks: id, At: at(clock)})
				yes := rng.IntN(3) > 0
				s.Votes = append(s.Votes, Vote{id, "mallory", true, false, at(clock)}, Vote{id, "bob", yes, true, at(clock)})
				pending[id] = Refused
				if yes {
					pending[id] = []Outcome{Ran, Unknown}[rng.IntN(2)]
					if pending[id] == Ran || rng.IntN(2) == 0 {
						s.Effects = append(s.Effects, Effect{id})
					}
				}
			}
			if rng.IntN(2) == 0 {
				flush()
			}
			clock++
		}
		flush()
	}
	return s
}

func TestRandomGoodHistoriesPassAndASecondRunIsAlwaysFound(t *testing.T) {
	for round := range 100 * max(1, min(*rounds, 100)) {
		rng := rand.New(rand.NewPCG(uint64(*seed), uint64(round)))
		s := random(rng)
		if v := Check(s); len(v) > 0 {
			t.Fatalf("seed %d, round %d: %v\n%+v", *seed, round, v, s)
		}
		if len(s.Effects) > 0 {
			twice := s
			twice.Effects = append(slices.Clone(s.Effects), s.Effects[rng.IntN(len(s.Effects))])
			if len(Once(twice)) != 1 {
				t.Fatalf("seed %d, round %d: a second run is not found", *seed, round)
			}
		}
		if len(s.Posts) > 0 {
			i := rng.IntN(len(s.Posts))
			doubled := s
			doubled.Posts = append(slices.Clone(s.Posts), s.Posts[i])
			if len(Visible(doubled)) == 0 {
				t.Fatalf("seed %d, round %d: a doubled post is not found", *seed, round)
			}
			lacking := s
			lacking.Posts = slices.Delete(slices.Clone(s.Posts), i, i+1)
			want := 0
			for id := range s.Posts[i].Answers {
				if slices.ContainsFunc(s.Said, func(m Said) bool { return m.ID == id && !m.Accepted.IsZero() }) {
					want++
				}
			}
			if len(Answered(lacking)) != want {
				t.Fatalf("seed %d, round %d: %d messages lost their answer, found %v", *seed, round, want, Answered(lacking))
			}
		}
	}
}
