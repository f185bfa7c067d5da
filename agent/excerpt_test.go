package agent

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/agent/history"
	"countersign/approvals"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/output"
)

// printedOutput is what a command printed.
type printedOutput struct {
	events         []tools.Event
	raw            string   // both streams, in order
	stdout, stderr string   // each of them
	seen           []string // its lines, as a terminal shows them
	code           int
}

// generated makes an output.
func generated(r *rand.Rand) printedOutput {
	var p printedOutput
	kinds := []tools.EventKind{tools.Stdout, tools.Stdout, tools.Stdout, tools.Stderr}
	if r.IntN(3) == 0 {
		kinds = kinds[:1]
	}
	lines := []int{0, 1, 2, 19, 20, 21, 22, r.IntN(60), r.IntN(2000), 30_000}[r.IntN(10)]
	width := []int{3, 20, 79, 119, 120, 300, 5000}[r.IntN(7)]
	if lines > 100 {
		width = min(width, 120)
	}
	if lines > 5000 {
		width = 8
	}
	var all, out, errs strings.Builder
	odd := r.IntN(6) == 0
	for i := range lines {
		seen := fmt.Sprintf("%d ", i+1)
		seen = strings.TrimRight(seen+strings.Repeat([]string{"word ", "é", "€", "😀", "`", "a```b", "a\tb"}[r.IntN(7)], r.IntN(width+1)/4), " ")
		raw := seen
		switch r.IntN(8) {
		case 0:
			raw = "\x1b[31m" + seen + "\x1b[0m"
		case 1:
			raw = "10 %\r50 %\r" + seen
		case 2:
			if odd {
				raw, seen = seen+"\xff\xfe", seen+"\uFFFD"
			}
		}
		if i < lines-1 || r.IntN(3) > 0 {
			raw += "\n"
		}
		kind := kinds[r.IntN(len(kinds))]
		p.events = append(p.events, tools.Event{Kind: kind, Text: raw})
		all.WriteString(raw)
		if kind == tools.Stderr {
			errs.WriteString(raw)
		} else {
			out.WriteString(raw)
		}
		p.seen = append(p.seen, seen)
	}
	p.raw, p.stdout, p.stderr = all.String(), out.String(), errs.String()
	if r.IntN(2) == 0 {
		p.code = r.IntN(256)
	}
	return p
}

var (
	blockForm = regexp.MustCompile("(?s)^(`{3,})\n(.*)\n(`{3,})$")
	linesForm = regexp.MustCompile(`^The (first|last) (?:(\d+) of ([\d,]+) lines|line of ([\d,]+))\.$`)
	partForm  = regexp.MustCompile(`^The (beginning|end) of ([\d,]+) lines?, ([\d,]+) bytes\.$`)
	leftForm  = regexp.MustCompile(`(?m)^\[\.\.\. (\d+) bytes left out \.\.\.\]\n`)
	noteForm  = regexp.MustCompile(`^\[Output truncated at 4000 characters\. Full output saved to: \S+\]\n\[It has (\d+) lines, (\S+); read_output with "(\S+)" reads it\.\]$`)
	wholeForm = regexp.MustCompile("^(.*) `output (out-[0-9a-z]{8})` posts all of it\\.$")
)

