read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id || boot=-

# own DIR: it is a directory of ours, and no other user can have put it there.
own() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }

# seen PID: what the kernel says of a process, in state, group, session and since. Its
# name may hold anything, newlines included.
fields() { state=$1 group=$3 session=$4 since=${20}; }
seen() {
  line=
  { while IFS= read -r part || [ -n "$part" ]; do line="$line$part "; done; } 2>/dev/null <"/proc/$1/stat" || return 1
  [ -n "$line" ] || return 1
  fields ${line##*) }
  [ -n "$since" ]
}

# members PID START BOOT MARK: what lives of a process, in live (as "pid:start"); lead is
# yes, zombie, no, other (its number means another process by now) or boot (the system
# was started again). Its session and group count only while it is there itself: later
# their number may be somebody else's. Beside them counts what has the mark in its
# environment, wherever it went.
members() {
  lead=no live= rest=
  if [ "$3" != "$boot" ] && [ "$3" != - ]; then
    lead=boot
    return
  fi
  if seen "$1"; then
    if [ "$since" != "$2" ]; then lead=other; else
      case $state in Z | X) lead=zombie ;; *) lead=yes ;; esac
    fi
  fi
  for entry in /proc/[0-9]*; do
    p=${entry#/proc/}
    seen "$p" || continue
    case $state in Z | X) continue ;; esac
    [ "$since" -ge "$2" ] || continue
    case $lead in
    yes | zombie)
      if [ "$p" = "$1" ] || [ "$session" = "$1" ] || [ "$group" = "$1" ]; then
        live="$live $p:$since"
        continue
      fi
      ;;
    esac
    rest="$rest $entry/environ"
  done
  [ -n "$rest" ] || return 0
  if printf 'a\000b\n' | grep -qF b; then
    marked=$(grep -lsF -- "COUNTERSIGN_PROCESS=$4" $rest 2>/dev/null </dev/null)
  else # busybox stops at a zero byte
    # One pipeline for all, because two forks for each process take seconds on a busy machine.
    # A variable can look like the name of another file, so each file found is read again.
    found=$(head -c 4194304 $rest /dev/null 2>/dev/null </dev/null | tr '\000' '\n' |
      grep -x -e '==> /proc/[0-9]*/environ <==' -e "COUNTERSIGN_PROCESS=$4" |
      while read -r word entry _; do
        if [ "$word" = '==>' ]; then at=$entry; else echo "$at"; fi
      done)
    marked=
    for entry in $found; do
      { tr '\000' '\n' <"$entry"; } 2>/dev/null | grep -qxF -- "COUNTERSIGN_PROCESS=$4" && marked="$marked $entry"
    done
  fi
  for entry in $marked; do
    entry=${entry%/environ}
    p=${entry#/proc/}
    seen "$p" && live="$live $p:$since"
  done
}

# uptime: how long the system runs, in hundredths of a second, in up.
uptime() {
  up=
  read -r up _ 2>/dev/null </proc/uptime || return 1
  up=$((${up%.*} * 100 + 1${up#*.} - 100))
}

pause() { sleep "$1" 2>/dev/null || sleep 1; }

# certain is members, and where nothing lives looks once more: what was being forked, or
# is within exec, where its environment cannot be read, is missed by a single look.
certain() {
  members "$@"
  if [ -z "$live" ] && [ "$lead" != boot ]; then
    pause 0.2
    members "$@"
  fi
}

# testify BASE NAME PID START BOOT MARK: says what is known of a process. What ends in
# this moment gets a second to be noted.
testify() {
  certain "$3" "$4" "$5" "$6"
  printf 'process %s\nlead %s\n' "$2" "$lead"
  printf 'live'
  for entry in $live; do printf ' %s' "${entry%%:*}"; done
  echo
  d=$1/$2
  if ! own "$1" || ! own "$d"; then
    echo none
    return
  fi
  if [ "$lead" != yes ] || [ -z "$live" ]; then
    n=10
    while [ "$n" -gt 0 ]; do
      if [ -e "$d/ended" ]; then
        [ -e "$d/drained" ] || [ -n "$live" ] || { pause 0.1 && n=$((n - 1)) && continue; }
        break
      fi
      [ -e "$d/pid" ] && [ "$lead" != boot ] || break
      pause 0.1
      n=$((n - 1))
    done
  fi
  read -r l 2>/dev/null <"$d/pid" && printf 'pid %s\n' "$l"
  # What ended since it was seen is still among what lives: the next look tells.
  [ "$lead" = yes ] || { read -r l 2>/dev/null <"$d/ended" && printf 'ended %s\n' "$l"; }
  printf 'size %s\n' "$(stat -c %s -- "$d/output" 2>/dev/null)"
  [ -e "$d/full" ] && echo full
  return 0
}
