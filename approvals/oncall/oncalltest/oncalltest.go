// Package oncalltest is a server with the schedule APIs of PagerDuty, Opsgenie, Jira Service
// Management, incident.io and Grafana OnCall, and with calendars, for tests. It is strict: what their documents don't describe, it
// refuses.
package oncalltest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals/oncall"
)

// Token is the one token that the server takes.
const Token = "secret-of-the-schedules"

// Server is the server. Its fields may be changed under Change only.
type Server struct {
	URL string

	mu sync.Mutex
	// Schedules are the shifts of each schedule, by its id. Policies are PagerDuty's escalation policies: the
	// schedules of their levels.
	schedules map[string][]oncall.Shift
	policies  map[string][]string
	fault     http.HandlerFunc
	asked     int
	page      int
}

// New returns a server that a test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{schedules: map[string][]oncall.Shift{}, policies: map[string][]string{}, page: 100}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oncalls", s.pagerDuty)
	mux.HandleFunc("GET /schedules/{id}", s.pagerDutySchedule)
	mux.HandleFunc("GET /users/{id}", s.pagerDutyUser)
	mux.HandleFunc("GET /v1/schedules", s.jsmSchedules)
	mux.HandleFunc("GET /v1/schedules/{id}/on-calls", s.jsmOnCalls)
	mux.HandleFunc("GET /v2/schedules/{id}/timeline", s.opsgenie)
	mux.HandleFunc("GET /v2/schedules/{id}", s.incidentSchedule)
	mux.HandleFunc("GET /v2/schedule_entries", s.incidentEntries)
	mux.HandleFunc("GET /api/v1/schedules/{id}/final_shifts", s.grafana)
	mux.HandleFunc("GET /calendar/{id}", s.calendar)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		fault := s.fault
		s.asked++
		s.mu.Unlock()
		if fault != nil {
			fault(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Set replaces the shifts of a schedule.
func (s *Server) Set(schedule string, shifts ...oncall.Shift) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedules[schedule] = shifts
}

// Policy sets the schedules of an escalation policy's levels.
func (s *Server) Policy(id string, schedules ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[id] = schedules
}

// Pages makes lists end after so many entries.
func (s *Server) Pages(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = n
}

// Fault answers everything instead; nil ends that.
func (s *Server) Fault(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = h
}

// Asked is how often the server was asked.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Server) within(schedule string, from, to time.Time) (out []oncall.Shift, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, ok := s.schedules[schedule]
	for _, sh := range all {
		if sh.From.Before(to) && (sh.To.IsZero() || sh.To.After(from)) {
			out = append(out, sh)
		}
	}
	return out, ok
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int, why string) {
	w.WriteHeader(code)
	answer(w, map[string]any{"error": map[string]any{"message": why, "code": code}})
}

// checked reports whether a request has the header and only parameters that are known.
func checked(w http.ResponseWriter, r *http.Request, authorization string, params ...string) bool {
	if r.Header.Get("Authorization") != authorization {
		refuse(w, http.StatusUnauthorized, "the token is wrong")
		return false
	}
	for name := range r.URL.Query() {
		if !slices.Contains(params, name) {
			refuse(w, http.StatusBadRequest, "unknown parameter "+name)
			return false
		}
	}
	return true
}

func span(w http.ResponseWriter, q url.Values, layout, a, b string) (from, to time.Time, ok bool) {
	from, err1 := time.Parse(layout, q.Get(a))
	to, err2 := time.Parse(layout, q.Get(b))
	if err1 != nil || err2 != nil || !to.After(from) {
		refuse(w, http.StatusBadRequest, "no span of time")
		return from, to, false
	}
	return from, to, true
}

