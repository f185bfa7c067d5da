# Prints what a view changed in one file system (view.sh). Arguments: where the file system is, and what the view
# has of its own there. It opens regular files only: reading from a pipe or a device takes something away.
at=$1 upper=$2 under=${1%/}
cd /sys/t/c || exit 1
no() { printf 'x %s\0' "$1"; exit 1; }
named() { sed -z "s|^\($1 [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* [^ ]* \)\./|\1$under/|"; }
row='%y %s %m %U %G %T@ %p\0'
# What the machine has of some names. The arguments follow them.
machine() { (cd -- "$at" && exec xargs -0 -r sh -c 'row=$1 link=$2 only=$3; shift 3; exec find "$@" -maxdepth 0 $only -printf "$row" -type l -printf "$link"' sh "$@") 2>/dev/null; }
sums() { (cd -- "$2" && exec xargs -0 -r sha256sum -z --) <same 2>/dev/null | sed -z "s|^|$1 |; s|  \./| $under/|"; }
[ -r "$upper" ] || [ ! -x "$upper" ] || no closed # what is below may have changed, and can't be listed
[ -n "$(ls -A "$upper")" ] || exit 0
{ (cd "$upper" && find . -mindepth 1 ! -type c -printf "u $row" -type l -printf 'n %l\0') >rows &&
  (cd "$upper" && find . -mindepth 1 ! -type c -printf '%p\0') >changed &&
  (cd "$upper" && find . -type f -printf '%s %p\0') >files; } 2>/dev/null || no closed
named u <rows
machine "l $row" 'o %l\0' '' <changed | named l
sort -z <files >ours
machine '%s %p\0' '' '-type f' <changed | sort -z >theirs
comm -z12 ours theirs | cut -z -d ' ' -f 2- >same
sums t "$at"
sums s "$upper"
# A directory may have lost entries, also one that was replaced by something else. What the view shows is compared, since only the
# kernel knows how it hides them.
{ printf '.\0'; cat changed; } | (cd -- "$at" && exec xargs -0 -r sh -c '
  view=$1
  shift
  for d; do
    [ -d "$d" ] && [ ! -L "$d" ] || continue
    for f in "$d"/* "$d"/.[!.]* "$d"/..?*; do
      [ -e "$f" ] || [ -L "$f" ] || continue
      [ -e "$view/$f" ] || [ -L "$view/$f" ] || printf "%s\0" "$f"
    done
  done' sh "/sys/r$under") >gone 2>/dev/null
(cd -- "$at" && exec xargs -0 -r sh -c 'exec find "$@" -printf "$0"' "d $row") <gone 2>/dev/null | named d
exit 0
