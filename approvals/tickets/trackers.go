package tickets

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/internal/redact"
	"countersign/internal/rest"
)

// login is a header with a user's password, or else a token.
func (o Options) login(token redact.Secret) map[string]redact.Secret {
	if o.User != "" {
		return map[string]redact.Secret{"Authorization": redact.Secret("Basic " + base64.StdEncoding.EncodeToString([]byte(o.User+":"+string(token))))}
	}
	return map[string]redact.Secret{"Authorization": "Bearer " + token}
}

// none turns an answer that there is no such thing into ErrNone.
func none(err error) error {
	if e, ok := errors.AsType[*rest.StatusError](err); ok && (e.Status == http.StatusNotFound || e.Status == http.StatusGone) {
		return ErrNone
	}
	return err
}

// one reports whether a list without entries, or one of them, allows it.
func one(approved []string, of ...string) bool {
	return len(approved) == 0 || slices.ContainsFunc(of, func(s string) bool {
		return slices.ContainsFunc(approved, func(a string) bool { return strings.EqualFold(a, s) })
	})
}

// number is the digits at the end of a key, "" if there are none.
func number(key string) string {
	n := key[strings.LastIndexFunc(key, func(r rune) bool { return r < '0' || r > '9' })+1:]
	if _, err := strconv.ParseUint(n, 10, 63); err != nil {
		return ""
	}
	return n
}

// jira asks Jira's REST API v2, which Cloud and Data Center have and which takes plain text.
type jira struct {
	c *rest.Client
	o Options
}

// Ticket implements Tracker. A ticket is open until its status is in the category "done".
func (j jira) Ticket(ctx context.Context, key string) (t approvals.Ticket, err error) {
	var issue struct {
		Key    string `json:"key"`
		Fields struct {
			Summary string `json:"summary"`
			Status  struct {
				Name     string `json:"name"`
				Category struct {
					Key string `json:"key"`
				} `json:"statusCategory"`
			} `json:"status"`
		} `json:"fields"`
	}
	if err := j.c.GetJSON(ctx, "/rest/api/2/issue/"+url.PathEscape(key), url.Values{"fields": {"summary,status"}}, &issue); err != nil {
		return t, none(err)
	}
	status := issue.Fields.Status
	if issue.Key == "" || status.Name == "" || status.Category.Key == "" {
		return t, rest.ErrForm
	}
	return approvals.Ticket{
		Title: issue.Fields.Summary, Status: status.Name, URL: strings.TrimSuffix(j.o.URL, "/") + "/browse/" + url.PathEscape(issue.Key),
		Open: status.Category.Key != "done", Approved: one(j.o.Approved, status.Name),
	}, nil
}

// Comment implements Tracker.
func (j jira) Comment(ctx context.Context, key, text, mark string) error {
	path := "/rest/api/2/issue/" + url.PathEscape(key) + "/comment"
	var list struct {
		Comments *[]struct {
			Body string `json:"body"`
		} `json:"comments"`
	}
	if err := j.c.GetJSON(ctx, path, url.Values{"orderBy": {"-created"}, "maxResults": {"100"}}, &list); err != nil {
		return none(err)
	}
	if list.Comments == nil {
		return rest.ErrForm
	}
	for _, c := range *list.Comments {
		if strings.Contains(c.Body, mark) {
			return nil
		}
	}
	// Jira would read the text as markup.
	body := "{noformat}\n" + strings.ReplaceAll(text, "{noformat}", "{ noformat}") + "\n{noformat}"
	return j.c.Send(ctx, http.MethodPost, path, map[string]string{"body": body})
}

