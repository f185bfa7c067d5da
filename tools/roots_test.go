package tools_test

import (
	"testing"

	"countersign/tools"
)

func TestOffLimitsNamesWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		resolved string
		roots    []string
		want     string
	}{
		{"/etc/x", []string{"/srv/a", "/var/log"}, "x is outside of the directories that tools may use on this target: /srv/a, /var/log"},
		{"/srv/ab", []string{"/srv/a"}, "x is outside of the directories that tools may use on this target: /srv/a"},
		{"/srv/a/data", []string{"/srv/a/"}, "x is private to the bot or another process and cannot be used by a tool"},
		{"/data", nil, "x is private to the bot or another process and cannot be used by a tool"},
		{"/data", []string{"/"}, "x is private to the bot or another process and cannot be used by a tool"},
	} {
		if got := tools.OffLimits("x", tt.resolved, tt.roots).Error(); got != tt.want {
			t.Errorf("%s within %v: %s", tt.resolved, tt.roots, got)
		}
	}
}
