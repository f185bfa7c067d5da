package threads

import (
	"context"
	"log/slog"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/role"
	"countersign/config"
	"countersign/store"
)

// Roles are those of the agents of threads.
type Roles struct {
	DB      store.DB
	Set     *role.Set
	In      func(channel string) string // the role of a channel's threads
	Default string                      // where a thread's own is gone
	Log     *slog.Logger
}

// NewRoles returns the roles of a configuration.
func NewRoles(db store.DB, f config.File, log *slog.Logger) (Roles, error) {
	set, err := role.New(role.Config{Roles: f.Roles, SubAgents: f.SubAgents})
	if err != nil {
		return Roles{}, config.Errorf("%v", err)
	}
	return Roles{DB: db, Set: set, In: f.RoleIn, Default: f.Agent.Role, Log: log}, nil
}

// Runbooks are the two sub-agents that answer the model steps of workflows.
func Runbooks() map[string]role.SubAgent {
	const report = "You answer one question for a runbook that is being carried out in this thread. Your answer is shown to the people who decide its next step: lead with the conclusion, name the evidence, and stay below 150 words."
	return map[string]role.SubAgent{
		agent.RunbookWriter: {Role: role.Role{Name: agent.RunbookWriter, Preset: "none", ReadOnly: true, Prompt: report}},
		agent.RunbookReader: {Role: role.Role{Name: agent.RunbookReader, Preset: "readonly", Additional: []string{"run_shell"}, ReadOnly: true, Prompt: report}},
	}
}

// SubAgent finds a sub-agent by its id.
func (r Roles) SubAgent(id string) (role.SubAgent, bool) {
	if s, ok := Runbooks()[id]; ok {
		return s, true
	}
	return r.Set.SubAgent(id)
}

func roleKey(thread chat.ThreadID) []byte { return store.Key("role", string(thread)) }

// Of is the role of a thread's agent: the one that somebody gave it, or that of its
// channel, or the bot's.
func (r Roles) Of(thread chat.ThreadID) role.Role {
	name, given := "", false
	err := r.DB.View(context.Background(), func(tx store.Tx) error {
		name, given = store.Load[string](tx, roleKey(thread))
		return nil
	})
	if err != nil {
		r.Log.Error("the role of a thread cannot be read; it gets the one that may least", "error", err)
		name, given = "architect", true
	}
	if !given {
		name = r.In(config.ChannelOf(string(thread)))
	}
	of, err := r.Set.Role(name)
	if err != nil { // its configuration is gone
		of, _ = r.Set.Role(r.Default)
	}
	return of
}

// Give gives a thread a role; "" is the bot as it is configured.
func (r Roles) Give(ctx context.Context, thread chat.ThreadID, name string) error {
	return r.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, roleKey(thread), name)
		return nil
	})
}
