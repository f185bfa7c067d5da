package remote

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"countersign/targets/backend"
)

var (
	_ backend.Lister = files{}
	_ backend.Sieve  = files{}
)

// listScript prints what is below "$1", at most "$2" levels deep (0: all): mode in hex,
// size, time and name. Names with a newline are left out, and counted with what
// cannot be read.
const listScript = cause + `cd -- "$1" 2>/dev/null || { [ -d "$1" ] && exit 43; cause "$1"; }
d=
[ "$2" = 0 ] || d="-maxdepth $2"
find . -mindepth 1 $d ! -name '*
*' -exec stat -c '%f|%s|%Y|%n' -- {} + 2>/dev/null
echo "skipped $(find . -mindepth 1 $d -name '*
*' -prune -exec echo x ';' 2>&1 | grep -c .)"
`

// List implements backend.Lister.
func (f files) List(ctx context.Context, dir string, depth int, each func(backend.FileInfo) bool) (skipped int, err error) {
	root, err := f.abs(ctx, dir)
	if err != nil {
		return 0, err
	}
	out, errOut, code, err := f.m.script(ctx, listScript, nil, []string{root, strconv.Itoa(depth)})
	if err != nil {
		return 0, err
	}
	if code != 0 {
		return 0, exitError(f.m.o.Name, root, code, errOut)
	}
	start := strings.TrimSuffix(root, "/") + "/"
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n, ok := strings.CutPrefix(line, "skipped "); ok {
			skipped, _ = strconv.Atoi(n)
			continue
		}
		info, ok := parseListed(line, start)
		if !ok {
			return skipped, fmt.Errorf("%s: stat printed %q", f.m.o.Name, clip(line))
		}
		if !each(info) {
			break
		}
	}
	return skipped, nil
}

func parseListed(line, start string) (backend.FileInfo, bool) {
	parts := strings.SplitN(line, "|", 4)
	if len(parts) != 4 {
		return backend.FileInfo{}, false
	}
	mode, err1 := strconv.ParseUint(parts[0], 16, 32)
	size, err2 := strconv.ParseInt(parts[1], 10, 64)
	sec, err3 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return backend.FileInfo{}, false
	}
	name := start + strings.TrimPrefix(parts[3], "./")
	return backend.FileInfo{Path: name, Size: size, Mode: fileMode(uint32(mode)), Time: time.Unix(sec, 0)}, true
}

// holdingScript lists the files below "$1" that hold the text "$2"; "$3" is "-i" or
// empty. grep's own 1 means that there are none.
const holdingScript = `command -v grep >/dev/null || exit 60
find -- "$1" -type f ! -name '*
*' -exec grep -lF $3 -e "$2" -- {} + 2>/dev/null
exit 0
`

// Holding implements backend.Sieve.
func (f files) Holding(ctx context.Context, dir, text string, fold bool) ([]string, bool, error) {
	root, err := f.abs(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	if text == "" || strings.ContainsAny(text, "\n\x00") {
		return nil, false, nil
	}
	flag := ""
	if fold {
		flag = "-i"
	}
	out, _, code, err := f.m.script(ctx, holdingScript, nil, []string{root, text, flag})
	if err != nil || code != 0 {
		return nil, false, err
	}
	var list []string
	for line := range bytes.Lines([]byte(out)) {
		if name := strings.TrimSuffix(string(line), "\n"); path.IsAbs(name) {
			list = append(list, name)
		}
	}
	return list, true, nil
}
