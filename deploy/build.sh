#!/bin/sh
# Builds the program, with a C compiler the parser of the code indexer, on Linux the helper
# for other machines, and the terms of what is linked in: bot, countersign (a link to it), countersign-parser,
# countersign-lock, -runner, -signer, -verify, -witness, THIRD_PARTY_LICENSES, LICENSE and example.yaml.
# release.sh and the Dockerfile call it.
#
#   deploy/build.sh DIRECTORY
#
#   VERSION, COMMIT     what "bot version" shows
#   CGO_ENABLED         1: with the parser, whose grammars are C. 0: without it, and so
#                       without symbols in the code indexer. All are static programs.
set -eu

fail() { echo "build.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: deploy/build.sh DIRECTORY"
out=$1
version=${VERSION:-}
for name in "$version" "${COMMIT:-}"; do
	case $name in
	"" | -* | *[!0-9A-Za-z.+-]*) fail "VERSION or COMMIT is \"$name\"; use letters, digits, dots, + and - only, such as 0.1.0" ;;
	esac
done
cd "$(dirname "$0")/.."

# Flags that somebody has set for daily work would be in the bytes.
export GOFLAGS=-mod=readonly GOWORK=off LC_ALL=C TZ=UTC
umask 022
goos=$(go env GOOS) cgo=$(go env CGO_ENABLED)
ldflags="-s -w -buildid= -X main.version=$version"

mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$ldflags -X main.commit=$COMMIT" -o "$out/bot" ./cmd/bot
ln -sf bot "$out/countersign" # the name by which people call it
programs=./cmd/bot
if [ "$cgo" = 1 ]; then
	# Static with C too.
	[ "$goos" != linux ] || static="-linkmode external -extldflags -static"
	go build -trimpath -buildvcs=false -tags netgo,osusergo -ldflags "$ldflags ${static:-}" -o "$out/countersign-parser" ./cmd/countersign-parser
	programs="$programs ./cmd/countersign-parser"
fi
# Of modules that the program has, like those below.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$out/countersign-hook" ./cmd/countersign-hook
if [ "$goos" = linux ]; then
	for name in countersign-lock countersign-runner countersign-signer countersign-verify countersign-witness; do
		CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$out/$name" "./cmd/$name"
	done
fi

# What the program is made of, with the terms under which others gave it.
notices=$out/THIRD_PARTY_LICENSES
{
	echo "The program holds the Go standard library and these modules."
	printf '\n===== Go %s\n\n' "$(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
} >"$notices"
# shellcheck disable=SC2086 # two packages
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' $programs | sort -u >"$out/modules"
while read -r module at where; do
	found=
	for file in "$where"/LICENSE* "$where"/LICENCE* "$where"/COPYING* "$where"/NOTICE*; do
		[ -f "$file" ] || continue
		found=1
		printf '\n===== %s %s: %s\n\n' "$module" "$at" "$(basename "$file")"
		cat "$file"
	done >>"$notices"
	[ -n "$found" ] || fail "the module $module $at has no file with its licence; it cannot be part of a release"
done <"$out/modules"
rm "$out/modules"
# What others gave and no module says: rules and scripts that are embedded, and with C the
# library of the grammars, the grammars and a static C library.
with() {
	printf '\n===== %s\n\n' "$1" >>"$notices"
	cat "$2" >>"$notices"
}
with "the rules of gitleaks" internal/redact/gitleaks.LICENSE
with "xterm.js" console/static/vendor/xterm/LICENSE
if [ "$cgo" = 1 ]; then
	for file in deploy/licenses/*.txt; do
		with "$(basename "$file" .txt)" "$file"
	done
	if [ "$goos" = linux ]; then
		libc=/usr/share/doc/libc6-dev/copyright
		[ -f "$libc" ] || fail "the terms of the C library are not at $libc; build on Debian, or with CGO_ENABLED=0"
		with "the C library, which is linked in: whoever wants to link another one can, from the program's source" "$libc"
	fi
fi
cp LICENSE docs/example.yaml "$out/"
for file in bot countersign-hook countersign-parser countersign-lock countersign-runner countersign-signer countersign-verify countersign-witness; do
	[ ! -f "$out/$file" ] || chmod 755 "$out/$file"
done
chmod 644 "$notices" "$out/LICENSE" "$out/example.yaml"
