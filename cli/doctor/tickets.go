package doctor

import (
	"context"
	"errors"
	"os"

	"countersign/approvals/tickets"
	"countersign/config"
)

// sample are keys that no system has.
var sample = map[string]string{tickets.Jira: "ZZZZ-0", tickets.ServiceNow: "CHG0000000", tickets.GitHub: "#999999999", tickets.GitLab: "#999999999"}

// ticketChecks ask each system of tickets about one that isn't there.
func ticketChecks(f config.File) (list []check) {
	systems, err := f.TicketSystems(os.Getenv)
	if err != nil {
		return []check{{name: "tickets", run: func(context.Context) result {
			return fromSentence("FAIL", err.Error(), "set it in the bot's environment")
		}}}
	}
	for _, o := range systems {
		if o.Kind == "" {
			continue
		}
		list = append(list, check{name: "tickets of " + o.Name, run: func(ctx context.Context) result {
			t, err := tickets.NewTracker(o)
			if err == nil {
				_, err = t.Ticket(ctx, sample[o.Kind])
			}
			if err != nil && !errors.Is(err, tickets.ErrNone) {
				return fails("%s %v", o.Name, err).withFix("until it answers, nothing that needs its tickets can be approved; correct tickets.%s", o.Name)
			}
			return fine("%s answers", o.Name)
		}})
	}
	return list
}
