#!/usr/bin/env bash
# Builds, tests, sanitizes and measures on a machine with a GPU, and leaves one log:
#
#   tools/gpu_check.sh [--out FOLDER] [--build FOLDER] [STAGE...]
#
# Stages, in this order; all but the last two unless named:
#   build         configure and compile, for the GPU of this machine
#   test          ctest and pytest, what needs a GPU
#   sanitize      compute-sanitizer: memcheck, initcheck, racecheck
#   bench         mhla bench op --device cuda
#   bench-python  python -m mhla.bench, which compiles its peers and takes ten minutes
#   test-cpu      ctest, what needs none
# On a machine where nothing can be installed, bring .deps along from one where tools/bootstrap.sh ran.
# FOLDER (out/gpu_check) gets log.txt, bench_op.json, bench_op.svg and bench_python.json.
# The exit code is 0 where every step passed, 1 where one failed, 2 where the command line was wrong.
set -uo pipefail
cd "$(dirname "$0")/.."

out=out/gpu_check
build=build/gpu
stages=()
while (($# > 0)); do
  case "$1" in
    --out | --build)
      [[ -n "${2:-}" ]] || { echo "gpu_check: $1 needs a folder" >&2; exit 2; }
      if [[ "$1" == --out ]]; then out="$2"; else build="$2"; fi
      shift ;;
    build | test | sanitize | bench | bench-python | test-cpu) stages+=("$1") ;;
    *)
      echo "gpu_check: stage is \"$1\"; it may be build, test, sanitize, bench, bench-python or test-cpu" >&2
      exit 2 ;;
  esac
  shift
done
((${#stages[@]} > 0)) || stages=(build test sanitize bench)

python="$(command -v python3)"
[[ -x .venv/bin/python ]] && python="$PWD/.venv/bin/python"
export PYTHONPATH="$PWD/$build/python"
export PYTHONUNBUFFERED=1

# Small shapes in every element type, causal, packed and dense: a sanitizer slows them down a hundredfold.
sanitized='Operator.RandomShapes*:Operator.DenseCausalForm*:Operator.PackedSequences*:Identity.SplittingACausalCall*'
sanitized+=':Operator.KeptSummaries*:Operator.CausalHeads*:Operator.SumsOfKeys*'
sanitized+=':Gpu.BackwardWithState*:Gpu.ACapturedGraph*:Gpu.Tf32Products*'
# racecheck looks at every access to shared memory: fewer shapes, among them those of the sm_90a kernels. Not SumsOfKeys:
# in resident/backward_sm90.cu, put_pairs, it reports writes and reads that a barrier of all 512 consumers separates in
# the machine code (bench/results/cuda_h200_checks.txt).
raced='Operator.DenseCausalForm*:Operator.PackedSequences*:Gpu.Tf32Products*:Operator.CausalHeads*:Gpu.BackwardWithState*'
sanitizer_seconds=300  # exit code 124 where it takes longer

summary=()
failures=0
# step NAME COMMAND...: runs it, says how long it took and whether it passed.
step() {
  local name="$1" start=$SECONDS verdict=PASS
  shift
  printf '\n==== %s\n' "$name"
  "$@" || verdict="FAIL (exit code $?)"
  [[ "$verdict" == PASS ]] || failures=$((failures + 1))
  summary+=("$(printf '%-24s %5d s  %s' "$name" $((SECONDS - start)) "$verdict")")
  printf -- '---- %s\n' "${summary[-1]}"
  [[ "$verdict" == PASS ]]
}

say_where_we_are() {
  echo "commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown), $(date -u '+%Y-%m-%d %H:%M UTC')"
  nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version --format=csv,noheader || echo "nvidia-smi found no GPU"
  nvcc --version | tail -2
  "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "GPU", torch.cuda.is_available())'
}

architecture() {
  local capability
  capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1 | tr -d '.')"
  case "$capability" in
    '' | 90) echo 90a-real ;;
    *) echo "$capability-real" ;;
  esac
}

configure() {
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMHLA_PYTHON="$python" -DMHLA_CUDA=ON \
        -DMHLA_CUDA_ARCHITECTURES="$(architecture)"
}

assemble_package() {
  rm -rf "$build/python/mhla" && mkdir -p "$build/python" && cp -r python/mhla "$build/python/" &&
    cp "$build"/lib/*.so* "$build/python/mhla/"
}

# Tests that a machine without a GPU skips have not passed here.
on_gpu() {
  local log="$out/on_gpu.tmp" code
  "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  if grep -qE 'GPU tests not run|\(Skipped\)' "$log"; then
    echo "gpu_check: tests were skipped for want of a GPU"
    code=1
  fi
  rm -f "$log"
  return "$code"
}

pytest_on_gpu() { on_gpu "$python" -m pytest -q -p no:cacheprovider tests/python -m gpu; }

# sanitize TOOL PROGRAM FILTER. One at a time: side by side on one GPU they hold each other up.
sanitize() {
  MHLA_TEST_DEVICE=cuda timeout "$sanitizer_seconds" compute-sanitizer --tool "$1" --error-exitcode 1 --print-limit 20 \
    "$build/bin/$2" --gtest_brief=1 --gtest_filter="$3" > "$out/$1_$2.txt" 2>&1
  local code=$?
  tail -n 20 "$out/$1_$2.txt"
  return "$code"
}

run_stage() {
  case "$1" in
    build)
      step "build: configure" configure && step "build: compile" cmake --build "$build" &&
        step "build: Python package" assemble_package ;;
    test)
      step "test: ctest, GPU" on_gpu ctest --test-dir "$build" --output-on-failure -L gpu
      step "test: pytest, GPU" pytest_on_gpu ;;
    sanitize)
      for tool in memcheck initcheck racecheck; do
        local filter="$sanitized"
        [[ "$tool" == racecheck ]] && filter="$raced"
        step "sanitize: $tool, test_api" sanitize "$tool" test_api "$filter"
        step "sanitize: $tool, test_nn" sanitize "$tool" test_nn 'GpuLayers.*:GpuLinearCrossEntropy.*'
      done ;;
    bench)
      step "bench: devices" "$build/bin/mhla" devices
      step "bench: op" "$build/bin/mhla" bench op --device cuda --json "$out/bench_op.json" --chart "$out/bench_op.svg" ;;
    test-cpu) step "test-cpu: ctest" ctest --test-dir "$build" --output-on-failure -j "$(nproc)" -LE gpu ;;
    bench-python) step "bench-python" "$python" -m mhla.bench --device cuda --json "$out/bench_python.json" ;;
  esac
}

check_everything() {
  say_where_we_are
  for stage in "${stages[@]}"; do
    run_stage "$stage" || [[ "$stage" != build ]] || break
  done
  printf '\n==== summary\n'
  printf '%s\n' "${summary[@]}"
  ((failures == 0))
}

mkdir -p "$out"
check_everything 2>&1 | tee "$out/log.txt"
exit "${PIPESTATUS[0]}"
