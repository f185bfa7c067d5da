package history

import "math"

// filled puts in what stands for zero values.
func (b Budget) filled(system string) Budget {
	if b.System <= 0 {
		b.System = guess(system)
	}
	b.System += frame
	if b.Reserve <= 0 {
		b.Reserve = min(8192, b.Window/8)
	}
	if b.Factor == 0 {
		b.Factor = 1
	}
	b.Factor = min(max(b.Factor, 0.7), 2)
	return b
}

// limit is the most tokens that a request may have, as the model counts.
func (b Budget) limit() int { return min(b.Window*92/100, b.Window-b.Reserve) }

// The shares of the window from which on something is done, and how much, in percent.
const (
	clearFrom = 60 // old results become stubs
	clearStep = 10 // of the window at once
	sumFrom   = 75 // a summary is needed
	sumGain   = 5  // that it has to free at least
	largePart = 10 // no single text has more, once room is short
	factsPart = 10 // what is kept of facts
	saidPart  = 15 // what is kept of what people said
	maxSaid   = 20_000
	maxLarge  = 8192
)

// limits are the sizes that a conversation is settled by, in tokens as the transcript
// estimates them and without the system prompt and the tools.
type limits struct {
	clear, step, sum, gain, hard, large, facts, said, window int
}

// limits of a budget for a factor. system is what is taken off.
func (b Budget) limits(factor float64, system int) limits {
	of := func(percent int) int { return int(float64(b.Window) * float64(percent) / 100 / factor) }
	return limits{
		clear: of(clearFrom) - system, step: of(clearStep), sum: of(sumFrom) - system, gain: of(sumGain),
		hard:  int(float64(b.limit())/factor) - system,
		large: min(maxLarge, of(largePart)), facts: of(factsPart), said: min(int(maxSaid/factor), of(saidPart)), window: of(100),
	}
}

// steady are limits that change little while a factor is learnt and tools come and go: the
// factor is rounded to fifths, the system prompt and tools up to 256 tokens. What
// they say of each point of the transcript must be said again later.
func (b Budget) steady() limits {
	return b.limits(math.Round(b.Factor*5)/5, (b.System+255)/256*256)
}

// exact are the limits of this very request.
func (b Budget) exact() limits { return b.limits(b.Factor, b.System) }

// settle decides what is cleared, cut and covered. It walks through the transcript and
// does at each reply what was done when the model was asked for it, so that nothing
// which was decided then is decided otherwise now. upto is the last entry that a summary
// has to stand for, and end the unit after it.
func (c *conversation) settle(b Budget) (need Need, upto uint64, end int) {
	c.lim = b.steady()
	if b.Window <= 0 {
		c.lim = limits{facts: math.MaxInt32, said: math.MaxInt32, large: math.MaxInt32}
	}
	for i := range c.units {
		u := &c.units[i]
		switch {
		case u.entry.Summary != nil:
			if b.Window > 0 {
				c.settleBeforeReply()
			}
			c.apply(i)
		case u.entry.Reply != nil:
			if b.Window > 0 {
				c.settleBeforeReply()
			}
			c.older, c.newest = c.newest, i
		}
		c.total += c.size(u)
		c.seen = i + 1
	}
	if b.Window <= 0 {
		return Fits, 0, 0
	}
	need, keep := c.settleBeforeReply()
	c.lim = b.exact()
	if need != Summarise && c.total > c.lim.hard {
		need, keep = c.settleBeforeReply()
	}
	if need == Summarise {
		end := c.coverable(keep, math.MaxInt)
		if end <= c.first { // its first entry is too large to be asked about
			c.squeeze(c.lim.large, true)
			c.squeeze(c.lim.large, false)
			end = c.coverable(keep, math.MaxInt)
		}
		if end > c.first {
			return Summarise, c.units[end-1].entry.Seq, end
		}
	}
	if c.total > c.lim.hard {
		return TooLong, 0, 0
	}
	return Fits, 0, 0
}

