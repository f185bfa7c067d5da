package files

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"countersign/tools"
)

// sniffed is how much of a file decides whether it is text.
const sniffed = 8000

// readable refuses what is no text, which nobody could read as such.
func readable(name string, b []byte, size int64) error {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		return tools.Failed(`%s looks like UTF-16; read it with read_file and "encoding": "utf-16le"`, name)
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		return tools.Failed(`%s looks like UTF-16; read it with read_file and "encoding": "utf-16be"`, name)
	case bytes.IndexByte(b[:min(len(b), sniffed)], 0) >= 0:
		return tools.Failed("%s is a binary file of %s; look at it with run_shell, for example with file or xxd", name, plural(int(size)))
	}
	return nil
}

// replaced is a note about bytes of what is shown that are no UTF-8; "" where all are.
func replaced(b []byte) string {
	n := 0
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		b = b[size:]
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("\n[%s not UTF-8 and shown as U+FFFD; if the file has another encoding, read it with read_file and \"encoding\": \"latin-1\", for example]", are(n))
}

func are(n int) string {
	if n == 1 {
		return "1 byte is"
	}
	return fmt.Sprintf("%d bytes are", n)
}

// whole is b without a character at its end that was cut.
func whole(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		if end := b[len(b)-i:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// foreign refuses to put letters into a file that has another encoding than they have.
func foreign(name string, old []byte, added string) error {
	if utf8.Valid(old) {
		return nil
	}
	for _, r := range added {
		if r >= utf8.RuneSelf {
			return tools.Failed("%s is not UTF-8, and the new text has letters that are written differently there; change it with run_shell and iconv", name)
		}
	}
	return nil
}

// endings are the line endings of a file: "\r\n" where all are, "\n" where none is, and ""
// where they are mixed or there are none.
func endings(b []byte) string {
	switch all, both := bytes.Count(b, []byte("\n")), bytes.Count(b, []byte("\r\n")); {
	case all == 0:
		return ""
	case all == both:
		return "\r\n"
	case both == 0:
		return "\n"
	}
	return ""
}

// ended gives a text the line endings of a file; "" leaves it as it is.
func ended(text, endings string) string {
	if endings == "" {
		return text
	}
	b := bytes.ReplaceAll([]byte(text), []byte("\r\n"), []byte("\n"))
	return string(bytes.ReplaceAll(b, []byte("\n"), []byte(endings)))
}

// endHunks gives the lines of a patch the line endings of a file.
func endHunks(f *gitdiff.File, endings string) {
	for _, h := range f.TextFragments {
		for i := range h.Lines {
			h.Lines[i].Line = ended(h.Lines[i].Line, endings)
		}
	}
}

// added is what a patch puts into a file.
func added(f *gitdiff.File) string {
	var b bytes.Buffer
	for _, h := range f.TextFragments {
		for _, l := range h.Lines {
			if l.Op == gitdiff.OpAdd {
				b.WriteString(l.Line)
			}
		}
	}
	return b.String()
}
