package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
	"countersign/store/queue"
)

// Home tells what goes on everywhere, for the console's first page. It is safe for concurrent
// use.
type Home struct {
	Commands
	// Card returns the card of a request as it is now.
	Card func(store.Tx, approvals.Record) chat.Card
	// Last returns the last line that the call of a card has printed here, "" for none.
	Last func(card string) string
}

// maxChanges is how many changes that ran lately are told.
const maxChanges = 20

// Home implements the console's desk. Of threads of other networks than q.From's somebody sees
// what they may decide as a whole, and else what is done where: who is let into the console need
// not be in each channel. A person who may not write sees of those nothing.
func (h Home) Home(ctx context.Context, q chat.Inquiry, writes bool) (chat.Home, error) {
	var out chat.Home
	own, _, _ := strings.Cut(string(q.From.ID), ":")
	foreign := func(t chat.ThreadID) bool { return !strings.HasPrefix(string(t), own+":") }
	err := h.DB.View(ctx, func(tx store.Tx) error {
		out = chat.Home{}
		shown := map[chat.ThreadID]bool{}
		of := func(r approvals.Record, whole bool) (chat.HomeCard, bool) {
			shown[r.Thread] = true
			c := chat.HomeCard{ID: string(r.ID), Thread: r.Thread, At: r.Created, Card: h.Card(tx, r)}
			if !r.Ended.IsZero() {
				c.At = r.Ended
			}
			if !whole && foreign(r.Thread) {
				c.Card = outside(c.Card)
				return c, writes
			}
			return c, true
		}
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			switch r.State {
			case approvals.Pending:
				mine := writes && h.mayApprove(r, q) && !voted(r, q.From.ID)
				c, ok := of(r, mine)
				if mine {
					out.Yours = append(out.Yours, c)
				} else if ok {
					c.Card.Choose = nil
					out.Others = append(out.Others, c)
				}
			case approvals.Approved, approvals.Running:
				if r.Basis.Step > 0 {
					continue // its plan is there
				}
				if c, ok := of(r, false); ok {
					if !foreign(r.Thread) {
						c.Card.Last = h.Last(r.CardKey())
					}
					out.Running = append(out.Running, c)
				}
			default:
			}
		}
		for _, t := range queue.Working(tx) {
			if id := chat.ThreadID(t); !shown[id] && (writes || !foreign(id)) {
				out.Busy = append(out.Busy, chat.Busy{Thread: id, Doing: cmp.Or(h.Agent.Doing(id), "about to go on")})
			}
		}
		for _, r := range (approvals.Ledger{}).Recent(tx, maxChanges) {
			if c, ok := of(r, false); ok {
				out.Changes = append(out.Changes, c)
			}
		}
		return nil
	})
	soonest := func(a, b chat.HomeCard) int { return a.Card.Expires.Compare(b.Card.Expires) }
	slices.SortStableFunc(out.Yours, soonest)
	slices.SortStableFunc(out.Others, soonest)
	return out, err
}

// voted tells whether somebody's vote counts already.
func voted(r approvals.Record, who chat.UserID) bool {
	return slices.ContainsFunc(r.Votes, func(v approvals.Vote) bool { return v.User.ID == who })
}

// outside is a card for those who are not in its thread: what is done where, by whom, and how
// it went, and nothing that was written or printed there.
func outside(c chat.Card) chat.Card {
	return chat.Card{
		Title: c.Title, Tone: c.Tone, Env: c.Env, Production: c.Production, Risk: c.Risk, Footer: c.Footer, Expires: c.Expires,
		Since: c.Since, Final: c.Final, Body: firstLine(c.Body),
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
