package remote

import (
	"bufio"
	"context"
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
	"countersign/adapters/chat/visible"
	"countersign/cli/words"
	"countersign/client"
	"countersign/client/account"
	"countersign/client/hook"
	"countersign/config"
	"countersign/console/api"
)

// Operator is where the bot of this machine is, by the address for people and by its own, with a code for one request of its operator's, or one that
// signs a person in once. It fails for whoever doesn't run the bot.
type Operator func(user string) (address, own, code string, err error)

// Commands are those that talk to a running bot.
// version is the program's.
func Commands(version string, operator Operator) []*cobra.Command {
	return []*cobra.Command{threadsCommand(), showCommand(), sendCommand(), execCommand(), requestCommand(), callsCommand(), mcpCommand(version), hookCommand(), approvalsCommand(operator), sessionsCommand(), attachCommand(), replayCommand(), logsCommand(), tokensCommand(operator), logoutCommand()}
}

// asks makes a command that asks the bot and prints what it says.
func asks(c *cobra.Command, run func(ctx context.Context, cl *Client, o *output, out io.Writer, args []string) error) *cobra.Command {
	o := &output{}
	c.Flags().StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.valid(); err != nil {
			return err
		}
		a, err := Load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), New(a), o, cmd.OutOrStdout(), args)
	}
	return c
}

// Thread is a conversation.
type Thread struct {
	ID    string    `json:"id"`
	Title string    `json:"title"`
	State string    `json:"state"` // waiting, working or idle
	At    time.Time `json:"at"`
}

func threadsCommand() *cobra.Command {
	var find, filter string
	c := asks(&cobra.Command{Use: "threads", Short: "List conversations of the web console, the newest first", Args: cobra.NoArgs},
		func(ctx context.Context, cl *Client, o *output, out io.Writer, _ []string) error {
			list, err := cl.threads(ctx, find, filter)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, t := range list {
				rows = append(rows, []string{t.ID, t.State, ago(t.At, time.Now()), t.Title})
			}
			return o.print(out, list, []string{"THREAD", "STATE", "LAST", "TITLE"}, rows)
		})
	c.Flags().StringVar(&find, "find", "", "only those that have these words")
	c.Flags().StringVar(&filter, "filter", "", "mine, open, unread, alerts or archived")
	return c
}

func (c *Client) threads(ctx context.Context, find, filter string) ([]Thread, error) {
	var got struct {
		Threads []Thread `json:"threads"`
	}
	err := c.Call(ctx, http.MethodGet, "/threads?"+url.Values{"q": {find}, "filter": {filter}}.Encode(), nil, &got)
	if got.Threads == nil {
		got.Threads = []Thread{}
	}
	return got.Threads, err
}

