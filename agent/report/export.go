package report

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/store"
)

// What each part of an archive holds at most, in bytes; all of them together are bounded
// by Parts.Limit.
const (
	maxTimeline  = 8 << 20
	maxCommands  = 8 << 20
	maxApprovals = 8 << 20
	maxAlerts    = 2 << 20
	maxChain     = 16 << 20 // in memory, because half of a proof is none
	maxEntries   = 16 << 20
	maxOutput    = 8 << 20 // one output
	maxRecording = 8 << 20 // one recording
	maxLine      = 1 << 20 // one line of JSON
	maxOutputs   = 500     // files
	maxCasts     = 200     // files
	maxMissing   = 200     // lines of README.txt
)

// Parts is where an archive gets what is not in the Incident.
type Parts struct {
	// Chain writes the first lines of the thread's chain of decisions with what proves them, as [Chain] makes
	// it; nil leaves it out. 0 lines are all.
	Chain func(ctx context.Context, w io.Writer, lines int, redact func(string) string) error
	// Checkpoints are what the witnesses of the record have signed last; nil leaves them out.
	Checkpoints func(ctx context.Context) ([]string, error)
	// Sign signs statements about changes; nil leaves them out.
	Sign Sign
	// Output opens a whole output of the thread by the id that results name; nil leaves
	// them out.
	Output func(id string) (io.ReadCloser, error)
	// Recordings are those of the thread's terminals, in the order in which they are
	// wanted when there is not room for all.
	Recordings []Recording
	// Limit is how much the archive holds before it is compressed, in bytes; 0 means
	// [MaxExport]. It is at least 512 KiB.
	Limit int64
}

// Recording is the recording of a terminal in asciicast form, one event a line.
type Recording struct {
	Name string // of the file, without ".cast": letters, digits, and . _ -
	Open func() (io.ReadCloser, error)
}

// Chain exports a thread's chain from a store, with the anchors that cover it, as of now.
func Chain(db store.DB, thread chat.ThreadID, now time.Time) func(context.Context, io.Writer, int, func(string) string) error {
	return func(ctx context.Context, w io.Writer, lines int, clean func(string) string) error {
		return audit.Export(ctx, db, w, audit.ExportOptions{Now: now, Thread: string(thread), Lines: uint64(lines), Redact: clean}) //nolint:gosec // the length of a slice
	}
}

// Checkpoints returns what the witnesses of a store's record have signed last.
func Checkpoints(db store.DB) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (notes []string, err error) {
		err = db.View(ctx, func(tx store.Tx) error {
			notes = nil
			for _, w := range audit.Witnesses(tx) {
				notes = append(notes, w.Note)
			}
			return nil
		})
		return notes, err
	}
}

// Export writes a zip archive with everything that belongs to an incident. The same
// Incident and Parts give the same bytes. Secrets are taken out of everything; what finds
// no room, or cannot be read, is left out and named in README.txt. Its error says that w
// refuses, or that ctx is done.
func Export(ctx context.Context, w io.Writer, inc Incident, parts Parts) error {
	limit := parts.Limit
	if limit <= 0 {
		limit = MaxExport
	}
	made := inc.Made.UTC().Truncate(time.Second)
	if made.Year() < 1980 || made.Year() > 2107 {
		made = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) // zip knows no others
	}
	e := &exporter{
		writer: writer{inc.redactor()}, inc: inc, incidentState: fold(inc), parts: parts,
		archive: &archive{ctx: ctx, z: zip.NewWriter(w), made: made, left: max(limit, 2*readmeRoom) - readmeRoom},
	}
	for _, part := range []func() error{e.timeline, e.commandsPart, e.approvals, e.alerts, e.chainPart, e.statements, e.transcript, e.outputs, e.recordings, e.readme} {
		if err := part(); err != nil {
			return err
		}
	}
	if err := e.z.Close(); err != nil {
		return fmt.Errorf("report: the archive cannot be written: %w", err)
	}
	return nil
}

