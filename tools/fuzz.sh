#!/usr/bin/env bash
# Runs the fuzz targets of a build, one after another; the exit code is 1 if one found something.
#
#   tools/fuzz.sh --count N   [--build DIR] [--write FILE] [TARGET...]   N changed inputs each, the same in every run
#   tools/fuzz.sh --seconds S [--build DIR] [--write FILE] [TARGET...]   libFuzzer, S seconds each (build/fuzz)
#
# --count takes any build of the preset's targets; build/asan by default, so that reads and writes past the end are seen.
# --write adds date, commit, processor and counts to a file. What libFuzzer finds goes to out/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/asan count=0 seconds=0 results=/dev/null targets=()
while (($# > 0)); do
  case "$1" in
    --build) build="$2" && shift 2 ;;
    --count) count="$2" && shift 2 ;;
    --seconds) seconds="$2" && shift 2 ;;
    --write) results="$2" && shift 2 ;;
    -*) echo "tools/fuzz.sh: $1 is not one of --build, --count, --seconds, --write" >&2 && exit 2 ;;
    *) targets+=("$1") && shift ;;
  esac
done
if ((count == 0 && seconds == 0)); then echo "tools/fuzz.sh: give --count N or --seconds S" >&2 && exit 2; fi
if ! compgen -G "$build/bin/fuzz_*" > /dev/null; then
  echo "tools/fuzz.sh: --build is $build, which has no fuzz targets; build fuzz_targets there first" >&2 && exit 2
fi
if ((${#targets[@]} == 0)); then
  for file in "$build"/bin/fuzz_*; do targets+=("${file##*/fuzz_}"); done
fi
export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:detect_odr_violation=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

# corpus_of TARGET: its folder of found inputs, where there is one
corpus_of() { if [[ -d fuzz/corpus/$1 ]]; then echo "fuzz/corpus/$1"; fi; }

count_inputs() { "$build/bin/fuzz_$1" --count "$count" $(corpus_of "$1"); }

search() {
  local inputs="out/fuzz/$1" found="out/fuzz/found/$1-"
  mkdir -p "$inputs" out/fuzz/found
  MHLA_FUZZ_SEEDS="$inputs" "$build/bin/fuzz_$1" -runs=0 > /dev/null 2>&1
  "$build/bin/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -malloc_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$found" "$inputs" $(corpus_of "$1")
}

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(date -u +%F), commit $(git rev-parse --short HEAD), $processor, $build" | tee -a "$results"
failed=0
for target in "${targets[@]}"; do
  if ((count > 0)); then line=$(count_inputs "$target" 2>&1) || failed=1; else line=$(search "$target" 2>&1) || failed=1; fi
  line=$(grep -E 'no fault|fuzz:|ERROR|runtime error|stat::number_of_executed_units|Test unit written' <<< "$line" | head -n 4)
  printf '%-12s %s\n' "$target" "$line" | tee -a "$results"
done
exit "$failed"
