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
	// Burst lines of one [Journal] are logged at once, and then one each second: what
	// a program writes must not fill the log.
	Burst    = 20
	interval = time.Second
	// MaxLine is how many bytes of a line are looked at. More of it than is logged,
	// because a secret may begin before the cut.
	MaxLine = 8 << 10
	// maxLogged is how many characters of a line are logged.
	maxLogged = 500
)

// Journal logs what a program does wrong or says beside the protocol: redacted,
// without invisible characters, cut, and no more than the log can bear. It is safe for
// concurrent use.
type Journal struct {
	log    *slog.Logger
	redact func(string) string
	now    func() time.Time

	mu      sync.Mutex
	used    float64 // of Burst
	last    time.Time
	dropped int
}

// NewJournal makes the journal of one program; log names it.
func NewJournal(log *slog.Logger, redact func(string) string, now func() time.Time) *Journal {
	return &Journal{log: log, redact: redact, now: now}
}

// allow tells whether a line may be logged now, and how many were not since the
// last one.
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

// Warn logs a sentence with foreign text beside it, of which the first [MaxLine] bytes
// count.
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
	j.log.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // every caller gives a literal
}

// Lines logs msg with each line of a program's standard error until that ends. It never
// stops reading, because the program would wait for it.
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
