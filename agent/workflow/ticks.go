package workflow

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Mark is the sign of a state.
func (s State) Mark() string {
	switch s {
	case Active:
		return "▶"
	case Passed:
		return "☑"
	case Failed:
		return "✗"
	case Skipped:
		return "–"
	default:
		return "☐"
	}
}

// Ticks renders the workflow as one message in Markdown: a head line, a line for each
// step, and how it ended. Steps that only end it are shown once they do. Foreign text in
// it is short, on one line and without markup.
func Ticks(w *Workflow, inputs map[string]string, past []Past) string {
	next, out := walk(w, inputs, past)
	return ticks(w, next, out)
}

// TicksStopped is Ticks of a workflow that a person stopped where it was.
func TicksStopped(w *Workflow, inputs map[string]string, past []Past, by string) string {
	next, out := walk(w, inputs, past)
	for i := range out {
		switch o := &out[i]; o.State {
		case Active:
			if o.Kind == KindDone || o.Kind == KindFailed {
				continue
			}
			o.State, o.Why = Failed, "stopped here"
		case Pending:
			o.State, o.Why = Skipped, whyOver
		default:
		}
	}
	if next.Kind != KindDone && next.Kind != KindFailed {
		next = Step{Kind: KindFailed, Reason: "Stopped by " + by + "."}
	}
	return ticks(w, next, out)
}

func ticks(w *Workflow, next Step, out []Outcome) string {
	var b strings.Builder
	for i, o := range out {
		if (o.Kind == KindDone || o.Kind == KindFailed) && o.State != Passed && o.State != Failed {
			continue
		}
		fmt.Fprintf(&b, "- %s %s%s\n", o.State.Mark(), Plain(o.Title, maxShort), about(&w.steps[i], &o, next))
	}
	steps := b.String()
	switch next.Kind {
	case KindDone:
		return fmt.Sprintf("**%s** · done\n\n%s", w.Name, steps)
	case KindFailed:
		return fmt.Sprintf("**%s** · stopped\n\n%s\n%s\n", w.Name, steps, Plain(next.Reason, 300))
	default:
		return fmt.Sprintf("**%s**\n\n%s", w.Name, steps)
	}
}

// about is the short outcome that follows a title.
func about(s *step, o *Outcome, next Step) string {
	var words []string
	switch o.State {
	case Skipped:
		switch o.Why {
		case whyFalse:
			return " · skipped"
		case whyOver:
			return " · not reached"
		}
		return " · skipped: " + Plain(o.Why, 120)
	case Failed:
		if o.Kind != KindFailed {
			words = append(words, Plain(o.Why, 120))
		}
	case Passed:
		switch {
		case o.Kind == KindAsk && o.By != "":
			words = append(words, fmt.Sprintf("“%s” (%s)", Plain(o.Output, 60), Plain(o.By, 40)))
		case o.Kind == KindAsk:
			words = append(words, fmt.Sprintf("“%s”", Plain(o.Output, 60)))
		case o.ExitCode != nil && *o.ExitCode != 0:
			words = append(words, fmt.Sprintf("exit code %d", *o.ExitCode))
		}
	case Active:
		words = append(words, now(s, o, next))
	case Pending:
		if o.Gate {
			words = append(words, "asks for approval")
		}
	}
	if o.Tries > 1 && o.State != Active {
		words = append(words, fmt.Sprintf("%d tries", o.Tries))
	}
	if o.Took > 0 && o.State != Active {
		words = append(words, round(o.Took))
	}
	var b strings.Builder
	for _, w := range words {
		if w != "" {
			b.WriteString(" · " + w)
		}
	}
	return b.String()
}

// now says what an active step is about to do.
func now(s *step, o *Outcome, next Step) string {
	switch next.Kind {
	case KindWait:
		if next.Retry {
			return fmt.Sprintf("failed, waits %s before it is tried again", short(next.For))
		}
		return "waits " + short(next.For)
	case KindAsk:
		return "a person answers"
	case KindModel:
		return "the model thinks"
	case KindCall, KindBusy:
		if next.Try > 1 {
			return fmt.Sprintf("try %d of %d", next.Try, s.retries+1)
		}
		if o.Gate {
			return "asks for approval"
		}
		return ""
	default:
		return ""
	}
}

// round writes a duration as people need it.
func round(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return short(d.Round(time.Second))
	}
}

// Plain returns foreign text for the inside of a line of Markdown: one line, at most n
// characters, and every character that could be markup escaped.
func Plain(s string, n int) string {
	s = strings.Join(strings.FieldsFunc(tidy(s), unicode.IsSpace), " ")
	if c := head(s, n); c != s {
		s = c + "…"
	}
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_~[]<>|#!&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