// settleBeforeReply does what has to be done before the model is asked, with what was seen so far. keep
// says of a summary that is needed how many of the newest rounds it leaves.
func (c *conversation) settleBeforeReply() (need Need, keep int) {
	c.ripen()
	c.clear(c.lim.step, c.lim.clear)
	if c.total <= c.lim.sum {
		return Fits, 0
	}
	if c.gains(2) {
		return Summarise, 2
	}
	if c.total <= c.lim.hard {
		return Fits, 0
	}
	c.clear(1, c.lim.clear)
	for _, large := range []int{c.lim.large, c.lim.large / 4} {
		for _, results := range []bool{true, false} {
			if c.squeeze(large, results); c.total <= c.lim.hard {
				return Fits, 0
			}
		}
		for keep := 1; keep >= 0; keep-- {
			if c.gains(keep) {
				return Summarise, keep
			}
		}
	}
	c.ripenTo(c.units[c.seen-1].to) // also what the last replies asked for
	if c.clear(1, c.lim.hard); c.total <= c.lim.hard {
		return Fits, 0
	}
	return TooLong, 0
}

// ripen takes in which results are older than the last two replies.
func (c *conversation) ripen() {
	if c.older >= 0 {
		c.ripenTo(c.units[c.older].from)
	}
}

func (c *conversation) ripenTo(end int) {
	for ; c.ripe < end; c.ripe++ {
		c.gain += c.parts[c.ripe].clearable()
	}
}

// clear makes stubs of the oldest results until there are no more than most tokens, step of
// them at least at a time: each time, everything after it is no longer in the cache of
// the server.
func (c *conversation) clear(step, most int) {
	for c.total > most && c.gain >= step && c.gain > 0 {
		freed := 0
		for ; c.next < c.ripe && freed < step; c.next++ {
			p := &c.parts[c.next]
			if g := p.clearable(); g > 0 {
				freed += g
				p.state, p.tokens = cleared, p.tokens-g
			}
		}
		if freed == 0 {
			return
		}
		c.total -= freed
		c.gain -= freed
	}
}

// squeeze cuts the texts that are larger than large, the oldest first, until there is
// room: results, or everything else.
func (c *conversation) squeeze(large int, results bool) {
	for i := c.first; i < c.seen && c.total > c.lim.hard; i++ {
		u := &c.units[i]
		for j := u.from; j < u.to && c.total > c.lim.hard; j++ {
			p := &c.parts[j]
			size := large + large/4 + p.floor
			if p.result != results || p.state == cleared || p.tokens <= size {
				continue
			}
			was := p.clearable()
			c.total -= p.tokens - size
			p.state, p.most = squeezed, max(min(2*large, p.bytes*large/p.whole), 64)
			p.tokens = size
			if j >= c.next && j < c.ripe {
				c.gain += p.clearable() - was
			}
		}
	}
}

// gains reports whether a summary that leaves the newest keep rounds frees enough.
func (c *conversation) gains(keep int) bool {
	return c.coverable(keep, c.lim.gain) < 0
}

// coverable returns the unit before which everything can be covered by a summary that
// leaves the newest keep rounds and can itself be asked for, or -1 as soon as enough
// tokens are covered.
func (c *conversation) coverable(keep, enough int) int {
	end := c.first
	switch keep {
	case 2:
		end = c.older
	case 1:
		end = c.newest
	case 0:
		end = c.seen - 1
		for kept := c.size(&c.units[end]); end > max(c.newest+1, c.first); end-- {
			if kept += c.size(&c.units[end-1]); kept > c.lim.large {
				break
			}
		}
	}
	sum, room := 0, c.lim.hard-requestSize-c.ahead
	i := c.first
	for ; i < end; i++ {
		n := c.size(&c.units[i])
		if n > room {
			break
		}
		room -= n
		if sum += n; sum >= enough {
			return -1
		}
	}
	return i
}

// apply lets a summary stand for what it covers.
func (c *conversation) apply(i int) {
	s := c.units[i].entry
	if c.summary != nil && s.Summary.Upto < c.summary.Summary.Upto {
		return // it would stand for less than the one before
	}
	c.summary, c.summaryAt = s, i
	for c.first < i && c.units[c.first].entry.Seq <= s.Summary.Upto {
		u := &c.units[c.first]
		c.total -= c.size(u)
		c.cover(u)
		c.first++
	}
	c.factsRoom, c.saidRoom = c.lim.facts, c.lim.said
	c.total -= c.ahead
	c.ahead = c.front(c.guessFacts())
	c.total += c.ahead
	from := len(c.parts)
	if c.first < len(c.units) {
		from = c.units[c.first].from
	}
	c.next, c.ripe = max(c.next, from), max(c.ripe, from)
	if c.older < c.first {
		c.older = -1
	}
	if c.newest < c.first {
		c.newest = -1
	}
	c.gain = 0
	for j := c.next; j < c.ripe; j++ {
		c.gain += c.parts[j].clearable()
	}
}