// Message is one message of a conversation.
type Message struct {
	Seq  uint64 `json:"seq"`
	Rev  uint64 `json:"rev"`
	From struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"from"`
	At   time.Time  `json:"at"`
	Text string     `json:"text"`
	Card *chat.Card `json:"card,omitempty"`
	Kind string     `json:"kind"` // human or bot
}

// page is what the bot says of a conversation.
type page struct {
	Thread   Thread    `json:"thread"`
	Messages []Message `json:"messages"`
}

func (c *Client) page(ctx context.Context, thread string) (p page, err error) {
	return p, c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(thread), nil, &p)
}

// completes completes the argument after n others with what the bot lists: what is written and a tab
// with what it is.
func completes[T any](n int, find func(ctx context.Context, cl *Client, args []string) ([]T, error), show func(T) (what, is string)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		a, err := Load()
		if err != nil || len(args) != n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _ := find(cmd.Context(), New(a), args) // no list is no help
		for _, x := range list {
			what, is := show(x)
			out = append(out, what+"\t"+visible.Line(is))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// either completes the first argument by one and the second by another.
func either(first, second cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return first(cmd, args, part)
		}
		return second(cmd, args, part)
	}
}

var completeThreads = completes(0, func(ctx context.Context, cl *Client, _ []string) ([]Thread, error) { return cl.threads(ctx, "", "") },
	func(t Thread) (what, is string) { return t.ID, t.Title })

func showCommand() *cobra.Command {
	follow := false
	c := asks(&cobra.Command{Use: "show THREAD", Short: "Print a conversation; -f goes on as it grows", Args: cobra.ExactArgs(1), ValidArgsFunction: completeThreads},
		func(ctx context.Context, cl *Client, o *output, out io.Writer, args []string) error {
			p, err := cl.page(ctx, args[0])
			if err != nil {
				return err
			}
			if o.format != "table" {
				return o.print(out, p, nil, nil)
			}
			seen := map[uint64]string{}
			tell(out, p, seen)
			if !follow {
				return nil
			}
			return cl.follow(ctx, args[0], out, seen, func(page) bool { return false })
		})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing until interrupted")
	return c
}

// lookEvery is how often a conversation that is followed is looked at.
const lookEvery = time.Second

// follow prints what comes until over says so.
func (c *Client) follow(ctx context.Context, thread string, out io.Writer, seen map[uint64]string, over func(page) bool) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		p, err := c.page(ctx, thread)
		if err != nil {
			return err
		}
		if tell(out, p, seen); over(p) {
			return nil
		}
	}
}

// tell prints the messages that were not printed yet as they are now.
func tell(out io.Writer, p page, seen map[uint64]string) {
	for _, m := range p.Messages {
		text := told(m)
		if text == "" || seen[m.Seq] == text {
			continue
		}
		seen[m.Seq] = text
		_, _ = fmt.Fprintf(out, "%s %s\n%s\n\n", m.At.Local().Format("15:04"), visible.Line(m.From.Name), text)
	}
}

// told is a message as text.
func told(m Message) string {
	if m.Card == nil {
		return shown(m.Text)
	}
	return cardText(*m.Card)
}

// cardText is a card as text: what, the risk, the exact command, and who decides.
func cardText(c chat.Card) string {
	var b strings.Builder
	line := func(s string) {
		if s = strings.TrimSpace(shown(s)); s != "" {
			b.WriteString(s + "\n")
		}
	}
	title := c.Title
	if c.Env != "" {
		title += " · " + c.Env
	}
	line(title)
	line(c.Risk)
	if code := shown(c.Code); code != "" {
		b.WriteString("    " + strings.ReplaceAll(code, "\n", "\n    ") + "\n")
	}
	line(c.Context)
	for _, s := range c.Preview {
		line(s)
	}
	line(c.Body)
	for _, s := range c.Warn {
		line("! " + s)
	}
	if c.Why != "" {
		line("The agent says: " + c.Why)
	}
	line(c.Footer)
	if !c.Final && !c.Expires.IsZero() {
		line("Expires " + ago(c.Expires, time.Now()) + ".")
	}
	return strings.TrimRight(b.String(), "\n")
}

func sendCommand() *cobra.Command {
	var thread string
	wait := false
	c := asks(&cobra.Command{
		Use: "send TEXT", Short: "Say something in a conversation, or begin one; it prints the conversation's id", Args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, cl *Client, o *output, out io.Writer, args []string) error {
		path := "/threads"
		if thread != "" {
			path += "/" + url.PathEscape(thread) + "/messages"
		}
		var got struct {
			Thread string `json:"thread"`
		}
		seen := map[uint64]string{}
		if wait && thread != "" {
			p, err := cl.page(ctx, thread)
			if err != nil {
				return err
			}
			tell(io.Discard, p, seen)
		}
		if err := cl.Call(ctx, http.MethodPost, path, map[string]string{"id": newID(), "text": strings.Join(args, " ")}, &got); err != nil {
			return err
		}
		if err := o.print(out, got, []string{"THREAD"}, [][]string{{got.Thread}}); err != nil || !wait {
			return err
		}
		answered := false
		return cl.follow(ctx, got.Thread, out, seen, func(p page) bool {
			if n := len(p.Messages); n > 0 && p.Messages[n-1].Kind == "bot" {
				answered = true
			}
			return answered && p.Thread.State != "working"
		})
	})
	c.Flags().StringVar(&thread, "thread", "", "conversation to say it in; without it a new one begins")
	c.Flags().BoolVar(&wait, "wait", false, "print what comes until the bot has answered or waits for a decision")
	return c
}

// Approval is a request that waits for a decision.
type Approval struct {
	ID      string    `json:"id"`
	Thread  string    `json:"thread"`
	Network string    `json:"network,omitempty"` // where its thread is; "" is the web console
	Mine    bool      `json:"mine"`              // whether this person may decide it
	Card    chat.Card `json:"card"`
}

func (c *Client) approvals(ctx context.Context) ([]Approval, error) {
	var home struct{ Yours, Others []Approval }
	if err := c.Call(ctx, http.MethodGet, "/home", nil, &home); err != nil {
		return nil, err
	}
	list := []Approval{}
	for _, a := range home.Yours {
		a.Mine = true
		list = append(list, a)
	}
	return append(list, home.Others...), nil
}

func (c *Client) approval(ctx context.Context, id string) (Approval, error) {
	list, err := c.approvals(ctx)
	if err != nil {
		return Approval{}, err
	}
	for _, a := range list {
		if a.ID == id {
			return a, nil
		}
	}
	return Approval{}, fmt.Errorf("no request %s waits; list those that do with %s approvals", id, words.Program())
}

func approvalsCommand(operator Operator) *cobra.Command {
	list := func(ctx context.Context, cl *Client, o *output, out io.Writer, _ []string) error {
		all, err := cl.approvals(ctx)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, a := range all {
			who := "others"
			if a.Mine {
				who = "you"
			}
			rows = append(rows, []string{a.ID, who, a.Card.Risk, ago(a.Card.Expires, time.Now()), a.Card.Title})
		}
		return o.print(out, all, []string{"REQUEST", "NEEDS", "RISK", "EXPIRES", "WHAT"}, rows)
	}
	c := asks(&cobra.Command{Use: "approvals", Short: "List, show, approve or deny what waits for a decision", Args: cobra.NoArgs}, list)
	c.AddCommand(
		asks(&cobra.Command{Use: "list", Short: "List what waits for a decision", Args: cobra.NoArgs}, list),
		asks(&cobra.Command{Use: "show REQUEST", Short: "Print a request as its card shows it", Args: cobra.ExactArgs(1), ValidArgsFunction: completeApprovals},
			func(ctx context.Context, cl *Client, o *output, out io.Writer, args []string) error {
				a, err := cl.approval(ctx, args[0])
				if err != nil {
					return err
				}
				if o.format != "table" {
					return o.print(out, a, nil, nil)
				}
				_, err = fmt.Fprintln(out, cardText(a.Card))
				return err
			}),
		decideCommand(chat.StyleApprove, operator), decideCommand(chat.StyleDeny, operator),
	)
	return c
}

var completeApprovals = completes(0, func(ctx context.Context, cl *Client, _ []string) ([]Approval, error) { return cl.approvals(ctx) },
	func(a Approval) (what, is string) { return a.ID, a.Card.Title })

// decideCommand approves or denies. That is a person's, and no token does it: they sign in by a link for
// this one press. Who runs the bot needs none on its machine.
func decideCommand(style chat.ButtonStyle, operator Operator) *cobra.Command {
	verb, short := "deny", "Deny a request on this terminal with a sign-in link"
	if style == chat.StyleApprove {
		verb, short = "approve", "Approve a request on this terminal with a sign-in link"
	}
	var reason string
	c := &cobra.Command{Use: verb + " REQUEST", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: completeApprovals}
	c.Flags().StringVar(&reason, "reason", "", "what the agent and the record are told; in solo mode, the target's name")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, out, where, link := cmd.Context(), cmd.OutOrStdout(), "on its card", ""
		f, ok := cmd.InOrStdin().(*os.File)
		ok = ok && term.IsTerminal(int(f.Fd()))
		in := bufio.NewReader(cmd.InOrStdin())
		a, err := Load()
		if err == nil {
			where = "at " + a.URL
		} else if at, _, _, err := operator(""); err == nil && ok { // it is the bot's machine, where nobody signed in
			_, _ = fmt.Fprintf(out, "Your name at %s: ", at)
			a.User, _ = in.ReadString('\n') // "" is none
			a.URL, a.User = at, strings.TrimSpace(a.User)
		}
		if at, own, code, err := operator(a.User); err == nil && (a.URL == at || a.URL == own) && a.User != "" {
			link = at + "/#code=" + code
		}
		if !ok && (style == chat.StyleApprove || link == "") {
			return config.Errorf("no terminal to ask on; press the button %s, or run this on a terminal", where)
		}
		if link == "" {
			_, _ = fmt.Fprintf(out, "Press the button %s, or paste your link to sign in here (%s login NAME prints one on the bot's machine): ", where, words.Program())
			if link, err = in.ReadString('\n'); err != nil || strings.TrimSpace(link) == "" {
				return errors.New("nothing was decided")
			}
		}
		v, err := visitBy(ctx, link)
		if err != nil {
			return err
		}
		return errors.Join(v.decide(ctx, in, out, args[0], style, verb, reason), v.leave(ctx))
	}
	return c
}

// decide shows a request to a person, and presses a button of its card after their yes.
func (v visit) decide(ctx context.Context, in *bufio.Reader, out io.Writer, request string, style chat.ButtonStyle, verb, reason string) error {
	a, err := v.approval(ctx, request)
	if err != nil {
		return err
	}
	button := buttonOf(a.Card, style)
	if button == "" {
		return fmt.Errorf("you can't %s request %s here: %s", verb, a.ID, shown(a.Card.Footer))
	}
	if style == chat.StyleApprove {
		_, _ = fmt.Fprintf(out, "%s\n\nApprove this as %s? Write yes: ", cardText(a.Card), visible.Line(v.user))
		if line, err := in.ReadString('\n'); err != nil || strings.TrimSpace(line) != "yes" {
			return errors.New("nothing was decided")
		}
	}
	var said struct {
		OK     bool   `json:"ok"`
		Notice string `json:"notice"`
	}
	press := map[string]string{"id": newID(), "button": button, "reason": reason}
	if err := v.post(ctx, "/threads/"+url.PathEscape(a.Thread)+"/clicks", press, &said); err != nil {
		return err
	}
	if !said.OK {
		return errors.New(strings.TrimSuffix(shown(said.Notice), "."))
	}
	_, err = fmt.Fprintln(out, shown(said.Notice))
	return err
}

// buttonOf is the button of a card that approves or denies once.
func buttonOf(c chat.Card, style chat.ButtonStyle) string {
	for _, b := range c.Choose {
		if b.Style == style && !b.More {
			return string(b.ID)
		}
	}
	return ""
}

// rowsOf is a list of the console.
type rowsOf struct {
	Columns []string `json:"columns"`
	Rows    []struct {
		Cells []api.Cell `json:"cells"`
	} `json:"rows"`
}

// forPeople is the list as a table, with moments as at says them, and as values for programs.
func (l rowsOf) forPeople(at func(time.Time) string) (columns []string, rows [][]string, items []map[string]any) {
	items = []map[string]any{}
	for _, r := range l.Rows {
		var cells []string
		item := map[string]any{}
		for i, c := range r.Cells {
			value := c.Text
			if !c.At.IsZero() {
				value = at(c.At)
			}
			cells = append(cells, value)
			if i < len(l.Columns) {
				if item[strings.ToLower(l.Columns[i])] = any(c.Text); !c.At.IsZero() {
					item[strings.ToLower(l.Columns[i])] = c.At
				}
			}
		}
		rows, items = append(rows, cells), append(items, item)
	}
	for _, c := range l.Columns {
		columns = append(columns, strings.ToUpper(c))
	}
	return columns, rows, items
}

func sessionsCommand() *cobra.Command {
	return asks(&cobra.Command{Use: "sessions", Short: "List the terminals on the targets reached so far", Args: cobra.NoArgs},
		func(ctx context.Context, cl *Client, o *output, out io.Writer, _ []string) error {
			var list rowsOf
			if err := cl.Call(ctx, http.MethodGet, "/lists/terminals", nil, &list); err != nil {
				return err
			}
			columns, rows, items := list.forPeople(func(t time.Time) string { return ago(t, time.Now()) })
			return o.print(out, items, columns, rows)
		})
}

// Token is a token as its person sees it.
type Token struct {
	ID      string    `json:"id"`
	User    string    `json:"user,omitempty"` // to the operator
	Name    string    `json:"name"`
	Program string    `json:"program,omitempty"`
	Scope   string    `json:"scope"`
	Begun   time.Time `json:"begun"`
	Expires time.Time `json:"expires"`
	Seen    time.Time `json:"seen,omitzero"`
}

func tokensCommand(operator Operator) *cobra.Command {
	of := ""
	type tokens struct {
		Tokens []Token `json:"tokens"`
	}
	operate := func(ctx context.Context, in map[string]string) (got tokens, err error) {
		at, _, code, err := operator("")
		if err != nil {
			return got, err
		}
		return got, New(Account{URL: at}).Do(ctx, http.MethodPost, "/operator/tokens", in, &got, http.Header{"Authorization": {"Operator " + code}})
	}
	list := func(ctx context.Context, o *output, out io.Writer) error {
		var got tokens
		var err error
		if of != "" {
			got, err = operate(ctx, map[string]string{"of": of})
		} else if a, failed := Load(); failed != nil {
			err = failed
		} else {
			err = New(a).Call(ctx, http.MethodGet, "/tokens", nil, &got)
		}
		if err != nil {
			return err
		}
		if of != "" && len(got.Tokens) == 0 && o.format == "table" {
			_, err = fmt.Fprintf(out, "%s has no tokens.\n", of)
			return err
		}
		var rows [][]string
		for _, t := range got.Tokens {
			rows = append(rows, []string{t.ID, t.Scope, ago(t.Expires, time.Now()), ago(t.Seen, time.Now()), t.Name})
		}
		return o.print(out, got.Tokens, []string{"TOKEN", "SCOPE", "EXPIRES", "USED", "NAME"}, rows)
	}
	lists := func(use, short string) *cobra.Command {
		o := &output{}
		c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.valid(); err != nil {
				return err
			}
			return list(cmd.Context(), o, cmd.OutOrStdout())
		}}
		c.Flags().StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
		_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
		c.Flags().StringVar(&of, "of", "", "on the bot's machine: the tokens of this person")
		return c
	}
	c := lists("tokens", "List or revoke your tokens, and on the bot's machine anybody's; login LINK makes one")
	c.AddCommand(lists("list", "List tokens"), &cobra.Command{
		Use: "end TOKEN", Short: "On the bot's machine: end anybody's token, by its id", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := operate(cmd.Context(), map[string]string{"end": args[0]})
			return err
		},
	}, &cobra.Command{
		Use: "revoke TOKEN", Short: "End a token, by its id", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := Load()
			if err != nil {
				return err
			}
			return New(a).Call(cmd.Context(), http.MethodPost, "/tokens/"+url.PathEscape(args[0])+"/end", struct{}{}, nil)
		},
	})
	return c
}

func logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the token of this command line and forget it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := Load()
			if err != nil {
				return err
			}
			err = New(a).Call(cmd.Context(), http.MethodPost, "/tokens/"+url.PathEscape(a.ID)+"/end", struct{}{}, nil)
			if over, ok := errors.AsType[*client.Error](err); ok && over.Status == http.StatusUnauthorized {
				err = nil // it had ended
			}
			return errors.Join(err, account.Forget())
		},
	}
}

// Login signs this command line in by a link, and keeps the token or prints it.
func Login(ctx context.Context, out io.Writer, link string, w Wish, show bool) error {
	a, err := SignIn(ctx, link, w)
	if err != nil {
		return err
	}
	if show {
		_, err = fmt.Fprintf(out, "COUNTERSIGN_URL=%s\nCOUNTERSIGN_TOKEN=%s\n", a.URL, a.Token)
		return err
	}
	if err := a.Save(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Signed in at %s as %s, for %d days, with scope %s. %s logout ends it.\n", a.URL, visible.Line(a.User), w.Days, w.Scope, words.Program())
	for _, h := range hook.Programs { // their tokens end with the one from before
		file, noHome := account.HookFile(h.ID)
		if old, none := account.Read(file); noHome != nil || none != nil || old.URL != a.URL || old.User != a.User || w.Scope == "read" {
			continue
		}
		if failed := renew(ctx, h, a, file); failed != nil {
			err = errors.Join(err, fmt.Errorf("the hook of %s has no new token (%w); run %s hook install %s", h.Name, failed, words.Program(), h.ID))
		}
	}
	return err
}