type exporter struct {
	writer
	*archive
	*incidentState
	inc    Incident
	parts  Parts
	proved bool // audit.jsonl is there
}

func (e *exporter) timeline() error {
	text := Timeline(e.inc)
	return e.add("timeline.md", maxTimeline, func(f *file) error {
		_, err := io.WriteString(f, text)
		if errors.Is(err, errFull) {
			e.leave("timeline.md: its end")
		}
		return err
	})
}

func (e *exporter) commandsPart() error {
	return e.add("commands.csv", maxCommands, func(f *file) error {
		left, err := e.commands(f, e.incidentState)
		if left > 0 {
			e.leave("commands.csv: the last %s", plural(left, "call"))
		}
		return err
	})
}

// lines writes a file of JSON lines: n of them, the i-th being what of returns.
func (e *exporter) lines(name string, limit int64, n int, what string, of func(i int) (id string, line []byte, err error)) error {
	return e.add(name, limit, func(f *file) error {
		for i := range n {
			id, raw, err := of(i)
			if err != nil || len(raw) > maxLine {
				e.leave("%s: the %s %s, which is too large or not JSON", name, what, id)
				continue
			}
			ok, err := f.whole(append(raw, '\n'))
			if err != nil {
				return err
			}
			if !ok {
				e.leave("%s: the last %s", name, plural(n-i, what))
				return nil
			}
		}
		return nil
	})
}

func (e *exporter) approvals() error {
	return e.lines("approvals.jsonl", maxApprovals, len(e.inc.Records), "request", func(i int) (string, []byte, error) {
		raw, err := e.row(e.inc.Records[i])
		return string(e.inc.Records[i].ID), raw, err
	})
}

func (e *exporter) alerts() error {
	all := slices.Clone(e.inc.Alerts)
	slices.SortStableFunc(all, func(a, b Alert) int { return a.At.Compare(b.At) })
	return e.lines("alerts.jsonl", maxAlerts, len(all), "alert", func(i int) (string, []byte, error) {
		raw, err := e.json(all[i])
		return "of " + moment(all[i].At), raw, err
	})
}

func (e *exporter) transcript() error {
	return e.lines("transcript.jsonl", maxEntries, len(e.inc.Entries), "entry", func(i int) (string, []byte, error) {
		raw, err := e.json(e.shownEntry(e.inc.Entries[i]))
		return fmt.Sprint(e.inc.Entries[i].Seq), raw, err
	})
}

