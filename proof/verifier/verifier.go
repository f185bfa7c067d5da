// Package verifier checks the archive of an incident without a store, a network or the bot, and
// without the bot's code: the chain of decisions, that what ran is what was decided, what people's
// devices signed, and what witnesses signed of the record. It shares with the bot the check of a
// passkey's signature and the form of a checkpoint, and nothing else.
package verifier

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"countersign/proof/witness/cosign"
)

// maxAll is how much of an archive is checked, in bytes: the bot makes none with more than 50 MB.
const maxAll = 64 << 20

// Kind says what a finding is.
type Kind int

// The kinds of findings: it is right, it is wrong, it can't be checked here, and nothing was checked.
const (
	Good Kind = iota
	Bad
	Open
	Note
)

// Finding is one thing that was looked at.
type Finding struct {
	Kind
	Say string
}

// Trust is what somebody who verifies knows by themselves. The zero Trust takes the passkeys that the
// archive has, and checks the signature of no witness.
type Trust struct {
	// Keys are the digests of the only passkeys that count, or their first 20 digits or more, by
	// their owners.
	Keys map[string][]string
	// Witnesses must each have signed the record.
	Witnesses []note.Verifier
	// Log are the keys of which one must have signed the checkpoints and the statements about changes;
	// nil checks none.
	Log []cosign.LogKey
	// Checkpoints are those that somebody has kept, by their names.
	Checkpoints map[string][]byte
}

// Archive checks an archive. The error says that r is no archive of an incident.
func Archive(r io.ReaderAt, size int64, trust Trust) ([]Finding, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("this is no zip file (%w); give one that countersign export wrote", err)
	}
	v := &verifier{trust: trust, files: map[string][]byte{}, deeds: map[string]*deed{}}
	if err := cmp.Or(plain(r, size, z), v.unpack(z)); err != nil {
		return nil, err
	}
	chain, ok := v.files["audit.jsonl"]
	requests, ok2 := v.files["approvals.jsonl"]
	switch {
	case !ok && !ok2:
		return nil, errors.New("this zip file has neither audit.jsonl nor approvals.jsonl, so it is no record of an incident")
	case !ok:
		v.say(Bad, "The chain of decisions (audit.jsonl) is missing, so nothing shows that this is what the bot wrote down.")
	default:
		v.chain(chain)
		v.checkpoints()
	}
	v.requests(requests)
	v.statements()
	if n := len(z.File) - len(v.files); n > 0 {
		v.say(Note, "%s of the archive, such as timeline and outputs, can't be checked.", plural(n, "other file"))
	}
	return v.found, nil
}

// safe is the name of a file that the bot puts into an archive. Systems that know no capitals or dots at the end
// have no other file, and no directory, of that name.
var safe = regexp.MustCompile(`^([a-z]+/)?[A-Za-z0-9_-][A-Za-z0-9._-]*\.[A-Za-z0-9_-]+$`)

// unpack reads what is checked. It refuses names that mean two things or lead elsewhere, links, and too much.
func (v *verifier) unpack(z *zip.Reader) error {
	names, left := map[string]bool{}, uint64(maxAll)
	for _, f := range z.File {
		name, dir := strings.ToLower(f.Name), path.Dir(f.Name)
		if names[name] || !safe.MatchString(f.Name) || !f.Mode().IsRegular() {
			return fmt.Errorf("%q is in the archive twice, is no file, or has a name that the bot gives to none", f.Name)
		}
		if names[name] = true; f.Name != "audit.jsonl" && f.Name != "approvals.jsonl" && dir != "checkpoints" && dir != "statements" {
			continue
		}
		if f.UncompressedSize64 > left {
			return fmt.Errorf("what is to be checked has more than %d MB", maxAll>>20)
		}
		left -= f.UncompressedSize64
		raw, err := fs.ReadFile(z, f.Name) // which has no more bytes than it says
		if err != nil {
			return fmt.Errorf("%s can't be unpacked (%w)", f.Name, err)
		}
		v.files[f.Name] = raw
	}
	return nil
}

// plain refuses an archive that programs unpack in different ways: it must be, to the byte, what is written from the
// directory that was read. So nothing is before it, between its files or behind it, and each file has one header.
func plain(r io.ReaderAt, size int64, z *zip.Reader) error {
	rest := &same{bufio.NewReader(io.NewSectionReader(r, 0, size))}
	w := zip.NewWriter(rest)
	for _, f := range z.File {
		h := f.FileHeader
		if h.Flags&^0x808 != 0 || h.Comment != "" || len(h.Extra) > 0 && (len(h.Extra) != 9 || string(h.Extra[:2]) != "UT") {
			return errPlain // encrypted, or with another name in it
		}
		out, err := w.CreateRaw(&h)
		if err != nil {
			return errPlain
		}
		raw, err := f.OpenRaw()
		if err == nil {
			_, err = io.Copy(out, raw)
		}
		if err != nil {
			return errPlain
		}
	}
	if w.Close() != nil {
		return errPlain
	}
	if _, err := rest.ReadByte(); err == nil {
		return errPlain
	}
	return nil
}

var errPlain = errors.New("programs would unpack this zip file in different ways; give it as countersign export wrote it")

// same takes what is written if that is what comes next.
type same struct{ *bufio.Reader }

func (s *same) Write(b []byte) (int, error) {
	next := make([]byte, len(b))
	if _, err := io.ReadFull(s.Reader, next); err != nil || !bytes.Equal(next, b) {
		return 0, errPlain
	}
	return len(b), nil
}

// below are the names of the files in a directory.
func (v *verifier) below(dir string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v.files)), func(name string) bool { return path.Dir(name) != dir })
}

type verifier struct {
	trust   Trust
	files   map[string][]byte // what is checked, by name
	anchors [][]byte          // the records of the anchors, in order
	heads   []row             // of the thread's chain, which the anchors cover
	lines   int               // of the thread's chain
	deeds   map[string]*deed  // what the chain says, by request
	signed  bool              // a passkey signed a vote
	found   []Finding
}

func (v *verifier) say(k Kind, format string, a ...any) {
	v.found = append(v.found, Finding{k, fmt.Sprintf(format, a...)})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable is foreign text without what a terminal obeys.
func printable(s string) string {
	s = strconv.QuoteToASCII(s)
	return s[1 : len(s)-1]
}
