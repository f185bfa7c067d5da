# Arguments: directory, names below it.
b=$1
shift
own "$b" || exit 0
for name in "$@"; do
  case $name in '' | . | .. | */*) continue ;; esac
  rm -rf -- "${b:?}/$name" || exit 1
done
exit 0
