#!/usr/bin/env bash
# What follows from proto/: the Go code, and the image that later changes are compared with.
#   proto.sh write BUF   makes both; refuses a change that breaks readers or writers of the image
#   proto.sh check BUF   writes nothing, and fails when one of them is not what proto/ says
# A change that is meant to break them needs the image removed by hand first.
set -euo pipefail
what=$1 buf=$2
code=(grpcerr/confirmexecv1 examples/dispatch/agentv1) image=proto/confirmexec.binpb
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$buf" lint
"$buf" format --diff --exit-code
if [ -e "$image" ] || [ "$what" = check ]; then
  "$buf" breaking --against "$image"
fi
"$buf" generate -o "$tmp"
"$buf" build --exclude-source-info -o "$tmp/image.binpb"
case $what in
write)
  for dir in "${code[@]}"; do
    mkdir -p "$dir"
    rm -f "$dir"/*.pb.go
    cp "$tmp/$dir"/*.pb.go "$dir"
  done
  cp "$tmp/image.binpb" "$image"
  ;;
check)
  for dir in "${code[@]}"; do
    diff -ru --exclude=doc.go "$tmp/$dir" "$dir"
  done
  cmp "$tmp/image.binpb" "$image"
  ;;
*)
  echo "proto.sh write|check BUF" >&2
  exit 2
  ;;
esac
