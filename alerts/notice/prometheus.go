package notice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// group is what Alertmanager and Grafana send about a group of alerts:
// prometheus.io/docs/alerting/latest/configuration, "webhook_config", and
// grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier,
// "Default JSON payload", which adds the fields from Title on.
type group struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []groupAlert      `json:"alerts"`

	Title   string `json:"title"`
	Message string `json:"message"`
	State   string `json:"state"`
	OrgID   int64  `json:"orgId"`
}

type groupAlert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`

	DashboardURL string `json:"dashboardURL"`
	PanelURL     string `json:"panelURL"`
	ValueString  string `json:"valueString"`
}

// version is that of Alertmanager's format since 2017
// (github.com/prometheus/alertmanager, notify/webhook).
const version = "4"

func parseAlertmanager(body []byte) (Notice, error) {
	var g group
	if err := decode(body, &g); err != nil {
		return Notice{}, err
	}
	if g.Version != version {
		return Notice{}, malformed("its version is %q and only %q is known", cut(oneLine(g.Version), 20), version)
	}
	n, err := g.notice()
	if err != nil {
		return Notice{}, err
	}
	n.URL = g.ExternalURL
	for _, a := range g.matter() {
		if n.URL == "" {
			n.URL = a.GeneratorURL
		}
	}
	return n, nil
}

func parseGrafana(body []byte) (Notice, error) {
	var g group
	if err := decode(body, &g); err != nil {
		return Notice{}, err
	}
	if g.Status == "" && g.State == "" && g.GroupKey == "" && len(g.Alerts) == 0 {
		return Notice{}, malformed("it has none of the fields of Grafana's own payload, so the contact point has a custom one; remove that in the contact point's webhook settings")
	}
	// "state" was the status of the dashboards' alerts; it is still sent.
	if g.Status == "" {
		switch g.State {
		case "alerting":
			g.Status = string(Firing)
		case "ok":
			g.Status = string(Resolved)
		}
	}
	n, err := g.notice()
	if err != nil {
		return Notice{}, err
	}
	if g.OrgID > 1 { // groups of two organisations can have equal keys
		n.Key = fmt.Sprintf("%d/%s", g.OrgID, n.Key)
	}
	// The default title says what the status and the labels say:
	// "[FIRING:1] name (values)". A name or a summary says it better.
	own := g.Title != "" && !strings.HasPrefix(g.Title, "[FIRING:") && !strings.HasPrefix(g.Title, "[RESOLVED")
	if n.Title == "" || own && g.shared() == "" {
		n.Title = g.Title
	}
	for i, a := range g.Alerts {
		n.Alerts[i].URL = a.page()
		if v := strings.TrimSpace(a.ValueString); v != "" && n.Alerts[i].Text == "" {
			n.Alerts[i].Text = v
		}
	}
	for _, a := range g.matter() {
		n.URL = cmp.Or(n.URL, a.page())
	}
	n.URL = cmp.Or(n.URL, g.ExternalURL)
	if n.Text == "" && len(g.Alerts) == 0 {
		n.Text = g.Message
	}
	return n, nil
}

// page is where Grafana shows an alert.
func (a groupAlert) page() string {
	return cmp.Or(webURL(a.PanelURL), webURL(a.DashboardURL), webURL(a.GeneratorURL))
}

// matter are the alerts that a notice is about: those that fire, or all where none does.
func (g group) matter() []groupAlert {
	firing := slices.DeleteFunc(slices.Clone(g.Alerts), func(a groupAlert) bool { return Status(a.Status) != Firing })
	if len(firing) == 0 {
		return g.Alerts
	}
	return firing
}

func (g group) notice() (Notice, error) {
	n := Notice{Status: Status(g.Status), Title: g.name(), Labels: g.CommonLabels, More: g.TruncatedAlerts}
	if n.Status != Firing && n.Status != Resolved {
		return Notice{}, malformed("its status is neither firing nor resolved")
	}
	for _, a := range g.Alerts {
		out := Alert{
			Fingerprint: a.Fingerprint, Status: Firing, Labels: a.Labels, URL: a.GeneratorURL, Since: a.StartsAt,
			Title: cmp.Or(a.Annotations["summary"], a.Labels["alertname"]), Text: explanation(a.Annotations),
		}
		switch Status(a.Status) {
		case Firing:
		case Resolved:
			out.Status, out.Ended = Resolved, a.EndsAt
		default:
			return Notice{}, malformed("the status of an alert is neither firing nor resolved")
		}
		n.Alerts = append(n.Alerts, out)
		if since := sane(a.StartsAt); !since.IsZero() && (n.Since.IsZero() || since.Before(n.Since)) {
			n.Since = since
		}
	}
	if n.Labels == nil {
		n.Labels = common(n.Alerts)
	}
	n.Text = explanation(g.CommonAnnotations)
	n.Key = g.GroupKey
	if n.Key == "" { // nobody sends that; then the group is what its labels say
		if len(g.GroupLabels) == 0 && len(n.Labels) == 0 {
			return Notice{}, malformed("it has neither a groupKey nor labels")
		}
		l := g.GroupLabels
		if len(l) == 0 {
			l = n.Labels
		}
		n.Key = labelsHash("", l)
	}
	return n, nil
}

// shared is what all alerts of a group have as a name, or "".
func (g group) shared() string {
	return cmp.Or(g.CommonAnnotations["summary"], g.CommonLabels["alertname"], g.GroupLabels["alertname"])
}

// shownNames is how many rules a title names.
const shownNames = 3

// name is what a group is about in one line.
func (g group) name() string {
	if s := g.CommonAnnotations["summary"]; s != "" {
		return s
	}
	name := cmp.Or(g.CommonLabels["alertname"], g.GroupLabels["alertname"])
	var rest []string
	for _, k := range slices.Sorted(maps.Keys(g.GroupLabels)) {
		if k != "alertname" && g.GroupLabels[k] != "" {
			rest = append(rest, g.GroupLabels[k])
		}
	}
	if name == "" && len(g.Alerts) == 1 {
		return cmp.Or(g.Alerts[0].Annotations["summary"], g.Alerts[0].Labels["alertname"], strings.Join(rest, ", "))
	}
	if name == "" {
		name = names(g.matter())
	}
	switch {
	case name == "":
		return strings.Join(rest, ", ")
	case len(rest) == 0:
		return name
	}
	return name + " (" + strings.Join(rest, ", ") + ")"
}

// names are those of the rules of alerts, or else what they say of themselves.
func names(alerts []groupAlert) string {
	var all []string
	for _, a := range alerts {
		if name := cmp.Or(a.Labels["alertname"], a.Annotations["summary"]); name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if more := len(all) - shownNames; more > 0 {
		return strings.Join(all[:shownNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(all, ", ")
}

// explanation is what annotations say beyond the summary.
func explanation(a map[string]string) string {
	var parts []string
	for _, k := range []string{"description", "message"} {
		if s := strings.TrimSpace(a[k]); s != "" && !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	for _, k := range []string{"runbook_url", "runbook"} {
		if s := strings.TrimSpace(a[k]); s != "" {
			parts = append(parts, "Runbook: "+s)
			break
		}
	}
	return strings.Join(parts, "\n")
}
