package files_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/targets/local"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

// TestFileToolsOnRealFiles plays each rule on this machine's files. Q-02.
func TestFileToolsOnRealFiles(t *testing.T) {
	for _, tt := range []struct {
		rule, before, tool, args string
		err                      string // part of it; "" means that it works
		says                     string
		after                    string // shell text that must succeed
	}{
		{"N-20 edit replaces exactly the text", "printf 'a b\\n  c\\n' > f", "edit", `{"path":"f","old_text":"b\n  c","new_text":"B\n\tC"}`, "", "Edited", `[ "$(cat f)" = "$(printf 'a B\n\tC')" ]`},
		{"edit may remove", "printf 'abc' > f", "edit", `{"path":"f","old_text":"b","new_text":""}`, "", "", `[ "$(cat f)" = ac ]`},
		{"edit keeps the mode", "printf x > f; chmod 750 f", "edit", `{"path":"f","old_text":"x","new_text":"y"}`, "", "", `[ "$(stat -c %a f)" = 750 ]`},
		{"N-21 edit of no file", "", "edit", `{"path":"f","old_text":"x","new_text":"y"}`, "does not exist", "", "true"},
		{"N-22 edit of what is not there", "echo a > f", "edit", `{"path":"f","old_text":"x","new_text":"y"}`, "is not in f", "", "[ $(cat f) = a ]"},
		{"N-23 edit of what is there twice", "echo aa > f", "edit", `{"path":"f","old_text":"a","new_text":"y"}`, "2 times", "", "[ $(cat f) = aa ]"},
		{"edit that changes nothing", "echo a > f", "edit", `{"path":"f","old_text":"a","new_text":"a"}`, "nothing would change", "", "true"},
		{"N-24 write makes directories", "", "write", `{"path":"x/y/f","content":"new"}`, "", "Wrote 3 bytes", "[ $(cat x/y/f) = new ]"},
		{"N-24 write overwrites", "echo old > f", "write", `{"path":"f","content":"new"}`, "", "Wrote 3 bytes", "[ $(cat f) = new ]"},
		{"write_file makes none", "", "write_file", `{"path":"x/f","content":"new"}`, "does not exist", "", "[ ! -e x ]"},
		{"Q-02 create_file makes a file", "", "create_file", `{"path":"f","content":"new"}`, "", "Wrote 3 bytes", "[ $(cat f) = new ]"},
		{"Q-02 create_file refuses an existing file", "echo old > f", "create_file", `{"path":"f","content":"new"}`, "exists already", "", "[ $(cat f) = old ]"},
		{"delete_file removes", "echo old > f", "delete_file", `{"path":"f"}`, "", "Deleted", "[ ! -e f ]"},
		{"delete_file of nothing", "", "delete_file", `{"path":"f"}`, "nothing to delete", "", "true"},
		{"delete_file of a directory", "mkdir f", "delete_file", `{"path":"f"}`, "is a directory", "", "[ -d f ]"},
		{"delete_file through a link removes the file that was shown", "echo x > g; ln -s g f", "delete_file", `{"path":"f"}`, "", "Deleted", "[ ! -e g ]"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "cd "+dir+"; "+tt.before)
			reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
			p, err := plan(t, reg, tt.tool, tt.args)
			var out toolstest.Outcome
			if err == nil {
				out = toolstest.RunPlan(t.Context(), t, reg, p)
				err = out.Err
			}
			switch {
			case tt.err == "" && (err != nil || !strings.Contains(out.Text, tt.says)):
				t.Errorf("%v: %s", err, out.Text)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%v, want %q", err, tt.err)
			}
			sh(t, "cd "+dir+" && "+tt.after)
		})
	}
}

// TestAChangeHoldsForWhatWasShown: what changed between plan and run is left alone.
func TestAChangeHoldsForWhatWasShown(t *testing.T) {
	for _, tt := range []struct{ tool, args, attack string }{
		{"edit", `{"path":"d/f","old_text":"shown","new_text":"x"}`, "echo shown and more > d/f"},
		{"edit", `{"path":"d/f","old_text":"shown","new_text":"x"}`, "mv d e; cp -r e d"},
		{"delete_file", `{"path":"d/f"}`, "echo other > d/f"},
		{"delete_file", `{"path":"d/f"}`, "mv d/f g; ln -s ../g d/f"},
		{"create_file", `{"path":"d/new","content":"x"}`, "echo mine > d/new"},
		{"write", `{"path":"d/new/f","content":"x"}`, "mkdir d/new; echo mine > d/new/f"},
	} {
		t.Run(tt.tool+" after "+tt.attack, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "mkdir "+dir+"/d; echo shown > "+dir+"/d/f")
			reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
			p, err := plan(t, reg, tt.tool, tt.args)
			if err != nil {
				t.Fatal(err)
			}
			sh(t, "cd "+dir+" && "+tt.attack)
			before := sh(t, "cd "+dir+"; find . -type f -exec md5sum {} + | sort")
			out := toolstest.RunPlan(t.Context(), t, reg, p)
			if after := sh(t, "cd "+dir+"; find . -type f -exec md5sum {} + | sort"); out.Err == nil || before != after {
				t.Errorf("%s\n%s\n%s", out.Text, before, after)
			}
		})
	}
}

func TestAnEditOfALargeFileIsShownAsItsPlace(t *testing.T) {
	dir := scratch(t)
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	p, err := plan(t, reg, "edit", `{"path":"f","old_text":"line 15000\n","new_text":"changed\n"}`)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Action; !a.Whole || !strings.Contains(a.Preview, "at line 15001") || !strings.Contains(a.Preview, "-line 15000\n+changed") || len(a.Preview) > 400 {
		t.Errorf("%v %q", a.Whole, a.Preview)
	}
}

// TestReadReturnsPages: N-09 to N-12.
func TestReadReturnsPages(t *testing.T) {
	dir := scratch(t)
	sh(t, "cd "+dir+"; seq 1 3000 > many; for i in 0 1 2 3 4 5 6 7 8 9; do head -c 6000 /dev/zero | tr '\\0' a; echo; done > wide; head -c 70000 /dev/zero | tr '\\0' b > one; : > empty; printf 'a\\nb' > two")
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	read := func(args string) string {
		t.Helper()
		out := toolstest.Run(t.Context(), t, reg, "read", args)
		return out.Text
	}
	for _, tt := range []struct{ rule, args, want string }{
		{"N-10 offset 1 is the first line", `{"path":"many","offset":1,"limit":2}`, "1\\n2\\n[Output truncated after 2 lines: lines 1 to 2 of 3000, the file has 13893 bytes; go on with offset 3]"},
		{"N-11 limit lines from an offset", `{"path":"many","offset":2999,"limit":5}`, "2999\\n3000\\n"},
		{"N-12 2000 lines at most", `{"path":"many"}`, "lines 1 to 2000 of 3000"},
		{"N-12 50 KB at most", `{"path":"wide"}`, "truncated at 50KB: lines 1 to 8 of 10"},
		{"a line that is longer than a page", `{"path":"one"}`, "inside line 1 of 1, which has 70000 bytes"},
		{"an empty file", `{"path":"empty"}`, `"result":""`},
		{"no newline at the end", `{"path":"two","offset":2}`, `"result":"b"`},
		{"past the end", `{"path":"two","offset":9}`, "there is no line 9; the file has 2"},
		{"N-09 an absolute path", `{"path":"` + dir + `/two"}`, `a\nb`},
		{"a directory", `{"path":"."}`, "is a directory"},
	} {
		if got := read(tt.args); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %.300s", tt.rule, got)
		}
	}
}
