# Ends a process and everything that belongs to it, and says which signals were sent and
# what is left. Right before each signal its receiver is looked at again.
#
# Arguments: directory, name, number, start, boot, mark; how many hundredths of a second to
# wait after each signal but the last, and after the last. The time is the clock's, because a
# look at all processes can take longer than a pause.
grace=$7 last=$8
strike() {
  for entry in $live; do
    p=${entry%%:*}
    if seen "$p" && [ "$since" = "${entry#*:}" ]; then
      kill -s "$1" "$p" 2>/dev/null
      # One that is stopped hears nothing else.
      [ "$1" = TERM ] && kill -s CONT "$p" 2>/dev/null
    fi
  done
}
b=$1 name=$2 pid=$3 start=$4 was=$5 mark=$6
certain "$pid" "$start" "$was" "$mark"
for signal in INT TERM KILL; do
  [ -n "$live" ] || break
  printf 'sent %s\n' "$signal"
  left=$grace
  [ "$signal" = KILL ] && left=$last
  strike "$signal"
  uptime && until=$((up + left))
  while :; do
    pause 0.2
    certain "$pid" "$start" "$was" "$mark"
    [ -n "$live" ] || break
    [ "$signal" = KILL ] && strike KILL # what was started meanwhile
    uptime && [ "$up" -lt "$until" ] || break
  done
done
testify "$b" "$name" "$pid" "$start" "$was" "$mark"
exit 0
