package card

// What people read on cards beside what is decided, side by side.

const (

	// Buttons, and what a press confirms.
	labelApproveAll = "Approve all %d"
	labelTrial      = "Approve, undo in %s unless kept"
	labelApproveFor = "Approve for %d min"
	labelUndoStep   = "Undo step %d"
	askExactly      = "This is %s risk. Run exactly this%s?"
	askChange       = "This is %s risk. Approve exactly this?"
	askGrant        = "This exact command then runs again in this thread for %d minutes without asking. Stop ends that."
	askGlass        = "You approve this alone and give a reason. Someone else must review it afterwards."

	// A question of a workflow.
	askWritten = "write it in this thread"

	// Warnings.
	sayHidden     = "This contains invisible or unusual characters, shown as \\u{...} or \\x... A backslash that precedes such a name is shown as \\x5c."
	sayHarmless   = "The agent called this harmless."
	sayNoChange   = "The agent said this changes nothing."
	sayPrivileges = "It uses raised privileges. The agent didn't say so."
	sayReview     = "Someone else must review this."

	// How a request ended.
	sayPlanApproved = "Approved by %s at %s%s · %s\n"
	sayApproved     = "Approved by %s at %s%s · "
	sayUndone       = "↩ Undone by %s at %s"
	sayUndoes       = "Undoes \"%s\", approved by %s at %s"
	sayDenied       = "Denied by %s at %s%s"
	sayExpired      = "Expired: nobody decided in time. It didn't run."
	sayLateStart    = "expired: it didn't start within %s. It didn't run."
	sayWithdrawn    = "Withdrawn by %s%s"
	sayUnknown      = "outcome unknown. Contact was lost while this ran. Check the result before running it again."
	sayStepUnknown  = "outcome unknown: check the result before running it again"
	sayStepsDone    = "%d of %d done"
	sayStepFailed   = "step %d of %d failed"
	sayReviewed     = "\nReviewed by %s at %s%s"
	sayGlass        = "%s approved this alone at %s (break glass): %s"
)
