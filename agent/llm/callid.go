package llm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// callIDLen is the length of a call id that is made here: chat templates exist
// that want exactly nine letters and digits.
const callIDLen = 9

const callIDDigits = "0123456789abcdefghijklmnopqrstuvwxyz"

// UniqueCallIDs returns calls with ids that are unique in the thread of r: an
// id that is missing, unusable as a key, repeated in calls or already in
// r.UsedCallIDs is replaced by nine letters and digits. The same request and
// calls always give the same ids. calls is not changed.
func UniqueCallIDs(r Request, calls []Call) []Call {
	if len(calls) == 0 {
		return nil
	}
	out := make([]Call, len(calls))
	seen := make(map[string]bool, len(calls))
	taken := func(id string) bool { return seen[id] || r.UsedCallIDs[id] }
	for i, c := range calls {
		for try := 0; !usableCallID(c.ID) || taken(c.ID); try++ {
			c.ID = madeCallID(r.Thread, len(r.UsedCallIDs), i, try)
		}
		seen[c.ID] = true
		out[i] = c
	}
	return out
}

func madeCallID(thread string, used, n, try int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%d", thread, used, n, try))
	v := binary.BigEndian.Uint64(sum[:8])
	id := make([]byte, callIDLen)
	for i := range id {
		id[i] = callIDDigits[v%uint64(len(callIDDigits))]
		v /= uint64(len(callIDDigits))
	}
	return string(id)
}

// usableCallID says whether id may be kept. Providers use "call_Ab3",
// "toolu_01", "functions.run_shell:0"; anything else could be hostile.
func usableCallID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}
