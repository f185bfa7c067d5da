package alerts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts/notice"
	"countersign/store"
	"countersign/store/aging"
)

// Fields of rows may be added or removed, but their names must not change.

// entry is a stored notice, without the parts that are never shown.
type entry struct {
	ID     string        `json:"id"`    // of its group
	Shape  string        `json:"shape"` // equal shapes say the same
	Firing int           `json:"firing"`
	Over   int           `json:"over"`
	On     []string      `json:"on,omitempty"` // fingerprints of what fires, sorted
	Notice notice.Notice `json:"notice"`
	At     time.Time     `json:"at"`
}

// What is kept of a notice's alerts.
const (
	keptAlerts = 20
	keptLabels = 16
	keptText   = 600 // bytes
)

func newEntry(n notice.Notice, hide func(string) string) entry {
	e := entry{ID: n.Hash(), Shape: n.Shape(), At: n.At.UTC()}
	e.Firing, e.Over = n.Counts()
	for _, a := range n.Alerts {
		if a.Status == notice.Firing {
			e.On = append(e.On, a.Fingerprint)
		}
	}
	slices.Sort(e.On)
	// What fires is shown first.
	list := slices.Clone(n.Alerts)
	slices.SortStableFunc(list, func(a, b notice.Alert) int {
		if (a.Status == notice.Firing) == (b.Status == notice.Firing) {
			return 0
		}
		if a.Status == notice.Firing {
			return -1
		}
		return 1
	})
	n.More += max(len(list)-keptAlerts, 0)
	n.Alerts = list[:min(len(list), keptAlerts)]
	n.Key, n.ID = "", "" // the hash stands for the key
	n.Title, n.Text, n.Change, n.Labels, n.URL = hide(n.Title), hide(n.Text), hide(n.Change), hidden(n.Labels, notice.MaxLabels, hide), hide(n.URL)
	for i := range n.Alerts {
		a := &n.Alerts[i]
		a.Title, a.Text, a.Labels, a.URL = hide(a.Title), cut(hide(a.Text), keptText), hidden(a.Labels, keptLabels, hide), hide(a.URL)
	}
	e.Notice = n
	return e
}

func hidden(in map[string]string, limit int, hide func(string) string) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if len(out) == limit {
			break
		}
		// A rule about secrets may need to see the name.
		v := strings.TrimPrefix(hide(k+"="+in[k]), k+"=")
		out[k] = v
	}
	return out
}

func (e entry) firing() bool { return e.Notice.Status == notice.Firing }

// stage is the state of a group's thread.
type stage string

const (
	opening stage = "opening" // not open yet
	telling stage = "telling" // open; the bot has to be asked
	live    stage = "live"
	folded  stage = "folded" // none: the group is in the list of another one
)

// group is one problem, or a list of several.
type group struct {
	ID      string   `json:"id"`
	Episode int      `json:"episode"` // counts the threads that it had
	Stage   stage    `json:"stage"`
	Place   Place    `json:"place"`
	Fold    string   `json:"fold,omitempty"`    // the group whose list contains it
	Members []member `json:"members,omitempty"` // only for a list
	More    int      `json:"more,omitempty"`    // members that are not listed

	Firing bool      `json:"firing"`
	Began  time.Time `json:"began"` // of the episode
	Ended  time.Time `json:"ended,omitzero"`
	Heard  time.Time `json:"heard"` // the last notice
	Told   int       `json:"told"`  // notices of the episode
	Last   entry     `json:"last"`

	Thread chat.ThreadID `json:"thread,omitempty"`
	// Opening is the text with which the thread is opened, the same at each attempt.
	Opening string `json:"opening,omitempty"`
	Tries   int    `json:"tries,omitempty"`

	Flushes   int       `json:"flushes,omitempty"` // of the episode
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	Lines     []string  `json:"lines,omitempty"` // Markdown that is to be posted
	Folded    int       `json:"folded,omitempty"`
	Face      bool      `json:"face,omitempty"`    // the root is out of date
	Repeats   int       `json:"repeats,omitempty"` // notices that said nothing new
	Counted   int       `json:"counted,omitempty"` // of them, what the counter shows
	Due       time.Time `json:"due,omitzero"`      // its due row

	// Quiet is until when nothing is said of the problem, as QuietBy wanted.
	Quiet   time.Time `json:"quiet,omitzero"`
	QuietBy string    `json:"quiet_by,omitempty"`
}

// member is a line of a list.
type member struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Severity string    `json:"severity,omitempty"`
	Source   string    `json:"source"`
	URL      string    `json:"url,omitempty"`
	Firing   bool      `json:"firing"`
	At       time.Time `json:"at"`
}

// isList reports whether the group is a list of others.
func (g *group) isList() bool { return len(g.Members) > 0 }

func lastKey() []byte           { return store.Key("alerts", "last") }
func inKey(seq uint64) []byte   { return store.Key("alerts", "in", seq) }
func seenKey(id string) []byte  { return store.Key("alerts", "seen", id) }
func groupKey(id string) []byte { return store.Key("alerts", "group", id) }
func opensKey() []byte          { return store.Key("alerts", "opens") }

func (g *group) openKey() string  { return fmt.Sprintf("alerts/%s/%d", g.ID, g.Episode) }
func (g *group) rootKey() string  { return fmt.Sprintf("alerts/%d/root", g.Episode) }
func (g *group) countKey() string { return fmt.Sprintf("alerts/%d/repeats", g.Episode) }
func (g *group) lineKey() string  { return fmt.Sprintf("alerts/%d/%d", g.Episode, g.Flushes+1) }

func dueKey(t time.Time, id string) []byte { return store.Key("alerts", "due", t, id) }

// ages indexes the seen rows by the time of their notice.
var ages = aging.Index{"alerts", "age"}

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// number is the last part of a key.
func number(key []byte) uint64 {
	parts, err := store.Parts(key)
	if err != nil {
		store.Abort(err)
	}
	n, _ := parts[len(parts)-1].(uint64)
	return n
}

func loadGroup(tx store.Tx, id string) *group {
	if g, ok := store.Load[group](tx, groupKey(id)); ok {
		return &g
	}
	return nil
}

// forgetAfter is how long a problem is kept after its last notice.
const forgetAfter = 30 * 24 * time.Hour

// save stores a group and when it is due next. A zero due leaves only its deletion.
func (g *group) save(tx store.Tx, due time.Time) {
	if !g.Due.IsZero() {
		tx.Delete(dueKey(g.Due, g.ID))
	}
	g.Due = due.UTC()
	if due.IsZero() {
		g.Due = g.Heard.Add(forgetAfter).UTC()
	}
	tx.Set(dueKey(g.Due, g.ID), nil)
	store.Save(tx, groupKey(g.ID), *g)
}

func (g *group) remove(tx store.Tx) {
	tx.Delete(dueKey(g.Due, g.ID))
	tx.Delete(groupKey(g.ID))
}

// listed returns the members in display order: firing ones first.
func (g *group) listed() []member {
	out := slices.Clone(g.Members)
	slices.SortStableFunc(out, func(a, b member) int {
		if a.Firing != b.Firing {
			if a.Firing {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.At.UnixNano(), b.At.UnixNano())
	})
	return out
}
