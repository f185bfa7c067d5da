package tokens

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// logs is n bytes of an access log, in which no two lines are equal.
func logs(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "10.2.%d.%d - - [12/Mar/2026:07:%02d:%02d +0000] \"GET /api/v1/items/%d HTTP/1.1\" 502 157 \"-\" \"curl/8.5.0\" rt=0.%03d\n",
			i%250, (i*7)%250, i/60%60, i%60, i*7919%100000, i*37%1000)
	}
	return b.String()[:n]
}

func prose(n int) string {
	return strings.Repeat("The service did not come back after the restart, so we looked at its journal and found that the disk was full. ", n/100+1)[:n]
}

func TestCountsAreThoseOfO200k(t *testing.T) {
	c := New()
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10, "日本語": 2} {
		if got := c.Count(text); got != want {
			t.Errorf("%q has %d tokens, want %d", text, got, want)
		}
	}
}

// A long text is sampled; what is counted of it stays close to what it has, also where its
// parts are of different kinds.
func TestASampleIsCloseToTheWholeText(t *testing.T) {
	c := New()
	for name, text := range map[string]string{
		"log": logs(200_000), "prose": prose(200_000),
		"prose, then log": prose(100_000) + logs(100_000),
		"a little log":    prose(180_000) + logs(20_000),
		"hex":             strings.Repeat("3f9a2c71e0b84d56", 12_000),
		"japanese":        strings.Repeat("サービスを再起動した後、ディスクがいっぱいでした。", 2000),
	} {
		exact := c.exact(text)
		got := c.Count(text)
		if off := math.Abs(float64(got-exact)) / float64(exact); off > 0.2 {
			t.Errorf("%s: %d, exactly %d: wrong by %.0f %%", name, got, exact, off*100)
		}
	}
}

// No text makes the counter slow, whatever it is made of: a megabyte of each takes far
// less than counting it all would.
func TestAMegabyteIsCountedQuickly(t *testing.T) {
	c := New()
	for name, unit := range map[string]string{
		"log": logs(1000), "blanks": " ", "newlines": "\n", "one letter": "a", "combining marks": "\u0301", "punctuation": "!?",
		"invalid bytes": "\xff\xfe", "digits": "7", "mixed case": "aB", "emoji": "👩\u200d🚒",
	} {
		text := strings.Repeat(unit, (1<<20)/len(unit))
		began := time.Now()
		n := c.Count(text)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %s", name, took)
		}
		if n <= 0 || n > len(text) {
			t.Errorf("%s has %d tokens", name, n)
		}
	}
}

func FuzzCount(f *testing.F) {
	c := New()
	f.Add("hello", 1)
	f.Add("\x7f", 1) // 0 tokens, says the library
	f.Add(strings.Repeat("\x81", 2000), 8)
	f.Add(" \n\xff\u0301a1", 5000)
	f.Fuzz(func(t *testing.T, text string, times int) {
		times = min(max(times, 1), 1+(64<<10)/(len(text)+1))
		text = strings.Repeat(text, times)
		n := c.Count(text)
		most := len(text)
		if !utf8.ValidString(text) {
			most *= 3 // each invalid byte is counted as the character that stands for it
		}
		if n < 0 || n > most || text != "" && n == 0 {
			t.Errorf("%d bytes have %d tokens", len(text), n)
		}
	})
}

func TestTheFactorIsTheMeanOfWhatWasReported(t *testing.T) {
	for name, tt := range map[string]struct {
		learn [][2]int
		want  float64
	}{
		"nothing was learnt":                {nil, 1},
		"the first report counts whole":     {[][2]int{{1000, 1300}}, 1.3},
		"later ones count a little":         {[][2]int{{1000, 1000}, {1000, 2000}}, 1.3},
		"no report teaches nothing":         {[][2]int{{1000, 0}}, 1},
		"a small request teaches nothing":   {[][2]int{{100, 180}}, 1},
		"no more than twice":                {[][2]int{{1000, 90_000}}, 2},
		"no less than seven tenths":         {[][2]int{{1000, 10}}, 0.7},
		"one absurd report is soon undone":  {[][2]int{{1000, 1000}, {1000, 90_000}, {1000, 1000}, {1000, 1000}}, 1.147},
		"a negative report teaches nothing": {[][2]int{{1000, -5}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c Calibration
			for _, l := range tt.learn {
				c.Learn("m", l[0], l[1])
			}
			if got := c.Factor("m"); math.Abs(got-tt.want) > 0.001 {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if c.Factor("another") != 1 {
				t.Error("another model learnt it too")
			}
		})
	}
}

func TestARefusedRequestRaisesTheFactorToItsBound(t *testing.T) {
	var c Calibration
	c.Over("m")
	if got := c.Factor("m"); got != 1.25 {
		t.Errorf("%v", got)
	}
	for range 10 {
		c.Over("m")
	}
	if got := c.Factor("m"); got != MaxFactor {
		t.Errorf("%v", got)
	}
}

func TestACalibrationIsSafeForConcurrentUseAndBounded(t *testing.T) {
	var c Calibration
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				m := fmt.Sprint(i, "/", j)
				c.Learn(m, 1000, 1500)
				c.Over(m)
				if f := c.Factor(m); f < MinFactor || f > MaxFactor {
					t.Errorf("factor %v", f)
				}
			}
		})
	}
	wg.Wait()
	if len(c.factors) > maxModels {
		t.Errorf("%d models are remembered", len(c.factors))
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New()
	}
}

func BenchmarkCount(b *testing.B) {
	c := New()
	for _, n := range []int{1 << 10, 10 << 10, 50 << 10, 1 << 20} {
		text := logs(n)
		b.Run(fmt.Sprintf("log %d KiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				c.Count(text)
			}
		})
	}
}
