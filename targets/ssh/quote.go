package ssh

import (
	"errors"
	"fmt"
	"strings"
)

// lineMax is the longest command line that sshd can hand to a login shell: it is
// one argument, and Linux bounds one argument by 128 KiB with its NUL
// (MAX_ARG_STRLEN, execve(2)).
const lineMax = 128<<10 - 1

// commandLine makes one line for the user's login shell that runs argv in the
// shell's own place, so that the program keeps the process group that sshd made.
// It holds nothing that bash, dash, zsh and fish read differently: pieces in single
// quotes, and for the two characters that fish treats specially there ("\" and "'")
// pieces in double quotes. With plain, it is also what tcsh reads so: one word of plain
// characters, of which sh makes the line.
func commandLine(argv []string, plain bool) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("ssh: the command is empty; give a program")
	}
	var b strings.Builder
	b.WriteString("exec")
	for _, a := range argv {
		if strings.ContainsRune(a, 0) {
			return "", errors.New("ssh: an argument holds a NUL byte, which no program can be given; remove it")
		}
		b.WriteByte(' ')
		quote(&b, a)
	}
	if plain {
		line := b.String()
		b.Reset()
		b.WriteString(`exec /bin/sh -c 'eval "$(printf %b "$0")"' '`)
		for _, c := range []byte(line) {
			if c < ' ' || c > '~' || strings.IndexByte(`\'!`, c) >= 0 {
				fmt.Fprintf(&b, `\0%03o`, c)
			} else {
				b.WriteByte(c)
			}
		}
		b.WriteByte('\'')
	}
	if b.Len() > lineMax {
		return "", fmt.Errorf("ssh: the command is %d bytes long with its quotes, and a login shell takes %d; put it into a file", b.Len(), lineMax)
	}
	return b.String(), nil
}

// quote writes one word.
func quote(b *strings.Builder, word string) {
	if word == "" {
		b.WriteString("''")
		return
	}
	for word != "" {
		n := strings.IndexAny(word, `\'`)
		if n == 0 {
			run := len(word) - len(strings.TrimLeft(word, word[:1]))
			b.WriteByte('"')
			if word[0] == '\\' {
				b.WriteString(strings.Repeat(`\\`, run))
			} else {
				b.WriteString(word[:run])
			}
			b.WriteByte('"')
			word = word[run:]
			continue
		}
		if n < 0 {
			n = len(word)
		}
		b.WriteByte('\'')
		b.WriteString(word[:n])
		b.WriteByte('\'')
		word = word[n:]
	}
}
