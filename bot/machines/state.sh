# Prints a digest of files: what they are, and what is in them.
xargs -0 sh -c '
  for f; do
    if [ -L "$f" ]; then
      printf "l %s\n" "$(readlink -- "$f")"
    elif [ -f "$f" ]; then
      stat -c "f %s %a %u %g" -- "$f" && sha256sum <"$f"
    elif [ -e "$f" ]; then
      stat -c "%F %a %u %g" -- "$f"
    else
      echo none
    fi || exit 255
  done' sh | sha256sum
