package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/cli/words"
	"countersign/config"
)

const (
	// detachKey ends attach, as it ends telnet: Ctrl-].
	detachKey    = 0x1d
	interruptKey = 0x03
	// takeWithin is how long the keyboard may take to change hands.
	takeWithin = 10 * time.Second
	typedMost  = 64 << 10 // bytes in one frame
)

// Terminal is a terminal of a conversation.
type Terminal struct {
	ID       string `json:"id"`
	Session  string `json:"session"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Keyboard string `json:"keyboard"` // what take and give call it
}

func (c *Client) terminals(ctx context.Context, thread string) ([]Terminal, error) {
	var got struct {
		Panes []Terminal `json:"panes"`
	}
	err := c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(thread)+"/panes", nil, &got)
	return got.Panes, err
}

// label is what a person calls it here.
func (t Terminal) label() string {
	target, _, _ := strings.Cut(t.Keyboard, ":")
	name := strings.TrimPrefix(t.Name, target+" ")
	if name == "shared" { // the first one of a session
		return t.Keyboard
	}
	return t.Keyboard + "/" + name
}

// terminal is the one that is meant; name may be "" where there is only one.
func (c *Client) terminal(ctx context.Context, thread, name string) (Terminal, error) {
	all, err := c.terminals(ctx, thread)
	if err != nil {
		return Terminal{}, err
	}
	var names []string
	for _, t := range all {
		if name == t.label() || name == t.ID || name == "" && len(all) == 1 {
			return t, nil
		}
		names = append(names, t.label())
	}
	switch {
	case len(all) == 0:
		return Terminal{}, errors.New("this conversation has no terminal yet; the first command in one makes it")
	case name == "":
		return Terminal{}, config.Errorf("this conversation has several terminals; name one of %s", strings.Join(names, ", "))
	}
	return Terminal{}, config.Errorf("this conversation has no terminal %s; it has %s", name, strings.Join(names, ", "))
}

func attachCommand() *cobra.Command {
	take := false
	c := &cobra.Command{
		Use: "attach THREAD [TERMINAL]", Short: "Watch a terminal of a conversation, or type in it with --take; Ctrl-] leaves", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeTerminals,
	}
	c.Flags().BoolVar(&take, "take", false, "take the keyboard, and give it back on leaving")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		account, err := Load()
		if err != nil {
			return err
		}
		name := ""
		if len(args) > 1 {
			name = args[1]
		}
		in, _ := cmd.InOrStdin().(*os.File)
		if in != nil && !term.IsTerminal(int(in.Fd())) {
			in = nil
		}
		if take && in == nil {
			return config.Errorf("there is nobody to type: run attach --take on a terminal")
		}
		ctx, cl := cmd.Context(), New(account)
		t, err := cl.terminal(ctx, args[0], name)
		if err != nil {
			return err
		}
		return cl.attach(ctx, args[0], t, in, cmd.OutOrStdout(), take)
	}
	return c
}

var completeTerminals = either(completeThreads, completes(1, func(ctx context.Context, cl *Client, args []string) ([]Terminal, error) {
	return cl.terminals(ctx, args[0])
},
	func(t Terminal) (what, is string) { return t.label(), t.State }))

// say writes in a conversation.
func (c *Client) say(ctx context.Context, thread, text string) error {
	return c.Call(ctx, http.MethodPost, "/threads/"+url.PathEscape(thread)+"/messages", map[string]string{"id": newID(), "text": text}, nil)
}

// seats are who is at a terminal, as the bot tells it.
type seats struct {
	Hands *struct {
		Holder string `json:"holder"`
		Mine   bool   `json:"mine"`
	} `json:"hands"`
	Refused string `json:"refused"`
}

// attached is a terminal that is shown here.
type attached struct {
	c      *Client
	thread string
	t      Terminal
	conn   *websocket.Conn
	in     *os.File // nil: nobody is here to type
	out    io.Writer
	mine   chan bool // whether the keyboard is ours, whenever that changes
}

// attach shows a terminal until it ends or the person leaves. in is their terminal, or nil.
func (c *Client) attach(ctx context.Context, thread string, t Terminal, in *os.File, out io.Writer, take bool) error {
	at := strings.Replace(c.base, "http", "ws", 1) + "/api/panes/" + url.PathEscape(t.ID) + "/live?" +
		url.Values{"thread": {thread}, "hands": {"1"}}.Encode()
	conn, res, err := websocket.Dial(ctx, at, &websocket.DialOptions{ //nolint:bodyclose // Dial closes it
		HTTPClient: &http.Client{CheckRedirect: c.HTTP.CheckRedirect}, HTTPHeader: http.Header{"Authorization": {"Bearer " + c.token}},
	})
	if err != nil {
		if res != nil && res.StatusCode == http.StatusNotFound {
			return errors.New("this terminal has ended")
		}
		return fmt.Errorf("the terminal can't be shown (%w); try again", err)
	}
	defer func() { _ = conn.CloseNow() }() // closed in order where there was time for it
	conn.SetReadLimit(64 << 20)
	a := &attached{c: c, thread: thread, t: t, conn: conn, in: in, out: out, mine: make(chan bool, 16)}
	if in != nil {
		was, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("this terminal can't be used (%w)", err)
		}
		defer func() { _, _ = io.WriteString(out, leaveScreen); _ = term.Restore(int(in.Fd()), was) }()
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	go a.read(ctx, leave)
	if in != nil {
		go a.keys(ctx, leave, take)
	}
	if take {
		switch err := a.take(ctx); {
		case errors.Is(err, errLeft) || errors.Is(err, context.Canceled):
			a.give() // it is on its way
			return nil
		case err != nil:
			return err
		}
		defer a.give()
		a.resize(ctx)
		sized := make(chan os.Signal, 1)
		signal.Notify(sized, syscall.SIGWINCH)
		defer signal.Stop(sized)
		for over := false; !over; {
			select {
			case <-sized:
				a.resize(ctx)
			case <-ctx.Done():
				over = true
			case held := <-a.mine:
				if !held {
					leave(errors.New("somebody else has the keyboard now"))
				}
			}
		}
	}
	<-ctx.Done()
	_ = conn.Close(websocket.StatusNormalClosure, "")
	if err := context.Cause(ctx); !errors.Is(err, errLeft) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// errLeft is the cause when the person leaves, or the terminal ends.
var errLeft = errors.New("left")

// read shows what the terminal shows.
func (a *attached) read(ctx context.Context, leave context.CancelCauseFunc) {
	var safe screenFilter
	for {
		kind, raw, err := a.conn.Read(ctx)
		if err != nil {
			var closed websocket.CloseError
			switch {
			case errors.As(err, &closed) && closed.Code == websocket.StatusNormalClosure:
				leave(errLeft)
			case errors.As(err, &closed) && closed.Reason != "":
				leave(fmt.Errorf("the bot ended this: %s", shown(closed.Reason)))
			default:
				leave(fmt.Errorf("the connection to the bot is lost (%w); attach again", err))
			}
			return
		}
		if kind == websocket.MessageBinary {
			_, _ = a.out.Write(safe.pass(raw))
			continue
		}
		var s seats
		if json.Unmarshal(raw, &s) != nil || s.Hands == nil {
			continue
		}
		select {
		case a.mine <- s.Hands.Mine:
		default: // nobody asks
		}
	}
}

// keys sends keys until the detach key. Who only watches sends none, and may leave by Ctrl-C, too.
func (a *attached) keys(ctx context.Context, leave context.CancelCauseFunc, types bool) {
	leaving := []byte{detachKey}
	if !types {
		leaving = append(leaving, interruptKey)
	}
	b := make([]byte, typedMost)
	for {
		n, err := a.in.Read(b)
		if i := bytes.IndexAny(b[:n], string(leaving)); i >= 0 {
			n, err = i, errLeft
		}
		if types && n > 0 && a.conn.Write(ctx, websocket.MessageBinary, b[:n]) != nil {
			return // the reader says why
		}
		if err != nil {
			leave(errLeft)
			return
		}
	}
}

// take asks for the keyboard in the conversation, where everybody sees it, and waits until it is
// here.
func (a *attached) take(ctx context.Context) error {
	if err := a.c.say(ctx, a.thread, "take "+a.t.Keyboard); err != nil {
		return err
	}
	late := time.NewTimer(takeWithin)
	defer late.Stop()
	for {
		select {
		case held := <-a.mine:
			if held {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("the keyboard hasn't changed hands; %s show %s says why", words.Program(), a.thread)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// give hands the keyboard back to the bot.
func (a *attached) give() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := a.c.say(ctx, a.thread, "give "+a.t.Keyboard); err != nil {
		_, _ = fmt.Fprintf(a.out, "\r\nThe keyboard is still yours (%v); write give %s in the conversation.\r\n", err, a.t.Keyboard)
	}
}

// resize makes the terminal as large as this one.
func (a *attached) resize(ctx context.Context) {
	w, h, err := term.GetSize(int(a.in.Fd()))
	if err != nil {
		return
	}
	raw, err := json.Marshal(map[string][]int{"size": {w, h}})
	if err == nil {
		_ = a.conn.Write(ctx, websocket.MessageText, raw) // the reader finds out
	}
}
