package tokens

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tiktoken-go/tokenizer/codec"
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

// samples are texts of the kinds that a model is shown.
func samples(t testing.TB) map[string]string {
	m := map[string]string{
		"log": logs(60_000), "prose": prose(60_000),
		"hex":      strings.Repeat("3f9a2c71e0b84d56", 1000),
		"base64":   base64.StdEncoding.EncodeToString(random(30_000)),
		"digests":  digests(500),
		"Japanese": strings.Repeat("サービスを再起動した後、ディスクがいっぱいでした。", 300),
		"Chinese":  strings.Repeat("重启后服务没有恢复，因此我们查看了日志，发现磁盘已满。", 300),
		"Russian":  strings.Repeat("Сервис не поднялся после перезапуска, поэтому мы посмотрели журнал и увидели, что диск заполнен. ", 100),
		"German":   strings.Repeat("Der Dienst kam nach dem Neustart nicht zurück, deshalb sahen wir ins Protokoll: die Festplatte war voll. ", 100),
	}
	quoted, err := json.Marshal(strings.Split(logs(30_000), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	m["log as JSON"] = string(quoted)
	for name, path := range map[string]string{
		"Markdown": "../../ARCHITECTURE.md", "tables": "../../docs/benchmarks.md", "Go": "../../bot/bot.go", "checksums": "../../go.sum",
		"JavaScript": "../../console/static/output.js", "CSS": "../../console/static/app.css", "YAML": "../workflow/runbooks/disk-full.yaml",
		"Python": "../../examples/plugins/python/plugin.py", "shell": "../../tools/process/supervise.sh", "directory": "testdata/ls.txt", "processes": "testdata/ps.txt",
		"commands": "../../approvals/risk/testdata/read.txt",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m[name] = string(text)
	}
	return m
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b) //nolint:errcheck // it never fails
	return b
}

func digests(n int) string {
	var b strings.Builder
	for line := range slices.Chunk(random(20*n), 20) {
		fmt.Fprintf(&b, "%x  layer\n", line)
	}
	return b.String()
}

func TestCountIsCloseToO200k(t *testing.T) {
	o200k := codec.NewO200kBase()
	for name, text := range samples(t) {
		exact := 0
		for part := range slices.Chunk([]byte(text), 8000) { // the library is quadratic in places
			n, err := o200k.Count(string(part))
			if err != nil {
				t.Fatal(err)
			}
			exact += n
		}
		got := Count(text)
		if off := float64(got)/float64(exact) - 1; math.Abs(off) > 0.25 {
			t.Errorf("%s: %d, exactly %d: wrong by %+.0f %%", name, got, exact, off*100)
		}
	}
}

func FuzzCount(f *testing.F) {
	f.Add("hello", 1)
	f.Add("\x7f", 1)
	f.Add(strings.Repeat("\x81", 2000), 8)
	f.Add(" \n\xff\u0301a1", 5000)
	f.Fuzz(func(t *testing.T, text string, times int) {
		text = strings.Repeat(text, min(max(times, 1), 1+(64<<10)/(len(text)+1)))
		if n := Count(text); n < 0 || n > len(text) || text != "" && n == 0 {
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

func BenchmarkCount(b *testing.B) {
	text := logs(1 << 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Count(text)
	}
}
