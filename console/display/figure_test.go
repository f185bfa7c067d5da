package display

import (
	"strings"
	"testing"
)

func TestWhatCommandsPrintIsShownAsAFigure(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string // of the HTML
	}{
		{"df -h", "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda1        20G   17G  2.1G  89% /\ntmpfs           1.9G     0  1.9G   0% /run/user/1000\n", []string{
			`<th>Filesystem</th>`, `<th class="number">Size</th>`, `<td class="number">89%<meter max="100" low="75" high="90" optimum="0" value="89" aria-label="Use%"></meter></td>`, `<td>/run/user/1000</td>`,
		}},
		{"df -i", "Filesystem     Inodes IUsed IFree IUse% Mounted on\nudev              500     4   496    1% /dev\n/dev/disk 2           -     -     -     - /mnt/a b\n", nil},
		{"df -i without an odd name", "Filesystem     Inodes IUsed IFree IUse% Mounted on\nudev              500     4   496    1% /dev\nnone           -     -     -     - /mnt/a b\n", []string{
			`<td class="number">1%<meter max="100" low="75" high="90" optimum="0" value="1" aria-label="IUse%"></meter></td>`, `<td class="number">-</td>`, `<td>/mnt/a b</td>`,
		}},
		{"ps aux", "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nroot           1  0.0  0.1  16768 10240 ?        Ss   Nov26   0:05 /sbin/init splash <x>\nwww-data    4711  187  4.0 999999 88888 ?        R    03:12  99:59 nginx: worker process\n", []string{
			`<td>/sbin/init splash &lt;x&gt;</td>`, `<td class="number">187<meter max="187" low="75" high="90" optimum="0" value="187" aria-label="%CPU"></meter></td>`, `<meter max="100" low="75" high="90" optimum="0" value="4" aria-label="%MEM">`,
		}},
		{"ps -ef", "UID          PID    PPID  C STIME TTY          TIME CMD\nroot           1       0  0 Nov26 ?        00:00:05 /sbin/init\n", []string{`<th>CMD</th>`, `<td class="number">1</td>`}},
		{"kubectl top pods", "NAME                     CPU(cores)   MEMORY(bytes)\nshop-6d5f9c6b7c-x2x9l    250m         512Mi\nshop-6d5f9c6b7c-zzzzz    1            1Gi\n", []string{
			`<meter max="1" value="0.25" aria-label="CPU(cores)">`, `<meter max="1.073741824e+09" value="5.36870912e+08" aria-label="MEMORY(bytes)">`,
		}},
		{"vmstat", "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n 1  0      0 123456  10000 500000    0    0    12    30  100  200 40 10 45  5  0\n", []string{
			`<td class="number">40<meter max="100" low="75" high="90" optimum="0" value="40" aria-label="us"></meter></td>`, `<td class="number">123456</td>`,
		}},
		{"ss -s", "Total: 612\nTCP:   62 (estab 20, closed 30, orphaned 0, timewait 29)\n\nTransport Total     IP        IPv6\nRAW\t  0         0         0\nTCP\t  32        20        12\n", []string{
			`<th>Transport</th>`, `<td class="number">32<meter max="32" value="32" aria-label="Total"></meter></td>`,
		}},
		{"du -sh", "412M\t/home/deploy/releases/209\n12.4G\t/home/deploy/all of it\n", []string{
			`<th class="number">Size</th>`, `<td class="number">412M<meter max="1.33143986176e+10" value="4.32013312e+08" aria-label="Size"></meter></td>`, `<td>/home/deploy/all of it</td>`,
		}},
		{"free", "               total        used        free      shared  buff/cache   available\nMem:        24683656    22889576      963620      224608     7336328      794080\nSwap:              0           0           0\n", []string{
			`<th>Memory</th><th class="number">Use%</th><th class="number">total</th>`, `<td>Mem</td><td class="number">93%<meter max="100" low="75" high="90" optimum="0" value="93" aria-label="Use%"></meter></td><td class="number">24683656</td>`,
			`<td>Swap</td><td class="number">-</td><td class="number">0</td>`,
		}},
		{"free -h", "               total        used        free      shared  buff/cache   available\nMem:            15Gi       1.5Gi        13Gi       219Mi       1.1Gi        13Gi\nSwap:          2.0Gi       1.0Gi       1.0Gi\n", []string{
			`<td class="number">10%<meter max="100" low="75" high="90" optimum="0" value="10" aria-label="Use%"></meter></td><td class="number">15Gi</td>`, `<td>Swap</td><td class="number">50%<meter`,
		}},
		{"free of long ago", "             total       used       free     shared    buffers     cached\nMem:          7982       4711       3271          0        123       1234\n-/+ buffers/cache:       3354       4628\nSwap:         2047          0       2047\n", nil},
		{"numbers", "[3, 1.5, 2, 8]", []string{`<polyline points="0.0,`, `4 values from 1.5 to 8, the last 8`}},
		{"equal numbers", "[5,5,5]", []string{`3 values from 5 to 5`}},
		{"objects", `[{"host":"web-1","load":3},{"host":"web-2","load":1.5}]`, []string{`<th>host</th>`, `<td class="number">1.5<meter max="3" value="1.5" aria-label="load"></meter></td>`}},
		{"a table with tabs", "name\tsize\n", nil},
		{"words with tabs", "a\tb/\nc\td/\n", nil},
		{"counts", "12\terror\n3\twarning\n", nil},
		{"prose", "The disk is full.\nNothing to see.", nil},
		{"a cut table", "/dev/sda1        20G   17G  2.1G  89% /\n", nil},
		{"a row too short", "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda1        20G\n", nil},
		{"a head alone", "Filesystem      Size  Used Avail Use% Mounted on\n", nil},
		{"few numbers", "[1,2]", nil},
		{"a JSON array of other things", `[{"a":1,"b":[1]},{"a":2,"b":3}]`, nil},
		{"objects that differ", `[{"a":1,"b":1},{"a":2,"c":3}]`, nil},
		{"texts alone", `[{"a":"x","b":"y"}]`, nil},
		{"a long list", "Filesystem      Size  Used Avail Use% Mounted on\n" + strings.Repeat("/dev/sda1        20G   17G  2.1G  89% /\n", maxFigureRows+2), nil},
	} {
		got := HTML("```\n" + tt.text + "\n```")
		figure := strings.Contains(got, "<details")
		if figure != (tt.want != nil) {
			t.Errorf("%s: %s", tt.name, got)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s: %s", tt.name, want, got)
			}
		}
		if !strings.Contains(got, "<pre><code>") {
			t.Errorf("%s: the text is gone: %s", tt.name, got)
		}
	}
	if got := HTML("```sh\n[1,2,3]\n```"); strings.Contains(got, "polyline") {
		t.Errorf("code is no figure: %s", got)
	}
}

