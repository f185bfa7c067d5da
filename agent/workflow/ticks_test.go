package workflow

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".md")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s differs (run with -update after looking at it): %v\n%s", path, err, got)
	}
}

// timed gives a past times, so many seconds apart.
func timed(past []Past, seconds ...int) []Past {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range past {
		past[i].At = at
		at = at.Add(time.Duration(seconds[i%len(seconds)]) * time.Second)
	}
	return past
}

func TestTicks(t *testing.T) {
	w := parsed(t, `
- id: space
  title: Space and inodes
  `+lsCall+`
- id: journal
  title: The *journal*
  on_failure: continue
  `+lsCall+`
- id: slow
  title: Only when slow
  if: inputs.mode == 'slow'
  `+lsCall+`
- id: number
  title: More than ninety
  if: number(steps.space.output) > 90
  `+lsCall+`
- id: pick
  title: Which file
  ask: {question: 'Which?'}
- id: none
  title: Nothing to do
  if: steps.pick.output == 'none'
  done: {text: Nothing.}
- id: empty
  title: Empty it
  gate: true
  `+lsCall+`
- id: settle
  title: Let it settle
  wait: 90s
- id: check
  title: Space now
  retry: {times: 2, wait: 5s}
  `+lsCall+`
- id: end
  title: The end
  done: {text: Done.}`)
	looked := []Past{begun("space", 1), good("space", "lots"), begun("journal", 1), failed("journal", 1)}
	picked := append(append([]Past{}, looked...), begun("pick", 1), Past{Kind: Answered, Step: "pick", By: "Ada *L*", Text: "/var/log/x_1.gz <@U1> `a`"})
	emptied := append(append([]Past{}, picked...), begun("empty", 1), good("empty", ""), Past{Kind: Waiting, Step: "settle"}, Past{Kind: Waited, Step: "settle"})
	for name, past := range map[string][]Past{
		"begin":   nil,
		"asks":    append(append([]Past{}, looked...), begun("pick", 1)),
		"gate":    picked,
		"denied":  append(append([]Past{}, picked...), begun("empty", 1), Past{Kind: Ended, Step: "empty", Denied: true, By: "Ada"}),
		"waits":   append(append([]Past{}, picked...), begun("empty", 1), good("empty", ""), Past{Kind: Waiting, Step: "settle"}),
		"retries": append(append([]Past{}, emptied...), begun("check", 1), failed("check", 1), Past{Kind: Waiting, Step: "check"}),
		"again":   append(append([]Past{}, emptied...), begun("check", 1), failed("check", 1), Past{Kind: Waiting, Step: "check"}, Past{Kind: Waited, Step: "check"}, begun("check", 2)),
		"done":    append(append([]Past{}, emptied...), begun("check", 1), failed("check", 1), Past{Kind: Waited, Step: "check"}, begun("check", 2), good("check", "")),
		"early":   append(append([]Past{}, looked...), Past{Kind: Answered, Step: "pick", Text: "none"}),
	} {
		golden(t, name, Ticks(w, given, timed(past, 2, 61, 3)))
	}
}

func TestTicksFitOneMessage(t *testing.T) {
	steps := strings.Repeat("x", 280)
	src := ""
	for i := range MaxSteps {
		src += "- id: s" + string(rune('a'+i)) + "\n  title: " + steps + "\n  " + lsCall + "\n"
	}
	w := parsed(t, src)
	past := []Past{begun("sa", 1), {Kind: Ended, Step: "sa", Output: strings.Repeat("*line*\n", 900)}}
	got := Ticks(w, given, past)
	if n := strings.Count(got, "\n"); n > 30 {
		t.Errorf("%d lines", n)
	}
}
