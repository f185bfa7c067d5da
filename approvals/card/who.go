package card

import (
	"fmt"
	"slices"
	"strings"

	"countersign/approvals"
)

// footer says who asked and who may decide, in one line.
func footer(r approvals.Record) string {
	asked := "Asked by " + line(nameOf(r.Requester))
	if edited(r) {
		asked = "Edited by " + line(nameOf(r.Requester))
	}
	if r.Agent != "" {
		asked += " through " + line(r.Agent)
	}
	if r.Repeats > 0 {
		asked += fmt.Sprintf(" · asked %d times", r.Repeats+1)
	}
	if r.DroppedBy.ID != "" {
		asked += " · shortened by " + line(nameOf(r.DroppedBy))
	}
	var needs []string
	for i, n := range r.Require.Needs {
		s := fmt.Sprintf("%d of %s", max(n.Count, 1), groups(n.Who()))
		if n.One() {
			s = groups(n.Who())
		}
		if met := r.Met(i); met > 0 {
			s += fmt.Sprintf(" (%d so far: %s)", met, strings.Join(approvedBy(r, i), ", "))
		}
		if !slices.Contains(needs, s) { // one vote counts for both
			needs = append(needs, s)
		}
	}
	who := "nobody may approve this"
	if len(needs) > 0 {
		who = "needs " + strings.Join(needs, " and ")
		if !r.Require.RequesterMay {
			who += " (not " + line(nameOf(r.Requester)) + ")"
		}
	}
	switch {
	case r.Require.Write != "":
		who += ", who types \"" + line(r.Require.Write) + "\" to confirm"
	case r.Require.ReasonRequired:
		who += " with a reason"
	}
	if r.Require.Proof != "" {
		who += " by passkey"
	}
	if r.Require.Solo {
		who += " · solo mode"
	}
	if r.Require.Ticket && r.Ticket.Key != "" {
		who += " · ticket " + line(r.Ticket.Key)
	}
	return asked + " · " + who
}

// groups joins the names of groups.
func groups(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return line(strings.Join(names, " or "))
}

// votes says who may decide, and who has. Several needs are a line each.
func votes(add func(name, value string), r approvals.Record) {
	if len(r.Require.Needs) == 0 {
		add("Who may approve", "nobody")
	}
	one := len(r.Require.Needs) == 1
	for i, n := range r.Require.Needs {
		count := fmt.Sprintf("%d of %d", r.Met(i), max(n.Count, 1))
		if one {
			add("Who may approve", groups(n.Who()))
			add("Votes", count)
		} else {
			add("Votes ("+line(n.Rule)+")", count+" from "+groups(n.Who()))
		}
		for _, d := range n.Duty {
			if !d.Read.IsZero() {
				add("On call", line(fmt.Sprintf("%s, read at %s", strings.TrimSpace(d.Source+" "+d.Schedule), stamp(d.Read))))
			}
		}
		for k, s := range n.Escalate {
			if k >= n.Taken && r.State == approvals.Pending {
				who := s.Who
				if len(who) == 0 {
					who = s.Groups
				}
				add("If nobody decides", fmt.Sprintf("from %s also %s", stamp(r.Created.Add(s.After)), line(strings.Join(who, ", "))))
			}
		}
	}
	for _, v := range r.Votes {
		what := "denied"
		switch {
		case v.Glass:
			what = "approved alone (break glass)"
		case v.Void:
			what = "approved, and it doesn't count any more"
		case v.Approve:
			what = "approved"
		}
		if v.Passkey != nil {
			what += " with the passkey of " + strings.TrimPrefix(v.Passkey.KeyOwner, "web:")
		}
		for _, d := range v.Duty {
			what += " (" + d.String() + ")"
		}
		if v.Reason != "" {
			what += ": " + v.Reason
		}
		add("Vote", line(fmt.Sprintf("%s at %s %s", nameOf(v.User), stamp(v.At), what)))
	}
	if !r.Require.RequesterMay {
		add("Not", line(nameOf(r.Requester))+", who asked for it")
	}
	if r.Require.ReasonRequired {
		add("Reason", "required")
	}
	if r.Require.Solo {
		add("Solo mode", "one person may approve what they asked for")
	}
}

// approvedBy are the names of those whose approvals count for a need.
func approvedBy(r approvals.Record, need int) (out []string) {
	for _, v := range r.Votes {
		if v.Approve && slices.Contains(v.Meets, need) {
			out = append(out, line(nameOf(v.User)))
		}
	}
	return out
}
