package files_test

import (
	"fmt"
	"strings"
	"testing"

	"countersign/tools/toolstest"
)

func TestWhatIsNoTextIsSaid(t *testing.T) {
	target := fake()
	for name, b := range map[string]string{
		"/f/binary": "ELF\x00\x01\x02", "/f/latin": "caf\xe9\nna\xefve\n", "/f/le": "\xff\xfeh\x00", "/f/be": "\xfe\xff\x00h", "/f/one": "a\xff", "/f/good": "caf\u00e9\n",
		"/f/long": "x" + strings.Repeat("\u00e9", 50000),
	} {
		target.Put(name, b)
	}
	reg := registry(t, config(target))
	for _, tool := range []string{"read", "read_file"} {
		for name, want := range map[string]string{
			"binary": "is a binary file of 6 bytes; look at it with run_shell",
			"latin":  "[2 bytes are not UTF-8 and shown as U+FFFD",
			"one":    "[1 byte is not UTF-8",
			"le":     `looks like UTF-16; read it with read_file and "encoding": "utf-16le"`,
			"be":     `"encoding": "utf-16be"`,
			"good":   "", "long": "",
		} {
			out := toolstest.Run(t.Context(), t, reg, tool, `{"path":"/f/`+name+`"}`)
			got := fmt.Sprint(out.Result.Value, out.Err)
			if !strings.Contains(got, want) || want == "" && (strings.Contains(got, "UTF") || strings.Contains(got, "\ufffd")) {
				t.Errorf("%s %s: %.300s", tool, name, got)
			}
		}
	}
	out := toolstest.Run(t.Context(), t, reg, "read_file", `{"path":"/f/latin","encoding":"latin-1"}`)
	if out.Result.Value != "caf\u00e9\nna\u00efve\n" {
		t.Errorf("%v", out.Result.Value)
	}
}

func has(target *toolstest.Target) string {
	b, _ := target.Content("/f")
	return b
}

func TestChangesKeepLineEndings(t *testing.T) {
	for _, tt := range []struct{ rule, was, old, text, want, err string }{
		{"a CRLF file", "a\r\nb\r\nc\r\n", "a\nb\n", "A\nB\nB\n", "A\r\nB\r\nB\r\nc\r\n", ""},
		{"new lines in it", "a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n", ""},
		{"given as they are", "a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n", ""},
		{"an LF file", "a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n", ""},
		{"mixed, exactly", "a\r\nb\nc\n", "a\r\nb", "x\r\nb", "x\r\nb\nc\n", ""},
		{"mixed, otherwise", "a\r\nb\nc\n", "a\nb", "x", "", "in its line endings only, which are mixed there"},
		{"not there", "a\r\nb\r\n", "nowhere\n", "x", "", "old_text is not in"},
		{"a foreign encoding", "caf\xe9\nx\n", "x", "y", "caf\xe9\ny\n", ""},
		{"letters in it", "caf\xe9\nx\n", "x", "\u00e9", "", "is not UTF-8, and the new text has letters"},
		{"letters of it", "caf\xe9\nx\n", "caf\u00e9", "y", "", "old_text is not in /f, which is not UTF-8"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			target := fake()
			target.Put("/f", tt.was)
			reg := registry(t, config(target))
			a := args(t, map[string]string{"path": "/f", "old_text": tt.old, "new_text": tt.text})
			if tt.err != "" {
				if _, err := plan(t, reg, "edit", a); err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Error(err)
				}
				return
			}
			if out := toolstest.Run(t.Context(), t, reg, "edit", a); out.Err != nil || has(target) != tt.want {
				t.Errorf("%v: %q", out.Err, has(target))
			}
		})
	}
	for form, patch := range map[string]string{
		"a unified diff": "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n a\n-b\n+B\n+C\n",
		"an envelope":    "*** Begin Patch\n*** Update File: /f\n@@\n a\n-b\n+B\n+C\n*** End Patch\n",
	} {
		target := fake()
		target.Put("/f", "a\r\nb\r\nc\r\n")
		reg := registry(t, config(target))
		out := toolstest.Run(t.Context(), t, reg, "apply_patch", args(t, map[string]string{"path": "/", "patch": patch}))
		if out.Err != nil || has(target) != "a\r\nB\r\nC\r\nc\r\n" {
			t.Errorf("%s: %v: %q", form, out.Err, has(target))
		}
		target.Put("/f", "a\nb\n\xe9\n")
		if _, err := plan(t, reg, "apply_patch", args(t, map[string]string{"path": "/", "patch": strings.ReplaceAll(patch, "+C", "+\u00e9")})); err == nil || !strings.Contains(err.Error(), "is not UTF-8") {
			t.Errorf("%s: %v", form, err)
		}
	}
}
