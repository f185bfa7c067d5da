package doctor

import (
	"context"
	"os"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/oncall"
	"countersign/config"
)

// onCallChecks looks up each schedule that the configuration names, once.
func onCallChecks(f config.File, now time.Time) (list []check) {
	for _, r := range f.Schedules() {
		list = append(list, check{name: "on call " + strings.TrimSuffix(strings.TrimPrefix(r.String(), "oncall("), ")"), run: func(ctx context.Context) result {
			s, err := f.OnCallSource(r.Source, os.Getenv)
			if err != nil {
				return fromSentence("FAIL", err.Error(), "set it in the bot's environment")
			}
			people, err := oncall.Check(ctx, s, r, now)
			fallback := f.OnCall[r.Source].Fallback
			if fallback == "" {
				fallback = "nobody"
			}
			switch {
			case err != nil:
				return fails("%s %v", r.Source, err).withFix("until it answers, %s decides; correct oncall.%s or what it names", fallback, r.Source)
			case len(people) == 0:
				return warns("nobody is on call now, so %s decides", fallback).withFix("check the schedule if somebody should be")
			}
			for _, p := range people {
				if !oncall.Known(p, f.People) {
					return warns("%s is on call, and the configuration doesn't say who that is here, so %s decides", p.Shown(), fallback).
						withFix("add %s to people, with the ids of the networks", p.Key())
				}
			}
			names := make([]string, len(people))
			for i, p := range people {
				names[i] = p.Shown()
			}
			return fine("%s, %s", strings.Join(names, " and "), approvals.Turn(r.Level))
		}})
	}
	return list
}
