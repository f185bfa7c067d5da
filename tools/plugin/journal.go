package plugin

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// burst lines of one plugin are logged at once, and then one each interval:
	// what a plugin writes must not fill the log.
	burst    = 20
	interval = time.Second
	// maxLogged bounds one logged line, in bytes.
	maxLogged = 500
	// maxStderr bounds a line of the standard error, in bytes.
	maxStderr = 8 << 10
)

// journal logs what a plugin does wrong or says beside the protocol: redacted,
// without invisible characters, cut, and no more than the log can bear.
type journal struct {
	log    *slog.Logger
	plugin string
	redact func(string) string
	now    func() time.Time

	mu      sync.Mutex
	used    float64 // of burst
	last    time.Time
	dropped int
}

// allow tells whether a line may be logged now, and how many were not since the
// last one.
func (j *journal) allow() (dropped int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	j.used = max(0, j.used-float64(now.Sub(j.last))/float64(interval))
	j.last = now
	if j.used > burst-1 {
		j.dropped++
		return 0, false
	}
	j.used++
	dropped, j.dropped = j.dropped, 0
	return dropped, true
}

// warn logs a line with foreign text beside it.
func (j *journal) warn(ctx context.Context, msg, foreign string) {
	dropped, ok := j.allow()
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("plugin", j.plugin)}
	if foreign != "" {
		// Redacting looks at the whole text: a secret may begin before the cut.
		attrs = append(attrs, slog.String("text", oneLine(j.redact(foreign), maxLogged)))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("not_logged", dropped))
	}
	j.log.LogAttrs(ctx, slog.LevelWarn, msg, attrs...) //nolint:sloglint // every caller gives a literal
}

// stderr logs what comes from a plugin's standard error until it ends.
func (j *journal) stderr(ctx context.Context, r io.Reader) {
	lines := newLineReader(r, maxStderr)
	for {
		line, _, err := lines.next()
		if err != nil {
			return
		}
		if len(line) > 0 {
			j.warn(ctx, "a plugin writes to its standard error", string(line))
		}
	}
}
