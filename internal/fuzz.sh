#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
time=${1:-30s}
targets=0

fuzz() { go test "./$(dirname "$1")" -run '^$' -fuzz "^${2}\$" -fuzztime "$time" 2>&1 | tee "$log"; }

# The go command sometimes takes the end of the time itself for a failure (golang/go#75804). A failure of the code leaves an input.
ended_only() { grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
while IFS=: read -r file name; do
  tries=3
  until fuzz "$file" "$name"; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ] || ! ended_only; then
      echo "$name in $file: FAILED"
      exit 1
    fi
  done
  targets=$((targets + 1))
done < <(grep -rHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' --exclude-dir=testdata . | sed -E 's/:func /:/')
echo "$targets fuzz targets, $time each"
test "$targets" -gt 0
