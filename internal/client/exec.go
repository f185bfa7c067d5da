package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/adapters/chat"
	"countersign/internal/cli"
	"countersign/internal/config"
	"countersign/internal/words"
)

const (
	// execLook is the pause between two looks at a command that runs. It begins with execFirst, since
	// a read ends within milliseconds.
	execLook, execFirst = 200 * time.Millisecond, 4 * time.Millisecond
	// execAway is how long a bot may not answer, as while another replica takes over.
	execAway = time.Minute
	// notBegun is how long a command may take to be known at all.
	notBegun = 30 * time.Second
)

// Exit codes of exec that are not the command's own.
const (
	execNotRun  = 125
	execUnknown = 124
)

func execCommand() *cobra.Command {
	var thread string
	c := &cobra.Command{
		Use: "exec TARGET -- COMMAND", Short: "Run a command on a target: a proven read immediately, anything else once people approve it", Args: cobra.MinimumNArgs(2),
	}
	c.Flags().StringVar(&thread, "thread", "", "conversation to run it in; without it a new one begins")
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
		return New(account).exec(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), thread, args[0], command)
	}
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

// exec runs a command on a target, and prints what it printed.
func (c *Client) exec(ctx context.Context, out, errs io.Writer, thread, target, command string) error {
	thread, x, err := c.run(ctx, wanted{thread: thread, target: target, command: command, waits: func(thread, request string) {
		_, _ = fmt.Fprintf(errs, "Waiting for approval of request %s. %s approvals show %s shows it, and so does %s/#t=%s\n", request, words.Program(), request, c.base, thread)
	}})
	if err != nil {
		return err
	}
	return c.executed(out, errs, thread, x)
}

// wanted is a command that is to run.
type wanted struct {
	thread, target, command string // no thread begins one
	program                 string // that asks for it; "" is the person
	dir, shell              string // where and by what the program would run it itself; "" is not
	waits                   func(thread, request string)
}

// text is the message that asks for it.
func (w wanted) text() string {
	text := "exec " + w.target
	if w.program != "" {
		text += " for " + w.program
	}
	if w.dir != "" {
		dir, _ := json.Marshal(w.dir) // a string can be written
		text += " in " + string(dir)
	}
	if w.shell != "" {
		text += " by " + w.shell
	}
	return text + ": " + w.command
}

// run asks for a command and waits until it has run, or can't.
func (c *Client) run(ctx context.Context, w wanted) (thread string, x chat.Executed, err error) {
	path, before := "/threads", chat.Executed{}
	seen := uint64(0)
	if w.thread != "" {
		path += "/" + url.PathEscape(w.thread) + "/messages"
		if err := c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(w.thread)+"/exec", nil, &before); err != nil {
			return "", x, err
		}
		p, err := c.page(ctx, w.thread)
		if err != nil {
			return "", x, err
		}
		for _, m := range p.Messages {
			seen = max(seen, m.Seq)
		}
	}
	var sent struct {
		Thread string `json:"thread"`
	}
	if err := c.Call(ctx, http.MethodPost, path, map[string]string{"id": newID(), "text": w.text()}, &sent); err != nil {
		return "", x, err
	}
	begun, heard, told := time.Now(), time.Now(), false
	for pause := execFirst; ; pause = min(2*pause, execLook) {
		var x chat.Executed
		err := c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(sent.Thread)+"/exec", nil, &x)
		var no *refusal
		switch {
		case err == nil:
			heard = time.Now()
		case ctx.Err() != nil || errors.As(err, &no) || time.Since(heard) > execAway:
			return sent.Thread, x, err
		}
		switch {
		case err != nil: // it may be a moment without a bot
		case x.Number <= before.Number:
			if why := c.refused(ctx, sent.Thread, seen); why != "" {
				return sent.Thread, chat.Executed{State: chat.ExecDone, Failed: true, Note: why}, nil
			}
			if time.Since(begun) > notBegun {
				return sent.Thread, x, cli.Exit(execNotRun, fmt.Sprintf("the bot hasn't begun it; %s show %s says what it does", words.Program(), sent.Thread))
			}
		case x.State == chat.ExecDone:
			return sent.Thread, x, nil
		case x.State == chat.ExecWaiting && !told:
			told = true
			w.waits(sent.Thread, x.Request)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sent.Thread, x, ctx.Err()
		}
	}
}

// refused is what the bot answered in place of running a command, in messages after one.
func (c *Client) refused(ctx context.Context, thread string, seen uint64) string {
	p, err := c.page(ctx, thread)
	if err != nil {
		return ""
	}
	for _, m := range p.Messages {
		if m.Kind == "bot" && m.Card == nil && m.Seq > seen {
			return strings.TrimSuffix(oneLine(m.Text), ".")
		}
	}
	return ""
}

// executed prints what a command printed, and ends as it ended.
func (c *Client) executed(out, errs io.Writer, thread string, x chat.Executed) error {
	_, _ = io.WriteString(out, safely(out, x.Stdout))
	_, _ = io.WriteString(errs, safely(errs, x.Stderr))
	if x.Kept != "" {
		_, _ = fmt.Fprintf(errs, "\nThis is a part of what it printed; %s/#t=%s has all of it.\n", c.base, thread)
	}
	switch {
	case x.Unknown:
		return cli.Exit(execUnknown, "nobody knows how it ended: "+oneLine(x.Note))
	case x.ExitCode != nil && *x.ExitCode == 0:
		return nil
	case x.ExitCode != nil:
		return cli.Exit(*x.ExitCode, "")
	}
	return cli.Exit(execNotRun, "not run: "+oneLine(x.Note))
}

// safely is text for a writer: as it is for programs, and without what a terminal would obey.
func safely(w io.Writer, text string) string {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	var safe screenFilter
	return string(safe.pass([]byte(text)))
}
