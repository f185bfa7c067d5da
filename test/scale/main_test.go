//go:build linux

package scale

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	seed     = flag.Int64("scale.seed", 1, "the seed of who gets what and when")
	big      = flag.Bool("scale.run", false, "measure, for TestMeasure")
	stores   = flag.String("scale.stored", "0,10000,100000", "how many threads are stored beside the active ones")
	actives  = flag.String("scale.active", "1250,2500,5000", "how many threads are active")
	replicas = flag.Int("scale.replicas", 3, "how many replicas")
	flight   = flag.Int("scale.flight", 192, "how many turns are under way at saturation")
	share    = flag.Int("scale.share", 60, "how many hundredths of saturation the paced load has")
	rate     = flag.Float64("scale.rate", 0, "turns a second of the paced load with the most active threads, in the place of a share of saturation")
	approved = flag.Int("scale.cards", 10, "how many of a hundred turns have a card")
	lasting  = flag.Duration("scale.for", 20*time.Second, "how long each load is measured, at least")
	turnAll  = flag.Bool("scale.all", true, "the paced load goes on until each active thread had a turn")
	parts    = flag.String("scale.parts", "stored,active,delay,hints,takeover,burst,commits", "what is measured; profile is one more")
	writers  = flag.Int("scale.writers", 0, "Updates that a replica makes at once; 0 is what the bot has")
	readers  = flag.Int("scale.readers", 0, "Views that a replica makes at once; 0 is what the bot has")
	buffers  = flag.String("scale.buffers", "512MB", "the server's shared_buffers")
	profiles = flag.String("scale.profiles", "", "the directory for the profiles of the part profile")
	file     = flag.String("scale.out", "", "a file for the tables, too")
)

// TestMain makes this program a replica when it is told to be one.
func TestMain(m *testing.M) {
	if raw := os.Getenv(replicaVar); raw != "" {
		if err := replicaMain(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
