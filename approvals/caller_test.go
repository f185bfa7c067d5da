package approvals

import (
	"strings"
	"testing"
)

// What a program says of itself stands on cards, so it can't pretend to be something else there.
func TestACallersWordsFitACard(t *testing.T) {
	for _, tc := range []struct {
		in   Caller
		want string
	}{
		{Caller{}, ""},
		{Caller{Way: WayMCP, Program: "Claude Code"}, "the program Claude Code"},
		{Caller{Way: WayMCP, Program: "Coder\u202e: 1.0 \n*bold*"}, "the program Coder 1.0 bold"},
		{Caller{Way: WayHook}, "the program another program"},
		{Caller{Way: WayHook, Program: "..//"}, "the program another program"},
		{Caller{Way: WayJob, Program: "deploy", Repository: "github.com/acme/shop", Ref: "refs/heads/main", Proven: true}, "the job deploy in github.com/acme/shop at main"},
		{Caller{Way: WayMCP, Program: "coder", Token: "ci"}, "the program coder with the token ci"},
		{Caller{Way: WayAPI, Token: "ci"}, "the program ci"},
		{Caller{Token: "command line\n"}, "the token command line"},
		{Caller{Way: WayAPI, Program: strings.Repeat("x", 300)}, "the program " + strings.Repeat("x", 60)},
	} {
		if got := tc.in.Shown().String(); got != tc.want {
			t.Errorf("%+v is %q, want %q", tc.in, got, tc.want)
		}
	}
}

// Conditions can name every key, whoever asks.
func TestACallersFactsAreAlwaysThere(t *testing.T) {
	for _, c := range []Caller{{}, {Way: WayHook, Program: "p"}} {
		f := c.Facts("web:alice")
		for _, key := range []string{"way", "program", "owner", "host", "repository", "ref", "proven", "token"} {
			if _, ok := f[key]; !ok {
				t.Errorf("%+v has no %s", c, key)
			}
		}
		if (f["owner"] == "") != (c.Way == "") {
			t.Errorf("the owner of %+v is %q", c, f["owner"])
		}
	}
}