func (e *exporter) chainPart() error {
	if e.parts.Chain == nil {
		e.leave("audit.jsonl: it was not asked for")
		return nil
	}
	var notes []string
	if e.parts.Checkpoints != nil { // before the chain, which then has all that was signed
		var err error
		if notes, err = e.parts.Checkpoints(e.ctx); err != nil {
			e.leave("checkpoints/: they cannot be read")
		}
	}
	buf := &limited{left: min(maxChain, e.left)}
	err := e.parts.Chain(e.ctx, buf, len(e.inc.Lines), e.r.RedactCommand) // no more than the requests know of
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if errors.Is(err, errFull) {
		e.leave("audit.jsonl: it has more than %d bytes; make it with: countersign audit export --thread %s", min(maxChain, e.left), shell(string(e.inc.Thread)))
		return nil
	}
	if err != nil {
		e.leave("audit.jsonl: the record of decisions cannot be exported; run countersign audit verify on the store")
		return nil //nolint:nilerr // README.txt says it, and the rest is wanted all the same
	}
	e.proved = true
	err = e.add("audit.jsonl", maxChain, func(f *file) error {
		_, err := f.Write(buf.b)
		return err
	})
	if err != nil {
		return err
	}
	for i, text := range notes {
		err := e.add(fmt.Sprintf("checkpoints/%d.txt", i+1), maxLine, func(f *file) error {
			_, err := io.WriteString(f, text)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// safe is what the name of a file in the archive may be: nothing that leads elsewhere.
var safe = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,159}$`)

// cutNote ends a text that is not whole.
const cutNote = "\n[cut: the archive has no room for the rest]\n"

// worth is the least room for which a file is begun, in bytes.
const worth = 4 << 10

func (e *exporter) outputs() error {
	if e.parts.Output == nil {
		if slices.ContainsFunc(e.inc.Entries, func(x history.Entry) bool { return x.Result != nil && x.Result.Output != "" }) {
			e.leave("outputs/: they were not asked for")
		}
		return nil
	}
	seen, n := map[string]bool{}, 0
	for i := range e.inc.Entries {
		r := e.inc.Entries[i].Result
		if r == nil || r.Output == "" || seen[r.Output] {
			continue
		}
		id := r.Output
		seen[id] = true
		name := "outputs/" + id + ".txt"
		switch {
		case !safe.MatchString(id):
			e.leave("an output with the name %q", firstBytes(e.clean(id), 80))
			continue
		case n == maxOutputs || e.left < worth:
			e.leave("%s: there is no room", name)
			continue
		}
		in, err := e.parts.Output(id)
		if err != nil {
			e.leave("%s: it is not kept any more, or cannot be read", name)
			continue
		}
		n++
		err = e.add(name, maxOutput, func(f *file) error { return e.output(f, in, name) })
		if err := errors.Join(err, e.ctx.Err()); err != nil {
			_ = in.Close()
			return err
		}
		_ = in.Close()
	}
	return nil
}

// output copies a text without its secrets, also where one lies across two pieces.
func (e *exporter) output(f *file, in io.Reader, name string) error {
	f.left -= int64(len(cutNote))
	s := e.r.Stream()
	piece := make([]byte, 32<<10)
	for {
		n, err := in.Read(piece)
		text := s.Write(string(piece[:n]))
		if err != nil {
			text += s.Flush()
		}
		if _, werr := io.WriteString(f, text); werr != nil {
			if errors.Is(werr, errFull) {
				return e.short(f, name, "its end, for which there is no room")
			}
			return werr
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return e.short(f, name, "its end, which cannot be read")
		}
	}
}

// short ends a text that is not whole.
func (e *exporter) short(f *file, name, what string) error {
	e.leave("%s: %s", name, what)
	f.left += int64(len(cutNote))
	_, err := io.WriteString(f, cutNote)
	return err
}

func (e *exporter) recordings() error {
	seen, n := map[string]bool{}, 0
	for _, r := range e.parts.Recordings {
		name := "recordings/" + r.Name + ".cast"
		switch {
		case !safe.MatchString(r.Name) || seen[r.Name] || r.Open == nil:
			e.leave("a recording with the name %q", firstBytes(e.clean(r.Name), 80))
			continue
		case n == maxCasts || e.left < worth:
			e.leave("%s: there is no room", name)
			continue
		}
		seen[r.Name] = true
		in, err := r.Open()
		if err != nil {
			e.leave("%s: it is not kept any more, or cannot be read", name)
			continue
		}
		n++
		err = e.add(name, maxRecording, func(f *file) error { return e.cast(f, in, name) })
		_ = in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// cast copies a recording by whole lines, so that what is cut still plays.
func (e *exporter) cast(f *file, in io.Reader, name string) error {
	s := bufio.NewReaderSize(in, maxLine)
	for {
		line, err := s.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			e.leave("%s: what follows a line of more than %d bytes", name, maxLine)
			return nil
		}
		if len(line) > 0 {
			ok, werr := f.whole(e.event(line))
			if werr != nil {
				return werr
			}
			if !ok {
				e.leave("%s: its end, for which there is no room", name)
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			e.leave("%s: its end, which cannot be read", name)
			return nil //nolint:nilerr // README.txt says it
		}
	}
}

// event is one line of a recording without its secrets: the same bytes where it has none.
func (e *exporter) event(line []byte) []byte {
	raw := bytes.TrimSuffix(line, []byte("\n"))
	var same bytes.Buffer
	if json.Compact(&same, raw) != nil {
		return append([]byte(e.clean(string(raw))), '\n')
	}
	switch shown, err := approvals.Rewrite("", raw, e.beside); {
	case err != nil:
		return append([]byte(e.clean(string(raw))), '\n')
	case bytes.Equal(same.Bytes(), shown):
		return append(slices.Clone(raw), '\n')
	default:
		return append(shown, '\n')
	}
}

// shell quotes an argument of a command line.
func shell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// readme says what is what, how to check it, and what is missing.
func (e *exporter) readme() error {
	var b strings.Builder
	fmt.Fprintf(&b, "The record of an incident\n=========================\n\nThread: %s\nMade:   %s UTC\n\n", e.plain(string(e.inc.Thread)), moment(e.made))
	b.WriteString(whatIsWhat)
	b.WriteString("\nHow to verify\n-------------\n\n")
	if e.proved {
		b.WriteString("  countersign audit verify audit.jsonl\n")
		if h := e.inc.Anchor.Hash; h != "" {
			fmt.Fprintf(&b, "  countersign audit verify --anchor %s audit.jsonl\n", h)
		}
		b.WriteString(howToVerify)
		if h := e.inc.Anchor; h.Hash != "" {
			fmt.Fprintf(&b, "\nThe newest anchor when this was made was number %d of %s UTC, %s.\nThe daily summary in chat names such hashes: one that was posted, and that\ncountersign audit verify --anchor finds, shows that the chain was not rewritten since.\n", h.N, moment(h.At), h.Hash)
		}
	} else {
		b.WriteString("The chain of decisions is not in this archive, so nothing here can be verified by itself.\n")
	}
	b.WriteString("\nFiles (bytes, SHA-256)\n----------------------\n\n")
	for _, w := range e.written {
		fmt.Fprintf(&b, "  %-20s %10d  %s\n", w.name, w.size, w.sha256)
	}
	b.WriteString("\nWhat is left out\n----------------\n\n")
	missing := slices.Concat(e.inc.Faults, e.missing)
	for i, m := range missing {
		if i == maxMissing {
			fmt.Fprintf(&b, "  - and %d more\n", len(missing)-i)
			break
		}
		fmt.Fprintf(&b, "  - %s\n", e.plain(m))
	}
	if len(missing) == 0 {
		b.WriteString("  Nothing, but for the secrets.\n")
	}
	e.left += readmeRoom
	return e.add("README.txt", readmeRoom, func(f *file) error {
		_, err := io.WriteString(f, b.String())
		return err
	})
}

// plain is one line of plain text.
func (e *exporter) plain(s string) string {
	s, _ = cut(visibleLine(e.clean(s)), 500)
	return cmp.Or(s, "(none)")
}

const whatIsWhat = `What is what
------------

  timeline.md         a draft of a post-mortem; headings without text are for people
  commands.csv        one line for each call of a tool: what, where, who approved, how it ended
  transcript.jsonl    the conversation as the bot keeps it, one entry a line
  approvals.jsonl     the requests for approval with their votes, one a line
  alerts.jsonl        what alerting systems said, one a line
  audit.jsonl         the chain of decisions of this thread, with the anchors that cover it
  checkpoints/        what the witnesses of the record have signed last
  statements/         for each change that ran, a signed in-toto statement (DSSE)
  outputs/            whole outputs, where the transcript has a part of them
  recordings/         what the terminals showed; play one with asciinema play FILE

All times are UTC; durations in commands.csv are seconds. Secrets were taken out
of every text: [redacted:...] stands for one. So the digest of an action cannot be
calculated from the text here where that had one. A cell of commands.csv that a
spreadsheet would take for a formula has a quote (') in front. What is of use to a
model's provider alone, the codes in buttons, and files that are no text were left out.
`

const howToVerify = `
The first line checks every hash of the chain without a store and without a network.
It ends with "ok" and status 0, or with a line for each fault and status 1. It cannot
show that nothing was left out of an export of one thread: an export of everything
(countersign audit export) can. The heads of anchors name other threads by their ids. A line
whose text had one more secret says "withheld"; its hashes are checked all the same.
The digest of a request in commands.csv and approvals.jsonl is the one in its lines
of audit.jsonl.
`