func count(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each sentence about an output, for people and for the model, against what was printed; and every byte is kept
// where less is shown.
func TestWhatIsSaidOfAnOutputIsTrue(t *testing.T) {
	needstest.Long(t)
	outputs := output.New(output.Config{Dir: t.TempDir()})
	w := &worker{a: &Agent{cfg: Config{Redact: func(s string) string { return s }}}, log: slog.New(slog.DiscardHandler)}
	kinds := map[string]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := generated(r)
		command := []string{"cat log", "ps aux --sort=-%mem", "du -sk * | sort -rn", "make 2>&1 | tail -n 1000", "sort x | grep y"}[r.IntN(5)]
		first := strings.Contains(command, "sort")
		a := approvals.Action{Kind: approvals.KindShell, Target: "web-1#x", Bytes: []byte(command)}
		name := fmt.Sprintf("seed %d, %s, %d lines, %d bytes", seed, command, len(p.seen), len(p.raw))

		kept := outputs.Begin("t", fmt.Sprint(seed))
		odd := false
		for _, e := range p.events {
			kept.Event(e)
			odd = odd || strings.Contains(e.Text, "\xff")
		}
		res := tools.Result{Failed: p.code != 0, Value: map[string]any{
			"exit_code": p.code, "stdout": tools.Ends(p.stdout, "", 0, 4000), "stderr": tools.Ends(p.stderr, "", 0, 4000),
		}}
		if tools.Truncated(tools.Ends(p.stdout, "", 0, 4000)) || tools.Truncated(tools.Ends(p.stderr, "", 0, 4000)) {
			res.Cut = "at 4000 characters"
		}
		s := w.saveOutput(t.Context(), kept, a, res, nil, odd)
		post, _ := runPost(a, history.Result{Text: tools.Envelope(time.Now(), res.Value), Output: s.id, Failed: res.Failed}, false, s.shown)

		// The line above it.
		line, rest, _ := strings.Cut(post, "\n")
		if want := fmt.Sprintf("`%s` on `web-1` · exit %d", command, p.code); line != want {
			t.Errorf("%s: %q, want %q", name, line, want)
		}
		said := ""
		if i := strings.LastIndex(rest, "`\nThe "); i >= 0 {
			rest, said = rest[:i+1], rest[i+2:]
		}
		if m := wholeForm.FindStringSubmatch(said); m != nil {
			if said = m[1]; m[2] != s.id {
				t.Errorf("%s: it names %s, and %q is kept", name, m[2], s.id)
			}
		} else if said != "" {
			t.Errorf("%s: nobody is told where the rest is: %q", name, said)
		}
		block := ""
		if m := blockForm.FindStringSubmatch(rest); m != nil && m[1] == m[3] && !strings.Contains(m[2], m[1]) {
			block = m[2]
		} else if rest != "" {
			t.Errorf("%s: no block: %q", name, rest)
		}
		// The lines, and which they are.
		lines, part := linesForm.FindStringSubmatch(said), partForm.FindStringSubmatch(said)
		kinds[strings.Trim(strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r == ',' {
				return -1
			}
			return r
		}, said), " ")]++
		switch {
		case said == "":
			if want := strings.Join(p.seen, "\n"); block != want {
				t.Errorf("%s: %q isn't all of it", name, block)
			}
		case lines != nil:
			kinds["lines"]++
			n, of := 1, lines[4]
			if lines[2] != "" {
				n, of = count(t, lines[2]), lines[3]
			}
			want, next := p.seen[len(p.seen)-n:], len(p.seen)-n-1
			if first {
				want, next = p.seen[:n], n
			}
			if count(t, of) != len(p.seen) || (lines[1] == "first") != first || block != strings.Join(want, "\n") {
				t.Errorf("%s: %q is not true", name, said)
			}
			if n != shownLines && (n > shownLines || next < 0 || next >= len(p.seen) || len(block)+1+len(p.seen[next]) < shownBytes) {
				t.Errorf("%s: %q, and more could be shown", name, said)
			}
		case part != nil:
			kinds["part"]++
			edge := p.seen[len(p.seen)-1]
			fits := strings.HasSuffix(edge, strings.TrimPrefix(block, "…"))
			if first {
				edge = p.seen[0]
				fits = strings.HasPrefix(edge, strings.TrimSuffix(block, "…"))
			}
			if count(t, part[2]) != len(p.seen) || count(t, part[3]) != len(p.raw) || (part[1] == "beginning") != first || !fits || len(edge) < shownBytes {
				t.Errorf("%s: %q is not true", name, said)
			}
		default:
			t.Errorf("%s: no sentence that is known: %q", name, said)
		}
		// The model's text.
		for _, stream := range []string{p.stdout, p.stderr} {
			text := tools.Ends(stream, "", 0, 4000)
			switch at := leftForm.FindStringSubmatchIndex(text); {
			case at == nil:
				if text != strings.ToValidUTF8(stream, "\uFFFD") && text != strings.ReplaceAll(strings.ReplaceAll(stream, "\xff", "\uFFFD"), "\xfe", "\uFFFD") {
					t.Errorf("%s: the model gets %d bytes of %d, and isn't told", name, len(text), len(stream))
				}
			case !odd:
				head, tail, left := strings.TrimSuffix(text[:at[0]], "\n"), text[at[1]:], count(t, text[at[2]:at[3]])
				if !strings.HasPrefix(stream, head) || !strings.HasSuffix(stream, tail) || len(text[:at[0]])+left+len(tail) != len(stream) && len(head)+left+len(tail) != len(stream) || len([]rune(head+tail)) > 4000 {
					t.Errorf("%s: the model is told that %d bytes of %d are left out, and gets %d and %d", name, left, len(stream), len(head), len(tail))
				}
			}
		}
		if (s.note != "") != (res.Cut != "") {
			t.Errorf("%s: cut %q, and the model is told %q", name, res.Cut, s.note)
		}
		if s.note != "" {
			kinds["cut for the model"]++
			if m := noteForm.FindStringSubmatch(s.note); m == nil || count(t, m[1]) != len(p.seen) || m[3] != s.id {
				t.Errorf("%s: %q is not true", name, s.note)
			}
		}
		// What is kept.
		if s.id == "" {
			if said != "" || res.Cut != "" || odd {
				t.Errorf("%s: it isn't kept", name)
			}
			continue
		}
		var all, out, errs strings.Builder
		whole, err := outputs.Streams(t.Context(), "t", s.id, func(e tools.Event) error {
			all.WriteString(e.Text)
			if e.Kind == tools.Stderr {
				errs.WriteString(e.Text)
			} else {
				out.WriteString(e.Text)
			}
			return nil
		})
		if err != nil || !whole || all.String() != p.raw || out.String() != p.stdout || errs.String() != p.stderr {
			t.Errorf("%s: kept are %d bytes, %d and %d, whole: %v, %v", name, all.Len(), out.Len(), errs.Len(), whole, err)
		}
	}
	for _, kind := range []string{"", "The last  of  lines.", "The first  of  lines.", "lines", "part", "cut for the model"} {
		if kinds[kind] < 3 {
			t.Errorf("only %d outputs of the kind %q: %v", kinds[kind], kind, kinds)
		}
	}
}

