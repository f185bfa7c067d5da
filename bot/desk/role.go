package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/role"
	"countersign/bot/threads"
)

// Roles answers the chat word "role".
type Roles struct{ threads.Roles }

// Role answers the chat word "role".
func (r Roles) Role(ctx context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	name, now := args.ID, r.Of(ev.Thread)
	if name == "" {
		var out strings.Builder
		out.WriteString("| role | what it is for |\n|---|---|\n")
		for _, r := range r.Set.Roles() {
			mark := ""
			if r.Name == now.Name {
				mark = " (now)"
			}
			fmt.Fprintf(&out, "| `%s`%s | %s |\n", r.Name, mark, r.Description)
		}
		if now.Name == "" {
			out.WriteString("\nThis thread has none of them: the bot is as it is configured.")
		} else {
			out.WriteString("\n`role default` gives this thread the bot as it is configured.")
		}
		return says(out.String())
	}
	if ev.From.Bot || ev.From.Outside {
		return says(sayRoleMembers)
	}
	if name == "default" {
		name = ""
	}
	if name != "" && !slices.ContainsFunc(r.Set.Roles(), func(r role.Role) bool { return r.Name == name }) {
		return says(sayUnknownRole(name))
	}
	to, err := r.Set.Role(name)
	if err != nil {
		return agent.Answer{}, fmt.Errorf("find the role: %w", err)
	}
	err = r.Give(ctx, ev.Thread, name)
	switch {
	case err != nil:
		return agent.Answer{}, fmt.Errorf("store the role: %w", err)
	case name == "":
		return says(sayNoRole)
	}
	r.Log.Info("a thread has another role", "thread", string(ev.Thread), "role", name, "by", string(ev.From.ID))
	return says(sayRole(name, to.Description))
}
