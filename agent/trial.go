package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/store"
)

// trialWithin bounds one look at a change on trial.
const trialWithin = 5 * time.Second

// lookAtTrial finds out, beside the thread, how a change on trial ended. If the target does not answer,
// the gate has it called again later.
func (a *Agent) lookAtTrial(thread chat.ThreadID, id approvals.ID) {
	a.previews.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), trialWithin)
		defer cancel()
		end, note, err := a.cfg.Witness.Trial(ctx, thread, id, nil)
		if err != nil || end == "" {
			if err != nil {
				a.cfg.Log.Warn("can't tell yet whether a change on trial undid itself", "request", id, "error", err)
			}
			return
		}
		if _, err := a.endTrial(ctx, thread, id, end, chat.User{}, note); err != nil {
			a.cfg.Log.Warn("how a change on trial ended could not be stored", "request", id, "error", err)
		}
	})
}

func (a *Agent) endTrial(ctx context.Context, thread chat.ThreadID, id approvals.ID, end approvals.TrialEnd, by chat.User, note string) (c chat.Card, err error) {
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		var changed bool
		c, changed = a.cfg.Terms.EndTrial(tx, id, end, by, a.cfg.Redact(note))
		if changed && (end == approvals.Undone || end == approvals.UndoFailed) { // the model would go on as if it stood
			a.note(tx, thread, "trial/"+string(id), noteTrial(c.Code, c.Body))
		}
		return nil
	})
	a.Wake(thread)
	a.cfg.Outbox.Wake(thread)
	return c, err
}

// pressTrial handles the buttons of a change on trial.
func (a *Agent) pressTrial(ctx context.Context, c chat.Click) (chat.Answer, error) {
	rest, keep := strings.CutPrefix(string(c.Button), card.KeepPrefix)
	id := approvals.ID(strings.TrimPrefix(rest, card.NowPrefix))
	why := ""
	if err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		why = a.cfg.Terms.MayKeep(tx, c, id, keep)
		return nil
	}); err != nil {
		return chat.Answer{}, err
	}
	if why != "" {
		return chat.Answer{Notice: why}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, trialWithin)
	defer cancel()
	end, note, err := a.cfg.Witness.Trial(ctx, c.Thread, id, &keep)
	switch {
	case err != nil && keep:
		return chat.Answer{Notice: sayNotKept(err)}, nil
	case err != nil:
		return chat.Answer{Notice: sayNotUndone(err)}, nil
	case end == "":
		return chat.Answer{Notice: sayUndoing, OK: true}, nil
	}
	by := c.From
	if keep != (end == approvals.Kept) {
		by = chat.User{} // the target was faster
	}
	shown, err := a.endTrial(ctx, c.Thread, id, end, by, note)
	if err != nil {
		return chat.Answer{}, errors.Join(errors.New("it was settled on the target, and could not be stored"), err)
	}
	return chat.Answer{Card: &shown, Notice: shown.Body, OK: true}, nil
}
