package shell

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"countersign/tools"
)

// wait is how long a call waits for its command.
type wait struct {
	dispatch bool
	limit    time.Duration
}

func parseWait(raw json.RawMessage, most time.Duration) (wait, error) {
	var v any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &v); err != nil {
			return wait{}, tools.Invalid(`"wait": %v`, err)
		}
	}
	var d time.Duration
	switch x := v.(type) {
	case nil:
		return wait{limit: most}, nil
	case bool:
		return wait{dispatch: !x, limit: most}, nil
	case float64:
		if x > maxNamedWait.Seconds() {
			return wait{}, tooLong()
		}
		d = time.Duration(x) * time.Second
	case string:
		x = strings.TrimSpace(x)
		switch strings.ToLower(x) {
		case "true":
			return wait{limit: most}, nil
		case "false":
			return wait{dispatch: true}, nil
		}
		var err error
		if n, nerr := strconv.Atoi(x); nerr == nil {
			if n > int(maxNamedWait.Seconds()) {
				return wait{}, tooLong()
			}
			d = time.Duration(n) * time.Second
		} else if d, err = time.ParseDuration(x); err != nil {
			return wait{}, tools.Invalid(`"wait": %s is no duration; use true, false, a number of seconds, or text like "30s", "10m", "1h"`, tools.Quote(x))
		}
	default:
		return wait{}, tools.Invalid(`"wait" must be true, false, a number of seconds, or text like "30s"`)
	}
	switch {
	case d <= 0:
		return wait{}, tools.Invalid(`"wait" must be longer than nothing; use false to not wait`)
	case d > maxNamedWait:
		return wait{}, tooLong()
	}
	return wait{limit: d}, nil
}

func tooLong() error {
	return tools.Invalid(`"wait" can be 24h at most; use false and look again later with capture-pane`)
}
