#!/usr/bin/env bash
# Shows what has changed in the module's public API since a commit: apidiff.sh BASE VERSION-OF-APIDIFF.
# Exits with 1 when something incompatible has.
set -euo pipefail
base=$1 version=$2
module=$(go list -m)
tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/base" 2>/dev/null || true; rm -rf "$tmp"' EXIT
GOBIN="$tmp" go install "golang.org/x/exp/cmd/apidiff@$version"
git worktree add --detach --quiet "$tmp/base" "$base"
(cd "$tmp/base" && "$tmp/apidiff" -m -w "$tmp/base.export" "$module")
diff() { "$tmp/apidiff" -m "$@" "$tmp/base.export" "$module" | grep -v '^Ignoring internal package' || true; }
diff
if [ -n "$(diff -incompatible)" ]; then
  echo "incompatible changes since $base: say so in CHANGELOG.md"
  exit 1
fi
