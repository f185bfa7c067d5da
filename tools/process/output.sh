# Prints a part of the output behind a line "data", of what is there at one moment.
#
# Arguments: directory, name, number, start, boot, mark; "from" or "tail", a number of
# lines, the most lines, the most bytes.
testify "$1" "$2" "$3" "$4" "$5" "$6"
d=$1/$2 mode=$7 n=$8 most=$9 bytes=${10}
f=$d/output
own "$d" && [ -f "$f" ] && [ ! -L "$f" ] || exit 0
s=$(stat -c %s -- "$f")
part() { head -c "$s" -- "$f"; }
lines=0 open=0
if [ "$s" -gt 0 ]; then
  lines=$(part | wc -l)
  [ "$(part | tail -c 1 | wc -l)" -eq 0 ] && open=1
fi
lines=$((lines + 0)) all=$((lines + open))
if [ "$mode" = tail ]; then
  most=$n n=$((all - n + 1))
  [ "$n" -lt 1 ] && n=1
fi
before=0
[ "$n" -gt 1 ] && [ "$s" -gt 0 ] && before=$(part | head -n "$((n - 1))" | wc -c)
printf 'total %s %s %s\nfrom %s %s\ndata\n' "$s" "$lines" "$open" "$n" "$((before + 0))"
if [ "$s" -gt 0 ]; then
  if [ "$mode" = tail ]; then
    part | tail -n "+$n" | tail -c "$bytes"
  else
    part | tail -n "+$n" | head -n "$most" | head -c "$bytes"
  fi
fi
exit 0
