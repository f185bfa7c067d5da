// Package card shows a record of the ledger as a chat card: pure, one face for
// each state. Everything that others wrote (the command, the model's words, a
// reason) is shown as plain text with its invisible characters made visible,
// and nothing is ever cut.
//
// It does not decide anything, and a button carries an id and nothing else.
package card

import (
	"fmt"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

// ApprovePrefix and DenyPrefix begin the ids of the two buttons; the record's
// id follows.
const (
	ApprovePrefix = "approve:"
	DenyPrefix    = "deny:"
)

// Of returns the card's face for the record's state. notice is a sentence that
// must stand out, or "".
func Of(r approvals.Record, notice string) chat.Card {
	code, odd := risk.Visible(shown(r.Action))
	c := chat.Card{Title: title(r), Tone: tone(r), Code: code}
	if notice != "" {
		c.Warn = append(c.Warn, notice)
	}
	if odd {
		c.Warn = append(c.Warn, "This contains invisible or unusual characters; they are shown as \\u{...} or \\x..")
	}
	if s := disagreement(r); s != "" && r.State == approvals.Pending {
		c.Warn = append(c.Warn, s)
	}
	c.Fields = fields(r)
	switch r.State {
	case approvals.Pending:
		level := strings.ToUpper(r.Level)
		deny := chat.Button{ID: chat.ButtonID(DenyPrefix + string(r.ID)), Label: "Deny", Style: chat.StyleDeny, AskReason: true}
		yes := chat.Button{ID: chat.ButtonID(ApprovePrefix + string(r.ID)), Label: "Approve", Style: chat.StyleApprove}
		if l := r.FinalLevel(); l == risk.Unknown || l >= risk.High {
			yes.Confirm = fmt.Sprintf("This is %s. Run exactly this on %s?", level, r.Action.Target)
		}
		c.Choose = []chat.Button{deny, yes}
	default:
		c.Final = true
		c.Body = ending(r)
	}
	return c
}

// shown is what a person reads: the exact text, or the tool's own preview of it.
func shown(a approvals.Action) string {
	switch {
	case a.Kind == approvals.KindShell:
		return string(a.Bytes)
	case a.Preview != "":
		return a.Preview
	case len(a.Bytes) > 0:
		return string(a.Bytes)
	}
	return a.Tool + " " + string(a.Args)
}

func title(r approvals.Record) string {
	level := strings.ToUpper(r.Level)
	switch r.State {
	case approvals.Pending:
		return "Approve " + r.Action.Tool + "? " + level
	case approvals.Approved:
		return "Approved: " + r.Action.Tool + " (" + level + ")"
	case approvals.Running:
		return "Running: " + r.Action.Tool + " (" + level + ")"
	case approvals.Done:
		return "Done: " + r.Action.Tool + " (" + level + ")"
	case approvals.OutUnk:
		return "Outcome unknown: " + r.Action.Tool + " (" + level + ")"
	case approvals.Denied:
		return "Denied: " + r.Action.Tool + " (" + level + ")"
	case approvals.Expired:
		return "Expired: " + r.Action.Tool + " (" + level + ")"
	case approvals.Cancelled:
		return "Withdrawn: " + r.Action.Tool + " (" + level + ")"
	case approvals.Invalid:
		return "Not run: " + r.Action.Tool + " (" + level + ")"
	}
	return r.Action.Tool
}

func tone(r approvals.Record) chat.Tone {
	switch r.State {
	case approvals.Pending:
		switch l := r.FinalLevel(); {
		case l == risk.Unknown || l >= risk.High:
			return chat.ToneHigh
		case l == risk.Medium:
			return chat.ToneMedium
		}
		return chat.ToneLow
	case approvals.Done:
		if r.Outcome.OK {
			return chat.ToneGood
		}
		return chat.ToneBad
	case approvals.OutUnk, approvals.Invalid:
		return chat.ToneBad
	default:
		return chat.ToneNeutral
	}
}

// disagreement puts into words where the model's label and the engine differ.
func disagreement(r approvals.Record) string {
	if !r.Claim.Given {
		return ""
	}
	claim := "risk " + r.Claim.Risk
	if !r.Claim.Mutation {
		claim += " and no change"
	}
	engine := risk.ParseLevel(r.Engine.Risk)
	model := risk.ParseLevel(r.Claim.Risk)
	lower := engine == risk.Unknown || engine > model || (!r.Claim.Mutation && !r.Engine.ReadOnly)
	if !lower || (engine != risk.Unknown && engine <= model && r.Claim.Mutation) {
		return ""
	}
	s := fmt.Sprintf("The model says %s; the engine says %s", claim, strings.ToUpper(r.Engine.Risk))
	if len(r.Engine.Reasons) > 0 {
		s += ": " + r.Engine.Reasons[0]
	}
	return visible(strings.TrimSuffix(s, ".") + ".")
}

func visible(s string) string {
	s, _ = risk.Visible(s)
	return s
}

func fields(r approvals.Record) []chat.Field {
	a := r.Action
	var f []chat.Field
	add := func(name, value string) {
		if value != "" {
			f = append(f, chat.Field{Name: name, Value: visible(value)})
		}
	}
	target := a.Target
	if a.User != "" {
		target = a.User + "@" + target
	}
	add("Target", target)
	add("Directory", a.Dir)
	if a.Pane != "" {
		add("Pane", strings.TrimPrefix(a.Session+" / "+a.Pane, " / "))
	}
	add("Program in front", a.Foreground)
	add("File", a.Path)
	if n := strings.Count(strings.TrimRight(shown(a), "\n"), "\n"); n > 0 {
		add("Length", fmt.Sprintf("%d lines, %d bytes", n+1, len(shown(a))))
	}
	engine := strings.ToUpper(r.Engine.Risk)
	if len(r.Engine.Effects) > 0 {
		engine += " (" + strings.Join(r.Engine.Effects, ", ") + ")"
	}
	if len(r.Engine.Reasons) > 0 {
		engine += ": " + strings.Join(r.Engine.Reasons, "; ")
	}
	add("Engine says", engine)
	if r.Claim.Given {
		change, priv := "no change", ""
		if r.Claim.Mutation {
			change = "changes something"
		}
		if r.Claim.Privesc {
			priv = ", with raised privileges"
		}
		add("Model says", fmt.Sprintf("risk %s, %s%s", r.Claim.Risk, change, priv))
		add("Model's reason", fmt.Sprintf("%q", r.Claim.Why))
	}
	add("Asked by", r.Requester.Name)
	add("Rule", r.Rule)
	who := strings.Join(r.Require.Groups, ", ")
	if who == "" {
		who = "nobody"
	}
	add("Who may approve", who)
	add("Votes", fmt.Sprintf("%d of %d", r.Approvals(), max(r.Require.Count, 1)))
	if r.State == approvals.Pending {
		add("Expires", stamp(r.ExpiresAt))
	}
	add("Request", fmt.Sprintf("%s, digest %s", r.ID, r.Digest.Short()))
	return f
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// ending says who decided, when and why, and how it went.
func ending(r approvals.Record) string {
	by := r.By.Name
	if by == "" {
		by = string(r.By.ID)
	}
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	s := ""
	switch r.State {
	case approvals.Approved:
		s = fmt.Sprintf("Approved by %s at %s. It runs next.", by, stamp(r.Decided))
	case approvals.Running:
		s = fmt.Sprintf("Approved by %s at %s. Running now.", by, stamp(r.Decided))
	case approvals.Done:
		how := "It ran"
		if !r.Outcome.OK {
			how = "It ran and failed"
		}
		if r.Outcome.Note != "" {
			how += ": " + r.Outcome.Note
		}
		s = fmt.Sprintf("Approved by %s at %s. %s.", by, stamp(r.Decided), how)
	case approvals.OutUnk:
		s = fmt.Sprintf("Approved by %s at %s. Contact was lost while it ran: it may or may not have happened. Look before repeating it.", by, stamp(r.Decided))
	case approvals.Denied:
		s = fmt.Sprintf("Denied by %s at %s%s", by, stamp(r.Decided), reason)
	case approvals.Expired:
		s = "Nobody decided in time, so it was not run."
		if !r.RunBy.IsZero() {
			s = fmt.Sprintf("Approved by %s at %s, but not used within %s, so it was not run.", by, stamp(r.Decided), r.Require.RunWithin)
		}
	case approvals.Cancelled:
		s = fmt.Sprintf("Withdrawn by %s%s", by, reason)
	case approvals.Invalid:
		s = "Not run" + reason + ". It has to be asked again."
	case approvals.Pending:
	}
	return visible(s)
}
