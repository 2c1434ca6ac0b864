#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
time=${1:-30s}
targets=0
while IFS=: read -r file name; do
  go test "./$(dirname "$file")" -run '^$' -fuzz "^${name}\$" -fuzztime "$time"
  targets=$((targets + 1))
done < <(grep -rHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' . | sed -E 's/:func /:/')
echo "$targets fuzz targets, $time each"
test "$targets" -gt 0
