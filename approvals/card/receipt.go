package card

import "countersign/approvals"

// receiptOf is what an action changed, and how that is known, for the details.
func receiptOf(r approvals.Receipt) string {
	text := visible(r.Text)
	if text == "" { // nobody looks at everything
		text = "found no change"
	}
	switch r.Method {
	case approvals.Recorded:
		return text + "\n(recorded while it ran, except most network settings)"
	case approvals.Compared:
		return text + "\n(compared before and after, except the firewall, most network settings and most directories; somebody else may have done it)"
	}
	return ""
}
