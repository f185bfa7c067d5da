package gate

import (
	"fmt"
	"strings"
	"time"

	"countersign/approvals"
)

// What people read of the gate, side by side.

const (
	sayUnknownButton  = "This button is from another version. Ask again in the thread."
	sayStopButton     = "This button doesn't work here. Write `stop` in the thread."
	sayNoRequest      = "There is no such request in this thread. `status` shows the open one."
	sayBotsDecide     = "Bots can't decide."
	sayBotsReview     = "Bots can't review."
	sayElsewhere      = "You can't do this from here, because nothing tells whether you're the person who asked, under another name. Do it in the thread. You can deny from here."
	sayNoGlass        = "Nobody can break glass here: the policy names no group under break_glass for this. To add one, see countersign docs policy-order."
	sayNoTrial        = "This command can't undo itself. Approve or deny it."
	sayOnceOnly       = "This can only be approved once. Press Approve."
	sayApproved       = "Approved."
	sayDenied         = "Denied."
	sayApprovedAlone  = "Approved alone. Someone else must review it."
	sayExpired        = "This request has expired. Nothing ran."
	sayNotCounted     = "This vote doesn't count."
	sayReviewOthers   = "You took part in this, so somebody else must review it."
	sayNotReviewed    = "You can't review this."
	sayNothingToCheck = "There is nothing to review: nobody broke glass for this request."
	sayReviewed       = "Your review is recorded."
	sayNotEditable    = "This can't be edited on its card. Deny it and say what you want instead."
	sayEmptyEdit      = "The command would be empty, so nothing changed. Press Deny if it shouldn't run."
	saySameEdit       = "The command is the same as before, so nothing changed. Press Approve if it should run."
	sayOddEdit        = "The command has invisible or unusual characters, so nothing changed. Type it by hand instead of pasting it."
	sayOtherSteps     = "Here you can only remove whole steps, and not all of them, so nothing changed. Leave the other steps as they are."
	saySameSteps      = "No step was removed, so nothing changed. Press Approve if all of them should run."
	sayNoTicket       = "This link has expired. Press the button again where you got it."
	sayNoSignature    = "This needs no passkey. Press Approve."
	sayNoSite         = "Passkeys don't work at this console's address. Ask whoever runs the bot."
	sayNoConsole      = "This needs a passkey, and the bot has no web console to sign it in. Set web.origin."
	saySignAt         = "This needs your passkey. Sign it within ten minutes:" // a link follows
	sayPressToSign    = "This needs your passkey. Press Approve on its card."
	sayEdited         = "Your edit replaces this request. It's checked again and needs its own approval."
)

// sayTicketOf says whose vote a ticket is.
func sayTicketOf(who string) string { return "You're signing " + who + "'s approval." }

// saySignThere sends somebody from a command line or an older page to the console.
func saySignThere(origin string) string {
	return "This needs your passkey. Open " + origin + " and press Approve there."
}

// saySignerNoApprover refuses the passkey of somebody who may not approve.
func saySignerNoApprover(signer, who string) string {
	return "You're signed in as " + signer + ", who can't approve this. It needs approval from " + who + "."
}

// sayOutdated refuses a vote on an old card.
func sayOutdated(id approvals.ID) string {
	return "This card is out of date, so nothing was decided. Use the newest card, or write `approve " + string(id) + "`."
}

// sayExpiredAt answers a vote that came too late.
func sayExpiredAt(at time.Time) string {
	return "This request expired at " + clock(at) + ". Nothing ran."
}

// sayAskedElsewhere refuses somebody of whom nobody can tell that they are not who asked.
func sayAskedElsewhere(network string) string {
	where := network
	if network == "web" {
		where = "the web console"
	}
	return "This was asked for in " + where + ", and nothing tells whether you're the person who asked, under another name. Somebody has to approve it there. You can deny it here."
}

// sayTwice answers a second approval by the same person.
func sayTwice(missing string) string {
	return "You already approved this. It still needs " + missing + "."
}

// sayReason asks for the reason that a vote needs.
func sayReason(verb string, id approvals.ID) string {
	return "This needs a reason, so nothing was decided. Write it beside the button, or `" + verb + " " + string(id) + " your reason`."
}

// sayWrite asks for what has to be written to approve.
func sayWrite(write, verb string, id approvals.ID) string {
	return "Solo mode: to approve this, write `" + write + "` in the field on the card, or say `" + verb + " " + string(id) + " " + write + "`. Nothing was decided."
}

