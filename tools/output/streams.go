package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"countersign/tools"
)

// maxRuns and maxSharedRuns are how many runs of one stream are known of an output, and of one in the store.
const maxRuns, maxSharedRuns = 1 << 17, 1 << 13

// layout says which bytes of a kept text belong to which stream, and what is missing behind its end. The zero
// layout is that of a complete text of standard output.
type layout struct {
	// Runs are the lengths of runs of standard output and of standard error, in turn.
	Runs []int64 `json:"runs,omitempty"`
	// Mixed means that there are too many runs, so that nobody can tell.
	Mixed   bool  `json:"mixed,omitempty"`
	Dropped int64 `json:"dropped,omitempty"`
}

func (l *layout) add(kind tools.EventKind, n int) {
	stream := 0
	if kind == tools.Stderr {
		stream = 1
	}
	switch last := len(l.Runs) - 1; {
	case l.Mixed:
	case last >= 0 && last%2 == stream:
		l.Runs[last] += int64(n)
	case last < 0 && stream == 1:
		l.Runs = []int64{0, int64(n)}
	default:
		if l.Runs = append(l.Runs, int64(n)); len(l.Runs) > maxRuns {
			*l = layout{Mixed: true}
		}
	}
}

// shared is the layout as a row of the store has it.
func (l *layout) shared() layout {
	if len(l.Runs) > maxSharedRuns {
		return layout{Mixed: true, Dropped: l.Dropped}
	}
	return *l
}

// layoutPath is where the layout of a kept text is.
func layoutPath(path string) string { return strings.TrimSuffix(path, ".txt") + ".json" }

// save writes the layout beside a kept text, unless it is that of most.
func (l *layout) save(path string) error {
	if len(l.Runs) <= 1 && !l.Mixed && l.Dropped == 0 {
		if err := os.Remove(layoutPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an interrupted run
			return err
		}
		return nil
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(layoutPath(path), raw, 0o600)
}

func loadLayout(path string) (l layout, err error) {
	raw, err := os.ReadFile(layoutPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	return l, err
}

// Streams passes on an output of a thread, in the order in which it came and with the stream of each piece.
// whole is false if something is missing, or nobody knows which stream a byte belongs to; then nothing may have
// been passed on.
func (l *Log) Streams(ctx context.Context, thread, id string, pass func(tools.Event) error) (whole bool, err error) {
	o, err := l.open(ctx, thread, id)
	if err != nil {
		return false, err
	}
	defer func() { _ = o.Close() }()
	if o.cut || o.layout.Mixed {
		return false, nil
	}
	runs := o.layout.Runs
	if len(runs) == 0 {
		runs = []int64{math.MaxInt64}
	}
	buf := make([]byte, 32<<10)
	for i, n := range runs {
		e := tools.Event{Kind: tools.Stdout}
		if i%2 == 1 {
			e.Kind = tools.Stderr
		}
		for in := io.LimitReader(o, n); ; {
			k, err := in.Read(buf)
			if k > 0 {
				e.Text = string(buf[:k])
				if err := pass(e); err != nil {
					return false, err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return false, fmt.Errorf("output: %s can't be read: %w", id, err)
			}
		}
	}
	return o.layout.Dropped == 0, nil
}
