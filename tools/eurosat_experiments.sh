#!/usr/bin/env bash
# Trains the models behind docs/results.md on a machine with one GPU, one after another (processes that share an H200
# without a multi-process service slow each other down more than they fill it: seven at a time got 0.77 k images/s where
# one alone had 5.8 k):
#
#   tools/eurosat_experiments.sh --data eurosat_rgb64.tar.gz [--out FOLDER] [STAGE...]
#
# Stages, `grid` unless named:
#   grid   42 small models: softmax, linear and MHLA, with and without LePE, at 256 and 1,024 tokens, and MHLA with frozen and
#          with uniform mixing at 1,024 tokens; three seeds each; rank and entropy of the attention of seed 0
#   best   the classifier to ship: width 192, depth 12, patch 4, MHLA with LePE, 30 epochs, weights in half precision
#   generate  generators of 8 layers, 4,000 steps: softmax, linear and MHLA; MHLA with CPE, with a gate and with both;
#             softmax and linear with both
#   mixing    MHLA generators of 1,500 steps whose matrices are frozen, learn at another rate, or depend on the input
#   draw   the generator to ship: 6 layers, MHLA with CPE and gate, weights in half precision
#   flow   the same learned as a rectified flow
# Options:
#   --mhla PROGRAM     build/release/bin/mhla unless given
#   --jobs N           models trained at a time (1)
#   --budget SECONDS   after that, runs save a checkpoint and end; the same command later goes on (no limit)
#   --width, --depth, --heads, --epochs of the small classifiers (128, 6, 2, 10)
#   --seeds N          seeds of every run of `generate` and `mixing` (3)
#   --draw-steps N     steps of `draw` (8000)
#   --device, --workers as of `mhla train classify` (auto, 12)
# FOLDER (out/eurosat) gets one folder per run, with its log, metrics, report and weights. Finished runs are skipped.
# tools/results_table.py makes the tables. The exit code is 0 where every run is finished.
set -uo pipefail

data= out=out/eurosat mhla=build/release/bin/mhla jobs=1 budget=0 device=auto workers=12
width=128 depth=6 heads=2 epochs=10 seeds=3 draw_steps=8000
attention_images=4 drawn_of_each_class=100
stages=()

complain() { echo "eurosat_experiments: $*" >&2; exit 2; }

while (($# > 0)); do
  case "$1" in
    --data | --out | --mhla | --jobs | --budget | --device | --workers | --width | --depth | --heads | --epochs | --seeds | \
      --draw-steps)
      [[ -n "${2:-}" ]] || complain "$1 needs a value"
      option="${1#--}"
      declare "${option//-/_}=$2"
      shift ;;
    grid | best | generate | mixing | draw | flow) stages+=("$1") ;;
    *) complain "\"$1\" is neither an option nor a stage (grid, best, generate, mixing, draw, flow)" ;;
  esac
  shift
done
[[ -e "$data" ]] || complain "--data is \"$data\"; it must be the folder or archive with EuroSAT's train, val and test"
[[ -x "$mhla" ]] || complain "--mhla is \"$mhla\"; it must be the program mhla"
for number in jobs budget workers width depth heads seeds draw_steps; do
  [[ "${!number}" =~ ^[0-9]+$ ]] || complain "--${number//_/-} is \"${!number}\"; it must be a whole number"
