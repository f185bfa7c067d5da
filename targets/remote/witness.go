package remote

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"countersign/targets/backend"
	"countersign/targets/follow"
)

// testifyScript prints the record of a mark and whether its process still exists: the number may
// have been given to another one since. That there is no record is printed, too, for a shell that
// can't do its work prints nothing either.
//
// Arguments: the record, the directory of the records.
const testifyScript = `f=$1
[ -d "$2" ] && [ ! -L "$2" ] && [ -O "$2" ] && [ -f "$f" ] && [ -s "$f" ] || { echo none; exit 0; }
cat -- "$f" || exit
read -r a p b <"$f"
c=/proc/$p/cmdline
if kill -0 "-$p" 2>/dev/null && { [ ! -r "$c" ] || tr '\0' '\n' <"$c" | grep -qxF -e "${f##*/}"; }; then
  echo alive
fi
`

// lookScript prints what testifyScript does, how much follows of each stream, and that. Its
// arguments are those of testifyScript, and the offsets of the streams and the longest piece.
const lookScript = testifyScript + `
size() {
  n=0
  [ -f "$1" ] && n=$(($(wc -c <"$1") - $2))
  [ "$n" -gt "$3" ] && n=$3
  [ "$n" -gt 0 ] || n=0
}
size "$f.out" "$3" "$5"; a=$n
size "$f.err" "$4" "$5"; b=$n
printf 'streams %s %s\n' "$a" "$b"
[ "$a" = 0 ] || tail -c "+$(($3 + 1))" "$f.out" | head -c "$a"
[ "$b" = 0 ] || tail -c "+$(($4 + 1))" "$f.err" | head -c "$b"
exit 0
`

// pruneScript deletes what was kept of ended processes.
//
// Arguments: the directory of the records, the prefix of the marks; then those that stay.
const pruneScript = `d=$1 p=$2
shift 2
[ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || exit 0
for f in "$d/$p"*.out; do
  [ -f "$f" ] || continue
  m=${f##*/}
  m=${m%.out}
  grep -q '^ended ' "$d/$m" || continue
  for k in "$@"; do [ "$k" != "$m" ] || continue 2; done
  rm -f -- "$d/$m" "$d/$m".*
done
exit 0
`

// record is a note on the target.
type record struct {
	backend.Testimony
	pid   int
	token string // of the control lines in its streams
	none  bool   // the target said that there is none
}

// take reads a line of a note.
func (r *record) take(line string) {
	var n int
	var at int64
	switch {
	case line == "none":
		r.none = true
	case line == "alive":
		r.Running = r.Ended.IsZero()
	case scan(line, "began %d %d %s", &n, &at, &r.token), scan(line, "began %d %d", &n, &at):
		r.pid, r.Began = n, time.Unix(at, 0)
	case scan(line, "ended %d %d", &n, &at):
		r.Ended, r.Code = time.Unix(at, 0), n
	}
}

// recordOf checks a mark, and returns its note's path and directory.
func (m *Machine) recordOf(ctx context.Context, mark string) (note, dir string, err error) {
	if !markName.MatchString(mark) {
		return "", "", fmt.Errorf("remote: %q is no mark", mark)
	}
	s, err := m.system(ctx)
	if err != nil {
		return "", "", err
	}
	dir = m.notes(s)
	return dir + "/" + mark, dir, nil
}

// Testify implements backend.Witness.
func (m *Machine) Testify(ctx context.Context, mark string) (backend.Testimony, error) {
	r, err := m.record(ctx, mark)
	return r.Testimony, err
}

func (m *Machine) record(ctx context.Context, mark string) (r record, err error) {
	note, dir, err := m.recordOf(ctx, mark)
	if err != nil {
		return r, err
	}
	out, errOut, code, err := m.Query(ctx, testifyScript+"exit 0\n", note, dir)
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(out) {
		r.take(strings.TrimSpace(line))
	}
	if code != 0 || r.Began.IsZero() && !r.none {
		return record{}, m.noAnswer(mark, code, errOut)
	}
	return r, nil
}

// noAnswer returns the error of a look that neither found a record nor said that there is none.
func (m *Machine) noAnswer(mark string, code int, errOut string) error {
	return fmt.Errorf("%s: the record %s cannot be read: exit code %d, %q", m.o.Name, mark, code, clip(strings.TrimSpace(errOut)))
}

// followEvery is the pause between two looks at a process that is followed.
const followEvery = time.Second

// Follow implements backend.Witness.
func (m *Machine) Follow(ctx context.Context, mark string, s backend.Spec) (backend.Process, error) {
	src := &source{m: m}
	src.out = &splitter{dst: s.Stdout, control: src.control}
	src.err = &splitter{dst: s.Stderr, control: src.control, begun: true}
	s.Stdout, s.Stderr = src.out, src.err
	p, err := follow.Process(ctx, src, mark, followEvery, s)
	if err != nil {
		return nil, err
	}
	return followed{p, src}, nil
}

// followed is a process whose last bytes may look like the begin of a control line.
type followed struct {
	backend.Process
	src *source
}

// Wait implements backend.Process.
func (f followed) Wait() (backend.Result, error) {
	res, err := f.Process.Wait()
	f.src.out.flush()
	f.src.err.flush()
	return res, err
}

// source implements follow.Source for one process.
type source struct {
	m        *Machine
	out, err *splitter
}

// control takes the control lines out.
func (s *source) control(kind, _ string) bool { return kind == "b" }

func (s *source) Look(ctx context.Context, mark string, out, err int64) (l follow.Look, fail error) {
	note, dir, fail := s.m.recordOf(ctx, mark)
	if fail != nil {
		return l, fail
	}
	text, errOut, code, fail := s.m.script(ctx, lookScript, nil, []string{
		note, dir, strconv.FormatInt(out, 10), strconv.FormatInt(err, 10), strconv.Itoa(follow.MaxLook),
	})
	if fail != nil {
		return l, fail
	}
	var r record
	for {
		line, rest, ok := strings.Cut(text, "\n")
		var a, b int
		switch {
		case r.none:
			return l, nil
		case !ok:
			return l, s.m.noAnswer(mark, code, errOut)
		case scan(line, "streams %d %d", &a, &b):
			a = min(a, len(rest))
			l.Testimony, l.Out, l.Err = r.Testimony, []byte(rest[:a]), []byte(rest[a:min(a+b, len(rest))])
			token := []byte(cmp.Or(r.token, "\x00 none"))
			s.out.token, s.err.token = token, token
			return l, nil
		}
		r.take(line)
		text = rest
	}
}

func (s *source) End(ctx context.Context, mark string, grace time.Duration) error {
	r, err := s.m.record(ctx, mark)
	if err != nil || !r.Running {
		return err
	}
	_, _, _, err = s.m.script(ctx, killScript, nil, []string{strconv.Itoa(r.pid), strconv.Itoa(int(grace/(100*time.Millisecond)) + 1)})
	return err
}

// Prune implements backend.Witness.
func (m *Machine) Prune(ctx context.Context, prefix string, open []string) error {
	_, dir, err := m.recordOf(ctx, prefix)
	if err != nil {
		return err
	}
	_, _, _, err = m.script(ctx, pruneScript, nil, append([]string{dir, prefix}, open...))
	return err
}
