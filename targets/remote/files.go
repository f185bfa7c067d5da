package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"countersign/targets/backend"
)

// files is the system's files, by small shell scripts.
type files struct{ m *Machine }

var (
	_ backend.FileSystem = files{}
	_ backend.Replacer   = files{}
	_ backend.Surveyor   = files{}
	_ backend.Remover    = files{}
)

// The exit codes of the scripts. They are no shell's own.
const (
	exitMissing  = 44
	exitDenied   = 43
	exitKind     = 46 // neither a regular file nor absent
	exitIsDir    = 47
	exitCut      = 48 // the input was cut
	exitOwner    = 49
	exitChanged  = 50
	exitLoop     = 51
	exitNotDir   = 52
	exitReadOnly = 53
)

// exitError turns an exit code into an error.
func exitError(name, path string, code int, errOut string) error {
	cause := map[int]error{
		exitMissing: fs.ErrNotExist, exitDenied: fs.ErrPermission, exitIsDir: syscall.EISDIR, exitLoop: syscall.ELOOP,
		exitNotDir: syscall.ENOTDIR, exitReadOnly: syscall.EROFS, exitChanged: backend.ErrChanged,
	}[code]
	switch {
	case strings.Contains(errOut, "No space left on device"):
		return backend.FullError(name, path)
	case code == exitKind:
		return fmt.Errorf("%s is not a regular file: %w", path, fs.ErrInvalid)
	case code == exitOwner:
		return fmt.Errorf("%s cannot be replaced without changing its owner: %w", path, fs.ErrPermission)
	case cause != nil:
		return &fs.PathError{Op: "use", Path: path, Err: cause}
	}
	if text := strings.TrimSpace(errOut); text != "" {
		return fmt.Errorf("%s on %s: %s", path, name, clip(text))
	}
	return fmt.Errorf("%s on %s cannot be used (exit code %d)", path, name, code)
}

// abs makes a path absolute without cleaning it: "link/.." is not ".".
func (f files) abs(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("the path is empty: %w", fs.ErrNotExist)
	}
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("the path holds a NUL byte: %w", fs.ErrInvalid)
	}
	if path.IsAbs(name) {
		return name, nil
	}
	dir := f.m.o.Dir
	if dir == "" {
		s, err := f.m.system(ctx)
		if err != nil {
			return "", err
		}
		dir = s.caps.Home
	}
	return dir + "/" + name, nil
}

// cause sets $c to the exit code that fits a path "$1" that cannot be used.
const cause = `cause() {
  if [ -d "$1" ]; then exit 47; fi
  if [ -e "$1" ]; then
    [ -f "$1" ] || exit 46
    exit 43
  fi
  p=$1
  while [ "$p" != / ] && [ -n "$p" ]; do
    p=${p%/*}
    q=${p:-/}
    if [ -d "$q" ]; then
      [ -x "$q" ] || exit 43
      exit 44
    fi
    [ -e "$q" ] && exit 52
  done
  exit 44
}
`

const readScript = cause + `[ -f "$1" ] && [ -r "$1" ] || cause "$1"
if [ "$2" = 0 ]; then exec cat -- "$1"; fi
exec head -c "$2" -- "$1"
`

// ReadFile implements backend.FileSystem.
func (f files) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	p, err := f.abs(ctx, name)
	if err != nil {
		return nil, err
	}
	ask := int64(0)
	if limit > 0 {
		ask = limit + 1
	}
	out, errOut, code, err := f.m.Query(ctx, readScript, p, strconv.FormatInt(ask, 10))
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, exitError(f.m.o.Name, p, code, errOut)
	}
	if limit > 0 && int64(len(out)) > limit {
		return []byte(out[:limit]), fmt.Errorf("%s: %w", p, backend.ErrTooBig)
	}
	return []byte(out), nil
}

