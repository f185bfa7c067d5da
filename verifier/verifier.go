// Package verifier checks the archive of an incident without a store, a network or the bot, and
// without the bot's code: the chain of decisions, that what ran is what was decided, what people's
// devices signed, and what witnesses signed of the record. It shares with the bot the check of a
// passkey's signature and the form of a checkpoint, and nothing else.
package verifier

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

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
	if err := entries(z); err != nil {
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

// entries refuses an archive that programs unpack in different ways, or that is larger than it looks.
func entries(z *zip.Reader) error {
	names, end, left := map[string]bool{}, int64(0), uint64(maxAll)
	at := func(f *zip.File) int64 {
		n, _ := f.DataOffset() // 0 if nobody can say
		return n
	}
	all := slices.SortedFunc(slices.Values(z.File), func(a, b *zip.File) int { return cmp.Compare(at(a), at(b)) })
	for _, f := range all {
		name, dir := strings.ToLower(f.Name), path.Dir(f.Name)
		if names[name] || path.Clean("/"+f.Name) != "/"+strings.TrimSuffix(f.Name, "/") || strings.Contains(f.Name, `\`) {
			return fmt.Errorf("%q is in the archive twice, or isn't the name of a file in it", f.Name)
		}
		if at(f) <= end || len(all) > 20_000 {
			return fmt.Errorf("%q shares its bytes with another file, or there are too many", f.Name)
		}
		names[name], end = true, at(f)+int64(f.CompressedSize64) //nolint:gosec // the next one would begin before it
		if f.Name == "audit.jsonl" || f.Name == "approvals.jsonl" || dir == "checkpoints" || dir == "statements" {
			if f.UncompressedSize64 > left {
				return fmt.Errorf("what is to be checked has more than %d MB", maxAll>>20)
			}
			left -= f.UncompressedSize64
		}
	}
	return nil
}

func below(z *zip.Reader, dir string) []string {
	names, _ := fs.Glob(z, dir+"/*") // its only error is a pattern's
	return names
}

type verifier struct {
	trust   Trust
	anchors [][]byte // the records of the anchors, in order
	made    time.Time
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
