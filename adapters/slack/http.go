package slack

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
)

// maxBody bounds a request of Slack's, in bytes; its own are far smaller.
const maxBody = 1 << 20

// Handler takes Slack's requests when there is no Socket Mode: events,
// interactions and commands under /slack/. Every request must carry a
// signature that is at most five minutes old.
func (a *Adapter) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathEvents, a.signed(a.serveEvent))
	mux.HandleFunc("POST "+pathInteractivity, a.signed(a.serveInteraction))
	mux.HandleFunc("POST "+pathCommands, a.signed(a.serveCommand))
	return mux
}

const stopping = "the bot is starting or stopping"

// signed lets only requests through that Slack signed.
func (a *Adapter) signed(next func(http.ResponseWriter, *http.Request, []byte, chat.Handler)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "the request is too large or broke off", http.StatusRequestEntityTooLarge)
			return
		}
		v, err := slackapi.NewSecretsVerifier(r.Header, a.cfg.SigningSecret)
		if err == nil {
			_, _ = v.Write(body) // a hash never fails
			err = v.Ensure()
		}
		if err != nil {
			a.log.WarnContext(r.Context(), "a request was not signed by Slack; check SLACK_SIGNING_SECRET and the clock", "error", err)
			http.Error(w, "the signature does not fit", http.StatusUnauthorized)
			return
		}
		h := a.handler.Load()
		if h == nil {
			// Slack sends events again; a person presses again.
			http.Error(w, stopping, http.StatusServiceUnavailable)
			return
		}
		next(w, r, body, *h)
	}
}

func (a *Adapter) serveEvent(w http.ResponseWriter, r *http.Request, body []byte, h chat.Handler) {
	var outer callback
	if err := json.Unmarshal(body, &outer); err != nil {
		http.Error(w, "this is no JSON", http.StatusBadRequest)
		return
	}
	if outer.Type == "url_verification" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, outer.Challenge)
		return
	}
	ev, ok, err := parseEvent(body)
	if err != nil || !ok {
		// Newer than this bot: taken, so that Slack does not send it three times
		// more.
		a.log.InfoContext(r.Context(), "an event of an unknown kind was left out", "error", err)
		w.WriteHeader(http.StatusOK)
		return
	}
	a.health.frame()
	done := make(chan error, 1)
	if !a.inbox.Add(ev.lane(), func() {
		work, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), ackTimeout)
		defer cancel()
		done <- a.onEvent(work, h, ev)
	}) {
		http.Error(w, stopping, http.StatusServiceUnavailable)
		return
	}
	if err := <-done; err != nil {
		a.log.WarnContext(r.Context(), "an event was not accepted; Slack sends it again", "retry", r.Header.Get("X-Slack-Retry-Num"), "error", err)
		http.Error(w, "the event could not be stored", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (a *Adapter) serveInteraction(w http.ResponseWriter, r *http.Request, body []byte, h chat.Handler) {
	form, err := url.ParseQuery(string(body))
	var cb slackapi.InteractionCallback
	if err == nil {
		err = json.Unmarshal([]byte(form.Get("payload")), &cb)
	}
	if err != nil {
		http.Error(w, "this is no interaction", http.StatusBadRequest)
		return
	}
	done := make(chan any, 1)
	if !a.inbox.Add("interaction/"+cb.TriggerID, func() { done <- a.onInteraction(context.WithoutCancel(r.Context()), h, cb) }) {
		http.Error(w, stopping, http.StatusServiceUnavailable)
		return
	}
	answer := <-done
	if answer == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		a.log.WarnContext(r.Context(), "a form's answer did not reach Slack", "error", err)
	}
}

func (a *Adapter) serveCommand(w http.ResponseWriter, _ *http.Request, body []byte, _ chat.Handler) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		http.Error(w, "this is no command", http.StatusBadRequest)
		return
	}
	c := slackapi.SlashCommand{
		TeamID: form.Get("team_id"), ChannelID: form.Get("channel_id"), UserID: form.Get("user_id"), UserName: form.Get("user_name"),
		Command: form.Get("command"), Text: form.Get("text"), ResponseURL: form.Get("response_url"), TriggerID: form.Get("trigger_id"),
	}
	if !a.background.Add("command/"+c.TriggerID, func() { a.onCommand(a.context(), c) }) {
		http.Error(w, stopping, http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}
