package remote

import (
	"bytes"
	"regexp"
	"testing"
)

func TestOnlyWhatDrawsReachesTheTerminal(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text and lines", "a é 語 \U0001f600\r\n\tb\b", "a é 語 \U0001f600\r\n\tb\b"},
		{"colours and moves", "\x1b[1;31mred\x1b[0m\x1b[2J\x1b[H\x1b[?25l\x1b[3;1H\x1b[K\x1b[4 q", "\x1b[1;31mred\x1b[0m\x1b[2J\x1b[H\x1b[?25l\x1b[3;1H\x1b[K\x1b[4 q"},
		{"line drawing", "\x1b(0lqk\x1b(B\x0e\x0f", "\x1b(0lqk\x1b(B\x0e\x0f"},
		{"a saved cursor, a scrolling region, another screen", "\x1b7\x1b[2;9r\x1b8\x1b[?1049h\x1b=\x1b>", "\x1b7\x1b[2;9r\x1b8\x1b[?1049h\x1b=\x1b>"},
		{"queries", "a\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[x\x1b[?1$p\x1b[>q\x1b[?u\x1bZb", "ab"},
		{"the title, a link, the clipboard", "\x1b]0;title\x07\x1b]8;;http://x\x1b\\a\x1b]52;c;aGk=\x07b", "ab"},
		{"strings of devices", "a\x1bP+q544e\x1b\\b\x1b_Gx\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\c", "abc"},
		{"the window, the printer, the keyboard", "a\x1b[3;0;0t\x1b[5i\x1b[>4;2m\x1b[=1u\x1b[<u\x1b[>1u\x1b[!pb", "ab"},
		{"a reset", "a\x1bcb\x1b%Gc", "abc"},
		{"controls as characters", "a\u009b6n\u0090x\u009cb", "a6nxb"},
		{"other controls", "a\x00\x05\x7f\x11b\x07", "ab\x07"},
		{"a string that another sequence cuts", "\x1b]0;x\x1b[31mred", "\x1b[31mred"},
		{"a sequence that a control cuts", "\x1b[3\n1mx", "\n1mx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var whole screenFilter
			if got := whole.pass([]byte(tt.in)); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			var parts screenFilter
			var got []byte
			for _, b := range []byte(tt.in) {
				got = append(got, parts.pass([]byte{b})...)
			}
			if string(got) != tt.want {
				t.Errorf("byte by byte: got %q, want %q", got, tt.want)
			}
		})
	}
}

// asked is what terminals answer or obey beyond drawing.
var asked = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[cnxtip]|[\]PX^_Zc]|\[[<=>][0-?]*[@-~])`)

func FuzzAScreenNeverAsks(f *testing.F) {
	f.Add([]byte("a\x1b[6n\x1b]52;c;x\x07\x1bP$q\x1b\\"), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var s screenFilter
		cut = min(max(cut, 0), len(in))
		got := append(s.pass(bytes.Clone(in[:cut])), s.pass(bytes.Clone(in[cut:]))...)
		if m := asked.Find(got); m != nil {
			t.Errorf("%q lets %q through", in, m)
		}
	})
}
