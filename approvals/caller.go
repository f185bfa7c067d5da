package approvals

import (
	"cmp"
	"regexp"
	"strings"
)

// Way is how a program came to ask.
type Way string

// The ways. The zero Way is none: a person's own words, or the bot's agent.
const (
	WayAPI  Way = "api"  // a script or a program with the client package
	WayMCP  Way = "mcp"  // an agent with the bot's tools
	WayHook Way = "hook" // an agent that runs its own shell
	WayJob  Way = "job"  // a job in CI, whose identity its provider has signed
)

// Caller is the program that asks on a person's behalf. The zero Caller is nobody.
//
// What a program says of itself is as true as the program: a rule may make its requests stricter by
// it, and should trust it only as far as [Caller.Proven] says. Way is never empty for a token that only
// asks, and Program is the token's where Token is empty and By isn't.
type Caller struct {
	Way        Way    `json:"way,omitempty"`
	Program    string `json:"program,omitempty"`    // what it calls itself: "Claude Code"
	Host       string `json:"host,omitempty"`       // the machine where it runs, as that calls itself
	Repository string `json:"repository,omitempty"` // what it works in: "github.com/acme/shop"
	Ref        string `json:"ref,omitempty"`        // of that: "refs/heads/main"
	// Proven says that an identity provider has signed Repository and Ref.
	Proven bool `json:"proven,omitempty"`
	// Token is the name of the token that asks, where that is not Program's alone: then only the token is
	// known to be what it says. By identifies it, for limits.
	Token string `json:"token,omitempty"`
	By    string `json:"by,omitempty"`
}

// odd are the characters that the words of a caller can't have on a card.
var odd = regexp.MustCompile(`[^A-Za-z0-9 ._/@-]+`)

// plainly is a program's word about itself, of at most n bytes, as a card can show it.
func plainly(s string, n int) string {
	s = strings.TrimLeft(strings.Join(strings.Fields(odd.ReplaceAllString(s, " ")), " "), "._/@- ")
	return strings.TrimSpace(s[:min(len(s), n)])
}

// Shown is the caller with words that a card can show: others are left out of them. A caller that
// doesn't say what it is called is "another program".
func (c Caller) Shown() Caller {
	c.Program, c.Host, c.Repository, c.Ref, c.Token = plainly(c.Program, 60), plainly(c.Host, 60), plainly(c.Repository, 200), plainly(c.Ref, 100), plainly(c.Token, 60)
	if c.Way != "" && c.Program == "" {
		c.Program = cmp.Or(c.Token, "another program")
	}
	return c
}

// String says who asks, as a part of a sentence: "the program Claude Code in github.com/acme/shop".
// It is "" for nobody.
func (c Caller) String() string {
	if c.Way == "" && c.Token != "" {
		return "the token " + c.Token
	}
	if c.Way == "" {
		return ""
	}
	s := "the program " + c.Program
	if c.Way == WayJob {
		s = "the job " + c.Program
	}
	if c.Repository != "" {
		s += " in " + c.Repository
		if c.Ref != "" {
			s += " at " + strings.TrimPrefix(strings.TrimPrefix(c.Ref, "refs/heads/"), "refs/")
		}
	}
	if c.Token != "" && c.Token != c.Program {
		s += " with the token " + c.Token
	}
	return s
}

// Facts are what conditions of rules know of the caller; owner is on whose behalf it asks. All
// keys are always there.
func (c Caller) Facts(owner string) map[string]string {
	proven := "false"
	if c.Proven {
		proven = "true"
	}
	if c.Way == "" {
		owner = ""
	}
	return map[string]string{
		"way": string(c.Way), "program": c.Program, "owner": owner, "host": c.Host, "repository": c.Repository, "ref": c.Ref, "proven": proven, "token": c.Token,
	}
}
