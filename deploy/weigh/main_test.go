package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestADependencyWeighsWhatItAloneBringsIn(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for i, text := range []string{
		`[{"Mode":"build","Package":"fmt","CmdUser":1000000000},{"Mode":"build","Package":"a.com/x","CmdUser":2000000000,"CmdSys":500000000},{"Mode":"build","Package":"a.com/y","CmdUser":3000000000},
		{"Mode":"build","Package":"b.com/z","CmdUser":4000000000},{"Mode":"build","Package":"own/bot","CmdUser":100000000},{"Mode":"link","Package":"own/bot","CmdUser":5000000000}]`,
		`{"ImportPath":"fmt"}
		{"ImportPath":"a.com/y","Module":{"Path":"a.com/y","Indirect":true}}
		{"ImportPath":"b.com/z","Module":{"Path":"b.com/z"},"Imports":["fmt"]}
		{"ImportPath":"a.com/x","Module":{"Path":"a.com/x"},"Imports":["a.com/y","b.com/z"]}
		{"ImportPath":"own/bot","Module":{"Path":"own","Main":true},"Imports":["a.com/x","b.com/z","fmt"]}`,
		" 401000 2000 T a.com/x.(*T).M\n 402000 3000 D a.com/y.table\n 403000 9000 B a.com/y.zero\n 404000 1000 T b.com/z.F[go.shape.int]\n nothing\n 405000 33554432 D fmt.big\n",
	} {
		name := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatal(err)
	}
	want := `15.6 s in all, 5.0 s of them for linking

| by it alone | s | KB |
|---|---|---|
| a.com/x | 5.5 | 5 |
| b.com/z | 4.0 | 1 |
| the standard library | 1.0 | 0 |
| our own packages | 0.1 | 0 |
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	if run(args[:2], &out) == nil || run([]string{args[0], args[1], "/nowhere"}, &out) == nil || run([]string{args[1], args[1], args[2]}, &out) == nil {
		t.Error("what is missing is no error")
	}
}
