package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"countersign/test/e2e/corpustest"
)

// quietBars are the shares of looking commands that run unasked, by corpus and by
// whether the target enforces that a read changes nothing. That of InterCode-Bash
// without a lock is missed: half of it is find -exec, xargs and substitutions, which are
// outside the plain core.
var quietBars = map[string]map[string]float64{
	"holmesgpt.tsv": {"enforced": 95, "none": 75},
	"intercode.tsv": {"enforced": 95, "none": 75},
}

// judged is a line of `bot classify`.
type judged struct {
	Command  string   `json:"command"`
	Readonly bool     `json:"readonly"`
	Effects  []string `json:"effects"`
	Reasons  []string `json:"reasons"`
}

// classify judges commands with the built program, by what a target enforces. config is
// the operator's configuration, "" for none.
func classify(t testing.TB, lock, config string, commands []string) []judged {
	t.Helper()
	var in, out, errs bytes.Buffer
	for _, c := range commands {
		line, err := json.Marshal(map[string]string{"command": c})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	// A target's default directory is always known.
	cmd := exec.Command(binary, "classify", "--jsonl", "--lock", lock, "--dir", "/srv/app")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "COUNTERSIGN_CONFIG=" + config}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("bot classify --lock %s: %v\n%s", lock, err, errs.String())
	}
	var all []judged
	for dec := json.NewDecoder(&out); dec.More(); {
		var j judged
		if err := dec.Decode(&j); err != nil {
			t.Fatal(err)
		}
		all = append(all, j)
	}
	if len(all) != len(commands) {
		t.Fatalf("bot classify judged %d of %d commands", len(all), len(commands))
	}
	return all
}

var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"")

// TestQuiet measures how many commands that only look would run without a question,
// over the files of COUNTERSIGN_CORPORA/quiet. NAME.yaml beside NAME.tsv is what an operator
// of those commands would configure, such as the accounts that may be looked at. It lists the others by the reason why
// they ask; COUNTERSIGN_QUIET_REPORT names a file that gets the same text. No command
// that changes something may run unasked.
func TestQuiet(t *testing.T) {
	dir := corpustest.Dir(t)
	files, err := filepath.Glob(filepath.Join(dir, "quiet", "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s/quiet has no .tsv file (%v)", dir, err)
	}
	var report strings.Builder
	for _, file := range files {
		name := filepath.Base(file)
		rows, err := corpustest.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		commands := make([]string, len(rows))
		for i, r := range rows {
			commands[i] = r.Command
		}
		config := strings.TrimSuffix(file, ".tsv") + ".yaml"
		if _, err := os.Stat(config); err != nil {
			config = ""
		}
		for _, lock := range []string{"enforced", "none"} {
			asks, looks, quiet := map[string][]string{}, 0, 0
			for i, j := range classify(t, lock, config, commands) {
				r := rows[i]
				switch {
				case r.Label == "look" && j.Readonly:
					looks, quiet = looks+1, quiet+1
				case r.Label == "look":
					looks++
					why := quoted.ReplaceAllString(strings.Join(j.Reasons, "; "), "...")
					asks[why] = append(asks[why], fmt.Sprintf("%s\t[%s]\n\t\t%s", r.Quoted(), r.Source, strings.Join(j.Reasons, "; ")))
				case j.Readonly:
					t.Errorf("%s, lock %s: %q is labelled %s and runs unasked", name, lock, r.Command, r.Label)
				}
			}
			share := 100 * float64(quiet) / float64(max(looks, 1))
			fmt.Fprintf(&report, "\n## %s, lock %s: %d of %d looking commands run unasked (%.1f %%)\n", name, lock, quiet, looks, share)
			t.Logf("%s, lock %s: %d of %d looking commands run unasked (%.1f %%)", name, lock, quiet, looks, share)
			if bar := quietBars[name][lock]; share < bar {
				t.Errorf("%s, lock %s: %.1f %% is below the bar of %.0f %%", name, lock, share, bar)
			}
			causes := make([]string, 0, len(asks))
			for why := range asks {
				causes = append(causes, why)
			}
			slices.SortFunc(causes, func(a, b string) int {
				return cmp.Or(cmp.Compare(len(asks[b]), len(asks[a])), strings.Compare(a, b))
			})
			for _, why := range causes {
				fmt.Fprintf(&report, "%4d  %s\n", len(asks[why]), why)
				for _, line := range asks[why] {
					fmt.Fprintf(&report, "\t%s\n", line)
				}
			}
		}
	}
	if file := os.Getenv("COUNTERSIGN_QUIET_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(report.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Log(report.String())
}
