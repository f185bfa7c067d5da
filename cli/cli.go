// Package cli is what all commands of the program share: the root, what an error becomes,
// and the streams. The commands themselves are with what they do (cli/admin,
// cli/doctor) or in cmd/bot.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"countersign/cli/words"
	"countersign/config"
	"countersign/internal/edits"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ExitError ends the program with its own exit code, after a sentence or without one.
type ExitError struct {
	Code int
	Say  string
}

// Error implements error.
func (e *ExitError) Error() string { return e.Say }

// Exit is an error that ends the program with a code; say is a sentence, or "".
func Exit(code int, say string) error { return &ExitError{code, say} }

// Status prints the error as one line, and the document to read as another, and returns the exit status.
// signal is the number of the one that ended the command, 0 for none.
// page is the document of the command ("" for none); a key of the configuration may have another one.
func Status(err error, signal int, page string, w io.Writer) int {
	usage, isUsage := errors.AsType[*config.Error](err)
	exit, isExit := errors.AsType[*ExitError](err)
	if isUsage {
		page = cmp.Or(usage.Page(), page)
	}
	ended := signal != 0 && errors.Is(err, context.Canceled)
	if err != nil && err.Error() != "" && !ended {
		_, _ = fmt.Fprintln(w, words.Name()+": "+words.Named(strings.ReplaceAll(err.Error(), "\n", " ")))
		if page != "" && !isExit {
			_, _ = fmt.Fprintln(w, "Read more: "+words.Program()+" docs "+page)
		}
	}
	switch {
	case ended || signal == int(syscall.SIGINT):
		return 128 + signal
	case err == nil:
		return 0
	case isUsage:
		return 2
	case isExit:
		return exit.Code
	}
	return 1
}

// pageKey is the annotation of a command with its document.
const pageKey = "page"

// SetPage names the document about a command.
func SetPage(c *cobra.Command, page string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[pageKey] = page
}

// Page is the document about a command; "" for none.
func Page(c *cobra.Command) string { return c.Annotations[pageKey] }

// Root is the program with its commands. What is wrong with an argument or a flag is a
// [config.Error]. --config of any command stands for COUNTERSIGN_CONFIG.
func Root(commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:           words.Name(),
		Short:         "A chat-ops bot. Nothing that changes anything runs until a person approves it",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return config.Errorf("%v; %s", err, meantFlag(cmd, err))
	})
	file := c.PersistentFlags().String("config", "", "the configuration file; default: what COUNTERSIGN_CONFIG names, or what init wrote")
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if slices.Contains([]string{"init", "demo", "version", "help"}, cmd.Name()) { // they need none
			return nil
		}
		return config.Locate(*file)
	}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(commands...)
	sayArguments(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return config.Errorf("there is no command %q; %s", args[0], meant(c, args[0]))
		}
		return cmd.Help()
	}
	c.Args = cobra.ArbitraryArgs
	return c
}

// sayArguments has the commands below c say how they are called, where their arguments are too few or too many, or
// name no command.
func sayArguments(c *cobra.Command) {
	for _, sub := range c.Commands() {
		sayArguments(sub)
		args := sub.Args
		if sub.HasSubCommands() {
			sub.SuggestionsMinimumDistance = 2
			if !sub.Runnable() {
				args, sub.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
		}
		if args == nil {
			continue
		}
		sub.Args = func(cmd *cobra.Command, a []string) error {
			err := args(cmd, a)
			if _, said := errors.AsType[*config.Error](err); err == nil || said {
				return err
			}
			_, path, _ := strings.Cut(cmd.CommandPath(), " ")
			switch words := err.Error(); { // the library's
			case strings.HasPrefix(words, "unknown command") && cmd.HasSubCommands():
				return config.Errorf("there is no command %q under bot %s; %s", a[0], path, meant(cmd, a[0]))
			case strings.HasPrefix(words, "unknown command"):
				err = errors.New("it takes no arguments")
			case strings.Contains(words, " arg(s)"):
				above, _ := strings.CutSuffix(path, cmd.Name())
				err = fmt.Errorf("wrong number of arguments (%d); write bot %s%s", len(a), above, cmd.Use)
			}
			return config.Errorf("%s: %v; see bot %s --help", path, err, path)
		}
	}
}

// meantFlag names the flag that may have been meant.
func meantFlag(cmd *cobra.Command, err error) string {
	word, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	near, least := "", 3
	if unknown {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if d := edits.Distance(word, f.Name); d < least && !f.Hidden {
				near, least = f.Name, d
			}
		})
	}
	if near == "" {
		return "see --help"
	}
	return "did you mean --" + near + "?"
}

// Name has the help of a command and of those below it name commands as they are called here.
func Name(c *cobra.Command) {
	c.Short, c.Long, c.Example = words.Named(c.Short), words.Named(c.Long), words.Named(c.Example)
	name := func(f *pflag.Flag) { f.Usage = words.Named(f.Usage) }
	c.Flags().VisitAll(name)
	c.PersistentFlags().VisitAll(name)
	for _, sub := range c.Commands() {
		Name(sub)
	}
}

// meant names the commands that may have been meant.
func meant(c *cobra.Command, word string) string {
	if near := c.SuggestionsFor(word); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	_, path, _ := strings.Cut(c.CommandPath()+" ", " ")
	return "see bot " + path + "--help"
}

// NoArguments refuses arguments of the command of that name.
func NoArguments(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return config.Errorf("%s takes no arguments; see bot %s --help", name, name)
		}
		return nil
	}
}

// URLFlag is what the flag --url of several commands says of itself.
const URLFlag = "address of the running bot on this machine; default: where the running bot says that it is"

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// StreamsOf are those of a command.
func StreamsOf(cmd *cobra.Command) Streams {
	return Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
}
