package report

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
)

const (
	thread = chat.ThreadID("slack:T1:C1:1700000000.0001")
	web1   = "ssh:web-1#SHA256:abcdef"
	// planted is a value that the installation knows to be a secret.
	planted = "Zq8-value-of-this-house-77"
	// named is a secret that nothing but its name gives away.
	named = "hunter2hunter2"
)

var (
	alice   = chat.User{ID: "slack:T1:U1", Name: "Alice"}
	bob     = chat.User{ID: "slack:T1:U2", Name: "Bob"}
	carol   = chat.User{ID: "slack:T1:U3", Name: "Carol | `sre`"}
	manager = chat.User{ID: "alerts:alertmanager", Name: "Alertmanager", Bot: true}

	begin = time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
)

// scene writes an incident into a store, in the way in which the bot does.
type scene struct {
	t      testing.TB
	db     *mem.DB
	now    time.Time
	ledger approvals.Ledger
	trail  audit.Trail
	who    chat.User // whose turn it is
	scope  string
	calls  int
	red    *redact.Redactor
}

func newScene(t testing.TB) *scene {
	red := redact.New(planted)
	return &scene{t: t, db: mem.Open(), now: begin, red: red, trail: audit.Trail{Redact: red.Redact}}
}

func (s *scene) wait(d time.Duration) *scene { s.now = s.now.Add(d); return s }

func (s *scene) update(fn func(tx store.Tx)) {
	s.t.Helper()
	if err := s.db.Update(context.Background(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) put(e history.Entry) {
	s.t.Helper()
	e.At, e.Scope = s.now, s.scope
	s.update(func(tx store.Tx) { history.Append(tx, thread, e) })
}

func (s *scene) note(r approvals.Record, what, user, text string) {
	s.t.Helper()
	e := audit.Event{
		What: what, Approval: string(r.ID), Call: r.Call, Digest: r.Action.Digest().String(), Tool: r.Action.Tool, Kind: string(r.Action.Kind),
		Target: r.Action.Target, Level: "medium", User: user, Note: text,
	}
	if what == audit.Asked || what == audit.Allowed || what == audit.Forbidden {
		e.Command = string(r.Action.Bytes)
	}
	s.update(func(tx store.Tx) { s.trail.Append(tx, string(thread), e, s.now) })
}

func (s *scene) say(u chat.User, text string) {
	s.who = u
	s.put(history.Entry{Kind: history.KindMessage, Message: &history.Message{ID: "m", From: u, Text: text, ReadOnly: u.Bot}})
}

func (s *scene) end(reason history.EndReason, text string) {
	s.put(history.Entry{Kind: history.KindEnd, End: &history.End{Reason: reason, Text: text}})
}

func (s *scene) reply(text string, calls ...llm.Call) {
	s.put(history.Entry{Kind: history.KindReply, Reply: &history.Reply{Text: text, Calls: calls, Finish: llm.FinishCalls}})
}

// shell is a call of run_shell.
func (s *scene) shell(command string) llm.Call {
	s.calls++
	args, err := json.Marshal(map[string]any{"command": command, "risk": "low", "mutation": false, "privesc": false, "why": "to see"})
	if err != nil {
		s.t.Fatal(err)
	}
	return llm.Call{ID: fmt.Sprintf("call_%d", s.calls), Name: "run_shell", Args: string(args), Meta: json.RawMessage(`"opaque-meta"`)}
}

func action(c llm.Call) approvals.Action {
	var args struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal([]byte(c.Args), &args)
	return approvals.Action{Tool: c.Name, Kind: approvals.KindShell, Target: web1, User: "root", Dir: "/srv", Bytes: []byte(args.Command), Args: json.RawMessage(c.Args)}
}

func ran(now time.Time, code int, out string) string {
	return tools.Envelope(now, map[string]any{"exit_code": code, "stdout": out, "stderr": ""})
}

func (s *scene) result(r history.Result) {
	s.put(history.Entry{Kind: history.KindResult, Result: &r})
}

// look runs a proven read.
func (s *scene) look(c llm.Call, took time.Duration, code int) {
	r := approvals.Record{ID: approvals.NewID(string(thread), c.ID), Thread: thread, Call: c.ID, Action: action(c)}
	s.note(r, audit.Allowed, string(s.who.ID), "")
	s.wait(took)
	s.result(history.Result{Call: c.ID, Tool: c.Name, Text: ran(s.now, code, "…"), Failed: code != 0})
	s.note(r, audit.Done, string(s.who.ID), fmt.Sprintf("exit code %d", code))
}

// ask files a request for a call; revision counts its edits.
func (s *scene) ask(c llm.Call, a approvals.Action, by chat.User, revision int) approvals.Record {
	id := approvals.NewID(string(thread), c.ID)
	if revision > 0 {
		id = id.Revision(revision)
	}
	var rec approvals.Record
	s.update(func(tx store.Tx) {
		rec, _ = s.ledger.Open(tx, approvals.Record{
			ID: id, Thread: thread, Call: c.ID, Requester: by, Revision: revision, Created: s.now, Action: a, Level: "medium", Rule: "default",
			Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: 1, Groups: []string{"oncall"}}}, RunWithin: 2 * time.Minute}, ExpiresAt: s.now.Add(15 * time.Minute),
		})
	})
	s.note(rec, audit.Asked, string(by.ID), "")
	s.put(history.Entry{Kind: history.KindAsk, Ask: &history.Ask{Call: c.ID, Approval: id, Digest: rec.Digest, Expires: rec.ExpiresAt}})
	return rec
}

