package gate

import (
	"fmt"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/store"
)

// Limits bound what one program may ask people for. Zero is no bound.
type Limits struct {
	Open    int // requests that wait at the same time
	PerHour int // and requests in an hour
}

const (
	// repeatsFor is how long the denial of a request answers the same program's next one.
	repeatsFor = 15 * time.Minute
	// maxRemembered bounds how many recent requests of a program a new one is compared with.
	maxRemembered = 50
)

// programID identifies one program of one person.
type programID struct {
	Requester chat.UserID
	Caller    approvals.Caller
}

func programOf(by chat.User, c approvals.Caller) programID {
	if c.By != "" { // it can't choose that
		return programID{by.ID, approvals.Caller{By: c.By}}
	}
	return programID{by.ID, approvals.Caller{Way: c.Way, Program: c.Program, Host: c.Host}}
}

// sameness identifies what an action is to people. Which conversation's terminal it runs in makes no
// difference to them.
func sameness(a approvals.Action) string {
	a.Session, a.Pane, a.Env, a.Foreground = "", "", nil, ""
	return a.Digest().String()
}

// programRow is what is stored of a program that asks.
type programRow struct {
	Begun time.Time     `json:"begun"` // the hour, and how much was asked in it
	Count int           `json:"count"`
	Last  []pastRequest `json:"last,omitempty"` // the newest last
}

// pastRequest is something that it has asked for.
type pastRequest struct {
	What string       `json:"what"`
	ID   approvals.ID `json:"id"`
}

func (w programID) key() []byte {
	if w.Caller.By != "" {
		return store.Key("approval-caller", string(w.Requester), w.Caller.By)
	}
	return store.Key("approval-caller", string(w.Requester), string(w.Caller.Way), w.Caller.Program, w.Caller.Host)
}

// Throttle keeps a program that runs in a loop from flooding people, before a request of it is filed. A
// request that repeats one is counted on that one's card and refused, and so is one more than the
// limits allow. why is the reason; "" means that the request may be filed.
func (g *Gate) Throttle(tx store.Tx, req approvals.Request) (why string) {
	if req.Caller.Way == "" || req.Revision > 0 {
		return ""
	}
	if _, filed := g.ledger.Get(tx, req.ID()); filed {
		return ""
	}
	who, what, now := programOf(req.By, req.Caller), sameness(req.Action), g.cfg.Now()
	known, _ := store.Load[programRow](tx, who.key())
	for _, x := range slices.Backward(known.Last) {
		if r, ok := g.ledger.Get(tx, x.ID); ok && x.What == what {
			if why := g.answered(tx, r, now); why != "" {
				return why
			}
		}
	}
	limits, open := g.cfg.Limits(), 0
	for _, r := range g.ledger.AllOpen(tx) {
		if r.State == approvals.Pending && programOf(r.Requester, r.Caller) == who {
			open++
		}
	}
	if now.Sub(known.Begun) >= time.Hour {
		known.Begun, known.Count = now.UTC(), 0
	}
	switch {
	case limits.Open > 0 && open >= limits.Open:
		return fmt.Sprintf("%d requests of this program wait already, and more may not; wait for their decisions", open)
	case limits.PerHour > 0 && known.Count >= limits.PerHour:
		return fmt.Sprintf("this program has asked for %d things within an hour, and more may not be asked; the next one may in %s", known.Count, minutes(time.Hour-now.Sub(known.Begun)))
	}
	known.Count++
	known.Last = append(known.Last, pastRequest{what, req.ID()})
	known.Last = known.Last[max(len(known.Last)-maxRemembered, 0):]
	store.Save(tx, who.key(), known)
	return ""
}

// answered is what an earlier request says to one for the same, or "".
func (g *Gate) answered(tx store.Tx, r approvals.Record, now time.Time) string {
	switch {
	case r.State == approvals.Pending:
		return fmt.Sprintf("it already waits for approval as request %s, and was asked for %d times; wait for that decision", r.ID, g.repeat(tx, r))
	case r.State == approvals.Denied && now.Sub(r.Decided) < repeatsFor:
		g.repeat(tx, r)
		reason := ""
		if r.Reason != "" {
			reason = ": " + r.Reason
		}
		return fmt.Sprintf("%s denied exactly this %s ago as request %s%s; it wasn't asked again, and may be in %s", r.By.Name, minutes(now.Sub(r.Decided)), r.ID, reason, minutes(repeatsFor-now.Sub(r.Decided)))
	}
	return ""
}

// repeat counts one more time that a request was asked for, on its card too.
func (g *Gate) repeat(tx store.Tx, r approvals.Record) int {
	r, ok := g.ledger.Repeat(tx, r.ID)
	if ok {
		g.audit(tx, r, audit.Repeated, r.Requester.ID, "", "")
		g.updateCard(tx, r, "")
	}
	return r.Repeats + 1
}

// minutes is a short time in words.
func minutes(d time.Duration) string {
	if m := int(d.Round(time.Minute).Minutes()); m > 1 {
		return fmt.Sprintf("%d minutes", m)
	}
	return "a minute"
}
