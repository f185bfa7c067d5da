package console

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/console/display"
)

// Desk tells what goes on in all threads, for the first page. It is safe for concurrent use.
type Desk interface {
	// Home is what q.From may see; writes tells whether they may do anything about it. Buttons
	// are on cards that q.From may decide or stop, and their presses may come with the threads of
	// other networks.
	Home(ctx context.Context, q chat.Inquiry, writes bool) (api.Home, error)
}

// busy is a thread in which something goes on without a card.
type busy struct {
	Thread  chat.ThreadID `json:"thread"`
	Network string        `json:"network,omitempty"`
	Doing   string        `json:"doing"`
}

// firstPage answers what goes on.
type firstPage struct {
	ground
	desk Desk // nil: nothing is told
}

func (p *firstPage) read(w http.ResponseWriter, r *http.Request, s session) error {
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	home, err := p.desk.Home(ctx, chat.Inquiry{From: chat.User{ID: userID(s.user), Name: s.user}, Groups: s.groups, Fresh: s.program}, s.may(mayWrite))
	if err != nil {
		return err
	}
	cards := func(list []api.HomeCard) []api.HomeCard {
		out := []api.HomeCard{}
		for _, c := range list {
			c.Card, c.Network = *display.Card(&c.Card), networkOf(c.Thread)
			out = append(out, c)
		}
		return out
	}
	doing := []busy{}
	for _, b := range home.Busy {
		doing = append(doing, busy{b.Thread, networkOf(b.Thread), display.Text(b.Doing)})
	}
	firing := []api.Firing{}
	for _, f := range home.Alerts {
		f.Title, f.Severity, f.Source = display.Text(f.Title), display.Text(f.Severity), display.Text(f.Source)
		firing = append(firing, f)
	}
	return answer(w, http.StatusOK, map[string]any{
		"alerts": firing, "oncall": append([]string{}, home.OnCall...),
		"yours": cards(home.Yours), "others": cards(home.Others), "running": cards(home.Running), "changes": cards(home.Changes), "busy": doing,
	})
}

const homeTimeout = 10 * time.Second

// foreignThread reports whether an id can be that of another network's thread.
func foreignThread(t chat.ThreadID) bool {
	return networkOf(t) != "" && foreignID.MatchString(string(t))
}

// decides matches the buttons that may be pressed for another network's thread: those that
// decide a request, and its details. With a ticket the glass may be broken, too: it was pressed there.
var (
	decides         = regexp.MustCompile(`^(ticket:|(sign:)?approve:|(grant|deny|details):)`)
	decidesByTicket = regexp.MustCompile(`^(sign:)?(approve|glass):`)
)

var foreignID = regexp.MustCompile(`^[a-z]{2,16}:[0-9A-Za-z:._-]{1,200}$`)

// networkOf is the network of a thread as people call it, "" for the console.
func networkOf(t chat.ThreadID) string {
	name, _, _ := strings.Cut(string(t), ":")
	if name == scheme || name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
