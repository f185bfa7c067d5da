package chattest

import (
	"flag"
	"os"
	"testing"
)

// Main is the TestMain of an adapter: more of its parallel tests go at once than there
// are processors, because they wait for the network's clock. -parallel still decides.
func Main(m *testing.M) {
	const atOnce = "test.parallel"
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == atOnce })
	if !said {
		if err := flag.Set(atOnce, "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