done
((jobs > 0)) || complain "--jobs is 0; it must be 1 or more"
((${#stages[@]} > 0)) || stages=(grid)
mkdir -p "$out" || exit 1

# Every run opens the archive: unpacked, it stays on disk and is shared.
if [[ "$data" == *.gz ]]; then
  images="$out/images.tar"
  [[ -f "$images" ]] || { gunzip -c "$data" > "$images.part" && mv "$images.part" "$images"; } || exit 1
  data="$images"
fi

seconds_left() { if ((budget == 0)); then echo 1000000; else echo $((budget - SECONDS)); fi; }
trained() { grep -qs '"finished": *true' "$out/$1/result.json"; }
measured() { [[ "$1" == n*_s[12] || -f "$out/$1/evaluation/evaluation.json" ]]; }
finished() { trained "$1" && measured "$1"; }

# train TASK NAME FLAGS...: the run of that name, from where it was left.
train() {
  local task="$1" folder="$out/$2"
  shift 2
  mkdir -p "$folder"
  timeout --foreground --signal=TERM --kill-after=60 "$(seconds_left)" \
    "$mhla" train "$task" --data "$data" --out "$folder" --json "$folder/result.json" --device "$device" \
      --workers "$workers" --threads "$workers" --keep 1 "$@" >> "$folder/log.txt" 2>&1
}

# measure TASK NAME: rank and entropy of a classifier's attention on test images; what a generator draws.
measure() {
  local folder="$out/$2"
  local what=(--attention "$attention_images" --split test --workers "$workers" --out "$folder/evaluation")
  if [[ "$1" == generate ]]; then
    mkdir -p "$folder/evaluation"
    what=(--count "$drawn_of_each_class" --batch 500 --json "$folder/evaluation/evaluation.json")
  fi
  timeout --foreground "$(seconds_left)" \
    "$mhla" eval "$1" --model "$folder/model.safetensors" --data "$data" --device "$device" --threads "$workers" \
      "${what[@]}" >> "$folder/log.txt" 2>&1
}

# run TASK NAME FLAGS...
run() {
  local task="$1" name="$2"
  trained "$name" || train "$@"
  if trained "$name" && ! measured "$name" && (($(seconds_left) > 0)); then measure "$task" "$name"; fi
  if finished "$name"; then echo "done     $name"; else echo "not done $name: see $out/$name/log.txt"; fi
}

names=()
# start TASK NAME FLAGS...: in the background, as soon as fewer than `jobs` runs are under way.
start() {
  names+=("$2")
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  (($(seconds_left) > 10)) || return
  run "$@" &
}

grid() {
  local seed patch tokens attention lepe small
  for seed in 0 1 2; do
    for patch in 2 4; do
      tokens=$(((64 / patch) * (64 / patch)))
      small=(--patch "$patch" --width "$width" --depth "$depth" --heads "$heads" --epochs "$epochs" --seed "$seed")
      for attention in softmax linear mhla; do
        start classify "n${tokens}_${attention}_lepe_s$seed" --attention "$attention" "${small[@]}"
        start classify "n${tokens}_${attention}_s$seed" --attention "$attention" --no-lepe "${small[@]}"
      done
      ((tokens == 1024)) || continue
      start classify "n${tokens}_mhla_frozen_s$seed" --no-lepe --mixing-frozen "${small[@]}"
      start classify "n${tokens}_mhla_uniform_s$seed" --no-lepe --mixing-init uniform "${small[@]}"
    done
  done
}

best() { start classify best --width 192 --depth 12 --heads 3 --patch 4 --epochs 30 --half; }

# What is the same in all generators. One validation, at the end.
generator() {
  local name="$1" steps="$2"
  shift 2
  start generate "$name" --augment turns --steps "$steps" --eval-every "$steps" "$@"
}

generate() {
  local seed
  for ((seed = 0; seed < seeds; seed++)); do
    generator "g_mhla_s$seed" 4000 --attention mhla --seed "$seed"
    generator "g_linear_s$seed" 4000 --attention linear --seed "$seed"
    generator "g_softmax_s$seed" 4000 --attention softmax --seed "$seed"
    generator "g_mhla_cpe_gate_s$seed" 4000 --attention mhla --cpe --gate --seed "$seed"
    generator "g_mhla_cpe_s$seed" 4000 --attention mhla --cpe --seed "$seed"
    generator "g_mhla_gate_s$seed" 4000 --attention mhla --gate --seed "$seed"
    generator "g_linear_cpe_gate_s$seed" 4000 --attention linear --cpe --gate --seed "$seed"
    generator "g_softmax_cpe_gate_s$seed" 4000 --attention softmax --cpe --gate --seed "$seed"
  done
}

mixing() {
  local seed rate
  for ((seed = 0; seed < seeds; seed++)); do
    generator "m_frozen_s$seed" 1500 --mixing-frozen --seed "$seed"
    generator "m_input_s$seed" 1500 --mixing input --seed "$seed"
    for rate in 0.1 0.3 1 3; do generator "m_rate${rate}_s$seed" 1500 --mixing-lr "$rate" --seed "$seed"; done
  done
}

draw() { generator draw "$draw_steps" --depth 6 --cpe --gate --schedule cosine --half; }

flow() { generator flow "$draw_steps" --depth 6 --cpe --gate --schedule cosine --noise flow --half; }

for stage in "${stages[@]}"; do "$stage"; done
wait
missing=0
for name in "${names[@]}"; do finished "$name" || missing=$((missing + 1)); done
echo "$((${#names[@]} - missing)) of ${#names[@]} runs finished after $SECONDS s, in $out"
((missing == 0))
