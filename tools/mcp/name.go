package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"countersign/tools"
	"countersign/tools/foreign"
)

const (
	// prefix begins the name of every tool of a server; no tool of the bot has it.
	prefix = "mcp_"
	// hashed is how many hexadecimal digits make a name unlike all others.
	hashed = 8
)

var serverName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,23}$`)

// checkServers refuses names of servers whose tools could get each other's names.
func checkServers(names []string) error {
	for i, a := range names {
		if !serverName.MatchString(a) {
			return fmt.Errorf("mcp: %s is no name of a server; use 1 to 24 letters, digits, dashes and underscores, and begin with a letter or a digit", tools.Quote(a))
		}
		for j, b := range names {
			if i != j && strings.HasPrefix(foreign.Spelling(b)+"_", foreign.Spelling(a)+"_") {
				return fmt.Errorf("mcp: the tools of the servers %q and %q could get the same names; rename one so that it does not begin with the other", a, b)
			}
		}
	}
	return nil
}

// nameOf returns what the model calls a server's tool: its own name where that
// fits, and otherwise a changed one with a hash, so that different tools never
// share one. taken reports whether another tool has a name already; ok is false
// when that leaves none.
func nameOf(server, tool string, taken func(string) bool) (name string, ok bool) {
	fixed := strings.Map(func(r rune) rune {
		if foreign.Name(string(r)) {
			return r
		}
		return '_'
	}, tool)
	name = prefix + server + "_" + fixed
	if fixed == tool && tool != "" && len(name) <= foreign.MaxName && !taken(name) {
		return name, true
	}
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	tail := "_" + hex.EncodeToString(sum[:])[:hashed]
	name = name[:min(len(name), foreign.MaxName-len(tail))] + tail
	return name, !taken(name)
}