// serviceNow asks ServiceNow's Table API about the table task, which changes, incidents and requests are in.
type serviceNow struct {
	c *rest.Client
	o Options
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9]+$`)

func (s serviceNow) task(ctx context.Context, key string) (id string, t approvals.Ticket, err error) {
	var answer struct {
		Result *[]struct {
			ID       string `json:"sys_id"`
			Number   string `json:"number"`
			Title    string `json:"short_description"`
			Active   string `json:"active"`
			Approval string `json:"approval"`
			State    string `json:"state"`
		} `json:"result"`
	}
	if !plainKey.MatchString(key) { // anything else is a part of a query
		return "", t, ErrNone
	}
	err = s.c.GetJSON(ctx, "/api/now/table/task", url.Values{
		"sysparm_query": {"number=" + key}, "sysparm_limit": {"1"}, "sysparm_display_value": {"false"},
		"sysparm_fields": {"sys_id,number,short_description,active,approval,state"},
	}, &answer)
	switch {
	case err != nil:
		return "", t, err
	case answer.Result == nil:
		return "", t, rest.ErrForm
	case len(*answer.Result) == 0:
		return "", t, ErrNone
	}
	r := (*answer.Result)[0]
	if r.ID == "" || r.Number != key || r.Active == "" {
		return "", t, rest.ErrForm
	}
	approved := s.o.Approved
	if len(approved) == 0 && strings.HasPrefix(key, "CHG") {
		approved = []string{"approved"}
	}
	status := "active"
	if r.Active != "true" {
		status = "closed"
	}
	if r.Approval != "" && r.Approval != "not requested" {
		status += ", approval: " + r.Approval
	}
	return r.ID, approvals.Ticket{
		Title: r.Title, Status: status, URL: strings.TrimSuffix(s.o.URL, "/") + "/task.do?sys_id=" + url.QueryEscape(r.ID),
		Open: r.Active == "true", Approved: one(approved, r.Approval),
	}, nil
}

// Ticket implements Tracker. A change must have been approved, whatever the configuration says.
func (s serviceNow) Ticket(ctx context.Context, key string) (approvals.Ticket, error) {
	_, t, err := s.task(ctx, key)
	return t, err
}

// Comment implements Tracker: it adds work notes.
func (s serviceNow) Comment(ctx context.Context, key, text, mark string) error {
	id, _, err := s.task(ctx, key)
	if err != nil {
		return err
	}
	var notes struct {
		Result *[]struct{} `json:"result"`
	}
	err = s.c.GetJSON(ctx, "/api/now/table/sys_journal_field", url.Values{
		"sysparm_query": {"element_id=" + id + "^element=work_notes^valueLIKE" + mark}, "sysparm_limit": {"1"}, "sysparm_fields": {"sys_id"},
	}, &notes)
	switch {
	case err != nil:
		return err
	case notes.Result == nil:
		return rest.ErrForm
	case len(*notes.Result) > 0:
		return nil
	}
	return s.c.Send(ctx, http.MethodPatch, "/api/now/table/task/"+url.PathEscape(id), map[string]string{"work_notes": plainNotes(text)})
}

// htmlMark begins and ends what ServiceNow shows as HTML.
var htmlMark = regexp.MustCompile(`(?i)\[(\s*/?\s*code\s*)\]`)

// plainNotes is a text of others as work notes, without what would make some of it HTML.
func plainNotes(text string) string { return htmlMark.ReplaceAllString(text, "($1)") }

// gitHub asks GitHub's REST API about issues and pull requests.
type gitHub struct {
	c *rest.Client
	o Options
}

func (g gitHub) path(key string) (string, error) {
	n := number(key)
	if n == "" {
		return "", ErrNone
	}
	return "/repos/" + g.o.Project + "/issues/" + n, nil
}

// Ticket implements Tracker.
func (g gitHub) Ticket(ctx context.Context, key string) (t approvals.Ticket, err error) {
	path, err := g.path(key)
	if err != nil {
		return t, err
	}
	var issue struct {
		Number int    `json:"number"`
		Title  string `json:"title"`
		State  string `json:"state"`
		URL    string `json:"html_url"`
		Labels []struct {
			Name string `json:"name"`
		} `json:"labels"`
	}
	if err := g.c.GetJSON(ctx, path, nil, &issue); err != nil {
		return t, none(err)
	}
	if issue.Number == 0 || issue.State == "" {
		return t, rest.ErrForm
	}
	labels := make([]string, len(issue.Labels))
	for i, l := range issue.Labels {
		labels[i] = l.Name
	}
	return approvals.Ticket{
		Title: issue.Title, Status: strings.Join(append([]string{issue.State}, labels...), ", "), URL: issue.URL,
		Open: issue.State == "open", Approved: one(g.o.Approved, labels...),
	}, nil
}

// Comment implements Tracker. It looks for the mark on the newest pages of comments.
func (g gitHub) Comment(ctx context.Context, key, text, mark string) error {
	path, err := g.path(key)
	if err != nil {
		return err
	}
	for page := 1; page <= maxPages; page++ {
		var list []struct {
			Body string `json:"body"`
		}
		if err := g.c.GetJSON(ctx, path+"/comments", url.Values{"per_page": {"100"}, "page": {strconv.Itoa(page)}}, &list); err != nil {
			return none(err)
		}
		for _, c := range list {
			if strings.Contains(c.Body, mark) {
				return nil
			}
		}
		if len(list) < 100 {
			break
		}
	}
	return g.c.Send(ctx, http.MethodPost, path+"/comments", map[string]string{"body": fenced(text)})
}

// maxPages bounds how many comments are looked through.
const maxPages = 50

// fenced keeps a text from being read as markup, mentions included.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + text + "\n" + fence
}

// gitLab asks GitLab's REST API v4 about issues.
type gitLab struct {
	c *rest.Client
	o Options
}

func (g gitLab) path(key string) (string, error) {
	n := number(key)
	if n == "" {
		return "", ErrNone
	}
	return "/api/v4/projects/" + url.PathEscape(g.o.Project) + "/issues/" + n, nil
}

// Ticket implements Tracker.
func (g gitLab) Ticket(ctx context.Context, key string) (t approvals.Ticket, err error) {
	path, err := g.path(key)
	if err != nil {
		return t, err
	}
	var issue struct {
		Number int      `json:"iid"`
		Title  string   `json:"title"`
		State  string   `json:"state"`
		URL    string   `json:"web_url"`
		Labels []string `json:"labels"`
	}
	if err := g.c.GetJSON(ctx, path, nil, &issue); err != nil {
		return t, none(err)
	}
	if issue.Number == 0 || issue.State == "" {
		return t, rest.ErrForm
	}
	return approvals.Ticket{
		Title: issue.Title, Status: strings.Join(append([]string{issue.State}, issue.Labels...), ", "), URL: issue.URL,
		Open: issue.State == "opened", Approved: one(g.o.Approved, issue.Labels...),
	}, nil
}

// Comment implements Tracker.
func (g gitLab) Comment(ctx context.Context, key, text, mark string) error {
	path, err := g.path(key)
	if err != nil {
		return err
	}
	for page := 1; page <= maxPages; page++ {
		var list []struct {
			Body string `json:"body"`
		}
		err := g.c.GetJSON(ctx, path+"/notes", url.Values{"per_page": {"100"}, "page": {strconv.Itoa(page)}, "sort": {"desc"}, "order_by": {"created_at"}}, &list)
		if err != nil {
			return none(err)
		}
		for _, c := range list {
			if strings.Contains(c.Body, mark) {
				return nil
			}
		}
		if len(list) < 100 {
			break
		}
	}
	return g.c.Send(ctx, http.MethodPost, path+"/notes", map[string]string{"body": fenced(text)})
}
