package courier

import (
	"net/http"
	"testing"
	"time"
)

func TestHowLongAReceiverAsksToWait(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, "-5": 0, "soon": 0, "999999": askable,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {said}}, now); got != want {
			t.Errorf("%q: %s, not %s", said, got, want)
		}
	}
}
