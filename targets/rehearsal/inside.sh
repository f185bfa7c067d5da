# Enters the view, in process and mount namespaces that view.sh has made, and starts the launcher, which
# puts the lock on. Arguments: directory; then variables, the launcher and the program.
dir=$1
shift
no() { echo "countersign: no $1" >&2; exit 125; }
mount -t proc -o ro,nosuid,nodev,noexec countersign /sys/r/proc || no proc
cd / && pivot_root /sys/r /sys/r/sys && cd / && umount -l /sys || no view
[ -e /sys/r ] && no view
cd -- "$dir" || no directory
exec env -i "$@"