func (s *Server) pagerDuty(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !checked(w, r, "Token token="+Token, "schedule_ids[]", "escalation_policy_ids[]", "include[]", "limit", "offset", "since", "until", "time_zone") {
		return
	}
	if r.Header.Get("Accept") != "application/vnd.pagerduty+json;version=2" {
		refuse(w, http.StatusNotAcceptable, "no version")
		return
	}
	from, to, ok := span(w, q, time.RFC3339, "since", "until")
	if !ok {
		return
	}
	reference := func(kind, id string) map[string]any {
		return map[string]any{"id": id, "type": kind + "_reference", "summary": id, "self": s.URL + "/" + kind + "/" + id, "html_url": nil}
	}
	all := []any{}
	s.mu.Lock()
	policies := map[string][]string{}
	for id, levels := range s.policies {
		policies[id] = slices.Clone(levels)
	}
	page := s.page
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(policies)) { // one order: the pages of a list belong together
		levels := policies[id]
		if want := q["escalation_policy_ids[]"]; len(want) > 0 && !slices.Contains(want, id) {
			continue
		}
		for i, schedule := range levels {
			if want := q["schedule_ids[]"]; len(want) > 0 && !slices.Contains(want, schedule) {
				continue
			}
			shifts, _ := s.within(schedule, from, to)
			for _, sh := range shifts {
				user := map[string]any{"id": sh.Person.ID, "type": "user_reference", "summary": sh.Person.Name, "self": s.URL + "/users/" + sh.Person.ID, "html_url": nil}
				if slices.Contains(q["include[]"], "users") {
					user["type"], user["name"], user["email"] = "user", sh.Person.Name, sh.Person.Email
				}
				o := map[string]any{
					"escalation_policy": reference("escalation_policy", id), "escalation_level": i + 1,
					"schedule": reference("schedule", schedule), "user": user, "start": sh.From.UTC().Format(time.RFC3339), "end": nil,
				}
				if !sh.To.IsZero() {
					o["end"] = sh.To.UTC().Format(time.RFC3339)
				}
				all = append(all, o)
			}
		}
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit == 0 {
		limit = 25
	}
	limit = min(limit, 100, page)
	offset, _ := strconv.Atoi(q.Get("offset"))
	end := min(offset+limit, len(all))
	answer(w, map[string]any{"oncalls": all[min(offset, end):end], "limit": limit, "offset": offset, "more": end < len(all), "total": nil})
}

func (s *Server) pagerDutySchedule(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !checked(w, r, "Token token="+Token, "since", "until", "time_zone") {
		return
	}
	from, to, ok := span(w, q, time.RFC3339, "since", "until")
	if !ok {
		return
	}
	id := r.PathValue("id")
	shifts, ok := s.within(id, from, to)
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	entries, policies := []any{}, []any{}
	for _, sh := range shifts {
		entries = append(entries, map[string]any{
			"user":  map[string]any{"id": sh.Person.ID, "type": "user_reference", "summary": sh.Person.Name},
			"start": sh.From.UTC().Format(time.RFC3339), "end": sh.To.UTC().Format(time.RFC3339),
		})
	}
	s.mu.Lock()
	for policy, levels := range s.policies {
		if slices.Contains(levels, id) {
			policies = append(policies, map[string]any{"id": policy, "type": "escalation_policy_reference"})
		}
	}
	s.mu.Unlock()
	answer(w, map[string]any{"schedule": map[string]any{
		"id": id, "type": "schedule", "name": "Schedule", "time_zone": "UTC", "escalation_policies": policies, "users": []any{},
		"final_schedule": map[string]any{"name": "Final Schedule", "rendered_schedule_entries": entries, "rendered_coverage_percentage": 50.0},
	}})
}

func (s *Server) pagerDutyUser(w http.ResponseWriter, r *http.Request) {
	if !checked(w, r, "Token token="+Token) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shifts := range s.schedules {
		for _, sh := range shifts {
			if sh.Person.ID == r.PathValue("id") {
				answer(w, map[string]any{"user": map[string]any{"id": sh.Person.ID, "type": "user", "name": sh.Person.Name, "email": sh.Person.Email}})
				return
			}
		}
	}
	refuse(w, http.StatusNotFound, "no such user")
}

