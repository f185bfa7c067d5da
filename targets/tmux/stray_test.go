package tmux

import (
	"errors"
	"strings"
	"testing"

	"countersign/targets/backend"
)

// asking has one query of each kind that a terminal answers by typing.
var asking = map[string]string{
	"device attributes": `\033[c`, "secondary attributes": `\033[>c`, "status": `\033[5n`, "cursor": `\033[6n`, "version": `\033[>q`,
	"colour": `\033]10;?\033\\`, "background": `\033]11;?\007`, "setting": `\033P$q m\033\\`, "mode": `\033[?2004$p`,
	"all": `\033[c\033[6n\033[>q\033]11;?\033\\\033]10;?\007`,
}

// guarded is a pane in which only the bot types.
func guarded(t *testing.T) *Pane {
	return start(t, func(o *Options, _ *backend.Target) { o.Guard = true }).pane()
}

// W5: the terminal's answer to a program's query is nobody's input: it is cleared, and the
// next command runs as given.
func TestAnswersOfTheTerminalAreCleared(t *testing.T) {
	t.Parallel()
	p := guarded(t)
	for name, q := range asking {
		t.Run(name, func(t *testing.T) {
			run(t, p, "printf '"+q+"'")
			expect(t, p, "echo fine", 0, "fine\n", "")
			run(t, p, "printf '"+q+"' >&2")
			expect(t, p, "echo fine; echo bad >&2", 0, "fine\n", "bad\n")
			expect(t, p, "true", 0, "", "")
		})
	}
}

// A line that the bot itself has begun is not cleared.
func TestALineOfTheBotsOwnKeysStays(t *testing.T) {
	t.Parallel()
	p := guarded(t)
	if err := p.SendKeys(t.Context(), Keys{Literal: "half"}); err != nil {
		t.Fatal(err)
	}
	_, err := p.Run(t.Context(), Command{Text: "echo no"})
	if se, ok := errors.AsType[*StateError](err); !ok || se.State != StateHuman || !strings.Contains(err.Error(), "Keys that were sent stand at the prompt") {
		t.Error(err)
	}
	if err := p.SendKeys(t.Context(), Keys{Names: []string{"C-u"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, p, "echo fine", 0, "fine\n", "")
	run(t, p, `printf '\033[c'`)
	expect(t, p, "echo fine", 0, "fine\n", "")
}

func TestQuestionsAreNotShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\x1b[31mred\x1b[0mb": "a\x1b[31mred\x1b[0mb", "\x1b]2;title\x07x": "\x1b]2;title\x07x", "\x1b[2Kx\x1b[5;1Hy": "\x1b[2Kx\x1b[5;1Hy",
		"a\x1b[cb": "ab", "a\x1b[>cb": "ab", "a\x1b[0cb": "ab", "a\x1b[5nb\x1b[6nc\x1b[?6nd": "abcd", "a\x1b[>qb": "ab", "\x1b[1 qx": "\x1b[1 qx",
		"a\x1b]10;?\x07b\x1b]11;?\x1b\\c\x1b]4;1;?\x07d\x1b]52;c;?\x07": "abcd", "\x1b]11;#000\x07x": "\x1b]11;#000\x07x",
		"a\x1bP$q m\x1b\\b\x1bP+q544e\x1b\\c": "abc", "a\x1b[?2004$pb": "ab", "\x1b[?2004hx": "\x1b[?2004hx", "a\x1b[18tb\x1b[22;0tc": "ab\x1b[22;0tc",
		"a\x1bZb": "ab", "a\x1b[?ub": "ab",
		"\x1b\x1b[cx": "\x1bx", "\x1b[1\x1b[cx": "\x1b[1x",
	} {
		for cut := range len(in) + 1 {
			var q queryFilter
			a, one := q.strip([]byte(in[:cut]))
			got := string(a)
			b, two := q.strip([]byte(in[cut:]))
			if got += string(b); got != want || (one || two) != (got != in) {
				t.Errorf("%q cut at %d: %q, %v", in, cut, got, one || two)
			}
		}
	}
	var q queryFilter
	long := "\x1b]" + strings.Repeat("x", 2*queryMax)
	if got, _ := q.strip([]byte(long)); string(got) != long {
		t.Errorf("%d bytes of %d are shown", len(got), len(long))
	}
}
