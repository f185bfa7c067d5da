# Says how a change on trial stands, after keeping it or having it undone now. Arguments: the name of
# trial.sh, and keep, now, look or after, which is when the command has ended. It prints who was first, the exit
# status of what undid, and what that said.
case $2 in
  after) bash --noprofile --norc "$1.look" <"$1.paths" >"$1.part" && mv -f -- "$1.part" "$1.after" ;;
  keep) ln -s kept "$1.claim" 2>/dev/null ;;
  now)
    : >"$1.now"
    n=40
    while [ "$n" -gt 0 ] && [ ! -e "$1.done" ]; do
      case $(readlink "$1.claim") in kept) break ;; esac
      sleep 0.1
      n=$((n - 1))
    done ;;
esac
echo "claim $(readlink "$1.claim")"
[ ! -e "$1.done" ] || { printf 'done '; cat "$1.done"; }
