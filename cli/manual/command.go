package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"countersign"
	"countersign/cli/words"
	"countersign/config"
)

// Of is the manual of a program, with the page of its commands.
func Of(root *cobra.Command) (*Manual, error) {
	var b strings.Builder
	commands(&b, root)
	return New(countersign.Documents, b.String())
}

// commands writes a section for each command that does something.
func commands(b *strings.Builder, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	if c.HasParent() && c.Runnable() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(b, "## %s\n\n%s.\n\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
		if c.Long != "" && c.Long != c.Short {
			fmt.Fprintf(b, "```text\n%s\n```\n\n", strings.TrimSpace(c.Long))
		}
		fmt.Fprintf(b, "```text\n%s\n", c.UseLine())
		if flags := strings.TrimRight(c.LocalNonPersistentFlags().FlagUsages(), "\n"); flags != "" {
			fmt.Fprintf(b, "\n%s\n", flags)
		}
		b.WriteString("```\n\n")
		if c.HasExample() {
			fmt.Fprintf(b, "```text\n%s\n```\n\n", strings.TrimRight(c.Example, "\n"))
		}
	}
	for _, sub := range c.Commands() {
		commands(b, sub)
	}
}

// Command is the command docs.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "docs [WORDS or PAGE]", Short: "Read the documents of this version: the list, a page, or what has some words",
		Long: `Read the documents of this version. Without arguments it prints the list of pages.
The name of a page (ssh) or of a section (backup#restore) prints it. Anything
else is looked for. The running bot serves the same at ` + Root + `.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := Of(cmd.Root())
			if err != nil {
				return err
			}
			return m.print(cmd.OutOrStdout(), strings.Join(args, " "))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if m, err := Of(cmd.Root()); err == nil && len(args) == 0 {
				for _, part := range m.Parts {
					for _, p := range part.Pages() {
						names = append(names, p.Name)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// print writes the list, a page, or what was found.
func (m *Manual) print(out io.Writer, asked string) error {
	var b strings.Builder
	if s, ok := m.Find(asked); ok {
		fmt.Fprintf(&b, "# %s\n\n%s\n", s.Name(), strings.TrimSpace(s.Text))
		_, err := io.WriteString(out, b.String())
		return err
	}
	if asked == "" {
		for _, part := range m.Parts {
			fmt.Fprintf(&b, "%s: %s\n", part.Title, part.About)
			for _, topic := range part.Topics {
				for i, p := range topic {
					fmt.Fprintf(&b, "  %-26s %s\n", strings.Repeat("  ", min(i, 1))+p.Name, p.Title)
				}
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Read one with %[1]s docs NAME, or look for words with %[1]s docs WORDS.\n", words.Program())
		_, err := io.WriteString(out, b.String())
		return err
	}
	hits := m.Search(asked, 8)
	if len(hits) == 0 {
		return config.Errorf("no page has %q; try other words, or %s docs for the list", asked, words.Program())
	}
	for _, h := range hits {
		fmt.Fprintf(&b, "%s\n  %s docs %s\n  %s\n\n", h.Name(), words.Program(), h.Where(), h.Excerpt)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
