package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/adapters/chat/visible"
	"countersign/cli"
	"countersign/cli/words"
	"countersign/client"
	"countersign/config"
)

// Exit codes of exec that are not the command's own.
const (
	execPartial = 123
	execUnknown = 124
	execNotRun  = 125
)

// wayCLI says that a person's own command line asks.
const wayCLI = "cli"

func execCommand() *cobra.Command {
	wait := true
	return askCommand("exec", "Run a command on a target: a proven read immediately, anything else once people approve it", &wait)
}

// requestCommand is exec for what doesn't wait at its keyboard.
func requestCommand() *cobra.Command {
	wait := false
	c := askCommand("request", "Ask for a command on a target and print the call's id; --wait waits for its end", &wait)
	c.Flags().BoolVar(&wait, "wait", false, "wait, print what the command prints, and end as it ends")
	return c
}

func askCommand(name, short string, wait *bool) *cobra.Command {
	ask := client.Request{Caller: client.Caller{Way: wayCLI}}
	c := &cobra.Command{Use: name + " TARGET -- COMMAND", Short: short, Args: cobra.MinimumNArgs(2)}
	callFlags(c, &ask)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		account, err := Load()
		if err != nil {
			return err
		}
		command := args[1]
		if len(args) > 2 {
			if command, err = quoted(args[1:]); err != nil {
				return err
			}
		}
		ask.Target, ask.Command = args[0], command
		return New(account).exec(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), ask, *wait)
	}
	return c
}

// callsCommand is about what was asked for by exec and request.
func callsCommand() *cobra.Command {
	list := func(ctx context.Context, cl *Client, o *output, out io.Writer, _ []string) error {
		all, err := cl.Open(ctx)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, x := range all {
			rows = append(rows, []string{x.ID, string(x.State), x.Request, x.Thread})
		}
		return o.print(out, all, []string{"CALL", "STATE", "REQUEST", "THREAD"}, rows)
	}
	c := asks(&cobra.Command{Use: "calls", Short: "List what you have asked for by exec or request and has not ended; wait for one, or take one back", Args: cobra.NoArgs}, list)
	known := func(use, short string, run func(ctx context.Context, cl *Client, out, errs io.Writer, call *client.Call) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			account, err := Load()
			if err != nil {
				return err
			}
			cl := New(account)
			return run(cmd.Context(), cl, cmd.OutOrStdout(), cmd.ErrOrStderr(), cl.Find(args[0]))
		}}
	}
	c.AddCommand(
		known("wait CALL", "Wait for the end of a call, print what its command printed, and end as it ended", func(ctx context.Context, cl *Client, out, errs io.Writer, call *client.Call) error {
			return cl.await(ctx, out, errs, call)
		}),
		known("withdraw CALL", "Take back a call: its card, or what runs", func(ctx context.Context, _ *Client, _, _ io.Writer, call *client.Call) error {
			return call.Withdraw(ctx)
		}),
	)
	return c
}

// quoted makes one command of words, each of which stays one.
func quoted(args []string) (string, error) {
	out := make([]string, len(args))
	for i, a := range args {
		if strings.ContainsRune(a, 0) {
			return "", config.Errorf("an argument has a byte 0, which no command can have")
		}
		if out[i] = a; a == "" || strings.Trim(a, plain) != "" {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " "), nil
}

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+"

// callFlags are those of commands that ask for a call.
func callFlags(c *cobra.Command, r *client.Request) {
	c.Flags().StringVar(&r.Thread, "thread", "", "a conversation of the console to run it in; without it and without a task a new one begins")
	c.Flags().StringVar(&r.Task, "task", "", "what you are at: commands of the same task are one conversation")
	c.Flags().StringVar(&r.Key, "key", "", "a name of your own for this command: the same one again runs it once, and tells what became of it")
}

// exec asks for a command on a target, prints what it prints while it runs, and ends as it ends.
// Without wait, it prints the call's id instead.
func (c *Client) exec(ctx context.Context, out, errs io.Writer, r client.Request, wait bool) error {
	call, err := c.Start(ctx, r)
	var maybe *client.UncertainError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		if errors.As(err, &maybe) {
			_, _ = fmt.Fprintf(errs, "Ended before the bot answered: the command may have begun. %s calls lists it if it goes on.\n", words.Program())
		}
		return err
	case errors.As(err, &maybe):
		return cli.Exit(execUnknown, whole(err.Error()))
	default:
		return cli.Exit(execNotRun, "not run: "+whole(err.Error()))
	}
	if !wait && call.Begun.State != client.Done {
		_, err := fmt.Fprintln(out, call.Begun.ID)
		return err
	}
	return c.await(ctx, out, errs, call)
}

