package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"
)

// Each command that does something shows how, and what it shows exists.
func TestEveryHelpHasAnExample(t *testing.T) {
	used := map[string]bool{}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			look(sub)
		}
		path, ok := strings.CutPrefix(c.CommandPath(), "bot ")
		used[path] = true
		if !ok || len(c.Commands()) > 0 {
			return
		}
		if c.Example == "" {
			t.Errorf("bot %s has no example", path)
		}
		for line := range strings.Lines(c.Example) {
			checkExample(t, c, strings.TrimSpace(line))
		}
	}
	look(root())
	for path := range examples {
		if !used[path] {
			t.Errorf("there is no command bot %s", path)
		}
	}
}

// checkExample looks for the command, its flags and its arguments in a line for a shell.
func checkExample(t *testing.T, c *cobra.Command, line string) {
	t.Helper()
	_, line, _ = strings.Cut(line, "bot ") // what is before it sets a variable, or feeds it
	line, _, _ = strings.Cut(line, " >")
	line, _, _ = strings.Cut(line, " <")
	words, err := shell.Fields(line, nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	found, rest, err := root().Find(words)
	if err != nil || found.CommandPath() != c.CommandPath() {
		t.Errorf("%q is not an example of %s: %v", line, c.CommandPath(), err)
		return
	}
	if err := found.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	args := slices.Clone(found.Flags().Args())
	if found.Args != nil {
		if err := found.Args(found, args); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}
