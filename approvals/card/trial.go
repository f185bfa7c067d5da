package card

import (
	"fmt"

	"countersign/adapters/chat"
	"countersign/approvals"
)

// Trial is the card on which people keep a change that undoes itself otherwise, or says how that ended.
func Trial(r approvals.Record) chat.Card {
	code, summary := shownOf(r)
	code, _ = exact(code)
	c := chat.Card{
		Title: "Keep it? " + headline(r), Tone: chat.ToneHigh, Env: line(r.Place.Env), Production: r.Place.Production,
		Code: code, Digest: r.Digest.Short(), Details: details(r, summary), DetailsID: chat.ButtonID(DetailsPrefix + string(r.ID)),
	}
	if r.Trial.Ended == "" {
		c.Preview = []string{"Undo: " + line(r.Preview.Back.Text)}
		c.Footer, c.Expires = "Undoes itself unless kept", r.Trial.Until
		c.Choose = []chat.Button{
			{ID: chat.ButtonID(KeepPrefix + string(r.ID)), Label: "Keep", Style: chat.StyleApprove},
			{ID: chat.ButtonID(NowPrefix + string(r.ID)), Label: "Undo now", Style: chat.StyleDeny},
		}
		return c
	}
	c.Final, c.Tone, c.Title, c.Body = true, chat.ToneNeutral, headline(r), TrialEnded(r)
	return c
}

// TrialEnded says in one sentence how a trial ended.
func TrialEnded(r approvals.Record) string {
	who := ""
	if r.Trial.By.ID != "" {
		who = " by " + line(nameOf(r.Trial.By))
	}
	switch r.Trial.Ended {
	case approvals.Kept:
		return "Kept" + who
	case approvals.Undone:
		if who == "" {
			return "Undone: nobody kept it"
		}
		return "Undone" + who
	case approvals.NoTrial:
		return "It didn't run, so there is nothing to keep"
	case approvals.UndoFailed:
	}
	return visible(fmt.Sprintf("The target couldn't undo it (%s). Check it by hand", r.Trial.Note))
}
