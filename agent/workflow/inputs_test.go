package workflow

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const inputsBook = `name: t
description: A test.
inputs:
  dir: {type: string, description: Where., required: true, pattern: /.*, min: 2, max: 20}
  n: {type: integer, default: 3, min: -5, max: 9}
  f: {type: number, default: 0.5}
  dry: {type: boolean, default: false}
  mode: {type: enum, values: [fast, slow], default: fast}
  note: {type: string, default: ''}
steps:
  - {id: a, wait: 1s}
`

func inputsWorkflow(t testing.TB) *Workflow {
	t.Helper()
	w, err := Parse("t.yaml", []byte(inputsBook))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestInputsAreCanonicalAndHaveDefaults(t *testing.T) {
	w := inputsWorkflow(t)
	for raw, want := range map[string]map[string]string{
		`{"dir": "/srv"}`: {"dir": "/srv", "n": "3", "f": "0.5", "dry": "false", "mode": "fast", "note": ""},
		`{"dir": "/é", "n": 4.0, "f": 1e3, "dry": true, "mode": "slow", "note": "a\nb"}`: {"dir": "/é", "n": "4", "f": "1000", "dry": "true", "mode": "slow", "note": "a\nb"},
		`{"dir": "/srv", "n": "-5", "f": "-0", "dry": "true", "mode": null}`:             {"dir": "/srv", "n": "-5", "f": "0", "dry": "true", "mode": "fast", "note": ""},
	} {
		var m map[string]any
		if err := json.Unmarshal([]byte(raw), &m); err != nil {
			t.Fatal(err)
		}
		got, err := w.Inputs(m)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v", raw, got, err)
		}
	}
}

func TestInputsTellEveryMistakeInASentence(t *testing.T) {
	w := inputsWorkflow(t)
	for _, c := range []struct {
		raw  map[string]any
		want []string
	}{
		{nil, []string{`input "dir" is missing; t needs it: Where.`}},
		{map[string]any{"dir": "srv"}, []string{`input "dir" is "srv", which does not match /.*: Where.`}},
		{map[string]any{"dir": "/"}, []string{`input "dir" is "/"; it needs at least 2 characters.`}},
		{map[string]any{"dir": "/" + strings.Repeat("x", 20)}, []string{`input "dir" is too long; it can have 20 characters.`}},
		{map[string]any{"dir": "/a\nb"}, []string{`does not match`}},
		{map[string]any{"dir": "/a\x1b"}, []string{`with a control character`}},
		{map[string]any{"dir": "/a\xff"}, []string{`not UTF-8`}},
		{map[string]any{"dir": 5}, []string{`input "dir" is 5; it must be text.`}},
		{map[string]any{"dir": "/a", "note": strings.Repeat("x", 1001)}, []string{`it can have 1000 characters`}},
		{map[string]any{"dir": "/a", "n": 2.5, "f": "abc", "dry": "yes", "mode": "quick"}, []string{
			`input "n" is 2.5; it must be a whole number such as 30.`, `input "f" is "abc"; it must be a number such as 2.5.`,
			`input "dry" is "yes"; use true or false.`, `input "mode" is "quick"; use one of fast, slow.`,
		}},
		{map[string]any{"dir": "/a", "n": 10}, []string{`it must be at most 9`}},
		{map[string]any{"dir": "/a", "n": json.Number("-6")}, []string{`it must be at least -5`}},
		{map[string]any{"dir": "/a", "n": "0x9"}, []string{`whole number`}},
		{map[string]any{"dir": "/a", "n": math.Inf(1)}, []string{`whole number`}},
		{map[string]any{"dir": "/a", "n": []any{1}}, []string{`input "n" is [1]; it must be`}},
		{map[string]any{"dir": "/a", "f": "1e999"}, []string{`it must be a number`}},
		{map[string]any{"dir": "/a", "mod": "fast", "zzzzzz": 1}, []string{`t has no input "mod"; did you mean "mode"?`, `t has no input "zzzzzz"; it has dir, n, f, dry, mode, note.`}},
	} {
		got, err := w.Inputs(c.raw)
		var bad *InputError
		if !errors.As(err, &bad) || got != nil || len(bad.Sentences) != len(c.want) {
			t.Errorf("%v: %v, %v", c.raw, got, err)
			continue
		}
		for i, s := range bad.Sentences {
			if !strings.Contains(s, c.want[i]) || !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") || strings.Contains(s, "\n") {
				t.Errorf("%v:\n got  %s\n want %s", c.raw, s, c.want[i])
			}
		}
	}
	if _, err := (&Workflow{Name: "u"}).Inputs(map[string]any{"a": 1}); err == nil || err.Error() != `u has no input "a"; it takes none.` {
		t.Errorf("%v", err)
	}
}

// What passed once passes again: a restart checks nothing differently.
func TestInputsAreStable(t *testing.T) {
	w := inputsWorkflow(t)
	rapid.Check(t, func(rt *rapid.T) {
		raw := map[string]any{
			"dir": "/" + rapid.StringN(1, 8, -1).Draw(rt, "dir"), "n": rapid.Float64Range(-6, 10).Draw(rt, "n"),
			"f": rapid.Float64().Draw(rt, "f"), "dry": rapid.SampledFrom([]any{true, false, "true", 1}).Draw(rt, "dry"),
		}
		one, err := w.Inputs(raw)
		if err != nil {
			return
		}
		again := map[string]any{}
		for k, v := range one {
			again[k] = v
		}
		two, err := w.Inputs(again)
		if err != nil || !maps.Equal(one, two) || len(one) != len(w.Params) {
			rt.Fatalf("%v, then %v, %v", one, two, err)
		}
		for _, k := range []string{"n", "f"} {
			if !json.Valid([]byte(one[k])) {
				rt.Fatalf("%s is no number in JSON", one[k])
			}
		}
	})
}
