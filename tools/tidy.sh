#!/usr/bin/env bash
# clang-tidy over libmhla: tools/tidy.sh BUILD_DIR JOBS. (Code on top of torch is left to the compiler: parsing torch for
# clang-tidy takes minutes per file.) Nothing is checked again until a source or the configuration changes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
jobs=$2
stamp=$build/tidy-passed
if [[ -f $stamp && -z $(find src/core src/cpu include .clang-tidy -newer "$stamp" -type f) ]]; then
  echo "tidy: nothing changed since it last passed"
  exit 0
fi
mapfile -t sources < <(find "$PWD/src/core" "$PWD/src/cpu" -name '*.cpp' | sort)
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -n 4 .venv/bin/clang-tidy --quiet -p "$build" 2> /dev/null
touch "$stamp"
echo "tidy: ${#sources[@]} sources, no findings"
