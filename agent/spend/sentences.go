package spend

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// thousands writes a number as 1,204,500.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short writes a number of tokens for a look in passing: 312,000, and from a
// million on 1.2 M, rounded down.
func short(n int64) string {
	const million = 1_000_000
	if n < million {
		return thousands(n)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s.%d", thousands(n/million), n%million/(million/10)), ".0") + " M"
}

// spent says what was used of a limit: "2,000,431 of its 2,000,000 tokens and about
// $8.10 of its $10.00".
func spent(used, limit Amount, which []Kind) string {
	var out []string
	for _, k := range which {
		if k == Tokens {
			out = append(out, fmt.Sprintf("%s of its %s tokens", thousands(used.Tokens), thousands(limit.Tokens)))
		} else {
			out = append(out, fmt.Sprintf("about %s of its %s", used.Money, limit.Money))
		}
	}
	return strings.Join(out, " and ")
}

// subject begins a sentence about a scope: what used, and when.
func subject(s Scope) (who, when string) {
	switch s {
	case Thread:
		return "this thread has used ", ""
	case Channel:
		return "this channel has used ", " today (UTC)"
	default:
		return "this bot has used ", " today (UTC), in all threads together"
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// warning is the sentence at 80 %.
func warning(s Scope, used, limit Amount, near []Kind) string {
	who, when := subject(s)
	return capital(who) + spent(used, limit, near) + when + ". At the cap I stop and ask whether to go on."
}

func (o Over) used() string {
	who, when := subject(o.Scope)
	return who + spent(o.Used, o.Cap, o.Kinds) + when
}

// Sentence says that the cap is used up, for the card or beside it. Its numbers
// change while people decide, so it must not be a part of what they approve.
func (o Over) Sentence() string {
	return capital(o.used()) + ", so I paused before asking the model again."
}

// Refused is what ends the turn when nobody allows more, and what to do then.
func (o Over) Refused() string {
	end := " Say `go on` to be asked again, or start another thread."
	if o.Scope != Thread {
		end = " Say `go on` to be asked again. The next day starts at 00:00 UTC."
	}
	return "I stopped here: " + o.used() + ", and nobody allowed more." + end
}

// Status says in one or two lines what was spent of what. The first has the sums,
// with what was granted in the caps; the second, where there is something to add,
// what was granted and what the sums leave out.
func Status(t Totals, c Caps, g Granted) string {
	parts := []string{"This thread has used " + share(t.Sums[Thread].Amount, c.limit(Thread, t.Channel, g), "about ")}
	all := "today "
	if limit := c.limit(Channel, t.Channel, g); t.Channel != "" && limit != (Amount{}) {
		parts = append(parts, "this channel today "+share(t.Sums[Channel].Amount, limit, ""))
		all = "all channels today "
	}
	parts = append(parts, all+share(t.Sums[Daily].Amount, c.limit(Daily, t.Channel, g), ""))
	first := strings.Join(parts, "; ") + "."
	var more []string
	if s := extended(c, t, g); s != "" {
		more = append(more, s)
	}
	if s := unpriced(t); s != "" {
		more = append(more, s)
	}
	switch n := t.Sums[Thread].Uncounted; {
	case n == 1:
		more = append(more, "1 reply in this thread had no token count and isn't included.")
	case n > 1:
		more = append(more, thousands(n)+" replies in this thread had no token count and aren't included.")
	}
	if len(more) == 0 {
		return first
	}
	return first + "\n" + strings.Join(more, " ")
}

// share is one part of the status: "312,000 tokens (about $0.84 of $10.00)".
func share(used, limit Amount, about string) string {
	s := short(used.Tokens)
	if limit.Tokens > 0 {
		s += " of " + short(limit.Tokens)
	}
	if s == "1" {
		s += " token"
	} else {
		s += " tokens"
	}
	switch {
	case limit.Money > 0:
		return fmt.Sprintf("%s (%s%s of %s)", s, about, used.Money, limit.Money)
	case used.Money > 0:
		return fmt.Sprintf("%s (%s%s)", s, about, used.Money)
	}
	return s
}

// extended says what was granted, where it matters to a cap.
func extended(c Caps, t Totals, g Granted) string {
	var out []string
	for _, s := range scopes {
		limit, conf := c.limit(s, t.Channel, g), c.Of(s, t.Channel)
		var by []string
		if n := limit.Tokens - conf.Tokens; limit.Tokens > 0 && n > 0 {
			by = append(by, thousands(n)+" tokens")
		}
		if m := limit.Money - conf.USD; limit.Money > 0 && m > 0 {
			by = append(by, m.String())
		}
		if len(by) > 0 {
			out = append(out, map[Scope]string{Thread: "this thread", Channel: "this channel today", Daily: "today"}[s]+" by "+strings.Join(by, " and "))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "People extended " + strings.Join(out, ", ") + "."
}

// unpriced names the models whose tokens cost nothing in these sums.
func unpriced(t Totals) string {
	var names []string
	for _, s := range scopes {
		for _, n := range t.Sums[s].Unpriced {
			if n = "`" + strings.ReplaceAll(n, "`", "'") + "`"; !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	// Past tense: a price that was added since changes nothing of what is counted.
	return "No price was set for " + strings.Join(names, ", ") + ", so the cost isn't shown."
}