// sayMore says which votes an approved request still needs.
func sayMore(missing string) string { return "Approved. It still needs " + missing + "." }

// sayMissing is a need that is not met yet.
func sayMissing(has, want int, groups []string) string {
	return fmt.Sprintf("%d of %d from %s", has, want, strings.Join(groups, " or "))
}

// sayGranted says how long exactly this may run again.
func sayGranted(until time.Time) string {
	return "Approved. This exact command won't ask again until " + clock(until) + "."
}

// sayGlassOnly says who may break glass.
func sayGlassOnly(groups []string) string {
	return "You can't break glass here. Only " + strings.Join(groups, " or ") + " can."
}

// sayNoApprovers says that nobody can approve on a target.
func sayNoApprovers(target string) string {
	return "Nobody can approve on " + target + ", because it has no approvers. Add a group under its approvers in the configuration; see countersign docs targets."
}

// sayOwnRequest refuses the requester's own approval.
func sayOwnRequest(who string) string {
	return "You can't approve this: you requested it. Ask " + who + "."
}

// sayNotApprover refuses somebody who is in none of the groups.
func sayNotApprover(who string) string {
	return "You can't approve this. It needs approval from " + who + "."
}

// sayApproversChanged says on an open card that others approve by now.
func sayApproversChanged(who string) string {
	return "The approvers have changed since: now it needs approval from " + who + ", too. Deny it to have it asked again."
}

// sayForbidden says that the policy forbids it by now.
func sayForbidden(why string) string { return "This can't be approved anymore: " + why }

// sayNotReviewer refuses a review.
func sayNotReviewer(groups []string) string {
	return "You can't review this. It needs a review by " + strings.Join(groups, " or ") + "."
}

// sayReviewedBy answers a second review.
func sayReviewedBy(who string) string { return "Already reviewed by " + who + "." }

// sayLongEdit refuses an edit that is too long.
func sayLongEdit(n, most int) string {
	return fmt.Sprintf("The command has %d bytes, and an edit can have at most %d, so nothing changed.", n, most)
}

// sayEditForbidden refuses an edit that the policy forbids.
func sayEditForbidden(why string) string {
	return "The policy refuses this command, so nothing changed: " + why + "."
}

// sayEscalated says who else may decide now.
func sayEscalated(groups string, expires time.Time) string {
	return fmt.Sprintf("Nobody has decided yet, so **%s** can decide now, too. The request expires at %s.", groups, clock(expires))
}

// sayRelieved says who went on call while a request waits.
func sayRelieved(who string, expires time.Time) string {
	return fmt.Sprintf("On call now, and asked to decide: **%s**. The request expires at %s.", who, clock(expires))
}

// sayVoid says whose approval doesn't count any more.
func sayVoid(who string) string {
	return fmt.Sprintf("**%s** approved this, but can't decide it any more, so that approval no longer counts.", who)
}

// sayStillNeeded says who has to decide.
func sayStillNeeded(who string, expires time.Time) string {
	return fmt.Sprintf("It needs approval from **%s**. The request expires at %s.", who, clock(expires))
}

// sayUnknownShift says who decides while nobody knows who is on call.
func sayUnknownShift(who string, expires time.Time) string {
	return fmt.Sprintf("Who is on call isn't known now, so this is for **%s**. The request expires at %s.", who, clock(expires))
}

// sayNoTicketNow refuses a vote because of the ticket.
func sayNoTicketNow(why string) string {
	return "Nothing was decided: " + why + "."
}

// sayNoTicketYet answers who asks for the thread's ticket.
const sayNoTicketYet = "This thread has no ticket yet. Write its key."

// sayNoKey answers who names something else than a ticket.
func sayNoKey(word string) string {
	return "`" + word + "` isn't a ticket here. The section tickets of the configuration has the pattern of their keys."
}

// sayTicket says which ticket the thread has, and what is wrong with it.
func sayTicket(ticket, why string) string {
	return strings.TrimSpace("The ticket of this thread is **" + ticket + "**. " + why)
}

// sayPlanEnded is the notice on the card of a call that is not the plan's next step.
func sayPlanEnded(next int) string {
	return fmt.Sprintf("This isn't step %d as it was approved, so that plan has ended and this needs its own approval.", next)
}
