#!/bin/sh
# What each dependency of the bot costs: processor seconds of a build from nothing, and bytes
# in the program. It builds with an empty cache, so it takes minutes; DEPENDENCIES.md has the
# last result. Nothing else should run meanwhile: seconds grow on a busy machine.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOCACHE=$work/cache go build -debug-actiongraph="$work/actions.json" -o "$work/bot" ./cmd/bot
go tool nm -size "$work/bot" >"$work/symbols"
go list -deps -json=ImportPath,Imports,Module ./cmd/bot >"$work/packages"
go run ./deploy/weigh "$work/actions.json" "$work/packages" "$work/symbols"
echo "the program has $(wc -c <"$work/bot") bytes"