// vote counts a vote and, when that decided, stores the decision.
func (s *scene) vote(r approvals.Record, u chat.User, approve bool, reason string) {
	s.update(func(tx store.Tx) {
		rec, refusal, err := s.ledger.Vote(tx, r.ID, approvals.Vote{User: u, Approve: approve, Reason: reason, Via: "button", At: s.now, Digest: r.Digest, Meets: []int{0}})
		if err != nil || refusal != approvals.Counted {
			s.t.Fatal(err, refusal)
		}
		r = rec
	})
	what := audit.Approved
	if !approve {
		what = audit.Denied
	}
	s.note(r, what, string(u.ID), reason)
	if r.State != approvals.Pending {
		s.decision(r)
	}
}

func (s *scene) decision(r approvals.Record) {
	s.put(history.Entry{Kind: history.KindDecision, Decision: &history.Decision{Approval: r.ID, Call: r.Call, State: r.State, By: string(r.By.ID), ByName: r.By.Name, Reason: r.Reason}})
}

// start consumes an approval.
func (s *scene) start(r approvals.Record) {
	s.update(func(tx store.Tx) {
		if _, _, why := s.ledger.Consume(tx, r.ID, r.Action, s.now); why != "" {
			s.t.Fatal(why)
		}
	})
	s.note(r, audit.Running, "", "")
	s.put(history.Entry{Kind: history.KindIntent, Intent: &history.Intent{Call: r.Call, Approval: r.ID, Digest: r.Digest}})
}

// finish ends the run of an approved call.
func (s *scene) finish(r approvals.Record, took time.Duration, code int) {
	s.wait(took)
	note := fmt.Sprintf("exit code %d", code)
	s.update(func(tx store.Tx) { s.ledger.Finish(tx, r.ID, approvals.Outcome{OK: code == 0, Note: note}, s.now) })
	s.note(r, audit.Done, "", note)
	s.result(history.Result{Call: r.Call, Tool: r.Action.Tool, Text: ran(s.now, code, "…"), Failed: code != 0, Changed: true})
}

func (s *scene) load() Incident {
	s.t.Helper()
	var inc Incident
	if err := s.db.View(context.Background(), func(tx store.Tx) error { inc = Load(tx, thread); return nil }); err != nil {
		s.t.Fatal(err)
	}
	inc.Made, inc.Redactor = s.now, s.red
	return inc
}

func (s *scene) anchor() {
	s.update(func(tx store.Tx) { audit.Anchor(tx, s.now) })
}

