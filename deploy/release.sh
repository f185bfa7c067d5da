#!/bin/sh
# Builds a release: one archive for one platform, and SHA256SUMS.
#
#   deploy/release.sh VERSION [DIRECTORY]      the directory is dist/ by default
#
# The same source, Go, C compiler and variables give the same bytes, wherever the
# source and the directory are.
#
#   COMMIT              what "bot version" shows; default: what is checked out
#   SOURCE_DATE_EPOCH   the time of every file in the archive, in seconds since 1970;
#                       default: the time of that commit
#   GOOS, GOARCH        the platform; default: this machine's
#   CGO_ENABLED         1: with the grammars of the code indexer, which are C; needs a C
#                       compiler and its static library (Debian: gcc, libc6-dev). 0: without
#                       symbols in the indexer. Default: what Go finds. Both are static
#                       programs on Linux.
#
# It signs nothing, uploads nothing and makes no tag.
set -eu

fail() { echo "release.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || [ $# -eq 2 ] || fail "usage: deploy/release.sh VERSION [DIRECTORY]"
version=$1
case $version in
"" | -* | *[!0-9A-Za-z.+-]*) fail "the version is \"$version\"; use letters, digits, dots, + and - only, such as 0.1.0" ;;
esac
out=${2:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd) # before the change of directory: it is the caller's
cd "$(dirname "$0")/.."

tar --version 2>/dev/null | grep -q 'GNU tar' || fail "the archive is made with GNU tar, which is not here; install it as tar"
if [ -z "${COMMIT:-}" ]; then
	COMMIT=$(git rev-parse HEAD) || fail "this is no checkout of git; set COMMIT and SOURCE_DATE_EPOCH"
	[ -z "$(git status --porcelain -- . ':(exclude)dist')" ] || fail "the checkout has changes that are in no commit; commit them, or set COMMIT and SOURCE_DATE_EPOCH"
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
fi
case ${SOURCE_DATE_EPOCH:-} in
"" | *[!0-9]*) fail "SOURCE_DATE_EPOCH is \"${SOURCE_DATE_EPOCH:-}\"; set it to a number of seconds since 1970" ;;
esac
case $COMMIT in
*[!0-9A-Za-z.+-]*) fail "COMMIT is \"$COMMIT\"; use letters, digits, dots, + and - only" ;;
esac

# Flags that somebody has set for daily work would be in the bytes.
export GOFLAGS=-mod=readonly GOWORK=off LC_ALL=C TZ=UTC
umask 022
goos=$(go env GOOS) goarch=$(go env GOARCH) cgo=$(go env CGO_ENABLED)
ldflags="-s -w -buildid= -X main.version=$version -X main.commit=$COMMIT"
if [ "$cgo" = 1 ] && [ "$goos" = linux ]; then
	# Static with C too: names of hosts and accounts are then looked up by Go's own code,
	# since the C library's cannot be linked in.
	ldflags="$ldflags -linkmode external -extldflags -static"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
name=countersign-$version-$goos-$goarch
dir=$work/$name
mkdir "$dir"

go build -trimpath -buildvcs=false -tags netgo,osusergo -ldflags "$ldflags" -o "$dir/bot" ./cmd/bot

# What the program is made of, with the terms under which others gave it.
notices=$dir/THIRD_PARTY_LICENSES
{
	echo "The program holds the Go standard library and these modules."
	printf '\n===== Go %s\n\n' "$(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
} >"$notices"
go list -deps -tags netgo,osusergo -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/bot | sort -u >"$work/modules"
while read -r module at where; do
	found=
	for file in "$where"/LICENSE* "$where"/LICENCE* "$where"/COPYING* "$where"/NOTICE*; do
		[ -f "$file" ] || continue
		found=1
		printf '\n===== %s %s: %s\n\n' "$module" "$at" "$(basename "$file")"
		cat "$file"
	done >>"$notices"
	[ -n "$found" ] || fail "the module $module $at has no file with its licence; it cannot be part of a release"
done <"$work/modules"

mkdir "$dir/docs"
cp docs/*.md "$dir/docs/"
cp deploy/countersign.service deploy/README.md docs/example.yaml LICENSE CHANGELOG.md SECURITY.md "$dir/"
find "$dir" -type f -exec chmod 644 {} +
chmod 755 "$dir" "$dir/docs" "$dir/bot"

archive=$name.tar.gz
tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	--directory "$work" "$name" >"$work/archive.tar"
gzip -n -9 <"$work/archive.tar" >"$work/$archive"
mv "$work/$archive" "$out/$archive"
(cd "$out" && sha256sum countersign-"$version"-*.tar.gz >SHA256SUMS)
echo "$out/$archive (cgo=$cgo)"
