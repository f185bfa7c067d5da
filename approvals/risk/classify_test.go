package risk

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"

	"countersign/test/needstest"
)

func TestVerdictOfAProvenRead(t *testing.T) {
	v := Classify("ls -la | head -3")
	if !v.Proves("ls -la | head -3", false) {
		t.Fatalf("not proven: %q", v.Reasons)
	}
	if v.Proves("ls -la | head -4", false) || v.Proves("", false) {
		t.Error("a proof must fit its own text only")
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"command":"ls -la | head -3","readonly":true,"risk":"read","effects":[],"reasons":["every part is proven to only read: ls, head"]}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestJSONOfAVerdictMadeElsewhereIsOfTheHighestLevelAndHasNoNulls(t *testing.T) {
	b, err := json.Marshal(Verdict{Command: "x", ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"command":"x","readonly":true,"risk":"critical","effects":[],"reasons":[]}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
	if (Verdict{Command: "x", ReadOnly: true, Risk: Read}).Proves("x", false) {
		t.Error("a verdict made elsewhere proves something")
	}
}

func TestReasonsAreSentencesForPeople(t *testing.T) {
	for command, want := range map[string]string{
		"find /tmp -delete":            "`-delete` removes files",
		"systemctl --foo status nginx": "unknown option `--foo` of `systemctl`",
		"systemctl restart nginx":      "it starts or restarts a service",
		"./ls":                         "`./ls` is a file of its own, not a program of the system",
		"ls &":                         "`&` leaves it running in the background",
		"rm\u00a0-rf /tmp/x":           `there is a character outside plain ASCII (\u{00A0}) at position 3`,
		"ls\x0cx":                      `there is an invisible control character (\x0c) at position 3`,
		"ls > /tmp/x":                  "it writes to the file /tmp/x",
		"sudo ls":                      "it runs with another user's rights",
		"":                             "there is nothing to run",
		"cat /etc/shadow":              "`cat` reads /etc/shadow: its content is a secret",
		"PATH=/tmp ls":                 "the variable PATH can change what the command does",
	} {
		if v := Classify(command); !slices.Contains(v.Reasons, want) {
			t.Errorf("%q: %q lacks %q", command, v.Reasons, want)
		}
	}
}

func TestWhatIsTooLongOrTooDeepAsks(t *testing.T) {
	for name, c := range map[string]string{
		"too long":      "ls " + strings.Repeat("a", maxText),
		"too nested":    strings.Repeat("( ", 100) + "ls" + strings.Repeat(" )", 100),
		"too many":      "ls" + strings.Repeat(";ls", 2200),
		"loop in loops": "for a in " + strings.Repeat("x ", 60) + "; do for b in " + strings.Repeat("x ", 60) + "; do ls; done; done",
		"wrapped":       `bash -c "bash -c \"bash -c 'bash -c ls'\""`,
	} {
		v := locked(c)
		if v.ReadOnly || v.Risk < High {
			t.Errorf("%s: readonly %v, %s", name, v.ReadOnly, v.Risk)
		}
	}
	if v := locked("for a in " + strings.Repeat("x ", 50) + "; do ls; done"); !v.ReadOnly {
		t.Errorf("a loop of 50: %q", v.Reasons)
	}
}

// quote writes a text as one shell word.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// wraps are ways to put a command into another text. None may turn it into a
// read, and none may lower its level.
var wraps = map[string]func(string) string{
	"sudo":       func(c string) string { return "sudo " + c },
	"timeout":    func(c string) string { return "timeout 5 " + c },
	"nice":       func(c string) string { return "nice -n 5 " + c },
	"env":        func(c string) string { return "env " + c },
	"command":    func(c string) string { return "command " + c },
	"unknown":    func(c string) string { return "frobnicate " + c },
	"bash -c":    func(c string) string { return "bash -c " + quote(c) },
	"sh -c":      func(c string) string { return "sh -c " + quote(c) },
	"subshell":   func(c string) string { return "( " + c + "\n)" },
	"block":      func(c string) string { return "{ " + c + "\n}" },
	"before":     func(c string) string { return c + "\nls" },
	"after":      func(c string) string { return "ls; " + c },
	"and":        func(c string) string { return "true && " + c },
	"or":         func(c string) string { return "true || " + c },
	"pipe into":  func(c string) string { return "ls | " + c },
	"newline":    func(c string) string { return "ls\n" + c },
	"if":         func(c string) string { return "if true; then " + c + "\nfi" },
	"for":        func(c string) string { return "for wrapped_item in a b; do " + c + "\ndone" }, // a name that c doesn't use
	"substitute": func(c string) string { return "echo \"$(" + c + "\n)\"" },
	"negate":     func(c string) string { return "! " + c },
	"background": func(c string) string { return "{ " + c + "\n} &" },
	"redirect":   func(c string) string { return "{ " + c + "\n} > /tmp/out" },
}

// pagerOnly reports whether a command only asks because it opens a pager, which
// it doesn't where its output is caught.
func pagerOnly(v Verdict) bool {
	return v.Risk == Low && slices.Equal(v.Effects, []Effect{EffectInteractive})
}

func parses(c string) bool {
	_, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(c), "")
	return err == nil
}

func checkWrap(t rapid.TB, name string, c string) {
	v := locked(c)
	if slices.Contains(v.Reasons, "there is nothing to run") {
		return
	}
	if slices.ContainsFunc(v.Reasons, func(r string) bool {
		return strings.HasPrefix(r, "`-") && strings.HasSuffix(r, "is not a program that is known here")
	}) {
		return // wrapped, its first word is an option
	}
	if slices.Contains([]string{"unknown", "command", "nice", "timeout", "env"}, name) && slices.Contains(v.Reasons, "which program runs is only known when it runs") {
		return // there it is an argument
	}
	wrapped := wraps[name](c)
	if badBytes(c) != "" || !parses(c) || !parses(wrapped) || strings.HasPrefix(c, "-") {
		return // its words are all that is known; or it would be options of the wrapper
	}
	w := locked(wrapped)
	if !v.ReadOnly && w.ReadOnly && (name != "substitute" || !pagerOnly(v)) {
		t.Errorf("%s: %q became a read: %q", name, c, wrapped)
	}
	if Max(v.Risk, w.Risk) != w.Risk && (name != "substitute" || !pagerOnly(v)) {
		t.Errorf("%s: %q is %s %q, wrapped %s %q", name, c, v.Risk, v.Reasons, w.Risk, w.Reasons)
	}
}

func TestWrappingNeverProvesAndNeverLowers(t *testing.T) {
	t.Parallel()
	texts, each := 0, 8 // short, each way to wrap an eighth of the texts
	if needstest.Whole(t) {
		each = 1
	}
	wrap := func(c string) {
		texts++
		for i, name := range slices.Sorted(maps.Keys(wraps)) {
			if (texts+i)%each == 0 {
				checkWrap(t, name, c)
			}
		}
	}
	for _, row := range lines(t, "testdata/ask.txt") {
		_, field, _ := strings.Cut(row, "\t")
		c := unescapeField(t, field)
		if strings.HasSuffix(c, "\\") || strings.Contains(c, "<<") {
			continue
		}
		wrap(c)
	}
	for _, c := range lines(t, "testdata/read.txt") {
		wrap(c)
	}
}

// pieces of which the property test builds commands.
var pieces = strings.Fields(`ls cat rm find grep awk sed kubectl docker systemctl sudo timeout xargs env bash -c -rf -la -n -o -i 5 / /tmp/x /etc/shadow /dev/sda ./x * {} ; | && || > >> < & ( ) { } ! $X $(id) "$X" 'a b' get delete
 pods secret exec -- restart status ps aux -delete -exec + \; if then fi for in do done = A=b # ~ ~/x {a,b} [a] ' " \ -e -f dd of=/dev/sda mkfs.ext4 shutdown curl http://x http://127.0.0.1/health git log psql select redis-cli info flushall
 ssh web1 eval exec source nohup nice echo printf test [ ] [[ ]] while read line true`)

func TestPropertiesOfRandomCommands(t *testing.T) {
	names := make([]string, 0, len(wraps))
	for n := range wraps {
		names = append(names, n)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		c := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 9).Draw(t, "pieces"), " ")
		a, b := locked(c), locked(c)
		if a.ReadOnly != b.ReadOnly || a.Risk != b.Risk || !slices.Equal(a.Reasons, b.Reasons) {
			t.Fatalf("%q is judged in two ways", c)
		}
		if a.Risk == Unknown || a.ReadOnly != (a.Risk == Read) || a.ReadOnly != a.Proves(c, true) {
			t.Fatalf("%q: %+v", c, a)
		}
		if strings.Contains(c, "\\") || strings.Contains(c, "<<") {
			return
		}
		checkWrap(t, rapid.SampledFrom(names).Draw(t, "wrap"), c)
	})
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{"ls -la", "rm -rf /", "sudo kubectl delete pod x", "find . -exec rm {} +", "echo $(id) \"${x@P}\" <<E\nE", "awk '{print}' | sed -n 1p", "for x in a; do echo \"$x\"; done", "\xff\x00", "a=b c", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, c string) {
		a, b := locked(c), locked(c)
		if a.ReadOnly != b.ReadOnly || a.Risk != b.Risk {
			t.Fatalf("%q is judged in two ways", c)
		}
		if a.ReadOnly != a.Proves(c, true) || a.Risk == Unknown {
			t.Fatalf("%q: %+v", c, a)
		}
		if strings.Contains(c, "\\") || strings.Contains(c, "<<") || badBytes(c) != "" || len(c) > 2000 || strings.HasPrefix(strings.TrimSpace(c), "-") {
			return
		}
		for name := range wraps {
			if w := wraps[name](c); !a.ReadOnly && parses(c) && !pagerOnly(a) && strings.TrimSpace(c) != "" && a.Reasons[0] != "there is nothing to run" && locked(w).ReadOnly {
				t.Errorf("%s: %q became a read", name, c)
			}
		}
		for _, r := range a.Reasons {
			if _, changed := Visible(r); changed {
				t.Errorf("%q: a reason has hidden characters: %q", c, r)
			}
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	for name, c := range map[string]string{
		"short":    "systemctl status nginx",
		"pipe":     "kubectl get pods -A -o json | jq -r '.items[].spec.nodeName' | sort | uniq -c | sort -rn | head",
		"mutating": "sudo systemctl restart nginx && rm -rf /srv/app/cache",
		"8 KiB":    "ls" + strings.Repeat("; ls -la /var/log", 480),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Classify(c)
			}
		})
	}
}
