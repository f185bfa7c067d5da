package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"countersign/internal/config"
)

func TestExitStatus(t *testing.T) {
	for _, tc := range []struct {
		rule        string
		err         error
		interrupted bool
		want        int
		prints      string
	}{
		{"well", nil, false, 0, ""},
		{"the thing failed", errors.New("no\nluck"), false, 1, "bot: no luck\n"},
		{"usage", config.Errorf("say %s", "what"), false, 2, "bot: say what\n"},
		{"wrapped usage", fmt.Errorf("start: %w", config.Errorf("say what")), false, 2, "bot: start: say what\n"},
		{"interrupted", context.Canceled, true, 130, ""},
		{"interrupted and well", nil, true, 130, ""},
	} {
		var b strings.Builder
		if got := Status(tc.err, tc.interrupted, "", &b); got != tc.want || b.String() != tc.prints {
			t.Errorf("%s: status %d, prints %q", tc.rule, got, b.String())
		}
	}
}

// An error is one sentence on a line, which scripts look for; its document stands below.
func TestAnErrorNamesItsDocumentBelow(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("no luck"), "bot: no luck\nRead more: bot docs backup\n"},
		{config.Errorf("policy.reads is wrong"), "bot: policy.reads is wrong\nRead more: bot docs policy-rules\n"},
		{Exit(125, "denied"), "bot: denied\n"},
	} {
		var b strings.Builder
		Status(tc.err, false, "backup", &b)
		if b.String() != tc.want {
			t.Errorf("%v: %q", tc.err, b.String())
		}
	}
}
