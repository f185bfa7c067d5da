package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"countersign/internal/redact"
)

const secret = "hunter2-correct-horse"

func hide(s string) string { return strings.ReplaceAll(s, secret, "[redacted]") }

func TestRedactingIsAHandlerLikeAnyOther(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return Redacting(slog.NewJSONHandler(&buf, nil), hide)
	}, func(t *testing.T) map[string]any {
		var m map[string]any
		if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

type word string

type stringer struct{ s string }

func (s stringer) String() string { return "says " + s.s }

type texter struct{ s string }

func (s texter) MarshalText() ([]byte, error) {
	if s.s == "" {
		return nil, errors.New("no text: " + secret)
	}
	return []byte("text " + s.s), nil
}

type valuer struct{ v slog.Value }

func (v valuer) LogValue() slog.Value { return v.v }

type masked string

func (masked) MarshalJSON() ([]byte, error) { return []byte(`"masked"`), nil }

type shows struct {
	Name   string
	Inside *shows `json:",omitempty"`
	List   []string
	hidden string
}

type bomb struct{}

func (*bomb) Error() string { panic("boom " + secret) }

// values are all ways that we know for a secret to be in a value.
func values() map[string]any {
	return map[string]any{
		"a string":                   "a " + secret,
		"a string type":              word(secret),
		"an error":                   fmt.Errorf("cannot log in: %w", errors.New(secret)),
		"joined errors":              errors.Join(errors.New("x"), errors.New(secret)),
		"a stringer":                 stringer{secret},
		"a text marshaler":           texter{secret},
		"a text marshaler's error":   texter{},
		"bytes":                      []byte(secret),
		"raw JSON":                   json.RawMessage(`{"a":"` + secret + `"}`),
		"a list":                     []string{"a", secret},
		"a map":                      map[string]any{"k": []any{1, map[string]string{secret: secret}}},
		"a struct":                   shows{Name: "x", Inside: &shows{Name: secret}, hidden: secret},
		"a pointer":                  &shows{List: []string{secret}},
		"a group":                    slog.GroupValue(slog.String("a", secret), slog.Group("b", slog.Any("c", errors.New(secret)))),
		"a log valuer":               valuer{slog.StringValue(secret)},
		"a log valuer in a group":    valuer{slog.GroupValue(slog.Any("x", valuer{slog.AnyValue(errors.New(secret))}))},
		"what panics":                (*bomb)(nil),
		"what JSON does not know":    map[string]any{"f": func() {}, "s": secret},
		"a list of attributes":       []slog.Attr{slog.String("a", secret)},
		"a secret with quotes in it": `say "` + secret + `" & <go>`,
	}
}

func TestNoValueCarriesASecretIntoTheLog(t *testing.T) {
	var buf bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&buf, nil), slog.NewTextHandler(&buf, nil)} {
		for name, v := range values() {
			for how, log := range map[string]func(*slog.Logger){
				"as an argument":     func(l *slog.Logger) { l.Info("m", "key", v) },
				"in With":            func(l *slog.Logger) { l.With("key", v).Info("m") },
				"in a group":         func(l *slog.Logger) { l.WithGroup("g").With("key", v).WithGroup("h").Info("m", "key", v) },
				"in an inline group": func(l *slog.Logger) { l.Info("m", slog.Group("", slog.Any("key", v))) },
			} {
				buf.Reset()
				log(slog.New(Redacting(h, hide)))
				if out := buf.String(); strings.Contains(out, secret) || !strings.Contains(out, "key") && !strings.Contains(out, "[redacted]") {
					t.Errorf("%s %s, by %T: %s", name, how, h, out)
				}
			}
		}
		buf.Reset()
		slog.New(Redacting(h, hide)).Info("the password is " + secret)
		if out := buf.String(); strings.Contains(out, secret) || !strings.Contains(out, "the password is [redacted]") {
			t.Errorf("the message: %s", out)
		}
	}
}

// A secret with signs that JSON escapes is found where it is not escaped yet.
func TestASecretThatJSONEscapesIsFound(t *testing.T) {
	const odd = "a\"b\\c\n<d>"
	var buf bytes.Buffer
	log := slog.New(Redacting(slog.NewJSONHandler(&buf, nil), func(s string) string { return strings.ReplaceAll(s, odd, "[redacted]") }))
	log.Info("m", "list", []string{odd}, "map", map[string]string{odd: odd}, "struct", &shows{Name: odd})
	var m map[string]any
	if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m["list"], m["map"], m["struct"]); got != "[[redacted]] map[[redacted]:[redacted]] map[List:<nil> Name:[redacted]]" {
		t.Errorf("the line has %s", got)
	}
}

