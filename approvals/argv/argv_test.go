package argv

import (
	"fmt"
	"strings"
	"testing"
)

func (c Command) String() string {
	var b strings.Builder
	for i, w := range c.Argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("[" + w.Text + "]")
		if w.Glob {
			b.WriteByte('*')
		}
	}
	return fmt.Sprintf("%s literal=%v alone=%v empties=%d", b.String(), c.Literal, c.Alone, len(c.Truncates))
}

func TestASimpleCommandIsReadToItsWords(t *testing.T) {
	for text, want := range map[string]string{
		`rm -f 'a b' "c" d\ e`:   "[rm] [-f] [a b] [c] [d e] literal=true alone=true empties=0",
		"rm *.log":               "[rm] [*.log]* literal=true alone=true empties=0",
		"rm x >/dev/null 2>&1":   "[rm] [x] literal=true alone=true empties=1",
		"ls > out":               "[ls] literal=true alone=false empties=1",
		"ls >> out":              "[ls] literal=true alone=false empties=0",
		"cat < in":               "[cat] literal=true alone=false empties=0",
		"sleep 9 &":              "[sleep] [9] literal=true alone=false empties=0",
		"! rm x":                 "[rm] [x] literal=true alone=false empties=0",
		"A=1 rm x":               "[rm] [x] literal=false alone=true empties=0",
		"rm $x":                  "[rm] literal=false alone=true empties=0",
		"rm {a,b}":               "[rm] literal=false alone=true empties=0",
		"rm x 2>&3":              "[rm] [x] literal=true alone=false empties=0",
		"rm x\n":                 "[rm] [x] literal=true alone=true empties=0",
		"rm ~/x":                 "[rm] [~/x] literal=true alone=true empties=0",
		"rm \"$(id)\"":           "[rm] literal=false alone=true empties=0",
		"rm x </dev/null":        "[rm] [x] literal=true alone=true empties=0",
		"rm x 2>/dev/null 1>&2 ": "[rm] [x] literal=true alone=true empties=1",
	} {
		c, ok := Parse(text)
		if got := c.String(); !ok || got != want {
			t.Errorf("%q: %v %s", text, ok, got)
		}
	}
	for _, text := range []string{"a; b", "a | b", "a && b", "(a)", "if a; then b; fi", "rm \u00e9", "rm \x1b", "", "'", "f() { a; }", "a |& b"} {
		if c, ok := Parse(text); ok {
			t.Errorf("%q is one simple command: %s", text, c)
		}
	}
}

func TestAListIsReadToItsCommands(t *testing.T) {
	for text, want := range map[string]string{
		"cd /x && rm a":     "cd rm",
		"a; b\nc && d && e": "a b c d e",
		"a":                 "a",
	} {
		cmds, ok := ParseList(text)
		var names []string
		for _, c := range cmds {
			names = append(names, c.Argv[0].Text)
		}
		if got := strings.Join(names, " "); !ok || got != want {
			t.Errorf("%q: %v %q", text, ok, got)
		}
	}
	for _, text := range []string{"a || b", "a | b", "{ a; }", "a && (b)", "", "# only a comment"} {
		if cmds, ok := ParseList(text); ok {
			t.Errorf("%q is a list: %v", text, cmds)
		}
	}
}

func TestProgramsThatOnlyRunTheRestAreRemoved(t *testing.T) {
	for text, want := range map[string]string{
		"sudo rm x":                    "rm as root",
		"sudo -u www rm x":             "rm as www",
		"sudo timeout -s 9 5 nice rm":  "rm as root",
		"nohup /usr/bin/rm x":          "/usr/bin/rm as ",
		"sudo --login rm":              "refused",
		"sudo A=1 rm":                  "refused",
		"sudo":                         "refused",
		"sudo sudo sudo sudo sudo rm ": "refused",
	} {
		c, _ := Parse(text)
		got := "refused"
		if rest, as, ok := Unwrap(c.Argv); ok {
			got = rest[0].Text + " as " + as
		}
		if got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestAnOptionThatIsNotInTheTableIsRefused(t *testing.T) {
	for _, c := range []struct{ table, text, want string }{
		{"-rf --force", "x -rf a --force b", "a b"},
		{"-rf --force", "x -v a", "refused"},
		{"-n: --name:", "x -n 5 --name=y a", "a"},
		{"-n: --name:", "x -n", "refused"},
		{"-f", "x -- -f", "-f"},
		{"!first -n", "x -n a -v", "a -v"},
		{"!go -json", "x -json a", "a"},
		{"!cobra -n:", "x -n=prod a", "a"},
		{"!raw", "x -z a", "-z a"},
		{"-f", "x -*", "refused"},
	} {
		cmd, _ := Parse(c.text)
		got := "refused"
		if a, ok := ParseArgs(c.table, cmd.Argv[1:]); ok {
			got = strings.Join(a.Texts(0), " ")
		}
		if got != c.want {
			t.Errorf("%s by %q: %s", c.text, c.table, got)
		}
	}
}

// FuzzParse: no text makes the reader panic, and a list of one command is that command.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"rm -rf 'a b'", "a && b; c", "x > y 2>&1", "sudo -u a b", "\"$x\"", "a\\\nb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, ok := Parse(text)
		list, okList := ParseList(text)
		if ok && (!okList || len(list) != 1 || list[0].String() != one.String()) {
			t.Errorf("%q: %s, as a list %v", text, one, list)
		}
	})
}
