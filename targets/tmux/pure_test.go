package tmux

import (
	"bytes"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// decoded runs the decoder and the scanner of pane 1 over pieces and returns
// all that they said, with text joined.
func decoded(pieces ...[]byte) []string {
	var said []string
	text := func(prefix string, b []byte) {
		if n := len(said); n > 0 && strings.HasPrefix(said[n-1], prefix) {
			said[n-1] += string(b)
			return
		}
		said = append(said, prefix+string(b))
	}
	sc := scanner{
		nonce:  "n0",
		text:   func(b []byte) { text("text ", b) },
		mark:   func(kind, args string) { said = append(said, "mark "+kind+" "+args) },
		forged: func() { said = append(said, "forged") },
	}
	d := decoder{handle: func(e event) {
		switch e.kind {
		case evOutput:
			if e.pane == 1 {
				sc.feed(e.data)
			} else {
				text(fmt.Sprintf("output %d ", e.pane), e.data)
			}
		case evReply:
			said = append(said, fmt.Sprintf("reply %v %v %q", e.ok, e.ours, e.lines))
		case evNote:
			said = append(said, "note "+e.name+" "+e.args)
		}
	}}
	for _, p := range pieces {
		d.feed(bytes.Clone(p))
	}
	return said
}

func TestDecoder(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"output is unescaped", "%output %2 a\\015\\012\\134\\000\\377b\n", []string{"output 2 a\r\n\\\x00\xffb"}},
		{"a lone backslash stays", "%output %2 a\\b\\9\\01\n", []string{`output 2 a\b\9\01`}},
		{"a reply", "%begin 1 2 1\nline\n\n%end 1 2 1\n", []string{`reply true true ["line" ""]`}},
		{"a reply to somebody else", "%begin 1 2 0\n%end 1 2 0\n", []string{`reply true false []`}},
		{"an error", "%begin 1 2 1\nno\n%error 1 2 1\n", []string{`reply false true ["no"]`}},
		{"a body like the protocol", "%begin 1 2 1\n%end 1 3 1\n%output %1 x\n%begin 9 9 1\n%end 1 2 1\n",
			[]string{`reply true true ["%end 1 3 1" "%output %1 x" "%begin 9 9 1"]`}},
		{"notifications", "%exit\n%session-changed $0 a b\n", []string{"note exit ", "note session-changed $0 a b"}},
		{"noise is skipped", "hello\n\n%output x y\n%output %x y\n", []string{"note output x y"}},
		{"marks", "%output %1 a\\033]7973;n0;D;1;0;/x;y\\007b\n", []string{"text a", "mark D 1;0;/x;y", "text b"}},
		{"a mark over two lines", "%output %1 a\\033]79\n%output %1 73;n0;C;1\\007b\n", []string{"text a", "mark C 1", "text b"}},
		{"a wrong nonce", "%output %1 a\\033]7973;n1;D;1;0;/\\007b\n", []string{"text a", "forged", "text b"}},
		{"an empty nonce", "%output %1 \\033]7973;;D;1;0;/\\007\n", []string{"forged"}},
		{"other escapes are text", "%output %1 \\033[0m\\033]0;t\\007\\033\\033x\n", []string{"text \x1b[0m\x1b]0;t\a\x1b\x1bx"}},
		{"an unfinished mark is text", "%output %1 \\033]7973;n0;D\\015\\012x\n", []string{"text \x1b]7973;n0;D\r\nx"}},
		{"a mark inside an unfinished mark", "%output %1 \\033]7973;n0;D\\033]7973;n0;C;1\\007\n", []string{"text \x1b]7973;n0;D", "mark C 1"}},
		{"a mark that is too long is text", "%output %1 \\033]7973;n0;" + strings.Repeat("x", markMax) + "\\007\n",
			[]string{"text \x1b]7973;n0;" + strings.Repeat("x", markMax) + "\a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decoded([]byte(tt.in)); !reflect.DeepEqual(got, tt.want) && fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzAnySplitGivesTheSameEvents(f *testing.F) {
	f.Add([]byte("%begin 1 2 1\n%end 1 2 1\n%output %1 a\\033]7973;n0;D;1;0;/\\007b\n%exit\n"), uint16(7), uint16(30))
	f.Add([]byte("%output %1 \\033]7973;n0;\\033]7973;n1;D\\007\\033\n%output %1 ]7973;n0;C;1\\007\n"), uint16(3), uint16(44))
	f.Fuzz(func(t *testing.T, in []byte, a, b uint16) {
		whole := decoded(in)
		i, j := int(a)%(len(in)+1), int(b)%(len(in)+1)
		i, j = min(i, j), max(i, j)
		if got := decoded(in[:i], in[i:j], in[j:]); !reflect.DeepEqual(got, whole) {
			t.Errorf("split at %d, %d: %q, whole: %q", i, j, got, whole)
		}
		var bytewise [][]byte
		for k := range in {
			bytewise = append(bytewise, in[k:k+1])
		}
		if got := decoded(bytewise...); !reflect.DeepEqual(got, whole) {
			t.Errorf("bytewise: %q, whole: %q", got, whole)
		}
	})
}

func FuzzMarkScanner(f *testing.F) {
	f.Add([]byte("a\x1b]7973;n0;D;1\x07b\x1b"), uint16(4))
	f.Fuzz(func(t *testing.T, in []byte, at uint16) {
		scan := func(pieces ...[]byte) (out string) {
			s := scanner{nonce: "n0", forged: func() { out += "<forged>" },
				text: func(b []byte) { out += string(b) },
				mark: func(k, a string) { out += "<" + k + "|" + a + ">" }}
			for _, p := range pieces {
				s.feed(bytes.Clone(p))
			}
			return out + string(s.part)
		}
		i := int(at) % (len(in) + 1)
		if a, b := scan(in), scan(in[:i], in[i:]); a != b {
			t.Errorf("%q, split at %d: %q", a, i, b)
		}
	})
}

func TestEscapeAndUnescapeAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		if out := unescape(nil, escape(nil, in)); !bytes.Equal(in, out) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func TestCollectorKeepsHeadAndTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(1, 40).Draw(t, "keep")
		c := newCollector(keep)
		var all []byte
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 60)).Draw(t, "sizes") {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(len(all) + i)
			}
			all = append(all, b...)
			c.add(b)
		}
		got := c.captured()
		if got.Total != int64(len(all)) || len(got.Head)+len(got.Tail) > keep {
			t.Fatalf("total %d, kept %d", got.Total, len(got.Head)+len(got.Tail))
		}
		if !bytes.HasPrefix(all, got.Head) || !bytes.HasSuffix(all, got.Tail) {
			t.Fatal("head or tail differ")
		}
		if want := max(0, len(all)-keep); got.Dropped() != int64(want) {
			t.Fatalf("dropped %d, want %d", got.Dropped(), want)
		}
		if got.Dropped() == 0 && got.String() != string(all) {
			t.Fatal("it does not join")
		}
		if cap(c.head)+cap(c.tail) > 8*keep+256 {
			t.Fatalf("%d bytes of memory for %d", cap(c.head)+cap(c.tail), keep)
		}
	})
}

func TestUnCRLFIsTheInverseOfATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := []byte(rapid.StringOf(rapid.SampledFrom([]rune{'a', '\r', '\n', 'b'})).Draw(t, "text"))
		tty := bytes.ReplaceAll(in, []byte("\n"), []byte("\r\n"))
		var u unCRLF
		var out []byte
		for len(tty) > 0 {
			n := rapid.IntRange(1, len(tty)).Draw(t, "piece")
			out = append(out, u.convert(tty[:n])...)
			tty = tty[n:]
		}
		out = append(out, u.flush()...)
		if !bytes.Equal(in, out) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func TestComplete(t *testing.T) {
	for text, want := range map[string]bool{
		"echo hi": true, "a; b": true, "a;": true, "a && b || c": true, "a | b |& c": true, "a &": true, "a & b": true, "  a  ": true,
		"echo '# no comment'": true, "echo a#b": true, "(a; b)": true, "{ a; }": true, "if a; then b; fi": true, "a 2>/dev/null": true,
		"f() { a; }": true, "! a": true, "a # comment": true, "a # comment \\": false, "echo `date # x`": true, `a \\`: true,
		`a \`: false, "a; } ; {": false, "a; } 2>/dev/null; { b": false, "cat <<E": false, "echo $(": false, "echo 'open": false,
		"if a; then": false, "a &&": false, "a |": false, "": false, "# only a comment": false, ";": false,
	} {
		if got := complete(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// What is typed as one line is complete for bash itself, which else would wait for more.
func FuzzComplete(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("bash is not installed")
	}
	for _, s := range []string{"echo hi", "a; } ; {", "a &", "a # b", "cat <<E\nE", "a \\", "$(a", "case x in y) z;; esac", "a='b", "[[ a", "((1", "x=(1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !typable(text) || !complete(text) {
			return
		}
		out, _ := exec.CommandContext(t.Context(), bash, "-n", "-c", text).CombinedOutput()
		if bytes.Contains(out, []byte("unexpected end of file")) || bytes.Contains(out, []byte("unexpected EOF")) {
			t.Errorf("%q: %s", text, out)
		}
	})
}

func TestShownText(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\n\n": "a\nb", "a\tb": "a\tb", "\x1b[31m\x01\x7f\x00": "^[[31m^A^?^@", "\xff\u0085": "??", "é 日本 🙂": "é 日本 🙂",
	} {
		if got := shownText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTypable(t *testing.T) {
	for _, ok := range []string{"a", "é 日本 🙂", strings.Repeat("x", typeMax)} {
		if !typable(ok) {
			t.Errorf("%q", ok)
		}
	}
	for _, bad := range []string{"", "a\nb", "a\tb", "a\x1b[D", "\xff", "a\x7f", "a\u0085b", strings.Repeat("x", typeMax+1), "a\x00"} {
		if typable(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPagersKeepTheVisibleTerminal(t *testing.T) {
	for text, want := range map[string]bool{
		"less f": true, "sudo /usr/bin/less f": true, "git log | less": true, "man ls": true,
		"echo less": true, "lessons": false, "echo 'less'": false, "cat f": false, "if": false,
	} {
		if got := readsKeys(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestQuoteLeavesNothingToTmux(t *testing.T) {
	for in, want := range map[string]string{
		"a b":     `"a b"`,
		`"\$~`:    `"\042\134\044\176"`,
		";#{}":    `"\073\043\173\175"`,
		"é\n\x7f": `"\303\251\012\177"`,
		"a\x00b":  `"ab"`,
		"":        `""`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestCutFrameCutsBetweenThings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := []byte(rapid.StringOf(rapid.SampledFrom([]rune("a\x1b[mé日\n"))).Draw(t, "text"))
		n := rapid.IntRange(64, 100).Draw(t, "n")
		var out []byte
		for rest := in; len(rest) > 0; {
			var cut []byte
			cut, rest = cutFrame(rest, n)
			if len(cut) == 0 || len(cut) > n {
				t.Fatalf("a piece of %d bytes", len(cut))
			}
			if !strings.ContainsRune(string(cut), '\uFFFD') && !bytes.Equal([]byte(string([]rune(string(cut)))), cut) {
				t.Fatalf("cut inside a character: %q", cut)
			}
			out = append(out, cut...)
		}
		if !bytes.Equal(in, out) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func TestFramesHaveOneSize(t *testing.T) {
	const nonce = "0123456789abcdef"
	for _, data := range [][]byte{nil, {}, []byte("x"), bytes.Repeat([]byte("y"), frameRoom(nonce))} {
		if n := len(encodeFrame(nonce, "M;b", data)); n != frameSize {
			t.Errorf("%d bytes of data: a frame of %d", len(data), n)
		}
	}
}

func TestTerminalState(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     terminalState
	}{
		{"a line editor", "speed 38400 baud; rows 40;\n-icanon -echo\ngroup 12\nprocess 12 S 0 0x0 0x1\n", terminalState{group: 12, reads: true}},
		{"a password", "icanon iexten -echo echoe\ngroup 7\nprocess 7 S 0 0x0\n", terminalState{canonical: true, group: 7, reads: true}},
		{"a command that works", "icanon echo\ngroup 7\nprocess 7 R running\n", terminalState{canonical: true, echo: true, group: 7}},
		{"a command that sleeps", "icanon echo\ngroup 7\nprocess 7 S 230 0x0 0x0\n", terminalState{canonical: true, echo: true, group: 7}},
		{"a read from elsewhere", "icanon echo\ngroup 7\nprocess 7 S 0 0x3\n", terminalState{canonical: true, echo: true, group: 7}},
		{"arm64", "icanon echo\ngroup 7\nprocess 7 S 63 0x0\n", terminalState{canonical: true, echo: true, group: 7, reads: true}},
		{"nothing known", "", terminalState{canonical: true, echo: true}},
	} {
		if got := parseTerminal(tt.in); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestUnpercent(t *testing.T) {
	for in, want := range map[string]string{"/a": "/a", "/a%0ab": "/a\nb", "%25": "%", "%": "%", "%2": "%2", "%zz": "%zz"} {
		if got := percentDecode(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestParseSessions(t *testing.T) {
	got := parseSessions("S|$1|1700000000|a=b+c&d=%7C|x|y\nC|$1|1\nC|$1|0\nP|$1|%3|1|80|24|k=v|bash|/a|b\nP|$9|%4|0|80|24||sh|/\nnoise\n")
	if len(got) != 1 || got[0].Name != "x|y" || got[0].Tags["a"] != "b c" || got[0].Tags["d"] != "|" || got[0].Attached != 1 || len(got[0].Panes) != 1 {
		t.Fatalf("%+v", got)
	}
	if p := got[0].Panes[0]; p.ID != "%3" || !p.Dead || p.Dir != "/a|b" || p.Tags["k"] != "v" || p.Session != "x|y" {
		t.Errorf("%+v", p)
	}
}

func TestWhatTheBotTypedIsNoPersons(t *testing.T) {
	done := func(texts ...string) (list []Done) {
		for _, text := range texts {
			list = append(list, Done{Text: text})
		}
		return list
	}
	for _, tt := range []struct{ past, own, want []string }{
		{[]string{"top"}, []string{"top"}, nil},
		{[]string{"cd /srv", "top", "df"}, []string{"cd /srv", "top "}, []string{"df"}},
		{[]string{"top", "top"}, []string{"top"}, []string{"top"}},
		{[]string{"df"}, nil, []string{"df"}},
		{[]string{"b", "a"}, []string{"a", "b"}, []string{"a"}},
	} {
		var h history
		for _, text := range tt.own {
			h.typed(text)
		}
		if got := without(done(tt.past...), h.own); !slices.Equal(got, done(tt.want...)) {
			t.Errorf("of %q without %q stays %v", tt.past, tt.own, got)
		}
	}
}

func TestOnlyTheNumberOfOneProcessIsKilled(t *testing.T) {
	for s, want := range map[string]bool{"77": true, "2": true, "1": false, "0": false, "-1": false, "-77": false, "+77": false, "077": false, "": false, "7 7": false} {
		if isPID(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