// A key that makes a secret of its value is seen beside it.
func TestAKeyThatTellsOfASecretIsSeenBesideIt(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(Redacting(slog.NewJSONHandler(&buf, nil), redact.New().Redact))
	log.Info("m", "config", map[string]string{"password": "correct-horse-9"})
	if out := buf.String(); strings.Contains(out, "correct-horse") {
		t.Errorf("the line is %s", out)
	}
}

func TestRedactingLeavesTheRest(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(Redacting(slog.NewJSONHandler(&buf, &slog.HandlerOptions{Level: slog.LevelWarn, AddSource: true}), hide))
	log.Info("too low")
	if buf.Len() > 0 {
		t.Errorf("a level that is off is written: %s", buf.String())
	}
	log.With("b", true, "f", 1.5).WithGroup("g").Warn("m", "n", 42, "d", time.Second, "t", at(0), "u", uint64(1)<<63, "nil", nil,
		"list", []int{1, 2}, "struct", shows{Name: "x"}, "masked", masked("behind a mask"), "err", errors.New("plain"))
	var m map[string]any
	if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	g, _ := m["g"].(map[string]any)
	for k, want := range map[string]string{
		"n": "42", "d": "1e+09", "t": "2026-05-01T12:00:00Z", "u": "9.223372036854776e+18", "nil": "<nil>", "list": "[1 2]", "struct": "map[List:<nil> Name:x]",
		"masked": "masked", "err": "plain",
	} {
		if got := fmt.Sprint(g[k]); got != want {
			t.Errorf("%s is %s, want %s", k, got, want)
		}
	}
	if m["level"] != "WARN" || m["b"] != true || m["f"] != 1.5 {
		t.Errorf("the line is %v", m)
	}
	src, _ := m["source"].(map[string]any)
	if file, _ := src["file"].(string); !strings.HasSuffix(file, "log_test.go") {
		t.Errorf("the source is %v", src)
	}
}

func FuzzRedacting(f *testing.F) {
	f.Add("a ", " b", "key")
	f.Add(`"\`, "\x00\xff", "")
	f.Add("<&>", "\u2028\n", `"k"`)
	f.Fuzz(func(t *testing.T, before, after, key string) {
		text := before + secret + after
		var buf bytes.Buffer
		for _, h := range []slog.Handler{slog.NewJSONHandler(&buf, nil), slog.NewTextHandler(&buf, nil)} {
			slog.New(Redacting(h, hide)).Info(text, //nolint:sloglint // any text is the point
				slog.Any("a", map[string]any{text: []string{text}, "k": text}), slog.String("b", text), slog.Any("c", errors.New(text)), slog.Group("g", slog.Any(strings.ReplaceAll(key, secret, ""), text)))
		}
		if strings.Contains(buf.String(), secret) {
			t.Errorf("the secret is in %s", buf.String())
		}
	})
}

func TestALoggerHasTheIdsOfItsThread(t *testing.T) {
	o, _ := observer(t, Config{})
	line := func(call string) map[string]any {
		var buf bytes.Buffer
		o.Logger(slog.New(slog.NewJSONHandler(&buf, nil)), thread, call).Info("m")
		var m map[string]any
		if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := line(""); m[KeyThread] != thread || m[KeyTurn] != nil || m[KeyCall] != nil || m[KeyTrace] != nil {
		t.Errorf("without a turn the line is %v", m)
	}
	feed(o, script(3, says("x")))
	if m := line("c1"); m[KeyThread] != thread || m[KeyTurn] != 3.0 || m[KeyCall] != "c1" || m[KeyTrace] != o.traceID(thread, 3).String() {
		t.Errorf("with a turn the line is %v", m)
	}
}

func BenchmarkLog(b *testing.B) {
	write := func(l *slog.Logger) {
		l.Info("asking the model again", "host", "api.example.com", "model", "m-1", "attempt", 2, "wait", time.Second, "error", io.ErrUnexpectedEOF)
	}
	plain := slog.NewJSONHandler(io.Discard, nil) //nolint:sloglint // it is to do the work
	r := redact.New(secret)
	for name, h := range map[string]slog.Handler{"plain": plain, "redacting": Redacting(plain, r.Redact), "redacting nothing": Redacting(plain, func(s string) string { return s })} {
		b.Run(name, func(b *testing.B) {
			log := slog.New(h).With("thread", thread)
			b.ReportAllocs()
			for b.Loop() {
				write(log)
			}
		})
	}
}