// night is a night on call: everything that a timeline can tell of happens once.
func night(t testing.TB) (*scene, Incident) {
	s := newScene(t)
	s.wait(5*time.Second).say(manager, "[FIRING:1] DiskFull web-1 critical")
	a, b, c := s.shell("df -h"), s.shell("du -xk --max-depth=1 /var | sort -n"), s.shell("ls /nonexistent")
	s.wait(2*time.Second).reply("I look first.", a, b, c)
	s.look(a, 200*time.Millisecond, 0)
	s.look(b, 12*time.Second, 0)
	s.look(c, 100*time.Millisecond, 2)
	s.wait(3 * time.Second).reply("**/var** is full: three debug logs take 9 GB.\n\nNothing was changed.")
	s.end(history.EndDone, "")
	s.anchor()

	s.wait(time.Minute).say(alice, "please make room @here <!channel> | `rm` [x](http://evil.example) <b>now</b>\nthe password is "+planted)
	gz := s.shell("gzip -9 /var/log/app/debug.log.1 /var/log/app/debug.log.2")
	s.wait(4*time.Second).reply("Compressing loses nothing.", gz)
	r := s.ask(gz, action(gz), alice, 0)
	s.wait(40*time.Second).vote(r, bob, true, "")
	s.wait(time.Second).start(r)
	s.finish(r, 95*time.Second, 0)

	rm := s.shell("rm -rf /var/log/app/archive")
	s.wait(2*time.Second).reply("", rm)
	r = s.ask(rm, action(rm), alice, 0)
	s.note(r, audit.Refused, string(alice.ID), "who asked may not approve")
	s.wait(20*time.Second).vote(r, bob, false, "those are orders, *not* logs")
	s.result(history.Result{Call: rm.ID, Tool: rm.Name, Denied: true, Failed: true, Text: tools.DeniedEnvelope(s.now, "those are orders, not logs")})

	tr := s.shell("truncate -s 0 /var/log/app/*")
	s.wait(2*time.Second).reply("", tr)
	r = s.ask(tr, action(tr), alice, 0)
	s.wait(15 * time.Second)
	edited := "truncate -s 0 /var/log/app/trace.log"
	s.update(func(tx store.Tx) { s.ledger.Cancel(tx, r.ID, carol, "edited by Carol", s.now) })
	s.note(r, audit.Edited, string(carol.ID), "")
	s.put(history.Entry{Kind: history.KindEdited, Edited: &history.Edited{Call: tr.ID, Approval: r.ID, Argument: "command", Text: edited, Shown: edited, By: carol}})
	r = s.ask(tr, action(tr).Edited("command", edited), carol, 1)
	s.note(r, audit.Escalated, "", "to sre")
	s.wait(30*time.Second).vote(r, bob, true, "fine")
	s.start(r)
	s.finish(r, 300*time.Millisecond, 1)

	restart := s.shell("systemctl restart app")
	s.wait(2*time.Second).reply("", restart)
	r = s.ask(restart, action(restart), alice, 0)
	s.wait(10*time.Second).vote(r, bob, true, "")
	s.start(r)
	s.wait(3 * time.Minute) // the bot's machine went away, and came back
	s.update(func(tx store.Tx) { s.ledger.Lost(tx, r.ID, s.now) })
	s.note(r, audit.Unknown, "", "")
	s.result(history.Result{Call: restart.ID, Tool: restart.Name, Unknown: true, Failed: true, Changed: true, Text: tools.ErrorText(tools.Failed("the outcome of this call is unknown"))})
	s.wait(time.Second).put(history.Entry{Kind: history.KindNote, Note: &history.Note{Text: "The shell of app says that its command number 4 ended with 0 at 14:09."}})

	agent := llm.Call{ID: "call_agent", Name: "sub_agent_code_explorer", Args: `{"task":"find who writes trace.log"}`}
	s.wait(time.Second).reply("", agent)
	s.put(history.Entry{Kind: history.KindBegin, Begin: &history.Begin{Call: agent.ID, Kind: history.NestedAgent, Name: "code_explorer", Task: "find who writes trace.log"}})
	s.scope = agent.ID
	g := s.shell("grep -rn trace.log /srv/app")
	s.wait(3*time.Second).reply("", g)
	s.look(g, 700*time.Millisecond, 0)
	s.wait(2 * time.Second).reply("It is logging.go.")
	s.end(history.EndDone, "")
	s.scope = ""
	s.result(history.Result{Call: agent.ID, Tool: agent.Name, Text: tools.Envelope(s.now, "It is logging.go.")})

	flow := llm.Call{ID: "call_flow", Name: "run_workflow", Args: `{"name":"disk-full","inputs":{"dir":"/var/log"}}`}
	s.wait(time.Second).reply("", flow)
	s.put(history.Entry{Kind: history.KindBegin, Begin: &history.Begin{Call: flow.ID, Kind: history.NestedWorkflow, Name: "disk-full", Inputs: map[string]string{"dir": "/var/log", "keep": "3"}, Source: "name: disk-full"}})
	s.scope = flow.ID
	s.wait(time.Second).put(history.Entry{Kind: history.KindStep, Step: &history.Step{ID: "which", What: history.StepAsked, Text: "Which one may go?"}})
	s.wait(30 * time.Second).put(history.Entry{Kind: history.KindStep, Step: &history.Step{ID: "which", What: history.StepAnswered, By: carol, Text: "the oldest"}})
	w := s.shell("rm /var/log/app/debug.log.9.gz")
	s.put(history.Entry{Kind: history.KindReply, Reply: &history.Reply{Calls: []llm.Call{w}, Direct: true, Step: "clean"}})
	r = s.ask(w, action(w), alice, 0)
	s.update(func(tx store.Tx) {
		r, _ = s.ledger.Settle(tx, r.ID, approvals.Basis{Kind: approvals.ByPlan, Of: "abcdefgh23", Why: "step 2 of 3"}, bob, s.now)
	})
	s.note(r, audit.Approved, string(bob.ID), "step 2 of 3")
	s.decision(r)
	s.start(r)
	s.finish(r, 50*time.Millisecond, 0)
	s.scope = ""
	s.wait(time.Second).result(history.Result{Call: flow.ID, Tool: flow.Name, Text: tools.Envelope(s.now, "done")})

	s.wait(5 * time.Second).put(history.Entry{Kind: history.KindPen, Pen: &history.Pen{By: alice, Taken: true}})
	s.wait(90 * time.Second).put(history.Entry{Kind: history.KindPen, Pen: &history.Pen{By: alice}})

	script := s.shell("set -e\ncd /srv/app\n./migrate --password='" + named + "' <<'EOF'\n```\nup\nEOF")
	s.wait(time.Second).reply("", script)
	r = s.ask(script, action(script), alice, 0)
	s.wait(10 * time.Second)
	s.update(func(tx store.Tx) {
		rec, refusal, err := s.ledger.Vote(tx, r.ID, approvals.Vote{User: carol, Approve: true, Glass: true, Reason: "nobody else is awake", Via: "button", At: s.now, Digest: r.Digest})
		if err != nil || refusal != approvals.Counted {
			t.Fatal(err, refusal)
		}
		r = rec
	})
	s.note(r, audit.BreakGlass, string(carol.ID), "nobody else is awake")
	s.decision(r)
	s.start(r)
	s.finish(r, 61*time.Minute, 0)

	late := s.shell("systemctl reload app")
	s.wait(time.Second).reply("", late)
	r = s.ask(late, action(late), alice, 0)
	s.wait(15 * time.Minute)
	s.update(func(tx store.Tx) { r, _ = s.ledger.Expire(tx, r.ID, s.now) })
	s.note(r, audit.Expired, "", "")
	s.decision(r)
	s.result(history.Result{Call: late.ID, Tool: late.Name, Failed: true, Text: tools.ErrorText(tools.Failed("nobody approved this call in time"))})

	bad := s.shell("mkfs.ext4 /dev/sdb1")
	s.wait(time.Second).reply("", bad)
	s.note(approvals.Record{ID: approvals.NewID(string(thread), bad.ID), Thread: thread, Call: bad.ID, Action: action(bad)}, audit.Forbidden, string(alice.ID), "No disks, please.")
	s.result(history.Result{Call: bad.ID, Tool: bad.Name, Failed: true, Text: tools.ErrorText(tools.Failed("No disks, please."))})

	stopped := s.shell("systemctl stop app")
	s.wait(time.Second).reply("", stopped)
	r = s.ask(stopped, action(stopped), alice, 0)
	s.wait(9 * time.Second).put(history.Entry{Kind: history.KindStop, Stop: &history.Stop{ID: "e9", From: bob}})
	s.update(func(tx store.Tx) { r, _ = s.ledger.Cancel(tx, r.ID, bob, "stopped", s.now) })
	s.note(r, audit.Cancelled, string(bob.ID), "stopped")
	s.result(history.Result{Call: stopped.ID, Tool: stopped.Name, Skipped: true, Text: tools.ErrorText(tools.Failed("stopped by Bob before it ran"))})
	s.end(history.EndStopped, "Stopped by Bob.")

	s.wait(9*time.Hour).say(bob, "and now?")
	look := s.shell("uptime")
	s.wait(time.Second).reply("", look)
	s.look(look, 100*time.Millisecond, 0)
	s.end(history.EndLimit, "I stopped here: this turn reached its limit of 1 step. Say `go on` to let me continue.")
	s.wait(time.Second).say(bob, "go on")
	open := s.shell("systemctl start app")
	s.wait(time.Second).reply("", open)
	s.ask(open, action(open), bob, 0)
	s.anchor()

	inc := s.load()
	inc.Alerts = []Alert{
		{At: begin.Add(20 * time.Minute), Source: "alertmanager", Key: "g1", Status: Resolved, Title: "DiskFull web-1"},
		{At: begin, Source: "alertmanager", Key: "g1", Status: Firing, Title: "DiskFull web-1 @channel", Labels: map[string]string{"severity": "critical"}, URL: "https://prom.example/g"},
		{At: begin.Add(30 * time.Minute), Source: "alertmanager", Key: "g2", Status: Firing, Title: "AppDown"},
	}
	return s, inc
}
