package desk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/console/api"
	"countersign/store"
	"countersign/store/queue"
)

// Gate tells of requests: the card as it is now, and the groups that approve it by now.
type Gate interface {
	Card(tx store.Tx, r approvals.Record) chat.Card
	// changed says that these are no longer those of its card.
	Approvers(tx store.Tx, r approvals.Record) (groups []string, changed string)
}

// Home tells what goes on everywhere, for the console's first page. It is safe for concurrent
// use.
type Home struct {
	commands Commands
	gate     Gate
	last     func(card string) string
	problems func(context.Context) ([]alerts.Problem, error)

	mu   sync.Mutex
	seen scene
}

// NewHome returns a home. last gives the last line that the call of a card has printed here, "" for none; problems
// are those that alerts told of.
func NewHome(c Commands, gate Gate, last func(card string) string, problems func(context.Context) ([]alerts.Problem, error)) *Home {
	return &Home{commands: c, gate: gate, last: last, problems: problems}
}

const (
	// maxChanges is how many changes that ran lately are told.
	maxChanges = 20
	// sceneAge is how long one look at the store serves everybody: many pages ask every two
	// seconds.
	sceneAge = 500 * time.Millisecond
)

// scene is what goes on, before anybody's eyes are taken into account. It does not change.
type scene struct {
	at           time.Time
	open, recent []shot
	working      []string
	firing       []alerts.Problem
}

// shot is a request with its card.
type shot struct {
	approvals.Record
	card      chat.Card
	approvers []string // by now, of one that waits
	changed   string
}

// look returns the scene, which is at most sceneAge old, or of this moment.
func (h *Home) look(ctx context.Context, fresh bool) (scene, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); fresh || now.Sub(h.seen.at) > sceneAge {
		var s scene
		err := h.commands.DB.View(ctx, func(tx store.Tx) error {
			s = scene{at: now, working: queue.Working(tx)}
			var ledger approvals.Ledger
			there := map[approvals.ID]bool{}
			add := func(to *[]shot, r approvals.Record) {
				if !there[r.ID] {
					there[r.ID] = true
					x := shot{Record: r, card: h.gate.Card(tx, r)}
					if r.State == approvals.Pending {
						x.approvers, x.changed = h.gate.Approvers(tx, r)
					}
					*to = append(*to, x)
				}
			}
			for _, r := range ledger.AllOpen(tx) {
				if plan, ok := ledger.Get(tx, r.Basis.Of); ok && r.Basis.Step > 0 {
					r = plan // its card has the step, and it runs as long as the step does
				}
				add(&s.open, r)
			}
			for _, r := range ledger.Recent(tx, maxChanges) {
				add(&s.recent, r)
			}
			return nil
		})
		if err != nil {
			return scene{}, err
		}
		problems, err := h.problems(ctx)
		if err != nil {
			return scene{}, err
		}
		s.firing = slices.DeleteFunc(problems, func(p alerts.Problem) bool { return !p.Firing || p.Listed })
		slices.SortStableFunc(s.firing, worse)
		h.seen = s
	}
	return h.seen, nil
}

