package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/adapters/chat/visible"
	"countersign/config"
	"countersign/targets/record"
)

// Recording is what a terminal of a conversation has shown.
type Recording struct {
	ID       string    `json:"id"`
	Session  string    `json:"session"`
	Pane     string    `json:"pane"`
	Started  time.Time `json:"started"`
	Duration float64   `json:"duration"` // seconds
}

func (c *Client) recordings(ctx context.Context, thread string) ([]Recording, error) {
	var got struct {
		Recordings []Recording `json:"recordings"`
	}
	err := c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(thread)+"/recordings", nil, &got)
	if got.Recordings == nil {
		got.Recordings = []Recording{}
	}
	return got.Recordings, err
}

// pace is how a recording is played.
type pace struct {
	speed float64
	idle  time.Duration // the longest pause
}

func replayCommand() *cobra.Command {
	p := pace{}
	c := asks(&cobra.Command{
		Use: "replay THREAD [RECORDING]", Short: "Play what a terminal has shown, or list the recordings of a conversation", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeRecordings,
	}, func(ctx context.Context, cl *Client, o *output, out io.Writer, args []string) error {
		if p.speed <= 0 || p.idle < 0 {
			return config.Errorf("--speed is a number above 0, and --idle a time such as 2s")
		}
		if len(args) == 1 {
			list, err := cl.recordings(ctx, args[0])
			if err != nil {
				return err
			}
			var rows [][]string
			for _, r := range list {
				rows = append(rows, []string{r.ID, ago(r.Started, time.Now()), brief(time.Duration(r.Duration * float64(time.Second))), r.Session + " " + r.Pane})
			}
			return o.print(out, list, []string{"RECORDING", "BEGAN", "LENGTH", "TERMINAL"}, rows)
		}
		raw, err := cl.Get(ctx, http.MethodGet, "/threads/"+url.PathEscape(args[0])+"/recordings/"+url.PathEscape(args[1]), nil, nil)
		if err != nil {
			return err
		}
		if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			defer func() { _, _ = io.WriteString(out, leaveScreen) }()
		} else {
			p.idle = 0 // nobody watches
		}
		return play(ctx, out, bytes.NewReader(raw), p)
	})
	c.Flags().Float64Var(&p.speed, "speed", 1, "how much faster than it was")
	c.Flags().DurationVar(&p.idle, "idle", 2*time.Second, "the longest pause")
	return c
}

var completeRecordings = either(completeThreads, completes(1, func(ctx context.Context, cl *Client, args []string) ([]Recording, error) {
	return cl.recordings(ctx, args[0])
},
	func(r Recording) (what, is string) { return r.ID, r.Session + " " + r.Pane }))

// play shows a recording at its pace.
func play(ctx context.Context, out io.Writer, in io.Reader, p pace) error {
	r, err := record.NewReader(in)
	if err != nil {
		return err
	}
	var safe screenFilter
	last := time.Duration(0)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		pause := min(time.Duration(float64(e.At-last)/p.speed), p.idle)
		if last = e.At; e.Code != record.Output {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := out.Write(safe.pass([]byte(e.Data))); err != nil {
			return err
		}
	}
}

func logsCommand() *cobra.Command {
	var find string
	follow := false
	c := asks(&cobra.Command{Use: "logs", Short: "Print what was asked for, decided and run in the last week; -f goes on as it happens", Args: cobra.NoArgs},
		func(ctx context.Context, cl *Client, o *output, out io.Writer, _ []string) error {
			if follow && o.format != "table" {
				return config.Errorf("-f prints lines for people; leave out -o %s", o.format)
			}
			seen := map[string]bool{}
			tick := time.NewTicker(lookEvery)
			defer tick.Stop()
			for {
				var list rowsOf
				if err := cl.Call(ctx, http.MethodGet, "/lists/audit?"+url.Values{"q": {find}}.Encode(), nil, &list); err != nil {
					return err
				}
				slices.Reverse(list.Rows) // the newest comes last here
				columns, rows, items := list.forPeople(func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") })
				if !follow {
					return o.print(out, items, columns, rows)
				}
				for i, r := range rows {
					if key := fmt.Sprint(items[i]); !seen[key] {
						seen[key] = true
						for i := range r {
							r[i] = visible.Line(r[i])
						}
						_, _ = fmt.Fprintln(out, strings.TrimRight(strings.Join(r, "  "), " "))
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	c.Flags().StringVar(&find, "find", "", "only lines that have these words")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing until interrupted")
	return c
}
