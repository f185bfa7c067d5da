package console

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/test/needstest"
)

// register has some lists.
type register struct {
	thread   chat.ThreadID
	silenced atomic.Pointer[string]
}

func (*register) Names() []api.List {
	return []api.List{{ID: "approvals", Title: "Approvals"}, {ID: "runbooks", Title: "Runbooks"}, {ID: "alerts", Title: "Alerts"}, {ID: "policy", Title: "Policy"}}
}

func (s *register) Act(_ context.Context, by chat.User, list, row, act string) (bool, error) {
	if list == "alerts" && row == "a1" && act == "silence" {
		s.silenced.Store(&by.Name)
		return true, nil
	}
	return false, nil
}

func (s *register) List(_ context.Context, q api.ListQuestion) (api.List, bool, error) {
	id, words := q.ID, q.Words
	switch id {
	case "alerts":
		row := api.Row{ID: "a1", Cells: []api.Cell{{Text: "disk is full"}, {Text: "firing"}}, Acts: []api.RowAction{{ID: "silence", Text: "Silence 1 h"}}}
		if by := s.silenced.Load(); by != nil {
			row.Cells[1].Text, row.Acts = "firing, silenced by "+*by, nil
		}
		return api.List{ID: id, Title: "Alerts", Columns: []string{"Problem", "State"}, Rows: []api.Row{row}}, true, nil
	case "policy":
		l := api.List{ID: id, Title: "Policy", About: "What would happen to a command.", Ask: "Explain", Columns: []string{"About", "Answer"}, Rows: []api.Row{}, Fields: []api.FormField{
			{Name: "command", Label: "Command", Hint: "ls"}, {Name: "target", Label: "Target", Choices: []string{"local", "web-1"}, Value: "web-1"}, {Name: "policy", Label: "Policy to try", Long: true},
		}}
		if q.Fields["command"] != "" {
			l.Note = "On " + q.Fields["target"] + ":"
			l.Rows = append(l.Rows, api.Row{Cells: []api.Cell{{Text: "Decision"}, {Text: "ask: " + q.Fields["command"]}}})
		}
		return l, true, nil
	case "approvals":
		l := api.List{ID: id, Title: "Approvals", About: "What was asked and what became of it.", Columns: []string{"When", "What", "Risk", "Decision"}, Bars: []api.BarValue{{Name: "Monday", Value: 2, Text: "2"}, {Name: "Tuesday", Value: 4, Text: "4"}}}
		for _, what := range []string{"Restart nginx on web-1", "Delete 3 files on db-1 <img src=x onerror=alert(1)>\u202e"} {
			if strings.Contains(strings.ToLower(what), words) {
				l.Rows = append(l.Rows, api.Row{Cells: []api.Cell{{At: time.Now()}, {Text: what}, {Text: "high", Tone: chat.ToneHigh}, {Text: "approved by bob"}}, Thread: s.thread})
			}
		}
		if l.Rows == nil {
			l.Rows = []api.Row{}
		}
		return l, true, nil
	case "runbooks":
		return api.List{ID: id, Title: "Runbooks", Columns: []string{"Name"}, Rows: []api.Row{{Cells: []api.Cell{{Text: "disk-full", Code: true}}, Say: "run disk-full host=", Do: "Start"}}}, true, nil
	}
	return api.List{}, false, nil
}

