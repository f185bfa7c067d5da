package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"countersign/adapters/chat"
)

const (
	callsPath = "/api/calls"
	// maxWait is how long a request may wait for news of a call.
	maxWait = 50 * time.Second
	// asksAtOnce is how many calls one token may begin in a burst, and asksPerSecond how many more each
	// second. Most are reads, which ask nobody.
	asksAtOnce, asksPerSecond = 200, 20
)

// asker is who a session's calls are for.
func (s session) asker() chat.Asker {
	return chat.Asker{User: chat.User{ID: userID(s.user), Name: s.user}, Token: s.own}
}

// labels sets what is known of who asks, whatever the request says: a token that only asks is a program's, and
// one with more is, unless its person's own command line has it.
func (s session) labels(in *chat.Asking) {
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
	programs chat.Calls // nil: none can ask
}

func (cs *calls) answer(w http.ResponseWriter, r *http.Request, c chat.Called, err error) {
	var no *chat.CallError
	switch {
	case err == nil:
		answer(w, http.StatusOK, c)
	case errors.As(err, &no) && no.Missing:
		fail(w, http.StatusNotFound, no.Sentence)
	case errors.As(err, &no) && no.Conflict:
		fail(w, http.StatusConflict, no.Sentence)
	case errors.As(err, &no):
		fail(w, http.StatusBadRequest, no.Sentence)
	case r.Context().Err() != nil: // nobody reads it
	default:
		cs.failStore(r.Context(), w, err)
	}
}

// ask begins a call.
func (cs *calls) ask(w http.ResponseWriter, r *http.Request, s session) {
	var in chat.Asking
	if !read(w, r, &in) {
		return
	}
	if in.Thread != "" && s.scope == scopeAsk { // others talk there
		fail(w, http.StatusForbidden, sayJobsAsk)
		return
	}
	if in.Thread != "" {
		id, ok := cs.openThread(w, r, string(in.Thread))
		if !ok {
			return
		}
		in.Thread = threadID(id)
	}
	s.labels(&in)
	within := waiting(w, r)
	c, err := cs.programs.Ask(r.Context(), s.asker(), s.groups, in)
	if err == nil && within > 0 {
		c, err = cs.programs.Wait(r.Context(), s.asker(), c.ID, "", within)
	}
	cs.answer(w, r, c, err)
}

// read answers what became of a call, once there is news.
func (cs *calls) read(w http.ResponseWriter, r *http.Request, s session) {
	c, err := cs.programs.Wait(r.Context(), s.asker(), r.PathValue("id"), chat.ExecState(r.URL.Query().Get("seen")), waiting(w, r))
	cs.answer(w, r, c, err)
}

// list lists the calls that have not ended, and with ended also newer ones that have.
func (cs *calls) list(w http.ResponseWriter, r *http.Request, s session) {
	all, err := cs.programs.Open(r.Context(), s.asker(), r.URL.Query().Has("ended"))
	if err != nil {
		cs.failStore(r.Context(), w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"calls": all})
}

// follow streams what a command prints, a JSON object in each line.
func (cs *calls) follow(w http.ResponseWriter, r *http.Request, s session) {
	c, begun := http.NewResponseController(w), false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
	}
	enc := json.NewEncoder(w)
	err := cs.programs.Output(r.Context(), s.asker(), r.PathValue("id"), func(p chat.Output) error {
		begin()
		_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // not every server has one
		if err := enc.Encode(p); err != nil {
			return err
		}
		return c.Flush()
	})
	if err != nil && !begun {
		cs.answer(w, r, chat.Called{}, err)
		return
	}
	begin()
}

// withdraw takes a call back.
func (cs *calls) withdraw(w http.ResponseWriter, r *http.Request, s session) {
	if err := cs.programs.Withdraw(r.Context(), s.asker(), r.PathValue("id")); err != nil {
		cs.answer(w, r, chat.Called{}, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// last answers what became of the thread's last command.
func (cs *calls) last(w http.ResponseWriter, r *http.Request, _ session, id string) {
	x, err := cs.programs.Last(r.Context(), threadID(id))
	if err != nil {
		cs.failStore(r.Context(), w, err)
		return
	}
	answer(w, http.StatusOK, x)
}

// tools lists what programs may call.
func (cs *calls) tools(w http.ResponseWriter, _ *http.Request, _ session) {
	answer(w, http.StatusOK, map[string]any{"tools": cs.programs.Callable()})
}