// resolveFunc prints the real path of "$1", whose last names need not exist, with
// a dot behind it that keeps newlines.
const resolveFunc = `resolve() {
  p=$1 rest=
  while [ ! -e "$p" ]; do
    if [ -L "$p" ]; then
      n=$((n + 1))
      [ "$n" -gt 40 ] && exit 51
      l=$(readlink -- "$p"; echo .)
      l=${l%??}
      case $l in /*) p=$l ;; *) p=${p%/*}/$l ;; esac
      continue
    fi
    case $p in */) p=${p%"${p##*[!/]}"}; [ -n "$p" ] || p=/; continue ;; esac
    b=${p##*/}
    [ "$b" = .. ] && exit 44
    [ "$b" = . ] || rest=/$b$rest
    p=${p%/*}
    [ -n "$p" ] || p=/
  done
  [ -n "$rest" ] && [ ! -d "$p" ] && exit 52
  r=$(readlink -f -- "$p"; echo .)
  r=${r%??}
  [ -n "$r" ] || exit 43
  [ "$r" = / ] && [ -n "$rest" ] && r=
  printf '%s%s.' "$r" "$rest"
}
n=0
`

// Resolve implements backend.FileSystem.
func (f files) Resolve(ctx context.Context, name string) (string, error) {
	p, err := f.abs(ctx, name)
	if err != nil {
		return "", err
	}
	out, errOut, code, err := f.m.Query(ctx, resolveFunc+`resolve "$1"`, p)
	if err != nil {
		return "", err
	}
	resolved, ok := strings.CutSuffix(out, ".")
	if code != 0 || !ok || !path.IsAbs(resolved) {
		return "", exitError(f.m.o.Name, p, code, errOut)
	}
	return resolved, nil
}

// statFormat is what stat prints of a file: identity, size, mode in hex, time.
const statFormat = `%d:%i|%s|%f|%y`

const statScript = cause + resolveFunc + `s=$(stat -L -c '` + statFormat + `' -- "$1" 2>/dev/null) || cause "$1"
printf '%s\n' "$s"
resolve "$1"
`

// Stat implements backend.FileSystem.
func (f files) Stat(ctx context.Context, name string) (backend.FileInfo, error) {
	p, err := f.abs(ctx, name)
	if err != nil {
		return backend.FileInfo{}, err
	}
	out, errOut, code, err := f.m.Query(ctx, statScript, p)
	if err != nil {
		return backend.FileInfo{}, err
	}
	line, resolved, ok := strings.Cut(out, "\n")
	if code != 0 || !ok {
		return backend.FileInfo{}, exitError(f.m.o.Name, p, code, errOut)
	}
	return parseStat(line, strings.TrimSuffix(resolved, "."))
}

// statBatch is how many bytes of paths go into one look.
const statBatch = 32 << 10

// statAllScript prints statFormat and the name for each path that is there, and then,
// behind an empty line, the number of each path that has a link in it and where it
// leads: "?" where that has to be asked for by itself. Few have one, and what is in
// the directory of the one before needs no process; nor do words that are no files at all.
const statAllScript = resolveFunc + `for s do
  d=${s%/*}
  if [ -e "$s" ] || [ ! -x "${d:-/}" ]; then
    stat -L -c '` + statFormat + `|%n' -- "$@"
    break
  fi
done
echo
i=-1 dir= to=
for s do
  i=$((i + 1)) q=$s link=
  while [ -n "$q" ]; do
    if [ -L "$q" ]; then link=1; break; fi
    q=${q%/*}
  done
  [ -n "$link" ] || continue
  b=${s##*/}
  case $b in
    ''|.|..) r=$(n=0; resolve "$s") || continue ;;
    *)
      if [ -L "$s" ]; then
        r=$(n=0; resolve "$s") || continue
      else
        if [ "$dir" != "${s%/*}" ]; then
          dir=${s%/*} to=
          to=$(n=0; resolve "${dir:-/}") || to=
        fi
        [ -n "$to" ] || continue
        r=${to%.}
        r=${r%/}/$b.
      fi ;;
  esac
  case $r in
    *'
'*) r=?. ;;
  esac
  printf '%s|%s\n' "$i" "${r%.}"
done
:`

