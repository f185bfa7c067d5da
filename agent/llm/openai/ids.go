package openai

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"countersign/agent/llm"
)

// uniqueIDs replaces ids that are missing, unusable, repeated within the reply
// or known to the thread. The new ones are nine letters and digits, because
// some chat templates want exactly that, and depend only on the request and
// the position of the call.
func uniqueIDs(r llm.Request, calls []llm.Call) []llm.Call {
	seen := make(map[string]bool, len(calls))
	for i := range calls {
		id := calls[i].ID
		for try := 0; !usable(id) || seen[id] || r.UsedCallIDs[id]; try++ {
			id = madeID(r.Thread, len(r.Items), i, try)
		}
		seen[id] = true
		calls[i].ID = id
	}
	return calls
}

func madeID(thread string, turn, n, try int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d", thread, turn, n, try))
	v := binary.BigEndian.Uint64(sum[:])
	id := make([]byte, 9)
	for i := range id {
		id[i] = digits[v%uint64(len(digits))]
		v /= uint64(len(digits))
	}
	return string(id)
}

// usable says whether a provider's id may be kept as a key. Known forms are
// "call_Ab3", "toolu_01" and "functions.run_shell:0".
func usable(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' && c != ':' {
			return false
		}
	}
	return true
}
