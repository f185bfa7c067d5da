package notice

import (
	"cmp"
	"strings"
	"time"
)

// event is a PagerDuty V3 webhook payload
// (developer.pagerduty.com/docs/webhooks-overview, "Webhook Payload").
type event struct {
	Event struct {
		ID         string    `json:"id"`
		Type       string    `json:"event_type"`
		Resource   string    `json:"resource_type"`
		OccurredAt time.Time `json:"occurred_at"`
		Agent      *named    `json:"agent"`
		Data       struct {
			ID        string    `json:"id"`
			Type      string    `json:"type"`
			HTMLURL   string    `json:"html_url"`
			Number    int       `json:"number"`
			Status    string    `json:"status"`
			Title     string    `json:"title"`
			Summary   string    `json:"summary"`
			CreatedAt time.Time `json:"created_at"`
			Urgency   string    `json:"urgency"`
			Service   *named    `json:"service"`
			Priority  *named    `json:"priority"`
			Policy    *named    `json:"escalation_policy"`
			Incident  *named    `json:"incident"` // of a note and the like
			Content   string    `json:"content"`
		} `json:"data"`
	} `json:"event"`
}

type named struct {
	ID      string `json:"id"`
	Summary string `json:"summary"`
	HTMLURL string `json:"html_url"`
}

// changes are the events of an incident that are told, in words. Others (notes,
// responders, conference bridges, fields) change nothing about the trouble.
func changes(kind string) (words string, known bool) {
	switch kind {
	case "incident.triggered", "incident.resolved":
		return "", true
	case "incident.acknowledged":
		return "acknowledged", true
	case "incident.unacknowledged":
		return "no longer acknowledged", true
	case "incident.reopened":
		return "reopened", true
	case "incident.escalated":
		return "escalated", true
	case "incident.delegated":
		return "delegated", true
	case "incident.reassigned":
		return "reassigned", true
	case "incident.priority_updated":
		return "given another priority", true
	}
	return "", false
}

func parsePagerDuty(body []byte) (Notice, error) {
	var e event
	if err := decode(body, &e); err != nil {
		return Notice{}, err
	}
	ev, d := e.Event, e.Event.Data
	if ev.Type == "" {
		return Notice{}, malformed("it has no event.event_type; subscribe with Generic Webhooks (v3)")
	}
	words, known := changes(ev.Type)
	if !known {
		return Notice{}, ErrIgnored
	}
	if d.ID == "" {
		return Notice{}, malformed("it names no incident")
	}
	n := Notice{
		Key: d.ID, ID: ev.ID, Status: Firing, Title: cmp.Or(d.Title, d.Summary), URL: d.HTMLURL, Since: d.CreatedAt, Sent: ev.OccurredAt,
		Labels: map[string]string{},
	}
	if ev.Type == "incident.resolved" || d.Status == "resolved" {
		n.Status = Resolved
	}
	if words != "" {
		n.Change = words
		if ev.Agent != nil && ev.Agent.Summary != "" {
			n.Change += " by " + ev.Agent.Summary
		}
		if ev.Type == "incident.priority_updated" && d.Priority != nil {
			n.Change = "priority " + d.Priority.Summary
		}
	}
	for k, v := range map[string]string{"urgency": d.Urgency, "service": d.Service.text(), "priority": d.Priority.text(), "escalation_policy": d.Policy.text()} {
		if v = strings.TrimSpace(v); v != "" {
			n.Labels[k] = v
		}
	}
	return n, nil
}

func (n *named) text() string {
	if n == nil {
		return ""
	}
	return n.Summary
}
