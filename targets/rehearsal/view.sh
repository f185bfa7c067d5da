# Makes a throwaway view of the machine's files, runs a program in it under a lock, and prints what the
# program has changed there. It needs the rights to mount; everything it makes is in namespaces of its
# own, and goes with them. It writes nothing to the machine's own files: the view's part that changes
# lies in memory, mounted where /sys was.
#
# Arguments: size of the memory in bytes, most processes, its directory, its input (none, silent), the texts of
# inside.sh and compare.sh, the account that it runs as (UID:GID, "" is root); then the variables, the launcher
# and the program.
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
size=$1 most=$2 dir=$3 input=$4 inside=$5 compare=$6 account=$7
shift 7
no() { printf 'x %s\0' "$1"; exit 1; }
[ "$(id -u)" = 0 ] || no root
# Where memory gets short, the kernel ends this first, and there is none where it is short already.
echo 1000 2>/dev/null >/proc/self/oom_score_adj || no oom
free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
left() { # limit, use, statistics and what of them is cache
  set -- "/sys/fs/cgroup/$1" "/sys/fs/cgroup/$2" "/sys/fs/cgroup/$3" "$4"
  limit=$(cat "$1" 2>/dev/null) && used=$(cat "$2" 2>/dev/null) || return
  case $limit in max | ?????????????????*) return ;; esac
  cached=$(sed -n "s/^$4 //p" "$3" 2>/dev/null)
  left=$(((limit - used + ${cached:-0}) / 1024))
  [ "$left" -ge "${free:-0}" ] || free=$left
}
left memory/memory.limit_in_bytes memory/memory.usage_in_bytes memory/memory.stat total_inactive_file
left memory.max memory.current memory.stat inactive_file
[ "${free:-0}" -ge $((size / 512)) ] || no short
# Cgroups bound the number of processes, since root has no other bound, and their memory together. Those of views
# that were killed go.
read -r self rest </proc/self/stat
group=countersign-rehearsal-$self
bound() { # controller, the files of the first and the second version, most
  at=/sys/fs/cgroup/$1 file=$2
  if [ ! -e "$at/cgroup.procs" ]; then
    at=/sys/fs/cgroup file=$3
    case " $(cat $at/cgroup.subtree_control 2>/dev/null) " in *" $1 "*) ;; *) at=/; return ;; esac
  fi
  for old in "$at"/countersign-rehearsal-*; do
    [ ! -d "$old" ] || [ -d "/proc/${old##*-}" ] || rmdir "$old" 2>/dev/null
  done
  mkdir "$at/$group" 2>/dev/null
  echo "$4" 2>/dev/null >"$at/$group/$file"
}
bound pids pids.max pids.max "$most"
exec 8<"$at"
bound memory memory.limit_in_bytes memory.max $((free * 512))
exec 9<"$at"
mount -t tmpfs -o "size=$size,mode=755,nosuid" countersign /sys 2>/dev/null || no mount
mkdir /sys/r /sys/u /sys/w /sys/t || no memory
n=0
while read -r _ _ _ _ at flags rest; do
  kind=${rest#*- }
  kind=${kind%% *}
  case $at in / | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) [ "$at" = / ] || continue ;; esac
  case $at in
    *\\* | *[,:\&\|]* | /var/lib/docker/* | /var/lib/containers/* | /var/lib/kubelet/* | /run/docker/* | /run/containerd/* | /run/netns/*)
      printf 'v %s\0' "$at"; continue ;;
  esac
  case $kind in
    proc | sysfs | cgroup | cgroup2 | devpts | devtmpfs | mqueue | debugfs | tracefs | securityfs | pstore | bpf | configfs | fusectl | binfmt_misc | \
      hugetlbfs | nsfs | rpc_pipefs | efivarfs | selinuxfs | autofs) printf 'v %s\0' "$at"; continue ;;
  esac
  [ -d "$at" ] || { [ -f "$at" ] && printf '%s\0' "$at" >>/sys/t/single; continue; }
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
  # The device is the machine's: only read-only mounts keep its mode and owner.
  : >"/sys/r/dev/$d" && mount --bind "/dev/$d" "/sys/r/dev/$d" && mount -o remount,bind,ro,nosuid,noexec "/sys/r/dev/$d" || no devices
done
# What gains rights for a command gains none here, so it must not look as if the command just failed.
printf '#!/bin/sh\n: >/tmp/.countersign-rights\necho "no rights are gained in a rehearsal" >&2\nexit 1\n' >/sys/t/rights && chmod 755 /sys/t/rights || no memory
for p in $(find /usr/bin /bin /usr/sbin /sbin /usr/local/bin /usr/local/sbin -maxdepth 1 -type f \( -name sudo -o -name doas -o -name pkexec ${account:+-o -perm /6000 ! -name umount} \) 2>/dev/null); do
  mount --bind /sys/t/rights "/sys/r$p" || no mount
done
mkdir -m 1777 /sys/r/dev/shm && ln -s /proc/self/fd /sys/r/dev/fd && ln -s fd/0 /sys/r/dev/stdin && ln -s fd/1 /sys/r/dev/stdout && ln -s fd/2 /sys/r/dev/stderr || no devices
printf 'v /dev/shm\0'
mount -o remount,ro /sys/r/dev || no devices
[ "$input" = silent ] && mkfifo /sys/t/silent && exec <>/sys/t/silent
# What it began ends with it, since its first process does.
sh -c 'for d in 8 9; do
    [ ! -d "/proc/self/fd/$d/$1" ] || echo "$$" >"/proc/self/fd/$d/$1/cgroup.procs" || exit 125
  done
  shift
  exec 8<&- 9<&-
  exec "$@"' sh "$group" unshare --pid --fork --kill-child --mount sh -c "$inside" sh "$dir" "$account" "$@" >/dev/null
code=$?
rmdir "/proc/self/fd/8/$group" "/proc/self/fd/9/$group" 2>/dev/null
exec 8<&- 9<&- </dev/null
[ "$(stat -f -c %a /sys)" -gt 64 ] || no memory
printf 'e %s\0' "$code"
# The files are compared with no other rights than the command had.
as=
[ -z "$account" ] || as="setpriv --reuid ${account%:*} --regid ${account#*:} --init-groups --inh-caps=-all --bounding-set=-all --"
mkdir -m 700 /sys/t/c && { [ -z "$account" ] || chown "$account" /sys/t/c; } || no memory
i=0
while [ "$i" -lt "$n" ]; do
  i=$((i + 1))
  [ -f "/sys/t/$i" ] || continue
  read -r at <"/sys/t/$i"
  $as sh -c "$compare" sh "$at" "/sys/u/$i" || exit 1
done
printf 'z\0'
