package notice

import (
	"cmp"
	"strings"
)

// parseGeneric reads our own format, for scripts and for systems that can send
// JSON of a form that one writes oneself:
//
//	{"key": "backup-db1", "title": "The backup of db1 failed", "text": "...",
//	 "status": "firing", "labels": {"severity": "warning"}, "url": "https://..."}
//
// Only title is needed. Without a key the title is the key; without a status it
// fires. id, where given, names this message: what comes again with it is dropped.
func parseGeneric(body []byte) (Notice, error) {
	var in struct {
		Key    string            `json:"key"`
		ID     string            `json:"id"`
		Title  string            `json:"title"`
		Text   string            `json:"text"`
		Status string            `json:"status"`
		Labels map[string]string `json:"labels"`
		URL    string            `json:"url"`
	}
	if err := decode(body, &in); err != nil {
		return Notice{}, err
	}
	in.Title = oneLine(in.Title)
	if in.Title == "" {
		return Notice{}, malformed("it has no title; write a line that says what is wrong")
	}
	n := Notice{Key: cmp.Or(strings.TrimSpace(in.Key), in.Title), ID: in.ID, Status: Status(in.Status), Title: in.Title, Text: in.Text, Labels: in.Labels, URL: in.URL}
	switch n.Status {
	case Firing, Resolved:
	case "":
		n.Status = Firing
	default:
		return Notice{}, malformed("its status is neither firing nor resolved")
	}
	return n, nil
}
