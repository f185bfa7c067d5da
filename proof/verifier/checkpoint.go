package verifier

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/proof/witness/cosign"
)

// checkpoints compares what witnesses signed with the anchors.
func (v *verifier) checkpoints() {
	signed := map[string]int64{} // witness -> anchors
	trusted, origin := int64(-1), ""
	names := v.below("checkpoints")
	for _, name := range append(names, slices.Sorted(maps.Keys(v.trust.Checkpoints))...) {
		raw, own := v.trust.Checkpoints[name]
		if !own {
			raw = v.files[name]
		}
		text, _, ok := strings.Cut(string(raw), "\n\n")
		c, err := cosign.Parse(text + "\n")
		if !ok || err != nil {
			v.say(Bad, "%s: it is no checkpoint.", printable(name))
			continue
		}
		switch {
		case c.N > int64(len(v.anchors)):
			v.say(Bad, "%s: it has %d anchors, and this record only %d: the record was cut.", printable(name), c.N, len(v.anchors))
			continue
		case root(v.anchors[:c.N]) != c.Hash:
			v.say(Bad, "%s: it was signed for another record: the first %s aren't those of this one.", printable(name), plural(int(c.N), "anchor"))
			continue
		}
		if len(v.trust.Log) > 0 && !slices.ContainsFunc(v.trust.Log, func(k cosign.LogKey) bool {
			n, err := note.Open(raw, note.VerifierList(k))
			return err == nil && len(n.Sigs) > 0 && k.Name() == c.Origin
		}) {
			v.say(Bad, "%s: it isn't signed by the record's key.", printable(name))
			continue
		}
		if own {
			trusted = max(trusted, c.N)
			v.say(Good, "%s: the first %s of %s are those of this record, and cover %d of %s.", printable(name), plural(int(c.N), "anchor"), printable(c.Origin), v.covered(c.N), plural(v.lines, "line"))
		} else if origin = cmp.Or(origin, c.Origin); origin != c.Origin {
			v.say(Bad, "%s: it is for the record %s, and another one for %s.", printable(name), printable(c.Origin), printable(origin))
			continue
		}
		for _, w := range v.trust.Witnesses {
			if n, err := note.Open(raw, note.VerifierList(w)); err == nil && len(n.Sigs) > 0 {
				if signed[w.Name()] = max(signed[w.Name()], c.N); c.N == 0 {
					continue
				}
				trusted = max(trusted, c.N)
				v.say(Good, "The witness %s signed %d of %s of %s at %s UTC, which cover %d of %s.", w.Name(), c.N, plural(len(v.anchors), "anchor"), printable(c.Origin),
					cosign.At(n.Sigs[0]).Format("2006-01-02 15:04"), v.covered(c.N), plural(v.lines, "line"))
			}
		}
	}
	for _, w := range v.trust.Witnesses {
		if signed[w.Name()] == 0 {
			v.say(Bad, "The witness %s signed nothing of this record.", w.Name())
		}
	}
	switch {
	case trusted < 0 && len(v.trust.Witnesses) == 0:
		v.say(Note, "Name witnesses with --witness, or a checkpoint that you have kept with --checkpoint. Without one, nothing here shows that this is the original record.")
	case v.covered(trusted) < v.lines:
		v.say(Open, "%s of the chain came after what witnesses or a kept checkpoint cover, so nothing shows that the bot wrote this.", plural(v.lines-v.covered(trusted), "line"))
	}
}

// root is the root of the tree of records (RFC 6962).
func root(records [][]byte) tlog.Hash {
	switch len(records) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return tlog.RecordHash(records[0])
	}
	left := 1 << (bits.Len(uint(len(records)-1)) - 1)
	return tlog.NodeHash(root(records[:left]), root(records[left:]))
}
