package openai

import (
	"testing"

	"pgregory.net/rapid"
)

func TestArgumentsAreTheObjectThatIsMeant(t *testing.T) {
	for args, want := range map[string]string{
		`{"a": 1}`: `{"a": 1}`, ``: ``, `{}`: `{}`, " {\"a\":1}\n": " {\"a\":1}\n",
		`{}{"a":1}`: `{"a":1}`, `{"a":1}{}`: `{"a":1}`, `{"a":1}{"a": 1}`: `{"a":1}`, "{\"a\":1}\n{\"a\":1}": `{"a":1}`, `{}{}`: `{}`,
		`"{\"a\":1}"`: `{"a":1}`, `{"a":1}<|call|>`: `{"a":1}`, `{"a":1}</tool_call>`: `{"a":1}`,
		// Nobody knows what these mean.
		`{"a":1}{"a":2}`: `{"a":1}{"a":2}`, `{"a":1`: `{"a":1`, `{"a":1} rm`: `{"a":1} rm`, `"text"`: `"text"`, `[1]`: `[1]`, `{"a":1}[2]`: `{"a":1}[2]`, `<|call|>`: `<|call|>`, `{"a":"{}{}"`: `{"a":"{}{}"`,
	} {
		if got := repairedArgs(args); got != want {
			t.Errorf("%q becomes %q, not %q", args, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // it changes nothing twice, and never panics
		args := rapid.OneOf(rapid.String(), rapid.StringMatching(`(\{\}|\{"a":[12]\}|"|<\||</| |x){0,5}`)).Draw(t, "args")
		if once := repairedArgs(args); repairedArgs(once) != once {
			t.Errorf("%q becomes %q and then %q", args, once, repairedArgs(once))
		}
	})
}

func TestThoughtsAreNoPartOfAText(t *testing.T) {
	for text, want := range map[string]string{
		"<think>\nIs it up?\n</think>\n\nIt is up.": "It is up.", "I should look.\n</think>\nIt is up.": "It is up.", "<think></think>It is up.": "It is up.",
		"It is up.": "It is up.", "<think>it never ends": "<think>it never ends", "The tag `</think>` ends it.": "The tag `</think>` ends it.",
	} {
		if got := withoutThoughts(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}