func TestQuantities(t *testing.T) {
	for s, want := range map[string]float64{"0": 0, "12": 12, "1.5G": 1.5 * (1 << 30), "250m": 0.25, "89%": 89, "3Mi": 3 << 20, "7P": 7 << 50} {
		if got, ok := quantity(s); !ok || got != want {
			t.Errorf("%s: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "-", "1e5", "0x1p", "inf", "nan", "1_000", "-3", "1.2.3", "G", "1:30", "3 G"} {
		if got, ok := quantity(s); ok {
			t.Errorf("%s is %v", s, got)
		}
	}
}

func FuzzAFigureIsWellFormed(f *testing.F) {
	f.Add("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/x 1 2 3 4% <a href='x'>\n")
	f.Add("[1e308, -1e308, 0]")
	f.Add(`[{"<b>":1,"\"":"</td><script>"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		got := HTML("```\n" + text + "\n```")
		if strings.Contains(got, "<script") || strings.Contains(got, "<a ") && !strings.Contains(text, "http") && !strings.Contains(text, "www.") && !strings.Contains(text, "@") {
			t.Errorf("%q becomes %s", text, got)
		}
		if strings.Contains(got, "NaN") && !strings.Contains(text, "NaN") {
			t.Errorf("%q becomes %s", text, got)
		}
	})
}
