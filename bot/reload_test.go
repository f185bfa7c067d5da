package bot

import (
	"slices"
	"testing"

	"countersign/config"
)

func TestASectionThatNeedsARestartIsNamed(t *testing.T) {
	before, after := config.Defaults(), config.Defaults()
	after.Web.Origin, after.Policy.Reads, after.Tmux.MaxPanes = "https://x", "ask", 3
	if got := sections(fixed(before), fixed(after)); !slices.Equal(got, []string{"tmux", "web"}) {
		t.Errorf("%q", got)
	}
	if got := sections(fixed(before), fixed(config.Defaults())); got != nil {
		t.Errorf("nothing changed, and it names %q", got)
	}
}