func TestListsAreForMembers(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Lists = &register{}
		c.Users = func(name string, _ []string) Role { return map[string]Role{"you": Member, "vera": Viewer}[name] }
	})
	you, vera := r.signIn("you"), r.signIn("vera")
	if got := you.do("GET", "/api/lists/approvals?q=nginx", ""); got.status != 200 || !strings.Contains(string(got.body), "Restart nginx") || strings.Contains(string(got.body), "db-1") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := you.do("GET", "/api/lists/approvals", ""); !strings.Contains(string(got.body), `\\u{202E}`) {
		t.Errorf("hidden letters are not shown: %s", got.body)
	}
	for path, want := range map[string]int{"/api/lists/nothing": 404, "/api/lists/approvals?q=" + strings.Repeat("x", 500): 400} {
		if got := you.do("GET", path, ""); got.status != want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := vera.do("GET", "/api/lists/approvals", ""); got.status != 403 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestListsInTheBrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	all := &register{}
	s := newScreenTest(t, func(c *Config) { c.Lists, c.Users = all, members("you") })
	s.ask()
	all.thread = s.bot.seen()[0].Thread
	s.do("the lists", script(`document.querySelector("#lists").open = true`), click("#lists-links a"))
	s.until(`document.querySelectorAll('.listed-table tbody tr').length === 2 && document.querySelector('#title').textContent === 'Approvals'`)
	s.is(`document.querySelectorAll('.listed-bar').length === 2 && !document.querySelector('.listed-table img')`)
	s.shot("60-list")
	s.do("narrowing it", typing("#listed-query", "nginx"))
	s.until(`document.querySelectorAll('.listed-table tbody tr').length === 1`)
	s.do("to nothing", typing("#listed-query", "xxx"))
	s.until(`document.querySelector('#listed-told').textContent === 'Nothing here.'`)
	s.do("clearing it", script(`{ const q = document.querySelector('#listed-query'); q.value = ''; q.dispatchEvent(new Event('input')); }`))
	s.until(`document.querySelectorAll('.listed-table tbody tr').length === 2`)
	s.do("to the conversation", click(".listed-table tbody a"))
	s.until(`document.querySelector('#listed').hidden && document.querySelector('.card.open') !== null`)
	s.do("runbooks", click("#lists-links [data-list=runbooks]"))
	s.until(`document.querySelector('.listed-table button') !== null`)
	s.press("start", ".listed-table button")
	s.until(`document.querySelector('#text').value === 'run disk-full host=' && document.activeElement.id === 'text'`)
	s.do("alerts", click("#lists-links [data-list=alerts]"))
	s.until(`document.querySelector('.listed-table button')?.textContent === 'Silence 1 h'`)
	s.press("silence", ".listed-table button")
	s.until(`document.querySelector('.listed-table tbody').textContent === 'disk is fullfiring, silenced by you'`)
	s.do("policy", click("#lists-links [data-list=policy]"))
	s.until(`document.querySelector('.listed-form [type=submit]')?.textContent === 'Explain' && document.querySelector('#listed-find').hidden && document.querySelector('#listed-told').textContent === ''`)
	s.is(`document.querySelector('.listed-form select').value === 'web-1' && document.querySelector('.listed-form textarea') !== null`)
	s.do("a command", typing(".listed-form [name=command]", "rm -rf /tmp/<b>x"), click(".listed-form [type=submit]"))
	s.until(`document.querySelector('#listed-told').textContent === 'On web-1:' && document.querySelector('.listed-table tbody').textContent === 'Decisionask: rm -rf /tmp/<b>x'`)
	s.is(`document.querySelector('.listed-form [name=command]').value === 'rm -rf /tmp/<b>x'`)
	s.shot("61-list-form")
	s.do("saving it", script(`{ window.saved = []; const was = URL.createObjectURL; URL.createObjectURL = (b) => { b.text().then((t) => window.saved.push(t)); return was.call(URL, b); }; }`), click("#listed-save"))
	s.until(`window.saved[0] === 'About,Answer\r\nDecision,ask: rm -rf /tmp/<b>x\r\n'`)
	s.do("home", click("#to-home"))
	s.until(`document.querySelector('#listed').hidden && !document.querySelector('#lists-links [aria-current]')`)
	s.clean()
}

func TestListsAreAccessible(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	axe := axeScript(t)
	all := &register{}
	s := newScreenTest(t, func(c *Config) { c.Lists, c.Users = all, members("you") })
	s.ask()
	all.thread = s.bot.seen()[0].Thread
	s.do("the lists", script(`document.querySelector("#lists").open = true`), click("#lists-links a"))
	s.until(`document.querySelectorAll('.listed-table tbody tr').length === 2`)
	s.checked(axe, "list")
	s.do("a form", click("#lists-links [data-list=policy]"))
	s.until(`document.querySelector('.listed-form [type=submit]') !== null`)
	s.checked(axe, "list with a form")
	s.clean()
}
