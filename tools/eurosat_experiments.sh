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
#   best   the model to ship: width 192, depth 12, patch 4, MHLA with LePE, 30 epochs, weights in half precision
# Options:
#   --mhla PROGRAM     build/release/bin/mhla unless given
#   --jobs N           models trained at a time (1)
#   --budget SECONDS   after that, runs save a checkpoint and end; the same command later goes on (no limit)
#   --width, --depth, --heads, --epochs of the small models (128, 6, 2, 10)
#   --device, --workers as of `mhla train classify` (auto, 12)
# FOLDER (out/eurosat) gets one folder per run, with its log, metrics, report and weights. Finished runs are skipped.
# tools/results_table.py makes the tables. The exit code is 0 where every run is finished.
set -uo pipefail

data= out=out/eurosat mhla=build/release/bin/mhla jobs=1 budget=0 device=auto workers=12
width=128 depth=6 heads=2 epochs=10
attention_images=4
stages=()

complain() { echo "eurosat_experiments: $*" >&2; exit 2; }

while (($# > 0)); do
  case "$1" in
    --data | --out | --mhla | --jobs | --budget | --device | --workers | --width | --depth | --heads | --epochs)
      [[ -n "${2:-}" ]] || complain "$1 needs a value"
      declare "${1#--}=$2"
      shift ;;
    grid | best) stages+=("$1") ;;
    *) complain "\"$1\" is neither an option nor a stage (grid, best)" ;;
  esac
  shift
done
[[ -e "$data" ]] || complain "--data is \"$data\"; it must be the folder or archive with EuroSAT's train, val and test"
[[ -x "$mhla" ]] || complain "--mhla is \"$mhla\"; it must be the program mhla"
for number in jobs budget workers width depth heads; do
  [[ "${!number}" =~ ^[0-9]+$ ]] || complain "--$number is \"${!number}\"; it must be a whole number"
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
measured() { [[ "$1" == *_s[12] || -f "$out/$1/evaluation/evaluation.json" ]]; }
finished() { trained "$1" && measured "$1"; }

# train NAME FLAGS...: the run of that name, from where it was left.
train() {
  local name="$1" folder="$out/$1"
  shift
  mkdir -p "$folder"
  timeout --foreground --signal=TERM --kill-after=60 "$(seconds_left)" \
    "$mhla" train classify --data "$data" --out "$folder" --json "$folder/result.json" --device "$device" \
      --workers "$workers" --threads "$workers" --keep 1 "$@" >> "$folder/log.txt" 2>&1
}

# measure NAME: rank and entropy of the attention on test images.
measure() {
  timeout --foreground "$(seconds_left)" \
    "$mhla" eval classify --model "$out/$1/model.safetensors" --data "$data" --split test \
      --device "$device" --workers "$workers" --threads "$workers" --attention "$attention_images" \
      --out "$out/$1/evaluation" >> "$out/$1/log.txt" 2>&1
}

run() {
  local name="$1"
  trained "$name" || train "$@"
  if trained "$name" && ! measured "$name" && (($(seconds_left) > 0)); then measure "$name"; fi
  if finished "$name"; then echo "done     $name"; else echo "not done $name: see $out/$name/log.txt"; fi
}

names=()
# start NAME FLAGS...: in the background, as soon as fewer than `jobs` runs are under way.
start() {
  names+=("$1")
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
        start "n${tokens}_${attention}_lepe_s$seed" --attention "$attention" "${small[@]}"
        start "n${tokens}_${attention}_s$seed" --attention "$attention" --no-lepe "${small[@]}"
      done
      ((tokens == 1024)) || continue
      start "n${tokens}_mhla_frozen_s$seed" --no-lepe --mixing-frozen "${small[@]}"
      start "n${tokens}_mhla_uniform_s$seed" --no-lepe --mixing-init uniform "${small[@]}"
    done
  done
}

best() { start best --width 192 --depth 12 --heads 3 --patch 4 --epochs 30 --half; }

for stage in "${stages[@]}"; do "$stage"; done
wait
missing=0
for name in "${names[@]}"; do finished "$name" || missing=$((missing + 1)); done
echo "$((${#names[@]} - missing)) of ${#names[@]} runs finished after $SECONDS s, in $out"
((missing == 0))
