# Makes a throwaway view of the machine's files, runs a program in it under a lock, and prints what the
# program has changed there. It needs the rights to mount; everything it makes is in namespaces of its
# own, and goes with them. It writes nothing to the machine's own files: the view's part that changes
# lies in memory, mounted where /sys was.
#
# Arguments: size of the memory in bytes, most processes, seconds that the program may take, its directory, its input (none,
# silent), the text of inside.sh, the account that it runs as (UID:GID, "" is root); then the variables, the
# launcher and the program.
#
# It prints records that end with a zero byte:
#
#   v PATH        what is below PATH is not in the view
#   x WHY         there is no view, and nothing ran; it is the last one
#   e CODE        the program ended
#   u TYPE SIZE MODE UID GID TIME PATH   what the view has now; after a link, n TARGET
#   l ...         the same of the machine's own, for every path of u that is there; after a link, o TARGET
#   s SUM PATH, t SUM PATH   digests of files of the same size, of the view and of the machine
#   d ...         what is gone, with everything below it
#   z             it is the whole
LC_ALL=C
export LC_ALL
umask 022
size=$1 most=$2 limit=$3 dir=$4 input=$5 inside=$6 account=$7
shift 7
no() { printf 'x %s\0' "$1"; exit 1; }
[ "$(id -u)" = 0 ] || no root
# A cgroup bounds the number of processes; root has no other bound. Those of views that were killed go.
pids=
for d in /sys/fs/cgroup/pids /sys/fs/cgroup; do
  for old in "$d"/countersign-rehearsal-*; do
    [ ! -d "$old" ] || [ -d "/proc/${old##*-}" ] || rmdir "$old" 2>/dev/null
  done
  mkdir "$d/countersign-rehearsal-$$" 2>/dev/null || continue
  if [ -w "$d/countersign-rehearsal-$$/pids.max" ] && echo "$most" >"$d/countersign-rehearsal-$$/pids.max" && exec 8<"$d"; then
    pids=countersign-rehearsal-$$
    break
  fi
  rmdir "$d/countersign-rehearsal-$$"
