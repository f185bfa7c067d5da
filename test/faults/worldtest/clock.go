package worldtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// jumps is what BuildJumping adds to package time: Now adds the seconds of all jumps
// whose time has come. It has to be as small as Now is early.
const jumps = `package time

import (
	"sync"
	"syscall"
)

var faultJumps struct {
	once sync.Once
	all  []struct{ at, by int64 } // nanoseconds after the start, seconds
}

func faultNumber(s string) (n int64, rest string) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	for len(s) > 0 && s[0] >= '0' && s[0] <= '9' {
		n, s = n*10+int64(s[0]-'0'), s[1:]
	}
	if neg {
		n = -n
	}
	return n, s
}

// FAULTS_CLOCK is "SECONDS@MILLISECONDS," and so on.
func faultOffset(mono int64) (sum int64) {
	faultJumps.once.Do(func() {
		s, _ := syscall.Getenv("FAULTS_CLOCK")
		for len(s) > 0 {
			var by, at int64
			by, s = faultNumber(s)
			if len(s) == 0 || s[0] != '@' {
				return
			}
			at, s = faultNumber(s[1:])
			faultJumps.all = append(faultJumps.all, struct{ at, by int64 }{at * 1e6, by})
			if len(s) > 0 {
				s = s[1:]
			}
		}
	})
	for _, j := range faultJumps.all {
		if mono-startNano >= j.at {
			sum += j.by
		}
	}
	return sum
}
`

// BuildJumping is Build of a bot whose wall clock jumps when FAULTS_CLOCK says so; see
// Jumps. Go reads the clock without the C library and without a system call, so neither
// a preloaded library nor a time namespace (which has no CLOCK_REALTIME) can shift it;
// what is left is to build the bot with another time.Now. The monotonic clock is left
// alone, as a real jump leaves it. The first build compiles the standard library anew,
// which takes minutes.
func BuildJumping(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	raw, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		return "", err
	}
	const from = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(raw), from) != 1 {
		return "", errors.New("this Go's time.Now is not the one that the suite knows how to change")
	}
	files := map[string]string{
		"time.go":  strings.Replace(string(raw), from, from+"\tsec += faultOffset(mono)\n", 1),
		"fault.go": jumps,
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range files {
		path := filepath.Join(dir, name+".txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(src, name)] = path
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "jumping-bot")
	if out, err := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint", "-overlay", path, "-o", binary, "countersign/cmd/bot").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the bot does not build: %w\n%s", err, out)
	}
	return binary, nil
}

// Jump is one jump of the wall clock, some time after the start of the process.
type Jump struct{ After, By time.Duration }

// Jumps is the variable that makes a bot of BuildJumping jump. By is in whole seconds.
func Jumps(all ...Jump) string {
	parts := make([]string, len(all))
	for i, j := range all {
		parts[i] = fmt.Sprintf("%d@%d", int(j.By.Seconds()), j.After.Milliseconds())
	}
	return "FAULTS_CLOCK=" + strings.Join(parts, ",")
}
