// Package clock is the tool time: the bot's own wall clock. It asks no machine, so it is right even
// where a target's clock is wrong.
package clock

import (
	"context"
	_ "embed"
	"encoding/json"
	"strconv"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed time.md
var description string

// Layouts of the formatted times, in UTC.
const (
	layoutISO     = "2006-01-02T15:04:05.000Z"
	layoutRFC2822 = "Mon, 02 Jan 2006 15:04:05 +0000"
	layoutDate    = "2006-01-02"
	layoutTime    = "15:04:05"
)

// formats are the values of "format", in the order in which they are documented.
var formats = []string{"epoch", "epoch_ms", "epoch_ns", "iso", "rfc2822", "date", "time"}

// New returns the tool time, which reads the given clock.
func New(now func() time.Time) tools.Tool { return tool{now} }

type tool struct{ now func() time.Time }

// Spec implements tools.Tool.
func (tool) Spec() tools.Spec {
	return tools.Spec{
		Name: "time", Description: description, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"format": {Type: "string", Enum: formats, Description: "Also return this one as \"formatted\"."},
		}}),
	}
}

// snapshot is one moment in every format.
type snapshot struct {
	Seconds   int64  `json:"unix_seconds"`
	Millis    int64  `json:"unix_millis"`
	Nanos     int64  `json:"unix_nanos"`
	ISO       string `json:"iso_8601_utc"`
	RFC2822   string `json:"rfc_2822_utc"`
	Date      string `json:"date"`
	Time      string `json:"time"`
	Formatted string `json:"formatted,omitempty"`
}

func newSnapshot(t time.Time, format string) snapshot {
	t = t.UTC()
	s := snapshot{
		Seconds: t.Unix(), Millis: t.UnixMilli(), Nanos: t.UnixNano(),
		ISO: t.Format(layoutISO), RFC2822: t.Format(layoutRFC2822), Date: t.Format(layoutDate), Time: t.Format(layoutTime),
	}
	switch format {
	case "epoch":
		s.Formatted = strconv.FormatInt(s.Seconds, 10)
	case "epoch_ms":
		s.Formatted = strconv.FormatInt(s.Millis, 10)
	case "epoch_ns":
		s.Formatted = strconv.FormatInt(s.Nanos, 10)
	case "iso":
		s.Formatted = s.ISO
	case "rfc2822":
		s.Formatted = s.RFC2822
	case "date":
		s.Formatted = s.Date
	case "time":
		s.Formatted = s.Time
	}
	return s
}

// Plan implements tools.Tool.
func (t tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: "harness", Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(context.Context, tools.Sink) (tools.Result, error) {
		s := newSnapshot(t.now(), args.Format)
		text := s.Formatted
		if text == "" {
			text = s.ISO
		}
		return tools.Result{Value: s, Text: text}, nil
	}), nil
}
