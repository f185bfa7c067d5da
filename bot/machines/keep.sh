# Copies files, so that a command can be undone. Arguments: the directory of the copies, the archive.
# Copies are kept for 7 days.
umask 077
mkdir -p -- "$1" && [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || { echo "$1 is not a directory of this account" >&2; exit 1; }
find "$1" -maxdepth 1 ! -type d -mtime +7 -exec rm -f -- {} + 2>/dev/null
exec tar --create --absolute-names --no-recursion --null --verbatim-files-from --files-from=- --file="$2"
