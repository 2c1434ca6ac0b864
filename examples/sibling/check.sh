#!/usr/bin/env bash
# Vendors the library, and builds and tests the sibling from vendor/ alone: with the network off and an empty module cache.
set -euo pipefail
cd "$(dirname "$0")"
export GOWORK=off
go mod tidy -diff
sums=$(wc -l <go.sum)
[ "$sums" -le 30 ] || { echo "go.sum has $sums lines, and 30 are the most"; exit 1; }
go mod vendor
cache=$(mktemp -d)
trap 'chmod -R u+w "$cache"; rm -rf "$cache" vendor' EXIT
export GOFLAGS=-mod=vendor GOPROXY=off GOMODCACHE="$cache"
go vet ./...
go test -count=1 ./...
[ -f vendor/github.com/confirmexec/confirmexec/testdata/MANIFEST ] || { echo "vendoring lost the vectors"; exit 1; }
(cd vendor/github.com/confirmexec/confirmexec/testdata && sha256sum -c --quiet MANIFEST)
echo "go.sum: $sums lines; vendored: $(find vendor -name '*.go' | wc -l) Go files, $(find vendor -name '*.json' | wc -l) vectors and schemas"
