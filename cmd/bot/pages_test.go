package main

import (
	"testing"

	"github.com/spf13/cobra"

	"countersign/cli"
	"countersign/cli/manual"
)

// What a command's help and its errors send people to is there.
func TestEveryCommandHasADocument(t *testing.T) {
	c := root()
	m, err := manual.Of(c)
	if err != nil {
		t.Fatal(err)
	}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			page := cli.Page(sub)
			if sub.Parent() == c.Root() && sub.GroupID == "" {
				t.Errorf("%s is in no group of the help", sub.CommandPath())
			}
			switch sub.Name() {
			case "docs", "version", "help", "completion": // say all of it themselves
				continue
			}
			if _, ok := m.Find(page); !ok {
				t.Errorf("%s sends people to the document %q, which is not there", sub.CommandPath(), page)
			}
			check(sub)
		}
	}
	check(c)
}
