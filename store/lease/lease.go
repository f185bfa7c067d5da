// Package lease gives a name to one holder for a time: a shard of a network's
// gateway, a job that must run once in the fleet. Each grant has an epoch that
// only grows, so that what a holder writes under its lease can be told from what
// the next one writes.
//
// Times are arguments: the package has no clock, renews nothing by itself, and
// its safety rests on epochs, not on clocks that agree.
//
// Rows (see store.Key):
//
//	"lease" <name> -> holder, epoch, expires; kept after release, for the epoch
package lease

import (
	"errors"
	"time"

	"countersign/store"
)

// ErrLost means that the lease expired, was released or went to another holder.
var ErrLost = errors.New("lease: the lease is not held any more")

// Lease is one grant.
type Lease struct {
	Name    string    `json:"name"`
	Holder  string    `json:"holder"`
	Epoch   uint64    `json:"epoch"`   // grows with every grant of the name
	Expires time.Time `json:"expires"` // from this instant on it is not held
}

func key(name string) []byte { return store.Key("lease", name) }

func (l Lease) held(now time.Time) bool { return l.Holder != "" && now.Before(l.Expires) }

// Acquire grants name to holder until now+ttl. It returns the lease that stands
// and false when another holder has it. For a holder that has it already it is a
// renewal: the epoch stays. The holder must not be empty: that aborts the
// transaction.
func Acquire(tx store.Tx, name, holder string, now time.Time, ttl time.Duration) (Lease, bool) {
	if holder == "" {
		store.Abort(errors.New("lease: a holder needs a name"))
	}
	l, _ := store.Load[Lease](tx, key(name))
	if l.held(now) && l.Holder != holder {
		return l, false
	}
	if !l.held(now) {
		l = Lease{Name: name, Holder: holder, Epoch: l.Epoch + 1}
	}
	l.Expires = now.Add(ttl)
	store.Save(tx, key(name), l)
	return l, true
}

// Renew moves the end of a lease to now+ttl. [ErrLost] says that it is not held
// any more, be it only that it expired: others may have seen the name free, so
// the way back is a new grant.
func Renew(tx store.Tx, l Lease, now time.Time, ttl time.Duration) (Lease, error) {
	if err := l.Check(tx, now); err != nil {
		return Lease{}, err
	}
	l.Expires = now.Add(ttl)
	store.Save(tx, key(l.Name), l)
	return l, nil
}

// Check returns [ErrLost] when l is not held any more. A transaction that writes
// under a lease begins with it.
func (l Lease) Check(tx store.Tx, now time.Time) error {
	cur, _ := store.Load[Lease](tx, key(l.Name))
	if !cur.held(now) || cur.Holder != l.Holder || cur.Epoch != l.Epoch {
		return ErrLost
	}
	return nil
}

// Release ends a lease at once. One that is not held any more is left alone.
func Release(tx store.Tx, l Lease) {
	cur, _ := store.Load[Lease](tx, key(l.Name))
	if cur.Holder != l.Holder || cur.Epoch != l.Epoch {
		return
	}
	cur.Holder, cur.Expires = "", time.Time{}
	store.Save(tx, key(l.Name), cur)
}

// Holder returns the lease that stands at now, false when the name is free.
func Holder(tx store.Tx, name string, now time.Time) (Lease, bool) {
	l, _ := store.Load[Lease](tx, key(name))
	if !l.held(now) {
		return Lease{}, false
	}
	return l, true
}
