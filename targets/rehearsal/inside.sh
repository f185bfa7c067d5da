# Enters the view, in process and mount namespaces that view.sh has made, and starts the launcher, which
# puts the lock on. Arguments: directory, account; then variables, the launcher and the program.
dir=$1 account=$2
shift 2
no() { echo "countersign: no $1" >&2; exit 125; }
mount -t proc -o ro,nosuid,nodev,noexec countersign /sys/r/proc || no proc
cd / && pivot_root /sys/r /sys/r/sys && cd / && umount -l /sys || no view
[ -e /sys/r ] && no view
cd -- "$dir" || no directory
if [ -n "$account" ]; then
  exec setpriv --reuid "${account%:*}" --regid "${account#*:}" --init-groups --inh-caps=-all --bounding-set=-all -- env -i "$@"
fi
exec env -i "$@"