// JSMToken is what Jira Service Management takes: an address and a token.
const JSMToken = "ops@example.com:" + Token

func (s *Server) jsmChecked(w http.ResponseWriter, r *http.Request, params ...string) bool {
	return checked(w, r, "Basic "+base64.StdEncoding.EncodeToString([]byte(JSMToken)), params...)
}

func (s *Server) jsmSchedules(w http.ResponseWriter, r *http.Request) {
	if !s.jsmChecked(w, r, "size", "offset", "query", "expand") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	values := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.schedules)) {
		values = append(values, map[string]any{"id": name, "name": "Schedule " + name, "timezone": "Europe/Berlin", "enabled": true, "teamId": "t1"})
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	answer(w, map[string]any{"values": values[min(offset, len(values)):]})
}

// jsmOnCalls says who is on call when the first shift begins.
func (s *Server) jsmOnCalls(w http.ResponseWriter, r *http.Request) {
	if !s.jsmChecked(w, r, "date", "flat") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shifts, ok := s.schedules[r.PathValue("id")]
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	people := []any{map[string]any{"id": "e1e1", "type": "escalation"}}
	for _, sh := range shifts {
		if sh.From.Equal(shifts[0].From) {
			people = append(people, map[string]any{"id": sh.Person.ID, "type": "user"})
		}
	}
	answer(w, map[string]any{"onCallParticipants": people})
}

func (s *Server) opsgenie(w http.ResponseWriter, r *http.Request) {
	if !checked(w, r, "GenieKey "+Token, "identifierType", "interval", "intervalUnit", "date", "expand") {
		return
	}
	q := r.URL.Query()
	from, err := time.Parse("2006-01-02T15:04:05.000Z", q.Get("date"))
	days, _ := strconv.Atoi(q.Get("interval"))
	days = max(days, 1)
	if err != nil || q.Get("intervalUnit") != "days" || q.Get("identifierType") != "id" && q.Get("identifierType") != "name" {
		refuse(w, http.StatusUnprocessableEntity, "the parameters are wrong")
		return
	}
	shifts, ok := s.within(r.PathValue("id"), from, from.AddDate(0, 0, days))
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	rotations := map[int][]any{}
	for _, sh := range shifts {
		rotations[sh.Level] = append(rotations[sh.Level], map[string]any{
			"startDate": sh.From.UTC().Format(time.RFC3339), "endDate": sh.To.UTC().Format(time.RFC3339), "type": "default",
			"recipient": map[string]any{"id": sh.Person.ID, "type": "user", "name": sh.Person.Email},
		})
	}
	list := []any{}
	for level, periods := range rotations { // in no order, as the order is a field
		list = append(list, map[string]any{"id": fmt.Sprintf("rotation-%d", level), "name": "Rotation", "order": float64(level), "periods": periods})
	}
	answer(w, map[string]any{
		"data": map[string]any{
			"_parent":   map[string]any{"id": r.PathValue("id"), "name": "Schedule", "enabled": true},
			"startDate": from.Format(time.RFC3339), "endDate": from.AddDate(0, 0, days).Format(time.RFC3339),
			"finalTimeline": map[string]any{"rotations": list},
		},
		"expandable": []string{"base", "forwarding", "override"}, "took": 0.09, "requestId": "11111111-2222-3333-4444-555555555555",
	})
}

func (s *Server) incidentSchedule(w http.ResponseWriter, r *http.Request) {
	if !checked(w, r, "Bearer "+Token) {
		return
	}
	s.mu.Lock()
	shifts, ok := s.schedules[r.PathValue("id")]
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	top := 1
	for _, sh := range shifts {
		top = max(top, sh.Level)
	}
	var rotations []any
	for level := 1; level <= top; level++ {
		rotations = append(rotations, map[string]any{
			"id": fmt.Sprintf("R%d", level), "name": "Rotation", "handover_start_at": "2021-08-17T13:28:57Z",
			"handovers": []any{}, "layers": []any{map[string]any{"id": "L1", "name": "Layer 1"}}, "users": []any{}, "working_interval": []any{},
		})
	}
	answer(w, map[string]any{"schedule": map[string]any{
		"id": r.PathValue("id"), "name": "Schedule", "timezone": "UTC", "annotations": map[string]any{},
		"created_at": "2021-08-17T13:28:57Z", "updated_at": "2021-08-17T13:28:57Z", "config": map[string]any{"rotations": rotations},
	}})
}