done
mount -t tmpfs -o "size=$size,mode=755,nosuid" countersign /sys 2>/dev/null || no mount
mkdir /sys/r /sys/u /sys/w /sys/t || no memory
n=0
while read -r _ _ _ _ at flags rest; do
  kind=${rest#*- }
  kind=${kind%% *}
  case $at in / | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) [ "$at" = / ] || continue ;; esac
  [ -d "$at" ] || { [ -f "$at" ] && printf '%s\0' "$at" >>/sys/t/single; continue; }
  case $at in
    *\\* | *[,:\&\|]* | /var/lib/docker/* | /var/lib/containers/* | /var/lib/kubelet/* | /run/docker/* | /run/containerd/* | /run/netns/*)
      printf 'v %s\0' "$at"; continue ;;
  esac
  case $kind in
    proc | sysfs | cgroup | cgroup2 | devpts | devtmpfs | mqueue | debugfs | tracefs | securityfs | pstore | bpf | configfs | fusectl | binfmt_misc | \
      hugetlbfs | nsfs | rpc_pipefs | efivarfs | selinuxfs | autofs) printf 'v %s\0' "$at"; continue ;;
  esac
  n=$((n + 1))
  [ "$n" -le 40 ] || no mounts
  mkdir "/sys/u/$n" "/sys/w/$n" && chmod --reference="$at" "/sys/u/$n" && chown --reference="$at" "/sys/u/$n" || no memory
  how=nodev
  case ,$flags, in *,ro,*) how=nodev,ro ;; esac
  under=$at
  [ "$at" = / ] && under=
  if ! mount -t overlay -o "$how,lowerdir=$at,upperdir=/sys/u/$n,workdir=/sys/w/$n" countersign "/sys/r$under" 2>/dev/null; then
    [ "$at" = / ] && no overlay
    rmdir "/sys/u/$n"
    mount -t tmpfs -o ro,mode=755 countersign "/sys/r$under" 2>/dev/null || no mount
    printf 'v %s\0' "$at"
    continue
  fi
  printf '%s\n' "$at" >"/sys/t/$n"
done </proc/self/mountinfo
[ -f /sys/t/1 ] || no overlay
[ -f /sys/t/single ] && xargs -0 -r sh -c 'for f; do [ -s "$f" ] && cp -p -- "$f" "/sys/r$f"; done' sh </sys/t/single 2>/dev/null
mount -t tmpfs -o mode=755,nosuid,noexec countersign /sys/r/dev || no mount
for d in null zero full random urandom; do
  : >"/sys/r/dev/$d" && mount --bind "/dev/$d" "/sys/r/dev/$d" || no devices
done
# What gains rights for a command gains none here, so it must not look as if the command just failed.
printf '#!/bin/sh\n: >/tmp/.countersign-rights\necho "no rights are gained in a rehearsal" >&2\nexit 1\n' >/sys/t/rights && chmod 755 /sys/t/rights || no memory
for p in sudo doas pkexec ${account:+su}; do
  for d in /usr/bin /bin /usr/local/bin; do
    [ -f "$d/$p" ] && [ ! -L "$d/$p" ] && { mount --bind /sys/t/rights "/sys/r$d/$p" || no mount; }
  done
done
mkdir -m 1777 /sys/r/dev/shm && ln -s /proc/self/fd /sys/r/dev/fd && ln -s fd/0 /sys/r/dev/stdin && ln -s fd/1 /sys/r/dev/stdout && ln -s fd/2 /sys/r/dev/stderr || no devices
printf 'v /dev/shm\0'
mount -o remount,ro /sys/r/dev || no devices
[ "$input" = silent ] && mkfifo /sys/t/silent && exec <>/sys/t/silent
# Also where nobody is left to end it. What it began ends with it, since its first process does.
sh -c 'p=$1
  shift
  [ -z "$p" ] || echo "$$" >"/proc/self/fd/8/$p/cgroup.procs"
  exec 8<&-
  exec "$@"' sh "$pids" timeout --foreground --signal=KILL "$limit" unshare --pid --fork --kill-child --mount sh -c "$inside" sh "$dir" "$account" "$@" >/dev/null
code=$?
[ -z "$pids" ] || rmdir "/proc/self/fd/8/$pids" 2>/dev/null
[ "$(stat -f -c %a /sys)" -gt 64 ] || no memory
printf 'e %s\0' "$code"

row='%y %s %m %U %G %T@ %p\0'
below() { xargs -0 -r sh -c 'row=$1; shift; exec find "$@" -maxdepth 0 -printf "$row" -type l -printf "$0"' "$2" "$1" 2>/dev/null; }
i=0
while [ "$i" -lt "$n" ]; do
  i=$((i + 1))
  [ -f "/sys/t/$i" ] || continue
  read -r at <"/sys/t/$i"
  under=${at%/}
  cd "/sys/u/$i" || no memory
  [ -n "$(ls -A)" ] || continue
  find . -mindepth 1 ! -type c -printf "u $row" -type l -printf 'n %l\0' | sed -z "s|^\(u [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* \)\./|\1$under/|"
  find . -mindepth 1 ! -type c -printf '%p\0' >/sys/t/changed
  find . -type f -printf '%s %p\0' | sort -z >/sys/t/a
  cd "${at}" || no memory
  below "l $row" 'o %l\0' </sys/t/changed | sed -z "s|^\(l [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* \)\./|\1$under/|"
  below '%s %p\0' '' </sys/t/changed | sort -z >/sys/t/b
  comm -z12 /sys/t/a /sys/t/b | cut -z -d ' ' -f 2- >/sys/t/same
  if [ -s /sys/t/same ]; then
    xargs -0 -r sha256sum -z -- </sys/t/same 2>/dev/null | sed -z "s|^|t |; s|  \./| $under/|"
    cd "/sys/u/$i" && xargs -0 -r sha256sum -z -- </sys/t/same 2>/dev/null | sed -z "s|^|s |; s|  \./| $under/|"
    cd "$at" || no memory
  fi
  # A directory may have lost entries, also one that was replaced by something else. What the view shows is compared, since only the
  # kernel knows how it hides them.
  { printf '.\0'; cat /sys/t/changed; } | xargs -0 -r sh -c '
    view=$1
    shift
    for d; do
      [ -d "$d" ] && [ ! -L "$d" ] || continue
      for f in "$d"/* "$d"/.[!.]* "$d"/..?*; do
        [ -e "$f" ] || [ -L "$f" ] || continue
        [ -e "$view/$f" ] || [ -L "$view/$f" ] || printf "%s\0" "$f"
      done
    done' sh "/sys/r$under" | xargs -0 -r sh -c 'exec find "$@" -printf "$0"' "d $row" 2>/dev/null | sed -z "s|^\(d [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* \)\./|\1$under/|"
done
printf 'z\0'
