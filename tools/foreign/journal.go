package foreign

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// Burst lines of one [Journal] are logged at once, then one per second, so that a program
	// cannot fill the log.
	Burst    = 20
	interval = time.Second
	// MaxLine is how many bytes of a line are redacted: more than are logged, because a secret may
	// begin before the cut.
	MaxLine = 8 << 10
	// maxLogged is how many characters of a line are logged.
	maxLogged = 500
)

// Journal logs a program's protocol errors and stderr: redacted, without invisible characters,
// shortened and rate-limited. It is safe for concurrent use.
type Journal struct {
	log    *slog.Logger
	redact func(string) string
	now    func() time.Time

	mu      sync.Mutex
	used    float64 // of Burst
	last    time.Time
	dropped int
}

// NewJournal returns the journal of one program; log should name the program.
func NewJournal(log *slog.Logger, redact func(string) string, now func() time.Time) *Journal {
	return &Journal{log: log, redact: redact, now: now}
}

// allow reports whether a line may be logged now, and how many were dropped since the last one.
func (j *Journal) allow() (dropped int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	j.used = max(0, j.used-float64(now.Sub(j.last))/float64(interval))
	j.last = now
	if j.used > Burst-1 {
		j.dropped++
		return 0, false
	}
	j.used++
	dropped, j.dropped = j.dropped, 0
	return dropped, true
}

// Warn logs msg with foreign text, of which at most the first [MaxLine] bytes.
func (j *Journal) Warn(ctx context.Context, msg, text string) {
	j.write(ctx, slog.LevelWarn, msg, text)
}

func (j *Journal) write(ctx context.Context, level slog.Level, msg, text string) {
	dropped, ok := j.allow()
	if !ok {
		return
	}
	var attrs []slog.Attr
	if text != "" {
		attrs = append(attrs, slog.String("text", Line(j.redact(text[:min(len(text), MaxLine)]), maxLogged)))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("not_logged", dropped))
	}
	j.log.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // every caller passes a literal
}

// Lines logs msg with each line of a program's stderr until it ends. It never stops reading,
// because that would block the program.
func (j *Journal) Lines(ctx context.Context, msg string, r io.Reader) {
	in := bufio.NewReaderSize(r, MaxLine)
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return
		}
		text := string(line)
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if strings.TrimSpace(text) != "" {
			j.write(ctx, slog.LevelInfo, msg, text)
		}
	}
}
