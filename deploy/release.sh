#!/bin/sh
# Builds a release for one platform: an archive, the list of what the program is made of
# (CycloneDX), where dpkg-deb is there a Debian package, and SHA256SUMS.
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
#   CGO_ENABLED         1: with the parser of the code indexer, whose grammars are C; needs
#                       a C compiler and its static library (Debian: gcc, libc6-dev). 0:
#                       without it, and so without symbols in the indexer. Default: what Go
#                       finds. All are static programs on Linux.
#   DEB_MAINTAINER      who the Debian package says looks after it
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
name=countersign-$version-$goos-$goarch
dir=$work/$name
mkdir "$dir"

VERSION=$version COMMIT=$COMMIT deploy/build.sh "$dir"
notices=$dir/THIRD_PARTY_LICENSES

mkdir "$dir/docs"
cp docs/*.md "$dir/docs/"
cp deploy/countersign.service deploy/countersign-signer.service deploy/countersign-witness.service deploy/README.md CHANGELOG.md SECURITY.md "$dir/"
find "$dir" -type f -exec chmod 644 {} +
chmod 755 "$dir" "$dir/docs"
for file in bot countersign-hook countersign-parser countersign-lock countersign-runner countersign-signer countersign-verify countersign-witness; do
	[ ! -f "$dir/$file" ] || chmod 755 "$dir/$file"
done

archive=$name.tar.gz
tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	--directory "$work" "$name" >"$work/archive.tar"
gzip -n -9 <"$work/archive.tar" >"$work/$archive"

# It reads the programs and runs here, whatever they are built for.
parser=
[ ! -f "$dir/countersign-parser" ] || parser=$dir/countersign-parser
sbom=$name.cdx.json
SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH GOOS=$(go env GOHOSTOS) GOARCH=$(go env GOHOSTARCH) CGO_ENABLED=0 \
	go run ./deploy/sbom -version "$version" -commit "$COMMIT" -modcache "$(go env GOMODCACHE)" "$dir/bot" ${parser:+"$parser"} >"$work/$sbom"

# The package of Debian and what comes from it: the content of the archive below
# /opt/countersign, and the unit where packages have theirs.
deb_arch=
if [ "$goos" = linux ]; then
	case $goarch in
	amd64 | arm64 | riscv64 | s390x) deb_arch=$goarch ;;
	ppc64le) deb_arch=ppc64el ;;
	386) deb_arch=i386 ;;
	arm) [ "$(go env GOARM)" != 7 ] || deb_arch=armhf ;;
	esac
fi
# What comes before a release sorts before it in Debian with a tilde: 0.1.0~rc.1.
deb_version=$(printf %s "${version#v}" | tr - '~')
case $deb_version in [!0-9]*) deb_arch= ;; esac
deb=
if [ -z "$deb_arch" ]; then
	echo "no Debian package: $goos/$goarch or the version $version has no form there" >&2
elif ! command -v dpkg-deb >/dev/null; then
	echo "no Debian package: dpkg-deb is not here" >&2
else
	deb=countersign_${deb_version}_$deb_arch.deb
	root=$work/deb
	mkdir -p "$root/DEBIAN" "$root/opt" "$root/usr/bin" "$root/usr/lib/systemd/system" "$root/usr/share/doc/countersign" \
		"$root/usr/libexec/countersign" "$root/etc/countersign/credentials"
	cp -R "$dir" "$root/opt/countersign"
	mv "$root/opt/countersign/countersign.service" "$root/usr/lib/systemd/system/"
	mv "$root/opt/countersign/countersign-lock" "$root/usr/libexec/countersign/"
	ln -s /opt/countersign/bot "$root/usr/bin/countersign"
	for name in signer verify witness; do ln -s "/opt/countersign/countersign-$name" "$root/usr/bin/countersign-$name"; done
	cat LICENSE "$notices" >"$root/usr/share/doc/countersign/copyright"
	cp deploy/debian/environment "$root/etc/countersign/environment"
	cp deploy/debian/conffiles deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN/"
	size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
	while IFS= read -r line; do
		case $line in
		*@VERSION@) line="${line%@VERSION@}$deb_version" ;;
		*@ARCHITECTURE@) line="${line%@ARCHITECTURE@}$deb_arch" ;;
		*@MAINTAINER@) line="${line%@MAINTAINER@}${DEB_MAINTAINER:-The Countersign maintainers}" ;;
		*@SIZE@) line="${line%@SIZE@}$size" ;;
		esac
		printf '%s\n' "$line"
	done <deploy/debian/control >"$root/DEBIAN/control"
	(cd "$root" && find opt usr -type f | sort | while IFS= read -r file; do md5sum "$file"; done) >"$root/DEBIAN/md5sums"
	find "$root" -type d -exec chmod 755 {} +
	find "$root" -type f -exec chmod 644 {} +
	chmod 700 "$root/etc/countersign/credentials"
	chmod 600 "$root/etc/countersign/environment" # people put secrets there all the same
	[ -z "$parser" ] || chmod 755 "$root/opt/countersign/countersign-parser"
	chmod 755 "$root/opt/countersign/bot" "$root"/opt/countersign/countersign-* "$root/usr/libexec/countersign/countersign-lock" "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
	find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
	# gzip, since what xz writes depends on the number of processors.
	SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH dpkg-deb --root-owner-group -Zgzip -z9 --build "$root" "$work/$deb" >/dev/null
fi

for file in "$archive" "$sbom" ${deb:+"$deb"}; do
	mv "$work/$file" "$out/$file"
	echo "$out/$file (cgo=$cgo)"
done
(
	cd "$out"
	set --
	for file in countersign-"$version"-*.tar.gz countersign-"$version"-*.cdx.json; do
		platform=${file#countersign-"$version"-}
		case $platform in *-*-*) continue ;; esac # of 0.1.0-rc.1 when this is 0.1.0
		[ ! -f "$file" ] || set -- "$@" "$file"
	done
	for file in countersign_"$deb_version"_*.deb; do
		[ ! -f "$file" ] || set -- "$@" "$file"
	done
	sha256sum "$@" >"$work/SHA256SUMS"
)
mv "$work/SHA256SUMS" "$out/SHA256SUMS"
