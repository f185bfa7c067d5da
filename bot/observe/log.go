package observe

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"

	"countersign/adapters/chat"
)

// Keys of the ids in log lines.
const (
	KeyThread = "thread"
	KeyTurn   = "turn" // the number of the entry that began it
	KeyCall   = "call"
	KeyTrace  = "trace_id" // 32 hexadecimal digits; only when spans are made
)

// Logger returns log with the ids of a thread, of its turn and trace if one is open, and
// of a call unless that is empty. The turn is the one of this moment: make a logger for a
// step, not for a thread.
func (o *Observer) Logger(log *slog.Logger, thread chat.ThreadID, call string) *slog.Logger {
	args := []any{slog.String(KeyThread, string(thread))}
	if first, ok := o.open(thread); ok {
		args = append(args, slog.Uint64(KeyTurn, first))
		if o.tracer != nil {
			args = append(args, slog.String(KeyTrace, o.traceID(thread, first).String()))
		}
	}
	if call != "" {
		args = append(args, slog.String(KeyCall, call))
	}
	return log.With(args...)
}

// Redacting returns a handler that takes secrets out of all that h is given to write: the
// message and every value, in groups, behind [slog.LogValuer] and in errors too. Numbers,
// times and truth values stay as they are. What is none of these becomes text: an error's
// text, what encoding.TextMarshaler or fmt.Stringer say, or JSON, which h writes as JSON
// again if it is still that. Keys are literals of the program and stay.
//
// redact must be safe for concurrent use, and must not log.
func Redacting(h slog.Handler, redact func(string) string) slog.Handler {
	return &redacting{h: h, redact: redact}
}

type redacting struct {
	h      slog.Handler
	redact func(string) string
}

// Enabled implements slog.Handler.
func (r *redacting) Enabled(ctx context.Context, l slog.Level) bool { return r.h.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (r *redacting) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, r.redact(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(r.attr(a))
		return true
	})
	return r.h.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (r *redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &redacting{h: r.h.WithAttrs(r.attrs(attrs)), redact: r.redact}
}

// WithGroup implements slog.Handler.
func (r *redacting) WithGroup(name string) slog.Handler {
	return &redacting{h: r.h.WithGroup(name), redact: r.redact}
}

func (r *redacting) attrs(in []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(in))
	for i, a := range in {
		out[i] = r.attr(a)
	}
	return out
}

func (r *redacting) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64:
	case slog.KindString:
		v = slog.StringValue(r.redact(v.String()))
	case slog.KindGroup:
		v = slog.GroupValue(r.attrs(v.Group())...)
	default:
		v = r.value(v.Any())
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// value makes text of anything, and takes secrets out of it.
func (r *redacting) value(v any) (out slog.Value) {
	defer func() {
		// A method of the value panics, as those of nil pointers do. Other handlers say
		// so in the place of the value too.
		if p := recover(); p != nil {
			out = slog.StringValue("!PANIC: " + r.redact(fmt.Sprint(p)))
		}
	}()
	switch v := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case *slog.Source:
		return slog.AnyValue(v) // names of the program's own files
	case error:
		return slog.StringValue(r.redact(v.Error()))
	case json.Marshaler: // below, because it may show less of itself there than as text
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return slog.StringValue("!ERROR: " + r.redact(err.Error()))
		}
		return slog.StringValue(r.redact(string(text)))
	case fmt.Stringer:
		return slog.StringValue(r.redact(v.String()))
	case []byte:
		return slog.StringValue(r.redact(string(v)))
	default:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.String { // a type of its own
			return slog.StringValue(r.redact(rv.String()))
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // an escaped secret would not be recognised
	if err := enc.Encode(v); err != nil {
		return slog.StringValue("!ERROR: " + r.redact(err.Error())) // as JSON handlers say it
	}
	return r.json(bytes.TrimSpace(buf.Bytes()))
}

// json redacts each string of a JSON text by itself, where it is not escaped, and then the
// whole, where a key stands beside its value.
func (r *redacting) json(text []byte) slog.Value {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&tree); err == nil {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if enc.Encode(r.tree(tree)) == nil {
			text = bytes.TrimSpace(buf.Bytes())
		}
	}
	clean := r.redact(string(text))
	if json.Valid([]byte(clean)) {
		return slog.AnyValue(json.RawMessage(clean))
	}
	return slog.StringValue(clean)
}

func (r *redacting) tree(v any) any {
	switch v := v.(type) {
	case string:
		return r.redact(v)
	case []any:
		for i := range v {
			v[i] = r.tree(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[r.redact(k)] = r.tree(x)
		}
		return out
	default:
		return v // a number, a truth value or nothing
	}
}
