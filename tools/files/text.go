package files

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"countersign/tools"
)

// sniffBytes is how much of a file is examined to decide whether it is text.
const sniffBytes = 8000

// checkText returns an error for content that is not text.
func checkText(name string, b []byte, size int64) error {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		return tools.Failed(`%s looks like UTF-16; read it with read_file and "encoding": "utf-16le"`, name)
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		return tools.Failed(`%s looks like UTF-16; read it with read_file and "encoding": "utf-16be"`, name)
	case bytes.IndexByte(b[:min(len(b), sniffBytes)], 0) >= 0:
		return tools.Failed("%s is a binary file of %s; look at it with run_shell, for example with file or xxd", name, plural(int(size)))
	}
	return nil
}

// invalidBytesNote returns a note about bytes in b that are not UTF-8; "" if there are none.
func invalidBytesNote(b []byte) string {
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
	return fmt.Sprintf("\n[%s not UTF-8 and shown as U+FFFD; if the file has another encoding, read it with read_file and \"encoding\": "+
		"\"latin-1\", for example]", bytesAre(n))
}

func bytesAre(n int) string {
	if n == 1 {
		return "1 byte is"
	}
	return fmt.Sprintf("%d bytes are", n)
}

// trimPartialRune removes a rune at the end of b that was cut off.
func trimPartialRune(b []byte) []byte {
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

// checkEncoding returns an error if the added text would not match the file's encoding.
func checkEncoding(name string, old []byte, added string) error {
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

// lineEnding returns the line ending of a file: "\r\n" if all lines have it, "\n" if none does, ""
// if they are mixed or there are none.
func lineEnding(b []byte) string {
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

// withLineEnding converts a text to a file's line ending; "" leaves it unchanged.
func withLineEnding(text, endings string) string {
	if endings == "" {
		return text
	}
	b := bytes.ReplaceAll([]byte(text), []byte("\r\n"), []byte("\n"))
	return string(bytes.ReplaceAll(b, []byte("\n"), []byte(endings)))
}

// setLineEnding converts the lines of a patch to a file's line ending.
func setLineEnding(f *gitdiff.File, endings string) {
	for _, h := range f.TextFragments {
		for i := range h.Lines {
			h.Lines[i].Line = withLineEnding(h.Lines[i].Line, endings)
		}
	}
}

// addedText returns the text that a patch adds.
func addedText(f *gitdiff.File) string {
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
