// Package ticketstest is a server with the issue APIs of Jira, ServiceNow, GitHub and GitLab, for tests. It
// is strict: what their documents don't describe, it refuses.
package ticketstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Token is the one token, and password, that the server takes; User is whose it is in Jira and ServiceNow.
const (
	Token = "secret-of-the-tickets"
	User  = "bot@example.com"
)

// Ticket is a ticket of every system.
type Ticket struct {
	Title string
	// Closed tickets are done. Status is Jira's; Approval is ServiceNow's; Labels are GitHub's and GitLab's.
	Closed   bool
	Status   string
	Approval string
	Labels   []string
	Comments []string
}

// Server is the server.
type Server struct {
	URL string

	mu      sync.Mutex
	tickets map[string]*Ticket // by key: OPS-1, CHG0000001, or a number
	fault   http.HandlerFunc
	asked   int
}

// New returns a server that a test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{tickets: map[string]*Ticket{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rest/api/2/issue/{key}", s.jiraIssue)
	mux.HandleFunc("GET /rest/api/2/issue/{key}/comment", s.jiraComments)
	mux.HandleFunc("POST /rest/api/2/issue/{key}/comment", s.jiraComment)
	mux.HandleFunc("GET /api/now/table/task", s.nowTask)
	mux.HandleFunc("PATCH /api/now/table/task/{id}", s.nowNote)
	mux.HandleFunc("GET /api/now/table/sys_journal_field", s.nowNotes)
	mux.HandleFunc("GET /repos/acme/shop/issues/{key}", s.hubIssue)
	mux.HandleFunc("GET /repos/acme/shop/issues/{key}/comments", s.hubComments)
	mux.HandleFunc("POST /repos/acme/shop/issues/{key}/comments", s.hubComment)
	mux.HandleFunc("GET /api/v4/projects/{project}/issues/{key}", s.labIssue)
	mux.HandleFunc("GET /api/v4/projects/{project}/issues/{key}/notes", s.labNotes)
	mux.HandleFunc("POST /api/v4/projects/{project}/issues/{key}/notes", s.labNote)
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

// Set replaces a ticket.
func (s *Server) Set(key string, t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets[key] = &t
}

// Comments are those of a ticket.
func (s *Server) Comments(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tickets[key]; t != nil {
		return slices.Clone(t.Comments)
	}
	return nil
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

// with calls f for a ticket, while nobody else has it.
func (s *Server) with(w http.ResponseWriter, key string, f func(*Ticket)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tickets[key]
	if t == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	f(t)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int) {
	answer(w, status, map[string]any{"message": http.StatusText(status)})
}

// body reads an object with a text, and maybe other things that its description has.
func body(w http.ResponseWriter, r *http.Request, name string, also ...string) (text string, ok bool) {
	var m map[string]json.RawMessage
	err := json.NewDecoder(r.Body).Decode(&m)
	if err == nil {
		err = json.Unmarshal(m[name], &text)
	}
	for k := range m {
		ok = k == name || slices.Contains(also, k)
		if !ok {
			break
		}
	}
	if err != nil || !ok || text == "" || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusBadRequest)
		return "", false
	}
	return text, true
}

func known(w http.ResponseWriter, r *http.Request, params ...string) bool {
	for name := range r.URL.Query() {
		if !slices.Contains(params, name) {
			refuse(w, http.StatusBadRequest)
			return false
		}
	}
	return true
}

// signedIn is how Jira and ServiceNow know people.
func signedIn(w http.ResponseWriter, r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	if (!ok || user != User || password != Token) && r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized)
		return false
	}
	return true
}

func (s *Server) jiraIssue(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r, "fields") {
		return
	}
	key := r.PathValue("key")
	s.with(w, key, func(t *Ticket) {
		category := map[string]any{"id": 4, "key": "indeterminate", "name": "In Progress", "colorName": "yellow"}
		if t.Closed {
			category = map[string]any{"id": 3, "key": "done", "name": "Done", "colorName": "green"}
		}
		answer(w, 200, map[string]any{"id": "10000", "key": key, "self": s.URL + "/rest/api/2/issue/10000", "fields": map[string]any{
			"summary": t.Title, "status": map[string]any{"id": "3", "name": t.Status, "statusCategory": category},
		}})
	})
}

func (s *Server) jiraComments(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r, "orderBy", "maxResults", "startAt") {
		return
	}
	s.with(w, r.PathValue("key"), func(t *Ticket) {
		list := []any{}
		for i, c := range slices.Backward(t.Comments) {
			list = append(list, map[string]any{"id": strconv.Itoa(i), "body": c, "created": "2026-01-01T00:00:00.000+0000"})
		}
		answer(w, 200, map[string]any{"startAt": 0, "maxResults": 100, "total": len(list), "comments": list})
	})
}

func (s *Server) jiraComment(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r) {
		return
	}
	text, ok := body(w, r, "body", "author", "updateAuthor", "visibility", "properties") // as its description has a comment
	if !ok {
		return
	}
	s.with(w, r.PathValue("key"), func(t *Ticket) {
		t.Comments = append(t.Comments, text)
		answer(w, 201, map[string]any{"id": "1", "body": text})
	})
}

