package spend

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"countersign/store"
)

// maxNamed is how many models without a price a row remembers; more say nothing
// new.
const maxNamed = 5

// Sum is what was spent in one scope.
type Sum struct {
	Amount
	// Uncounted is the number of replies whose server did not say how many tokens
	// they took.
	Uncounted int64 `json:"uncounted,omitempty"`
	// Unpriced are models whose tokens are in here and cost nothing because they had no
	// price, the first five, sorted.
	Unpriced []string `json:"unpriced,omitempty"`
}

func (s Sum) plus(c Charge) Sum {
	s.Amount = s.Amount.plus(c.Amount)
	if c.Uncounted {
		s.Uncounted = sum(s.Uncounted, 1)
	}
	if c.Unpriced != "" && len(s.Unpriced) < maxNamed && !slices.Contains(s.Unpriced, c.Unpriced) {
		s.Unpriced = append(slices.Clone(s.Unpriced), c.Unpriced)
		slices.Sort(s.Unpriced)
	}
	return s
}

// with is both sums together.
func (s Sum) with(o Sum) Sum {
	s.Amount = s.Amount.plus(o.Amount)
	s.Uncounted = sum(s.Uncounted, o.Uncounted)
	for _, m := range o.Unpriced {
		if len(s.Unpriced) < maxNamed && !slices.Contains(s.Unpriced, m) {
			s.Unpriced = append(slices.Clone(s.Unpriced), m)
			slices.Sort(s.Unpriced)
		}
	}
	return s
}

// threadRow is the sum of a thread and the last day on which it grew.
type threadRow struct {
	Sum
	Last Day `json:"last"`
}

// Totals are the sums that concern one place.
type Totals struct {
	Place
	Sums map[Scope]Sum
}

// Granted is what people allowed beyond the caps that concern one place; a scope
// that is not in it got nothing.
type Granted map[Scope]Amount

// Grant is what people allowed beyond one cap.
type Grant struct {
	// Request is the id of the request that they approved; it counts once.
	Request string `json:"request"`
	Scope   Scope  `json:"scope"`
	Thread  string `json:"thread,omitempty"`  // where it was asked; the thread that it is for, with scope Thread
	Channel string `json:"channel,omitempty"` // that it is for, with scope Channel
	Day     Day    `json:"day,omitempty"`     // that it is for, with the scopes Channel and Daily
	Amount
	By string    `json:"by"` // who approved it, as a user's ID
	At time.Time `json:"at"`
}

// validate says what is wrong with a grant.
func (g Grant) validate() error {
	switch {
	case g.Request == "":
		return errors.New("it names no request")
	case g.At.IsZero():
		return errors.New("it has no time")
	case g.Tokens < 0 || g.Money < 0 || g.Tokens > maxTokens || g.Money > maxMoney || (g.Tokens == 0 && g.Money == 0):
		return fmt.Errorf("it is for %d tokens and %d micro-dollars; one has to be more than 0, and neither beyond %d", g.Tokens, g.Money, maxTokens)
	}
	switch g.Scope {
	case Thread:
		if g.Thread == "" {
			return errors.New("it names no thread")
		}
		return nil
	case Channel:
		if g.Channel == "" {
			return errors.New("it names no channel")
		}
	case Daily:
	default:
		return fmt.Errorf("its scope is %q; use thread, channel or day", g.Scope)
	}
	if !g.Day.valid() {
		return fmt.Errorf("its day is %q; use one like 2006-01-02", g.Day)
	}
	return nil
}

func threadKey(thread string) []byte     { return store.Key("spend", "thread", thread) }
func ageKey(d Day, thread string) []byte { return store.Key("spend", "age", d, thread) }

// shards is over how many rows the sums of a day are spread: each reply of every thread
// adds to them, and replies that are stored at once must not wait for one row.
const shards = 16

// shardOf is the row that a thread's costs go to.
func shardOf(thread string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(thread))
	return uint64(h.Sum32() % shards)
}

