# Leads a session of its own, apart from that of the process, so that no signal to the
# process meets it: it copies the output and notes how the process ended. When the
# output has its full length, the rest is read and thrown away, so that the process is
# neither blocked nor killed.
#
# Arguments: process to kill once it has begun, directory, mark, limit in blocks, umask
# of the process, text of the starter; then the program.
i=$1 d=$2 m=$3 n=$4 u=$5 f=$6
shift 6
umask 077
{
  # A subshell, since dash redirects its own standard error with that of a command.
  (exec sh -c "$f" countersign-process "$i" "$d" "$m" "$u" "$@" 2>&1)
  r=$?
  exec >/dev/null
  echo "$r $(date +%s)" >"$d/ended.new" && mv -- "$d/ended.new" "$d/ended"
} | {
  (
    ulimit -f "$n"
    trap '' XFSZ
    exec cat >"$d/output"
  ) || {
    : >"$d/full"
    cat >/dev/null
  }
  : >"$d/drained"
}
