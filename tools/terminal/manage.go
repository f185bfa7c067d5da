package terminal

import (
	"context"
	"encoding/json"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/session"
	"countersign/tools"
)

// verb is the operation of one of the four managing tools.
type verb string

const (
	createSession verb = "tmux-create-session"
	killSession   verb = "tmux-kill-session"
	createPane    verb = "tmux-create-pane"
	killPane      verb = "tmux-kill-pane"
)

// onPane reports whether the operation is on a pane.
func (v verb) onPane() bool { return v == createPane || v == killPane }

// kills reports whether the operation ends something.
func (v verb) kills() bool { return v == killSession || v == killPane }

type manager struct {
	Config
	verb verb
}

// Spec implements tools.Tool.
func (m manager) Spec() tools.Spec {
	s := tools.SimpleSchema{Properties: map[string]tools.Property{
		"session": {Type: "string", Pattern: `\S`, MaxLength: 200, Description: "Session name."},
	}}
	if m.verb.onPane() {
		s.Properties["session"] = tools.Property{Type: "string", MaxLength: 200, Description: "Default: the thread's."}
		s.Properties["pane"] = tools.Property{Type: "string", Pattern: `\S`, MaxLength: 200, Description: "Pane name."}
		s.Required = []string{"pane"}
	} else {
		s.Required = []string{"session"}
	}
	level := risk.Low
	if m.verb.kills() {
		level = risk.Medium
	}
	return tools.Spec{
		Name: string(m.verb), Description: describe(string(m.verb)), Level: level, NeedsTmux: true,
		Schema: tools.MustSchema(s.WithClaim()),
	}
}

// Plan implements tools.Tool. It refuses what would be refused at run time, so that nobody is asked
// to approve it.
func (m manager) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		tools.ClaimArgs
		Session string `json:"session"`
		Pane    string `json:"pane"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	var ref session.Ref
	var err error
	if m.verb.kills() {
		ref, err = m.Book.CheckKill(ctx, c.Thread, args.Session, args.Pane)
	} else {
		ref, err = m.Book.CheckCreate(ctx, c.Thread, args.Session, args.Pane)
	}
	if err != nil {
		return tools.Plan{}, tools.Failed("%w", err)
	}
	a := m.action(c.Name, approvals.KindChange, ref, c.Args)
	switch m.verb {
	case createSession:
		a.Preview = "make the tmux session " + ref.Session + ", or use it if it is there"
	case killSession:
		a.Pane = "" // all panes
		a.Preview = "end the tmux session " + ref.Session + " and everything that runs in it"
	case createPane:
		a.Preview = "make the pane " + ref.Pane + " in the tmux session " + ref.Session + ", or use it if it is there"
	case killPane:
		a.Preview = "end the pane " + ref.Pane + " of the tmux session " + ref.Session + " and what runs in it"
	}
	return tools.Planned(a, args.Claim(), func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: a.Preview})
		r, err := m.run(ctx, c.Thread, ref)
		if err != nil {
			return tools.Result{}, tools.Failed("%w", err)
		}
		sink(tools.Event{Kind: tools.Info, Text: r.Text})
		sink(tools.Event{Kind: tools.Completed, Text: "done"})
		return r, nil
	}), nil
}

// creation is what the model gets when something was created.
type creation struct {
	Message string `json:"message"`
	Session string `json:"session"`
	Pane    string `json:"pane"`
	PaneID  string `json:"pane_id"`
	Reused  bool   `json:"reused"`
	Attach  string `json:"attach"`
	Notice  string `json:"notice,omitempty"`
}

func (m manager) run(ctx context.Context, thread string, ref session.Ref) (tools.Result, error) {
	var mk session.Made
	var err error
	what := "tmux session " + ref.Session
	switch m.verb {
	case createSession:
		mk, err = m.Book.CreateSession(ctx, thread, ref.Session)
	case createPane:
		what = "pane " + ref.Pane + " in the tmux session " + ref.Session
		mk, err = m.Book.CreatePane(ctx, thread, ref.Session, ref.Pane)
	case killSession:
		_, err = m.Book.KillSession(ctx, thread, ref.Session)
	case killPane:
		what = "pane " + ref.Pane + " of the tmux session " + ref.Session
		_, err = m.Book.KillPane(ctx, thread, ref.Session, ref.Pane)
	}
	if err != nil {
		return tools.Result{}, err
	}
	if m.verb.kills() {
		text := "killed " + what
		return tools.Result{Value: text, Text: text}, nil
	}
	verb := "created "
	if mk.Reused {
		verb = "reused the existing "
	}
	out := creation{Message: verb + what, Session: mk.Session, Pane: mk.Pane, PaneID: mk.ID, Reused: mk.Reused, Attach: mk.Attach, Notice: mk.Notice}
	return tools.Result{Value: out, Text: out.Message + "\nWatch it with: " + out.Attach}, nil
}
