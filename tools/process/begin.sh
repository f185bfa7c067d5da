# Becomes the process: notes its number, when it began in the kernel's ticks (which
# exec does not change) and in which boot, and lets the starting shells go.
i=$1 d=$2 m=$3 u=$4
shift 4
c=$(cat -- "$d/command" && echo .) || exit 126
c=${c%.}
begun() { t=${20}; }
read -r l <"/proc/$$/stat" || exit 126
begun ${l##*) }
read -r k </proc/sys/kernel/random/boot_id || k=-
umask 077
echo "$$ $t $k $(date +%s)" >"$d/pid.new" || exit 126
mv -- "$d/pid.new" "$d/pid" || exit 126
umask "$u"
COUNTERSIGN_PROCESS=$m
export COUNTERSIGN_PROCESS
kill -KILL "$i"
exec setsid "$@" "$c" </dev/null
