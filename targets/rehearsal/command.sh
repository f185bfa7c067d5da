# Runs the command inside the view, and says by a file whether it left something running. What ends by
# itself within a moment is not left.
umask 022
"$@"
code=$?
for i in 1 2 3 4; do
  kill -0 -1 2>/dev/null || exit "$code"
  sleep 0.02 2>/dev/null || break
done
kill -0 -1 2>/dev/null && : >/tmp/.countersign-left
exit "$code"
