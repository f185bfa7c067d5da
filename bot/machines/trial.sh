# Undoes a change after a while, unless somebody keeps it: on the target itself, so that neither the bot nor
# a connection is needed. Arguments: a name below a directory of the account, seconds, the text that undoes, and
# the text that looks at what was changed, whose input is on the standard input.
#
#   NAME.sh      what waits
#   NAME.undo    the text that undoes
#   NAME.look    the text that looks, which fails if it can't, and NAME.paths its input
#   NAME.after   what it showed when the command had ended: what somebody changed since stays
#   NAME.now     somebody wants it undone now
#   NAME.claim   a link whose target says who was first: kept or undo
#   NAME.done    its exit status, and the end of what it printed
umask 077
dir=${1%/*}
mkdir -p -- "$dir" && [ -d "$dir" ] && [ ! -L "$dir" ] && [ -O "$dir" ] || { echo "$dir is not a directory of this account" >&2; exit 1; }
find "$dir" -maxdepth 1 ! -type d -mtime +7 -exec rm -f -- {} + 2>/dev/null
look='export LC_ALL=C\n(%s\n) 2>/dev/null\ncode=$?\necho "exit $code"\n[ "$code" -le 1 ]\n'
cat >"$1.paths" && printf "$look" "$4" >"$1.look" && printf %s "$3" >"$1.undo" && cat >"$1.sh" <<'END' || exit 1
trap '' HUP INT TERM
n=$2
while [ "$n" -gt 0 ] && [ ! -e "$1.now" ]; do
  [ ! -L "$1.claim" ] || exit 0
  sleep 1
  n=$((n - 1))
done
ln -s undo "$1.claim" 2>/dev/null || exit 0
if [ -s "$1.after" ] && now=$(bash --noprofile --norc "$1.look" <"$1.paths") && [ "$now" != "$(cat "$1.after")" ]; then
  out= code=changed
else
  out=$(bash --noprofile --norc "$1.undo" </dev/null 2>&1)
  code=$?
fi
printf '%s\n%s\n' "$code" "$(printf %s "$out" | tail -c 500)" >"$1.part" && mv -f -- "$1.part" "$1.done"
END
# systemd would replace variables in its arguments, so they have none.
if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] && systemd-run --quiet --collect --setenv=HOME="$HOME" --setenv=PATH="$PATH" --unit="countersign-undo-${1##*-}" /bin/sh "$1.sh" "$1" "$2" 2>/dev/null; then
  exit 0
fi
if command -v setsid >/dev/null; then
  setsid /bin/sh "$1.sh" "$1" "$2" </dev/null >/dev/null 2>&1 &
else
  /bin/sh "$1.sh" "$1" "$2" </dev/null >/dev/null 2>&1 &
fi
