package card

import "countersign/approvals"

// receiptOf is what an action changed, and how that is known, for the details.
func receiptOf(r approvals.Receipt) string {
	var how string
	switch r.Method {
	case approvals.Recorded:
		how = "recorded while it ran"
	case approvals.Compared:
		how = "compared before and after, so somebody else may have done it"
	default:
		return ""
	}
	switch {
	case r.Text == "" && r.Method == approvals.Compared: // in some places, of which the details of a card say nothing
		return "found no change where it looked (" + how + ")"
	case r.Text == "":
		return "changed nothing (" + how + ")"
	}
	return visible(r.Text) + "\n(" + how + ")"
}