func TestACommandThatAStopDidNotEndIsSaidToRun(t *testing.T) {
	const say = "Stop was asked for and Ctrl-C was pressed in pane %1, but the command is still running."
	r := history.Result{Failed: true, Changed: true, Text: tools.Envelope(time.Now(), map[string]any{"exit_code": nil, "stdout": "", "stderr": "", "state": stateRunning, "notice": say})}
	if post, _ := runPost(approvals.Action{Kind: approvals.KindShell, Bytes: []byte("x")}, r, false, excerpt{}); post != say {
		t.Errorf("%q", post)
	}
}

// A question for a password is followed by no password in a result, and what waits is said.
func TestAResultStaysOneWithoutItsSecrets(t *testing.T) {
	redact := regexp.MustCompile(`(assword: \S|key=\w)\S*`).ReplaceAllString
	hide := func(s string) string { return redact(s, "***") }
	text := tools.Envelope(time.Now(), map[string]any{"exit_code": nil, "stdout": "key=hunter2 \nPassword: ", "stderr": "", "state": statePassword, "n": 12345678901234567})
	r := history.Result{Text: redactResult(text, hide)}
	if strings.Contains(r.Text, "hunter2") || !strings.Contains(r.Text, "12345678901234567") || shellOf(r).Stdout != "*** \nPassword: " {
		t.Errorf("%s", r.Text)
	}
	a := approvals.Action{Kind: approvals.KindShell, Bytes: []byte("sudo x")}
	post, _ := runPost(a, r, false, excerpt{text: "Password: "})
	if outcomeNote(r) != approvals.NotePassword || !strings.HasPrefix(post, "`sudo x` · waiting for a password\n```\nPassword: \n```\nIt asks for a password. Say `take`") {
		t.Errorf("%s, %q", outcomeNote(r), post)
	}
	if got := redactResult("Tool error: key=hunter2", hide); got != "Tool error: ***" {
		t.Errorf("%q", got)
	}
}