func dayParts(d Day) []any                     { return []any{"spend", "day", d} }
func channelParts(d Day, channel string) []any { return []any{"spend", "channel", d, channel} }

// total adds up the rows of a day's sum.
func total(tx store.Tx, parts []any) (t Sum) {
	for key, raw := range tx.Scan(store.Prefix(parts...)) {
		var s Sum
		store.Decode(key, raw, &s)
		t = t.with(s)
	}
	return t
}

// grantParts are the parts of the keys of the grants of one scope that concern p.
func grantParts(s Scope, p Place) []any {
	switch s {
	case Thread:
		return []any{"spend", "grant", "thread", p.Thread}
	case Channel:
		return []any{"spend", "grant", "channel", p.Day, p.Channel}
	default:
		return []any{"spend", "grant", "day", p.Day}
	}
}

// Add counts what one reply cost, for its thread, its channel's day and the day.
// Call it once for each reply, in the transaction that stores the reply. A place
// without a real day aborts the transaction: its cost would be lost.
func Add(tx store.Tx, p Place, c Charge) {
	if !p.Day.valid() {
		store.Abort(fmt.Errorf("spend: the day %q is none; use DayOf", p.Day))
	}
	grow := func(parts []any) {
		key := store.Key(append(parts, shardOf(p.Thread))...)
		s, _ := store.Load[Sum](tx, key)
		store.Save(tx, key, s.plus(c))
	}
	grow(dayParts(p.Day))
	if p.Channel != "" {
		grow(channelParts(p.Day, p.Channel))
	}
	if p.Thread != "" {
		touch(tx, p.Thread, p.Day, func(s Sum) Sum { return s.plus(c) })
	}
	for by, name := range map[By]string{ByThread: p.Thread, ByPerson: p.Person, ByModel: c.Model} {
		if name != "" {
			grow([]any{"spend", "by", p.Day, by, name})
		}
	}
}

// By is what the costs of a day are told apart by.
type By string

// All that there are.
const (
	ByThread By = "thread"
	ByPerson By = "person"
	ByModel  By = "model"
)

// Share is a part of what was spent: of one thread, person or model.
type Share struct {
	Name string
	Sum
}

