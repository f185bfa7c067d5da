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
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"countersign/witness/cosign"
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
	if err := cmp.Or(entries(z), plain(r, size, z)); err != nil {
		return nil, err
	}
	v := &verifier{trust: trust, deeds: map[string]*deed{}}
	chain, err := file(z, "audit.jsonl")
	if err != nil {
		return nil, err
	}
	switch {
	case chain == nil && !slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == "approvals.jsonl" }):
		return nil, errors.New("this zip file has neither audit.jsonl nor approvals.jsonl, so it is no record of an incident")
	case chain == nil:
		v.say(Bad, "The chain of decisions (audit.jsonl) is missing, so nothing shows that this is what the bot wrote down.")
	default:
		v.chain(chain)
		if err := v.checkpoints(z); err != nil {
			return nil, err
		}
	}
	requests, err := file(z, "approvals.jsonl")
	if err != nil {
		return nil, err
	}
	if err := v.requests(requests); err != nil {
		return nil, err
	}
	if n := len(slices.DeleteFunc(slices.Clone(z.File), func(f *zip.File) bool { return read(f.Name) })); n > 0 {
		v.say(Note, "%s of the archive, such as timeline and outputs: nothing shows who wrote that.", plural(n, "other file"))
	}
	return v.found, v.statements(z)
}

// file is a file of the archive, nil where it is not. It has no more bytes than it says.
func file(z *zip.Reader, name string) ([]byte, error) {
	raw, err := fs.ReadFile(z, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s can't be unpacked (%w)", name, err)
	}
	return raw, nil
}

// read reports whether a file is checked at all.
func read(name string) bool {
	dir := path.Dir(name)
	return name == "audit.jsonl" || name == "approvals.jsonl" || dir == "checkpoints" || dir == "statements"
}

// safe is the name of a file that the bot puts into an archive. Systems that know no capitals or dots at the end
// have no other file, and no directory, of that name.
var safe = regexp.MustCompile(`^([a-z]+/)?[A-Za-z0-9_-][A-Za-z0-9._-]*\.[A-Za-z0-9_-]+$`)

// entries refuses names that mean two things or lead elsewhere, links, and more than is read.
func entries(z *zip.Reader) error {
	names, left := map[string]bool{}, uint64(maxAll)
	for _, f := range z.File {
		name := strings.ToLower(f.Name)
		if names[name] || !safe.MatchString(f.Name) || !f.Mode().IsRegular() {
			return fmt.Errorf("%q is in the archive twice, is no file, or has a name that the bot gives to none", f.Name)
		}
		names[name] = true
		if read(f.Name) {
			if f.UncompressedSize64 > left {
				return fmt.Errorf("what is to be checked has more than %d MB", maxAll>>20)
			}
			left -= f.UncompressedSize64
		}
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

func below(z *zip.Reader, dir string) []string {
	names, _ := fs.Glob(z, dir+"/*") // its only error is a pattern's
	return names
}

type verifier struct {
	trust   Trust
	anchors [][]byte         // the records of the anchors, in order
	heads   []row            // of the thread's chain, which the anchors cover
	lines   int              // of the thread's chain
	deeds   map[string]*deed // what the chain says, by request
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
