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
	// hashDigits is how many hexadecimal digits make a name unique.
	hashDigits = 8
)

var serverName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,23}$`)

// checkServers refuses server names whose tools could get the same names.
func checkServers(names []string) error {
	for i, a := range names {
		if !serverName.MatchString(a) {
			return fmt.Errorf("mcp: %s is no name of a server; use 1 to 24 letters, digits, dashes and underscores, and begin with a letter or a digit", tools.Quote(a))
		}
		for j, b := range names {
			if i != j && strings.HasPrefix(foreign.FoldName(b)+"_", foreign.FoldName(a)+"_") {
				return fmt.Errorf("mcp: the tools of the servers %q and %q could get the same names; rename one so that it does not begin with the other", a, b)
			}
		}
	}
	return nil
}

// nameOf returns the model's name for a server's tool: its own name if that is valid, otherwise a
// changed one with a hash, so that different tools never share one. taken reports whether another
// tool has the name; ok is false if no name is left.
func nameOf(server, tool string, taken func(string) bool) (name string, ok bool) {
	fixed := strings.Map(func(r rune) rune {
		if foreign.IsToolName(string(r)) {
			return r
		}
		return '_'
	}, tool)
	name = prefix + server + "_" + fixed
	if fixed == tool && tool != "" && len(name) <= foreign.MaxName && !taken(name) {
		return name, true
	}
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	tail := "_" + hex.EncodeToString(sum[:])[:hashDigits]
	name = name[:min(len(name), foreign.MaxName-len(tail))] + tail
	return name, !taken(name)
}
