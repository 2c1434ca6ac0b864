#!/usr/bin/env bash
# vectors.sh add: appends the sums of files in testdata that its MANIFEST does not have yet.
# vectors.sh check [REF]: every line that the manifest has at REF, the last release if it is not given, is still there.
set -euo pipefail
cd "$(dirname "$0")/../testdata"
case "${1:-}" in
add)
  find schemas vectors rows -name '*.json' | LC_ALL=C sort | while read -r file; do
    grep -q "  $file\$" MANIFEST || sha256sum "$file" >>MANIFEST
  done
  ;;
check)
  ref=${2:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
  if [ -z "$ref" ]; then
    echo "there is no release yet, so no vector stands"
    exit 0
  fi
  gone=$(git show "$ref:./MANIFEST" | grep -vxFf MANIFEST || true)
  if [ -n "$gone" ]; then
    echo "vectors of $ref were edited or removed:"
    echo "$gone"
    exit 1
  fi
  echo "$(git show "$ref:./MANIFEST" | wc -l) files of $ref stand"
  ;;
*)
  echo "usage: vectors.sh add | check [REF]" >&2
  exit 2
  ;;
esac
