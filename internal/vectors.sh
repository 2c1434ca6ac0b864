#!/usr/bin/env bash
# vectors.sh add: appends the sums of files in testdata that its MANIFEST does not have yet.
# vectors.sh check [REF]: every line that the manifest has at REF is still there. Without REF that is the last release; until there
# is one, where this branch left origin/main.
set -euo pipefail
cd "$(dirname "$0")/../testdata"

# base prints what to compare with; nothing if there is nothing. A clone without its history cannot tell whether there is a release.
base() {
  local ref
  if ref=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null); then
    echo "$ref"
  elif [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = true ]; then
    echo "this clone is shallow and sees no release: fetch the history and its tags (git fetch --unshallow --tags)" >&2
    return 1
  elif ref=$(git merge-base origin/main HEAD 2>/dev/null) && git cat-file -e "$ref:./MANIFEST" 2>/dev/null; then
    echo "$ref"
  fi
}

case "${1:-}" in
add)
  find schemas vectors rows -name '*.json' | LC_ALL=C sort | while read -r file; do
    grep -q "  $file\$" MANIFEST || sha256sum "$file" >>MANIFEST
  done
  ;;
check)
  ref=${2:-}
  [ -n "$ref" ] || ref=$(base)
  if [ -z "$ref" ]; then
    echo "there is no release and no main branch to compare with, so no vector stands"
    exit 0
  fi
  stand=$(git show "$ref:./MANIFEST")
  gone=$(grep -vxFf MANIFEST <<<"$stand" || true)
  if [ -n "$gone" ]; then
    echo "vectors of $ref were edited or removed:"
    echo "$gone"
    exit 1
  fi
  echo "$(wc -l <<<"$stand") files of $ref stand"
  ;;
*)
  echo "usage: vectors.sh add | check [REF]" >&2
  exit 2
  ;;
esac
