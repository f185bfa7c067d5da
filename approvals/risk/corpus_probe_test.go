package risk

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	dir := os.Getenv("PROBE")
	if dir == "" {
		t.Skip()
	}
	for _, name := range []string{"commands.tsv", "adversarial.tsv"} {
		f, _ := os.Open(dir + "/" + name)
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			l := sc.Text()
			if strings.HasPrefix(l, "#") {
				continue
			}
			p := strings.Split(l, "\t")
			cmd, err := strconv.Unquote(`"` + strings.ReplaceAll(p[1], `"`, `\"`) + `"`)
			if err != nil {
				fmt.Println("ERR", l, err)
				continue
			}
			v := Classify(cmd)
			want := p[0] == "readonly"
			if v.ReadOnly != want {
				kind := "MISS"
				if v.ReadOnly {
					kind = "LEAK"
				}
				fmt.Printf("%s [%s] %q  %s %q\n", kind, p[3], cmd, v.Risk, v.Reasons)
			}
			if os.Getenv("ALL") != "" && !v.ReadOnly {
				fmt.Printf("  %-8s %q %v %q\n", v.Risk, cmd, v.Effects, v.Reasons)
			}
		}
	}
}
