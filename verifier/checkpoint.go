package verifier

import (
	"archive/zip"
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/witness/cosign"
)

// checkpoints compares what witnesses signed with the anchors.
func (v *verifier) checkpoints(z *zip.Reader) error {
	signed := map[string]int64{} // witness -> anchors
	names := below(z, "checkpoints")
	notes := maps.Clone(v.trust.Checkpoints)
	if notes == nil {
		notes = map[string][]byte{}
	}
	for _, name := range names {
		raw, err := file(z, name)
		if err != nil {
			return err
		}
		notes[name] = raw
	}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		raw := notes[name]
		text, _, ok := strings.Cut(string(raw), "\n\n")
		c, err := cosign.Parse(text + "\n")
		if !ok || err != nil {
			v.bad("%s: it is no checkpoint.", printable(name))
			continue
		}
		switch root, err := root(v.anchors, c.N); {
		case c.N > int64(len(v.anchors)):
			v.bad("%s: it has %d anchors, and this record only %d: the record was cut.", printable(name), c.N, len(v.anchors))
			continue
		case err != nil || root != c.Hash:
			v.bad("%s: it was signed for another record: the first %s aren't those of this one.", printable(name), plural(int(c.N), "anchor"))
			continue
		}
		if len(v.trust.Log) > 0 && !slices.ContainsFunc(v.trust.Log, func(k cosign.LogKey) bool {
			n, err := note.Open(raw, note.VerifierList(k))
			return err == nil && len(n.Sigs) > 0 && k.Name() == c.Origin
		}) {
			v.bad("%s: it isn't signed by the record's key.", printable(name))
			continue
		}
		if _, own := v.trust.Checkpoints[name]; own {
			v.good("%s: the first %s are those of this record.", printable(name), plural(int(c.N), "anchor"))
		}
		for _, w := range v.trust.Witnesses {
			if n, err := note.Open(raw, note.VerifierList(w)); err == nil && len(n.Sigs) > 0 {
				signed[w.Name()] = max(signed[w.Name()], c.N)
				v.good("The witness %s signed %d of %s at %s UTC.", w.Name(), c.N, plural(len(v.anchors), "anchor"), cosign.At(n.Sigs[0]).Format("2006-01-02 15:04"))
			}
		}
	}
	for _, w := range v.trust.Witnesses {
		if _, ok := signed[w.Name()]; !ok {
			v.bad("The witness %s signed nothing of this record.", w.Name())
		}
	}
	if len(v.trust.Witnesses) == 0 && len(names) > 0 {
		v.good("%s of witnesses there; name their keys with --witness to have the signatures checked.", are(len(names), "checkpoint"))
	}
	return nil
}

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return plural(n, what) + " are"
}

// root is the root of the tree of the first n records (RFC 6962).
func root(records [][]byte, n int64) (tlog.Hash, error) {
	if n > int64(len(records)) {
		return tlog.Hash{}, errors.New("there are too few")
	}
	var all []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			out[i] = all[index]
		}
		return out, nil
	})
	for i, r := range records[:n] {
		more, err := tlog.StoredHashes(int64(i), r, read)
		if err != nil {
			return tlog.Hash{}, err
		}
		all = append(all, more...)
	}
	return tlog.TreeHash(n, read)
}
