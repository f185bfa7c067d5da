# Arguments: directory; then of each process its name, number, start, boot and mark.
b=$1
shift
while [ "$#" -ge 5 ]; do
  testify "$b" "$1" "$2" "$3" "$4" "$5"
  shift 5
done
exit 0
