#!/usr/bin/env bash
# clang-tidy over all C++ sources of src/: tools/tidy.sh BUILD_DIR JOBS. It reads what the build compiles, so code on top of torch
# is checked in the few large files the build makes of it. Nothing is checked again until a source or the configuration changes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
jobs=$2
stamp=$build/tidy-passed
if [[ -f $stamp && -z $(find src include .clang-tidy -newer "$stamp" -type f) ]]; then
  echo "tidy: nothing changed since it last passed"
  exit 0
fi
mapfile -t sources < <(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
  grep -E "^$PWD/(src|$build/src)/.*\.(cpp|cxx)$" | sort -u)
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -n 1 .venv/bin/clang-tidy --quiet --extra-arg=-fno-openmp -p "$build" 2> /dev/null
touch "$stamp"
echo "tidy: ${#sources[@]} compilations, no findings"