// StatAll implements backend.Surveyor.
func (f files) StatAll(ctx context.Context, names []string) ([]backend.FileInfo, []error, error) {
	infos, errs := make([]backend.FileInfo, len(names)), make([]error, len(names))
	var batch []int
	size := 0
	look := func() error {
		defer func() { batch, size = nil, 0 }()
		if len(batch) == 0 {
			return nil
		}
		args := make([]string, len(batch))
		for i, at := range batch {
			args[i] = infos[at].Path
		}
		out, errOut, _, err := f.m.Query(ctx, statAllScript, args...)
		if err != nil {
			return err
		}
		stats, links, _ := strings.Cut("\n"+out, "\n\n")
		leads := map[int]string{}
		for line := range strings.Lines(links) {
			i, to, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
			at, err := strconv.Atoi(i)
			if err != nil || at < 0 || at >= len(batch) {
				continue
			}
			if to == "?" {
				if to, err = f.Resolve(ctx, args[at]); errors.Is(err, backend.ErrLost) || ctx.Err() != nil {
					return err
				}
			}
			leads[batch[at]] = to
		}
		found := map[string]backend.FileInfo{}
		for line := range strings.Lines(stats) {
			parts := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 5)
			if len(parts) < 5 {
				continue
			}
			if st, err := parseStat(strings.Join(parts[:4], "|"), parts[4]); err == nil {
				found[parts[4]] = st
			}
		}
		for _, at := range batch {
			p := infos[at].Path
			st, ok := found[p]
			if infos[at].Path = path.Clean(p); leads[at] != "" {
				infos[at].Path = leads[at]
			}
			if ok {
				st.Path = infos[at].Path
				infos[at] = st
				continue
			}
			cause := fs.ErrNotExist
			for line := range strings.Lines(errOut) {
				if strings.Contains(line, p) && strings.Contains(line, "Permission denied") {
					cause = fs.ErrPermission
				}
			}
			errs[at] = &fs.PathError{Op: "stat", Path: p, Err: cause}
		}
		return nil
	}
	for i, name := range names {
		p, err := f.abs(ctx, name)
		if err == nil && strings.ContainsAny(p, "\n|") {
			infos[i], err = f.Stat(ctx, p)
			if errors.Is(err, backend.ErrLost) || ctx.Err() != nil {
				return nil, nil, err
			}
			errs[i] = err
			continue
		}
		if err != nil {
			errs[i] = err
			continue
		}
		infos[i].Path = p
		batch = append(batch, i)
		if size += len(p) + 1; size > statBatch {
			if err := look(); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := look(); err != nil {
		return nil, nil, err
	}
	return infos, errs, nil
}

// parseStat reads a line of statFormat.
func parseStat(line, name string) (backend.FileInfo, error) {
	st := backend.FileInfo{Path: name}
	parts := strings.Split(line, "|")
	if len(parts) != 4 {
		return st, fmt.Errorf("remote: stat printed %q", clip(line))
	}
	size, err1 := strconv.ParseInt(parts[1], 10, 64)
	mode, err2 := strconv.ParseUint(parts[2], 16, 32)
	if err1 != nil || err2 != nil {
		return st, fmt.Errorf("remote: stat printed %q", clip(line))
	}
	st.ID, st.Size, st.Mode = parts[0], size, fileMode(uint32(mode))
	for _, layout := range []string{"2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05"} {
		if t, err := time.Parse(layout, parts[3]); err == nil {
			st.Time = t
			break
		}
	}
	return st, nil
}

// fileMode makes a mode of st_mode, as Linux numbers it (inode(7)).
func fileMode(raw uint32) fs.FileMode {
	mode := fs.FileMode(raw & 0o777)
	switch raw & syscall.S_IFMT {
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	case syscall.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		mode |= fs.ModeSocket
	case syscall.S_IFBLK:
		mode |= fs.ModeDevice
	case syscall.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	if raw&syscall.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if raw&syscall.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if raw&syscall.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// replaceScript writes standard input to the file "$2" of the directory "$1". "$3"
// is how many bytes there are to come, "$4" whether to make directories, "$5"
// whether to replace only what was seen: then "$6" is the directory's identity and
// "$7" the SHA-256 of the old content. "$8" is the mode of a new file. It works in the directory itself, whatever
// its name leads to meanwhile.
const replaceScript = cause + `d=$1 b=./$2 size=$3
[ "$4" = 1 ] && { mkdir -p -- "$d" || exit 43; }
cd -- "$d" 2>/dev/null || { [ -d "$d" ] && exit 43; [ -e "$d" ] && exit 52; cause "$d"; }
still() {
  [ -L "$b" ] && exit 50
  if [ -z "$1" ]; then
    [ ! -e "$b" ] || exit 50
  else
    [ -f "$b" ] || exit 50
    [ -r "$b" ] || exit 43
    s=$(sha256sum <"$b") && [ "${s%% *}" = "$1" ] || exit 50
  fi
}
if [ "$5" = 1 ]; then
  [ "$(stat -L -c %d:%i .)" = "$6" ] || exit 50
  [ -e "$b" ] && [ ! -f "$b" ] && exit 50
  still "$7"
fi
[ -d "$b" ] && exit 47
[ -e "$b" ] && [ ! -f "$b" ] && exit 46
[ -e "$b" ] && [ ! -w "$b" ] && exit 43
umask 077
t=$(mktemp ./.countersign-XXXXXX) || exit 43
trap 'rm -f -- "$t"' EXIT
cat >"$t" || exit 45
[ "$(wc -c <"$t")" -eq "$size" ] || exit 48
if [ -e "$b" ]; then
  o=$(stat -c %u:%g -- "$b")
  [ "$(stat -c %u:%g -- "$t")" = "$o" ] || chown -- "$o" "$t" 2>/dev/null || exit 49
  chmod -- "$(stat -c %a -- "$b")" "$t" || exit 43
else
  chmod "$8" "$t" || exit 43
fi
sync -- "$t" 2>/dev/null || sync
if [ "$5" = 1 ]; then
  still "$7"
  if [ -z "$7" ]; then
    ln -- "$t" "$b" 2>/dev/null && exit 0
    [ -e "$b" ] && exit 50
  fi
fi
mv -f -- "$t" "$b" || exit 43
trap - EXIT
exit 0
`

// WriteFile implements backend.FileSystem.
func (f files) WriteFile(ctx context.Context, name string, data []byte, mkdir bool) error {
	target, err := f.Resolve(ctx, name)
	if err != nil {
		return err
	}
	return f.write(ctx, target, data, mkdir, nil)
}

// Replace implements backend.Replacer.
func (f files) Replace(ctx context.Context, name string, data []byte, was backend.Before) error {
	target, err := f.Resolve(ctx, name)
	if err != nil {
		return err
	}
	if target != name {
		return fmt.Errorf("%s leads to %s: %w", name, target, backend.ErrChanged)
	}
	return f.write(ctx, target, data, false, &was)
}

func (f files) write(ctx context.Context, target string, data []byte, mkdir bool, was *backend.Before) error {
	flag := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	if data == nil {
		data = []byte{}
	}
	if target == "/" {
		return &fs.PathError{Op: "write", Path: target, Err: syscall.EISDIR}
	}
	args := []string{path.Dir(target), path.Base(target), strconv.Itoa(len(data)), flag(mkdir), flag(was != nil), "", "", "0644"}
	if was != nil {
		args[5], args[6] = was.Dir, was.Sum
	}
	if was != nil && was.Mode != 0 {
		args[7] = fmt.Sprintf("%04o", was.Mode.Perm())
	}
	_, errOut, code, err := f.m.script(ctx, replaceScript, data, args)
	switch {
	case err != nil:
		return err
	case code == exitCut:
		return fmt.Errorf("%s: only a part arrived at %s, and nothing was changed", target, f.m.o.Name)
	case code != 0:
		return exitError(f.m.o.Name, target, code, errOut)
	}
	return nil
}

// removeScript removes the file "$2" of the directory "$1", whose identity is "$3", if
// its content has the SHA-256 "$4".
const removeScript = `b=./$2
cd -- "$1" 2>/dev/null || exit 50
[ "$(stat -L -c %d:%i .)" = "$3" ] || exit 50
[ ! -L "$b" ] && [ -f "$b" ] || exit 50
[ -r "$b" ] || exit 43
s=$(sha256sum <"$b") && [ "${s%% *}" = "$4" ] || exit 50
rm -f -- "$b" || exit 43
[ ! -e "$b" ] || exit 43
`

// Remove implements backend.Remover.
func (f files) Remove(ctx context.Context, name string, was backend.Before) error {
	target, err := f.Resolve(ctx, name)
	if err != nil {
		return err
	}
	if target != name {
		return fmt.Errorf("%s leads to %s: %w", name, target, backend.ErrChanged)
	}
	if was.Sum == "" {
		return &fs.PathError{Op: "remove", Path: target, Err: fs.ErrNotExist}
	}
	_, errOut, code, err := f.m.script(ctx, removeScript, nil, []string{path.Dir(target), path.Base(target), was.Dir, was.Sum})
	if err == nil && code != 0 {
		err = exitError(f.m.o.Name, target, code, errOut)
	}
	return err
}