// Home implements the console's desk. Of threads of other networks than q.From's somebody sees
// what they may decide as a whole, and else what is done where: who is let into the console need
// not be in each channel. A person who may not write sees of those nothing.
func (h *Home) Home(ctx context.Context, q chat.Inquiry, writes bool) (api.Home, error) {
	var out api.Home
	s, err := h.look(ctx, q.Fresh)
	if err != nil {
		return out, err
	}
	own, _, _ := strings.Cut(string(q.From.ID), ":")
	foreign := func(t chat.ThreadID) bool { return !strings.HasPrefix(string(t), own+":") }
	shown := map[chat.ThreadID]bool{}
	of := func(x shot, whole bool) (api.HomeCard, bool) {
		shown[x.Thread] = true
		c := api.HomeCard{ID: string(x.ID), Thread: x.Thread, At: x.Created, Card: x.card}
		if !x.Ended.IsZero() {
			c.At = x.Ended
		}
		if whole || !foreign(x.Thread) {
			return c, true
		}
		c.ID, c.Card = alias(x.ID), elsewhere(x.card)
		return c, writes
	}
	for _, x := range s.open {
		if x.State == approvals.Pending {
			mine := writes && h.commands.mayApprove(x.Record, q) && h.commands.Targets.Rules().Policy.Eligible(x.approvers, q.From, q.Groups) && !voted(x.Record, q.From.ID) && (!foreign(x.Thread) || x.OneVote())
			c, ok := of(x, mine)
			if mine && foreign(x.Thread) {
				c.Card.Choose = slices.DeleteFunc(slices.Clone(c.Card.Choose), func(b chat.Button) bool {
					verb, _, _ := strings.Cut(string(b.ID), ":")
					return !slices.Contains([]string{"approve", "grant", "deny"}, verb) // the gate takes no others from here
				})
			}
			c.Glass = writes && !foreign(x.Thread) && h.commands.Targets.Rules().Policy.Eligible(x.Require.BreakGlass, q.From, q.Groups)
			if mine {
				out.Yours = append(out.Yours, c)
			} else if ok {
				if !foreign(x.Thread) {
					c.Not = whyNot(x, q.From.ID)
				}
				c.Card.Choose = nil
				out.Others = append(out.Others, c)
			}
		} else if c, ok := of(x, false); ok {
			if !foreign(x.Thread) {
				c.Card.Last = h.last(x.CardKey())
			}
			out.Running = append(out.Running, c)
		}
	}
	for _, t := range s.working {
		if id := chat.ThreadID(t); !shown[id] && (writes || !foreign(id)) {
			out.Busy = append(out.Busy, chat.Busy{Thread: id, Doing: cmp.Or(h.commands.Agent.Doing(id), "about to go on")})
		}
	}
	for _, x := range s.recent {
		if c, ok := of(x, false); ok {
			out.Changes = append(out.Changes, c)
		}
	}
	for _, p := range s.firing {
		if p.Thread != "" && foreign(p.Thread) {
			if p.Thread = ""; !writes {
				continue
			}
		}
		out.Alerts = append(out.Alerts, api.Firing{ID: p.ID, Title: p.Title, Severity: p.Severity, Source: p.Source, Runbook: p.Runbook, Since: p.Since, Thread: p.Thread, Silenced: !p.Quiet.IsZero()})
	}
	out.OnCall = h.commands.onCall()
	soonest := func(a, b api.HomeCard) int { return a.Card.Expires.Compare(b.Card.Expires) }
	slices.SortStableFunc(out.Yours, soonest)
	slices.SortStableFunc(out.Others, soonest)
	return out, nil
}

// worse has silenced problems last, and else the worst first, of those the one that began last.
func worse(a, b alerts.Problem) int {
	if a.Quiet.IsZero() != b.Quiet.IsZero() {
		if a.Quiet.IsZero() {
			return -1
		}
		return 1
	}
	return cmp.Or(alerts.Rank(a.Severity)-alerts.Rank(b.Severity), b.Since.Compare(a.Since))
}

// whyNot says why somebody can't approve a request that others can.
func whyNot(r shot, who chat.UserID) string {
	others := strings.Join(r.Require.Who(), " or ")
	switch {
	case voted(r.Record, who):
		return sayApprovedBefore
	case who == r.Requester.ID && !r.Require.RequesterMay:
		return sayOwnRequest(others)
	}
	if r.changed != "" {
		return "You can't approve this. " + r.changed
	}
	return sayNotApprover(others)
}

// voted tells whether somebody's vote counts already.
func voted(r approvals.Record, who chat.UserID) bool {
	return slices.ContainsFunc(r.Votes, func(v approvals.Vote) bool { return !v.Void && v.User.ID == who })
}

// alias stands for the id of a request to those who are not in its thread: with the id itself
// they could ask for its details.
func alias(id approvals.ID) string {
	sum := sha256.Sum256([]byte("home/" + id))
	return hex.EncodeToString(sum[:6])
}

// elsewhere is a card for those who are not in its thread: what is done where, by whom, and how
// it went, and nothing that was written or printed there.
func elsewhere(c chat.Card) chat.Card {
	body, _, _ := strings.Cut(c.Body, "\n")
	return chat.Card{
		Title: c.Title, Tone: c.Tone, Env: c.Env, Production: c.Production, Risk: c.Risk, Footer: c.Footer, Expires: c.Expires,
		Since: c.Since, Final: c.Final, Body: body,
	}
}