// await waits for the end of a call, and ends as it ends.
func (c *Client) await(ctx context.Context, out, errs io.Writer, call *client.Call) error {
	f := &following{out: out, errs: errs}
	told := false
	x, err := call.Wait(ctx, func(now client.Result) {
		switch {
		case now.State == client.Waiting && !told:
			told = true
			_, _ = fmt.Fprintf(errs, "Waiting for approval of request %s. %s approvals show %s shows it, and so does %s/#t=%s\n", now.Request, words.Program(), now.Request, c.base, now.Thread)
		case now.State == client.Running:
			f.begin(ctx, call)
		}
	})
	f.wait()
	if ctx.Err() != nil {
		_, _ = fmt.Fprintf(errs, "It goes on without you. %[1]s calls wait %[2]s waits for it again, and %[1]s calls withdraw %[2]s takes it back.\n", words.Program(), call.Begun.ID)
		return ctx.Err()
	}
	var no *client.Error
	switch {
	case errors.As(err, &no) && no.Status == http.StatusNotFound: // it is no call of theirs
		return err
	case err != nil:
		return cli.Exit(execUnknown, fmt.Sprintf("nobody knows how it ended: %s. %s calls wait %s tells once the bot is back", whole(err.Error()), words.Program(), call.Begun.ID))
	}
	return f.executed(ctx, call, x)
}

// following prints what a command prints while it runs.
type following struct {
	out, errs io.Writer
	done      chan struct{} // nil: nothing is followed
	whole     bool
	// printed is how much was printed of each stream, in bytes.
	printed, printedErr int
}

// begin begins to follow, once.
func (f *following) begin(ctx context.Context, call *client.Call) {
	if f.done != nil {
		return
	}
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		_ = f.follow(ctx, call) // what is missing comes at the end
	}()
}

// follow prints what was not printed yet.
func (f *following) follow(ctx context.Context, call *client.Call) (err error) {
	seen, seenErr := f.printed, f.printedErr
	f.whole, err = call.Follow(ctx, func(p client.Output) {
		show := func(w io.Writer, text string, seen, printed *int) {
			k := min(*seen, len(text))
			*seen -= k
			*printed += len(text) - k
			_, _ = io.WriteString(w, safely(w, text[k:]))
		}
		show(f.out, p.Stdout, &seen, &f.printed)
		show(f.errs, p.Stderr, &seenErr, &f.printedErr)
	})
	return err
}

// wait waits until everything is printed that comes.
func (f *following) wait() {
	if f.done != nil {
		<-f.done
	}
}

// rest prints what a command printed and was not printed yet.
func (f *following) rest(ctx context.Context, call *client.Call, x client.Result) error {
	if x.ExitCode == nil && !x.Unknown { // it wasn't run
		return nil
	}
	if f.printed+f.printedErr == 0 && x.Kept == "" { // all of it is in the result
		_, _ = io.WriteString(f.out, safely(f.out, x.Stdout))
		_, _ = io.WriteString(f.errs, safely(f.errs, x.Stderr))
		return nil
	}
	var err error
	for range 3 { // a connection may break off
		if f.whole || ctx.Err() != nil {
			break
		}
		err = f.follow(ctx, call)
	}
	switch {
	case f.whole, x.Unknown:
		return nil
	case err != nil:
		return fmt.Errorf("the rest of its output can't be read: %w", err)
	}
	return errors.New("the rest of its output was not kept (outputs.max_bytes, outputs.keep)")
}

// executed prints the rest of what a command printed, and ends as it ended.
func (f *following) executed(ctx context.Context, call *client.Call, x client.Result) error {
	err := f.rest(ctx, call, x)
	switch {
	case x.Unknown:
		return cli.Exit(execUnknown, "it has no exit code: "+whole(x.Note))
	case x.ExitCode == nil:
		return cli.Exit(execNotRun, "not run: "+whole(x.Note))
	case err != nil:
		return cli.Exit(execPartial, fmt.Sprintf("it ended with exit code %d, and %s", *x.ExitCode, whole(err.Error())))
	case *x.ExitCode == 0:
		return nil
	}
	return cli.Exit(*x.ExitCode, "")
}

// whole is a text of others in one line, as long as it is.
func whole(s string) string { return strings.Join(strings.Fields(visible.Text(s)), " ") }

// safely is text for a writer: as it is for programs, and without what a terminal would obey.
func safely(w io.Writer, text string) string {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	var safe screenFilter
	return string(safe.pass([]byte(text)))
}
