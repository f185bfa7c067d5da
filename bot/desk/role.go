package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/role"
	"countersign/bot/threads"
)

// Roles answers the chat word "role".
type Roles struct{ threads.Roles }

// Role answers the chat word "role".
func (r Roles) Role(ctx context.Context, thread chat.ThreadID, by chat.User, name string) (string, error) {
	now := r.Of(thread)
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
		return out.String(), nil
	}
	if by.Bot || by.Outside {
		return sayRoleMembers, nil
	}
	if name == "default" {
		name = ""
	}
	if name != "" && !slices.ContainsFunc(r.Set.Roles(), func(r role.Role) bool { return r.Name == name }) {
		return sayUnknownRole(name), nil
	}
	to, err := r.Set.Role(name)
	if err != nil {
		return "", fmt.Errorf("find the role: %w", err)
	}
	err = r.Give(ctx, thread, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("store the role: %w", err)
	case name == "":
		return sayNoRole, nil
	}
	r.Log.Info("a thread has another role", "thread", string(thread), "role", name, "by", string(by.ID))
	return sayRole(name, to.Description), nil
}
