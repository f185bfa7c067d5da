# Starts a process in the background and says "began PID START BOOT TIME", or "no WHY".
#
# Two shells in between are for the signals: what a shell starts with "&" ignores SIGINT
# and SIGQUIT for ever (POSIX, 2.11), and programs take that over. So nothing is
# started with "&": a shell that waits for the supervisor is killed by it when the
# process has begun, and this one then goes on.
#
# Arguments: directory, name below it, mark, limit of the output in blocks of 512 bytes,
# text of the supervisor, text of the starter; then the program that takes the command
# as its last argument. The command comes as input.
b=$1 d=$1/$2 m=$3 n=$4 s=$5 f=$6
shift 6
no() {
  printf 'no %s\n' "$1"
  exit 0
}
command -v setsid >/dev/null 2>&1 || no setsid
[ -r "/proc/$$/stat" ] || no proc
u=$(umask)
umask 077
mkdir -p -- "$b" 2>/dev/null
{ [ -d "$b" ] && [ ! -L "$b" ] && [ -O "$b" ] && chmod 700 "$b" && mkdir -- "$d"; } 2>/dev/null || no directory
{ cat >"$d/command" && : >"$d/output"; } 2>/dev/null || {
  rm -rf -- "$d"
  no space
}
sh -c '(s=$1; shift; exec setsid sh -c "$s" countersign-process "$$" "$@"); exit 1' sh "$s" "$d" "$m" "$n" "$u" "$f" "$@" </dev/null >/dev/null 2>&1
if read -r l 2>/dev/null <"$d/pid"; then
  printf 'began %s\n' "$l"
else
  rm -rf -- "$d"
  no start
fi
exit 0
