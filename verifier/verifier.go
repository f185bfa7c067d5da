// Package verifier checks the archive of an incident without a store, a network or the bot, and
// without the bot's code: the chain of decisions, that what ran is what was decided, what people's
// devices signed, and what witnesses signed of the record. It shares with the bot the check of a
// passkey's signature and the form of a checkpoint, and nothing else.
package verifier

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"countersign/witness/cosign"
)

const maxFile = 64 << 20 // bytes of a file in the archive, unpacked

// Finding is one thing that was looked at, as a sentence.
type Finding struct {
	Bad bool // something is wrong, or can't be shown
	Say string
}

// Trust is what somebody who verifies knows by themselves. The zero Trust takes the passkeys that the
// archive has, and checks the signature of no witness.
type Trust struct {
	// Keys are the digests of the only passkeys that count, or their first 12 digits or more, by
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
	v := &verifier{trust: trust, decided: map[string]map[string]bool{}, began: map[string]bool{}}
	chain, err := file(z, "audit.jsonl")
	if err != nil {
		return nil, err
	}
	requests, err := file(z, "approvals.jsonl")
	if err != nil {
		return nil, err
	}
	switch {
	case chain == nil && requests == nil:
		return nil, errors.New("this zip file has neither audit.jsonl nor approvals.jsonl, so it is no record of an incident")
	case chain == nil:
		v.bad("The chain of decisions (audit.jsonl) is missing, so nothing shows that this is what the bot wrote down.")
	default:
		v.chain(chain)
		if err := v.checkpoints(z); err != nil {
			return nil, err
		}
	}
	if err := v.requests(requests); err != nil {
		return nil, err
	}
	return v.found, v.statements(z)
}

// file is a file of the archive, nil where it is not.
func file(z *zip.Reader, name string) ([]byte, error) {
	i := slices.IndexFunc(z.File, func(f *zip.File) bool { return f.Name == name })
	if i < 0 {
		return nil, nil
	}
	in, err := z.File[i].Open()
	if err != nil {
		return nil, fmt.Errorf("%s can't be unpacked (%w)", name, err)
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, fmt.Errorf("%s can't be unpacked (%w)", name, err)
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MB", name, maxFile>>20)
	}
	return raw, nil
}

// below are the names of the files in a directory of the archive.
func below(z *zip.Reader, dir string) (names []string) {
	for _, f := range z.File {
		if path.Dir(f.Name) == dir {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

type verifier struct {
	trust   Trust
	anchors [][]byte                   // the records of the anchors, in order
	decided map[string]map[string]bool // request -> digest -> somebody or the policy approved it
	began   map[string]bool            // request -> the chain says that it ran
	found   []Finding
}

func (v *verifier) good(format string, a ...any) {
	v.found = append(v.found, Finding{Say: fmt.Sprintf(format, a...)})
}

func (v *verifier) bad(format string, a ...any) {
	v.found = append(v.found, Finding{Bad: true, Say: fmt.Sprintf(format, a...)})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable is foreign text without what a terminal obeys.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f {
			return '?'
		}
		return r
	}, s)
}
