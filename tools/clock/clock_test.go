package clock_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/clock"
	"countersign/tools/toolstest"
)

func at() time.Time {
	return time.Date(2026, 2, 28, 14, 1, 48, 794_000_005, time.FixedZone("", 2*3600))
}

func TestToolKeepsItsPromises(t *testing.T) {
	toolstest.Check(t, clock.New(at), nil,
		toolstest.Case{Name: "empty", Args: `{}`},
		toolstest.Case{Name: "format", Args: `{"format":"iso"}`, Other: map[string]string{"format": `"date"`}})
}

func run(t *testing.T, args string) (map[string]any, string) {
	t.Helper()
	reg, err := tools.NewRegistry(at, clock.New(at))
	if err != nil {
		t.Fatal(err)
	}
	out := toolstest.Run(t.Context(), t, reg, "time", args)
	var e struct{ Result map[string]any }
	if err := json.Unmarshal([]byte(out.Text), &e); err != nil {
		t.Fatal(err)
	}
	return e.Result, out.Text
}

// B-98.
func TestSnapshot(t *testing.T) {
	_, text := run(t, `{}`)
	const want = `"result":{"unix_seconds":1772280108,"unix_millis":1772280108794,"unix_nanos":1772280108794000005,` +
		`"iso_8601_utc":"2026-02-28T12:01:48.794Z","rfc_2822_utc":"Sat, 28 Feb 2026 12:01:48 +0000","date":"2026-02-28","time":"12:01:48"}}`
	if !strings.HasSuffix(text, want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// B-97.
func TestFormats(t *testing.T) {
	for format, want := range map[string]string{
		"epoch": "1772280108", "epoch_ms": "1772280108794", "epoch_ns": "1772280108794000005", "iso": "2026-02-28T12:01:48.794Z",
		"rfc2822": "Sat, 28 Feb 2026 12:01:48 +0000", "date": "2026-02-28", "time": "12:01:48",
	} {
		got, _ := run(t, `{"format":"`+format+`"}`)
		if got["formatted"] != want || got["date"] != "2026-02-28" {
			t.Errorf("%s: %v, want %s", format, got["formatted"], want)
		}
	}
}

// B-99.
func TestTheClockIsTheBotsOwn(t *testing.T) {
	// The tool has no target at all; a second moment shows that it asks each time.
	now := at()
	tool := clock.New(func() time.Time { now = now.Add(time.Second); return now })
	reg, err := tools.NewRegistry(at, tool)
	if err != nil {
		t.Fatal(err)
	}
	a := toolstest.Run(t.Context(), t, reg, "time", `{}`)
	b := toolstest.Run(t.Context(), t, reg, "time", `{}`)
	if a.Text == b.Text {
		t.Error("the clock stands still")
	}
}