func (s *Server) incidentEntries(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !checked(w, r, "Bearer "+Token, "schedule_id", "entry_window_start", "entry_window_end") {
		return
	}
	from, to, ok := span(w, q, time.RFC3339, "entry_window_start", "entry_window_end")
	if !ok {
		return
	}
	shifts, ok := s.within(q.Get("schedule_id"), from, to)
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	final := []any{}
	for _, sh := range shifts {
		final = append(final, map[string]any{
			"entry_id": "E", "fingerprint": "F", "layer_id": "L1", "rotation_id": fmt.Sprintf("R%d", sh.Level),
			"start_at": sh.From.UTC().Format(time.RFC3339), "end_at": sh.To.UTC().Format(time.RFC3339),
			"user": map[string]any{"id": sh.Person.ID, "name": sh.Person.Name, "email": sh.Person.Email, "slack_user_id": sh.Person.Slack, "role": "responder"},
		})
	}
	answer(w, map[string]any{"schedule_entries": map[string]any{"final": final, "overrides": []any{}, "scheduled": final}})
}

func (s *Server) grafana(w http.ResponseWriter, r *http.Request) {
	if !checked(w, r, Token, "start_date", "end_date", "page") {
		return
	}
	q := r.URL.Query()
	from, to, ok := span(w, q, time.DateOnly, "start_date", "end_date")
	if !ok {
		return
	}
	shifts, ok := s.within(r.PathValue("id"), from, to.AddDate(0, 0, 1))
	if !ok {
		refuse(w, http.StatusNotFound, "no such schedule")
		return
	}
	s.mu.Lock()
	size := s.page
	s.mu.Unlock()
	page, _ := strconv.Atoi(q.Get("page"))
	page = max(page, 1)
	start := min((page-1)*size, len(shifts))
	end := min(start+size, len(shifts))
	results := []any{}
	for _, sh := range shifts[start:end] {
		results = append(results, map[string]any{
			"user_pk": sh.Person.ID, "user_email": sh.Person.Email, "user_username": sh.Person.Name,
			"shift_start": sh.From.UTC().Format(time.RFC3339), "shift_end": sh.To.UTC().Format(time.RFC3339),
		})
	}
	var next any
	if end < len(shifts) {
		next = fmt.Sprintf("%s%s?page=%d", s.URL, r.URL.Path, page+1)
	}
	answer(w, map[string]any{"count": len(shifts), "next": next, "previous": nil, "results": results})
}

func (s *Server) calendar(w http.ResponseWriter, r *http.Request) {
	shifts, ok := s.within(r.PathValue("id"), time.Time{}, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/calendar")
	_, _ = fmt.Fprint(w, Calendar(shifts...))
}

// Calendar is an iCalendar file with one event for each shift.
func Calendar(shifts ...oncall.Shift) string {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//test//EN\r\n")
	for i, sh := range shifts {
		fmt.Fprintf(&b, "BEGIN:VEVENT\r\nUID:%d\r\nDTSTAMP:20260101T000000Z\r\nDTSTART:%s\r\nDTEND:%s\r\nPRIORITY:%d\r\nSUMMARY:On call\r\nATTENDEE;CN=%s:mailto:%s\r\nEND:VEVENT\r\n",
			i, sh.From.UTC().Format("20060102T150405Z"), sh.To.UTC().Format("20060102T150405Z"), sh.Level, sh.Person.Name, sh.Person.Email)
	}
	b.WriteString("END:VCALENDAR\r\n")
	return b.String()
}