func (s *Server) nowTask(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r, "sysparm_query", "sysparm_limit", "sysparm_display_value", "sysparm_fields") {
		return
	}
	key, ok := strings.CutPrefix(r.URL.Query().Get("sysparm_query"), "number=")
	if !ok || strings.Contains(key, "^") {
		refuse(w, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []any{}
	if t := s.tickets[key]; t != nil {
		list = append(list, map[string]any{
			"sys_id": "id-" + key, "number": key, "short_description": t.Title, "active": strconv.FormatBool(!t.Closed), "approval": t.Approval, "state": "-1",
		})
	}
	answer(w, 200, map[string]any{"result": list})
}

func (s *Server) nowNote(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r) {
		return
	}
	text, ok := body(w, r, "work_notes")
	if !ok {
		return
	}
	s.with(w, strings.TrimPrefix(r.PathValue("id"), "id-"), func(t *Ticket) {
		t.Comments = append(t.Comments, text)
		answer(w, 200, map[string]any{"result": map[string]any{"sys_id": r.PathValue("id")}})
	})
}

func (s *Server) nowNotes(w http.ResponseWriter, r *http.Request) {
	if !signedIn(w, r) || !known(w, r, "sysparm_query", "sysparm_limit", "sysparm_fields") {
		return
	}
	parts := strings.Split(r.URL.Query().Get("sysparm_query"), "^")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "element_id=id-") || parts[1] != "element=work_notes" || !strings.HasPrefix(parts[2], "valueLIKE") {
		refuse(w, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []any{}
	if t := s.tickets[strings.TrimPrefix(parts[0], "element_id=id-")]; t != nil {
		for _, c := range t.Comments {
			if strings.Contains(c, strings.TrimPrefix(parts[2], "valueLIKE")) {
				list = append(list, map[string]any{"sys_id": "note"})
			}
		}
	}
	answer(w, 200, map[string]any{"result": list})
}

func (s *Server) hub(w http.ResponseWriter, r *http.Request, params ...string) bool {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized)
		return false
	}
	if !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.github") {
		refuse(w, http.StatusUnsupportedMediaType)
		return false
	}
	return known(w, r, params...)
}

func (s *Server) hubIssue(w http.ResponseWriter, r *http.Request) {
	if !s.hub(w, r) {
		return
	}
	key := r.PathValue("key")
	s.with(w, key, func(t *Ticket) {
		n, _ := strconv.Atoi(key)
		labels := []any{}
		for i, l := range t.Labels {
			labels = append(labels, map[string]any{"id": i, "name": l, "color": "ededed"})
		}
		state := "open"
		if t.Closed {
			state = "closed"
		}
		answer(w, 200, map[string]any{"id": 1, "number": n, "title": t.Title, "state": state, "labels": labels, "html_url": s.URL + "/acme/shop/issues/" + key})
	})
}

// page is the part of a list that a request asks for.
func page(r *http.Request, all []string) []any {
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	if size == 0 {
		size = 30
	}
	n, _ := strconv.Atoi(r.URL.Query().Get("page"))
	start := min((max(n, 1)-1)*size, len(all))
	list := []any{}
	for i, c := range all[start:min(start+size, len(all))] {
		list = append(list, map[string]any{"id": start + i, "body": c})
	}
	return list
}

func (s *Server) hubComments(w http.ResponseWriter, r *http.Request) {
	if s.hub(w, r, "per_page", "page") {
		s.with(w, r.PathValue("key"), func(t *Ticket) { answer(w, 200, page(r, t.Comments)) })
	}
}

func (s *Server) hubComment(w http.ResponseWriter, r *http.Request) {
	if !s.hub(w, r) {
		return
	}
	if text, ok := body(w, r, "body"); ok {
		s.with(w, r.PathValue("key"), func(t *Ticket) {
			t.Comments = append(t.Comments, text)
			answer(w, 201, map[string]any{"id": len(t.Comments), "body": text})
		})
	}
}

func (s *Server) lab(w http.ResponseWriter, r *http.Request, params ...string) bool {
	if r.Header.Get("Private-Token") != Token {
		refuse(w, http.StatusUnauthorized)
		return false
	}
	if r.PathValue("project") != "acme/shop" {
		refuse(w, http.StatusNotFound)
		return false
	}
	return known(w, r, params...)
}

func (s *Server) labIssue(w http.ResponseWriter, r *http.Request) {
	if !s.lab(w, r) {
		return
	}
	key := r.PathValue("key")
	s.with(w, key, func(t *Ticket) {
		n, _ := strconv.Atoi(key)
		state := "opened"
		if t.Closed {
			state = "closed"
		}
		answer(w, 200, map[string]any{
			"id": 1, "iid": n, "project_id": 1, "title": t.Title, "state": state, "labels": append([]string{}, t.Labels...),
			"web_url": fmt.Sprintf("%s/acme/shop/-/issues/%s", s.URL, key),
		})
	})
}

func (s *Server) labNotes(w http.ResponseWriter, r *http.Request) {
	if s.lab(w, r, "per_page", "page", "sort", "order_by") {
		s.with(w, r.PathValue("key"), func(t *Ticket) {
			all := slices.Clone(t.Comments)
			if r.URL.Query().Get("sort") != "asc" {
				slices.Reverse(all)
			}
			answer(w, 200, page(r, all))
		})
	}
}

func (s *Server) labNote(w http.ResponseWriter, r *http.Request) {
	if !s.lab(w, r) {
		return
	}
	if text, ok := body(w, r, "body"); ok {
		s.with(w, r.PathValue("key"), func(t *Ticket) {
			t.Comments = append(t.Comments, text)
			answer(w, 201, map[string]any{"id": len(t.Comments), "body": text})
		})
	}
}
