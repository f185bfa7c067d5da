package config

import (
	"io"
	"log/slog"
)

// Logger returns the bot's logger.
func (e Env) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.LogLevel)); err != nil {
		return nil, Errorf("COUNTERSIGN_LOG_LEVEL is %q; use debug, info, warn or error", e.LogLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch e.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, Errorf("COUNTERSIGN_LOG_FORMAT is %q; use text or json", e.LogFormat)
}
