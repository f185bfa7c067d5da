package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat/visible"
	"countersign/config"
)

// formats are the values of -o.
var formats = []string{"table", "json", "yaml"}

// output is how a command prints what it found.
type output struct{ format string }

func (o *output) valid() error {
	if !slices.Contains(formats, o.format) {
		return config.Errorf("-o is %q; use table, json or yaml", o.format)
	}
	return nil
}

// print writes a value, as a table with these columns or for programs.
func (o *output) print(w io.Writer, value any, columns []string, rows [][]string) error {
	switch o.format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(value)
	case "yaml":
		raw, err := json.Marshal(value) // the names are those of the JSON
		if err != nil {
			return err
		}
		var plain any
		if err := yaml.Unmarshal(raw, &plain); err != nil {
			return err
		}
		raw, err = yaml.Marshal(plain)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(rows) > 0 {
		_, _ = fmt.Fprintln(t, strings.Join(columns, "\t"))
	}
	for _, r := range rows {
		for i := range r {
			r[i] = visible.Line(r[i])
		}
		_, _ = fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// shown is text of others on a terminal: what hides or moves is made visible.
func shown(s string) string { return strings.TrimRight(visible.Text(s), "\n") }

// ago says how long ago a moment is, or in how long it will be.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := now.Sub(t)
	if d < 0 {
		return "in " + brief(-d)
	}
	return brief(d) + " ago"
}

func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