// Shares returns what was spent since a day, the largest share first.
func Shares(tx store.Tx, since Day, by By) []Share {
	sums := map[string]Sum{}
	start, _ := store.Prefix("spend", "by", since)
	_, end := store.Prefix("spend", "by")
	for key, raw := range tx.Scan(start, end) {
		parts, err := store.Parts(key)
		if err != nil || len(parts) != 6 {
			store.Abort(fmt.Errorf("spend: the row %s is damaged", store.Format(key)))
		}
		if parts[3] != string(by) {
			continue
		}
		var s Sum
		store.Decode(key, raw, &s)
		name, _ := parts[4].(string)
		sums[name] = sums[name].with(s)
	}
	out := make([]Share, 0, len(sums))
	for name, s := range sums {
		out = append(out, Share{name, s})
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Money, a.Money), cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// touch changes the sum of a thread and notes that it was used on a day.
func touch(tx store.Tx, thread string, d Day, change func(Sum) Sum) {
	row, ok := store.Load[threadRow](tx, threadKey(thread))
	if !ok || row.Last < d {
		if ok {
			tx.Delete(ageKey(row.Last, thread))
		}
		row.Last = d
		tx.Set(ageKey(d, thread), nil)
	}
	row.Sum = change(row.Sum)
	store.Save(tx, threadKey(thread), row)
}

// Load returns what was spent so far at p. A place where nothing was has zero sums.
func Load(tx store.Tx, p Place) Totals {
	row, _ := store.Load[threadRow](tx, threadKey(p.Thread))
	t := Totals{Place: p, Sums: map[Scope]Sum{Thread: row.Sum}}
	t.Sums[Channel] = total(tx, channelParts(p.Day, p.Channel))
	t.Sums[Daily] = total(tx, dayParts(p.Day))
	return t
}

// Allow stores a grant. fresh is false, and nothing changes, when the request was
// granted before. Its error means that the grant is not one, and nothing was
// stored.
func Allow(tx store.Tx, g Grant) (fresh bool, err error) {
	if err := g.validate(); err != nil {
		return false, fmt.Errorf("spend: the extension was not stored: %w", err)
	}
	key := store.Key(append(grantParts(g.Scope, Place{Thread: g.Thread, Channel: g.Channel, Day: g.Day}), g.Request)...)
	if _, ok := tx.Get(key); ok {
		return false, nil
	}
	store.Save(tx, key, g)
	if g.Scope == Thread { // so that Prune finds it with its thread
		touch(tx, g.Thread, DayOf(g.At), func(s Sum) Sum { return s })
	}
	return true, nil
}

// Grants lists the grants that concern p, the narrowest scope first.
func Grants(tx store.Tx, p Place) []Grant {
	var out []Grant
	for _, s := range scopes {
		start, end := store.Prefix(grantParts(s, p)...)
		for key, raw := range tx.Scan(start, end) {
			var g Grant
			store.Decode(key, raw, &g)
			out = append(out, g)
		}
	}
	return out
}

// LoadGranted adds up the grants that concern p.
func LoadGranted(tx store.Tx, p Place) Granted {
	out := Granted{}
	for _, g := range Grants(tx, p) {
		out[g.Scope] = out[g.Scope].plus(g.Amount)
	}
	return out
}

func warnedKey(p Place, w Warning) []byte {
	return store.Key("spend", "told", p.Day, w.Scope, p.name(w.Scope))
}

// Untold returns those warnings that nobody was given yet for that scope on that day.
func Untold(tx store.Tx, p Place, ws []Warning) []Warning {
	var out []Warning
	for _, w := range ws {
		if _, ok := tx.Get(warnedKey(p, w)); !ok {
			out = append(out, w)
		}
	}
	return out
}

// Tell returns the sentences of those warnings that nobody was given yet for that
// scope on that day, and notes that they are given now: post them in the same
// transaction.
func Tell(tx store.Tx, p Place, ws []Warning) []string {
	var out []string
	for _, w := range Untold(tx, p, ws) {
		tx.Set(warnedKey(p, w), nil)
		out = append(out, w.Sentence)
	}
	return out
}

// Prune removes up to limit rows (0: all) that are about days before the day of a
// moment, and returns how many. A thread counts as one row, goes with its grants,
// and only when it was not used since; used again, it begins at zero. Keep threads
// for longer than people come back to them, and never prune today's rows: the caps
// would begin anew.
func Prune(tx store.Tx, before time.Time, limit int) int {
	n := 0
	full := func() bool { return limit > 0 && n >= limit }
	for _, kind := range [][]any{{"spend", "day"}, {"spend", "channel"}, {"spend", "by"}, {"spend", "told"}, {"spend", "grant", "day"}, {"spend", "grant", "channel"}, {"spend", "age"}} {
		start, _ := store.Prefix(kind...)
		end, _ := store.Prefix(append(slices.Clone(kind), DayOf(before))...)
		for key := range tx.Scan(start, end) {
			if full() {
				return n
			}
			if kind[1] == "age" {
				deleteThread(tx, key)
			}
			tx.Delete(key)
			n++
		}
	}
	return n
}

// deleteThread removes the rows of the thread that a key ("spend", "age", day, thread)
// names.
func deleteThread(tx store.Tx, key []byte) {
	parts, err := store.Parts(key)
	if err != nil {
		store.Abort(err)
	}
	thread, _ := parts[len(parts)-1].(string)
	tx.Delete(threadKey(thread))
	start, end := store.Prefix(grantParts(Thread, Place{Thread: thread})...)
	for key := range tx.Scan(start, end) {
		tx.Delete(key)
	}
}
