package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/test/needstest"
)

// TestWhatAPreviewCosts says how long cards and approved commands take with and without rehearsals: from
// the message to the card, to its preview, and from the press to the result.
func TestWhatAPreviewCosts(t *testing.T) {
	needstest.Long(t)
	for _, tc := range []struct{ name, config string }{
		{"without", strings.Replace(plainConfig, "tmux: false, ", "tmux: false, rehearse: off, ", 1)},
		{"with", plainConfig},
	} {
		file := filepath.Join(t.TempDir(), "f")
		c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("echo x >>" + file)}}}}).enter(t, tc.config)
		bob := (*chatter)(nil)
		var card, preview, run []time.Duration
		until := func(shown func() bool) {
			for deadline := time.Now().Add(time.Minute); !shown(); time.Sleep(2 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal(c.shown())
				}
			}
		}
		for i := range 20 {
			begin := time.Now()
			c.tell("do")
			until(func() bool { return len(c.buttons("approve:")) == 1 })
			asked := time.Since(begin)
			until(func() bool {
				return strings.Contains(c.lastCard(), "Rehearsed: ") || strings.Contains(c.lastCard(), "Effect unknown: ")
			})
			known := time.Since(begin)
			if bob == nil {
				bob = c.as("bob")
			}
			id := c.buttons("approve:")[0]
			begin = time.Now()
			bob.click(id)
			until(func() bool { return strings.Contains(c.lastCard(), "exit 0") })
			if i >= 5 {
				card, preview, run = append(card, asked), append(preview, known), append(run, time.Since(begin))
			}
			until(func() bool { return c.ends() == i+1 })
		}
		for _, all := range [][]time.Duration{card, preview, run} {
			slices.Sort(all)
		}
		n := len(card) / 2
		t.Logf("%s rehearsals: card %v, preview %v (longest %v), run %v", tc.name, card[n], preview[n], preview[len(preview)-1], run[n])
	}
}
