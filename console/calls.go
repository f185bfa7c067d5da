package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
)

const (
	callsPath = "/api/calls"
	// maxWait is how long a request may wait for news of a call.
	maxWait = 50 * time.Second
	// callsAtOnce is how many calls one token may begin in a burst, and callsPerSecond how many more each
	// second. Most are reads, which ask nobody.
	callsAtOnce, callsPerSecond = 200, 20
)

// asker is who a session's calls are for.
func (s session) asker() api.Asker {
	return api.Asker{User: chat.User{ID: userID(s.user), Name: s.user}, Token: s.own}
}

// labels sets what is known of who asks, whatever the request says: a token that only asks is a program's, and
// one with more is, unless its person's own command line has it.
func (s session) labels(in *api.CallRequest) {
	person := in.Way == "cli" && (!s.program || s.scope == scopeFull)
	switch {
	case s.job != nil:
		in.Proven, in.Way, in.Program, in.Repository, in.Ref = true, "job", s.job.Program, s.job.Repository, s.job.Ref
	case person:
		in.Way, in.Program, in.Host, in.Repository, in.Ref = "", "", "", "", ""
	case s.program && (in.Way == "" || in.Way == "cli"):
		in.Way = "api"
	}
	if !s.program || s.job != nil {
		in.Source = s.source
		return
	}
	in.With, in.Source = s.called, s.source
	if s.bound {
		in.Program, in.With = s.called, ""
	}
}

// waiting is how long a request wants to wait, for which it gets the time to be answered.
func waiting(w http.ResponseWriter, r *http.Request) time.Duration {
	n, _ := strconv.Atoi(r.URL.Query().Get("wait")) // what is no number is none
	within := min(time.Duration(max(n, 0))*time.Second, maxWait)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within + writeTime)) // not every server has one
	return within
}

// calls answers what programs ask.
type calls struct {
	ground
	programs api.Calls // nil: none can ask
}

// answerCall answers with a call, or with why there is none.
func answerCall(w http.ResponseWriter, c api.Call, err error) error {
	var no *api.CallError
	switch {
	case err == nil:
		return answer(w, http.StatusOK, c)
	case !errors.As(err, &no):
		return err
	case no.Missing:
		return refuse(http.StatusNotFound, no.Sentence)
	case no.Conflict:
		return refuse(http.StatusConflict, no.Sentence)
	}
	return refuse(http.StatusBadRequest, no.Sentence)
}

// ask begins a call.
func (cs *calls) ask(w http.ResponseWriter, r *http.Request, s session) error {
	var in api.CallRequest
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Thread != "" && s.scope == scopeAsk { // others talk there
		return refuse(http.StatusForbidden, sayJobsAsk)
	}
	if in.Thread != "" {
		id, err := cs.openThread(r, string(in.Thread))
		if err != nil {
			return err
		}
		in.Thread = threadID(id)
	}
	s.labels(&in)
	within := waiting(w, r)
	c, err := cs.programs.Ask(r.Context(), s.asker(), s.groups, in)
	if err == nil && within > 0 {
		c, err = cs.programs.Wait(r.Context(), s.asker(), c.ID, "", within)
	}
	return answerCall(w, c, err)
}

// read answers what became of a call, once there is news.
func (cs *calls) read(w http.ResponseWriter, r *http.Request, s session) error {
	c, err := cs.programs.Wait(r.Context(), s.asker(), r.PathValue("id"), chat.ExecState(r.URL.Query().Get("seen")), waiting(w, r))
	return answerCall(w, c, err)
}

// list lists the calls that have not ended, and with ended also newer ones that have.
func (cs *calls) list(w http.ResponseWriter, r *http.Request, s session) error {
	all, err := cs.programs.Open(r.Context(), s.asker(), r.URL.Query().Has("ended"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"calls": all})
}

// follow streams what a command prints, a JSON object in each line.
func (cs *calls) follow(w http.ResponseWriter, r *http.Request, s session) error {
	c, begun := http.NewResponseController(w), false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
	}
	enc := json.NewEncoder(w)
	err := cs.programs.Output(r.Context(), s.asker(), r.PathValue("id"), func(p api.Output) error {
		begin()
		_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // not every server has one
		if err := enc.Encode(p); err != nil {
			return err
		}
		return c.Flush()
	})
	if err != nil && !begun {
		return answerCall(w, api.Call{}, err)
	}
	begin()
	return nil
}

// withdraw takes a call back.
func (cs *calls) withdraw(w http.ResponseWriter, r *http.Request, s session) error {
	if err := cs.programs.Withdraw(r.Context(), s.asker(), r.PathValue("id")); err != nil {
		return answerCall(w, api.Call{}, err)
	}
	return done(w, nil)
}

// last answers what became of the thread's last command.
func (cs *calls) last(w http.ResponseWriter, r *http.Request, _ session, id string) error {
	x, err := cs.programs.Last(r.Context(), threadID(id))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, x)
}

// tools lists what programs may call.
func (cs *calls) tools(w http.ResponseWriter, _ *http.Request, _ session) error {
	return answer(w, http.StatusOK, map[string]any{"tools": cs.programs.Callable()})
}
