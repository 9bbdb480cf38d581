#!/usr/bin/env bash
# Trains language models that differ in nothing but their attention, one after another:
#
#   tools/language_experiments.sh --text FOLDER [--out FOLDER] [NAME...]
#
# FOLDER has books_train.txt.gz and books_valid.txt.gz; they become tokens of a vocabulary that is learnt from the first.
# Names, all unless given: softmax, linear, gla, mhla, and hybrid, which is MHLA with softmax in every fourth layer.
# Options:
#   --mhla PROGRAM     build/release/bin/mhla unless given
#   --budget SECONDS   after that, the run saves a checkpoint and ends; the same command later goes on (no limit)
#   --steps N          steps of a run (3000)
#   --depth N          layers, a multiple of four (8)
#   --context N        tokens of a window (1024)
#   --batch-tokens N   tokens of a step (65536)
#   --val-tokens N     held-out tokens of a validation, at most (1048576)
#   --seed N           seed of initial weights and order (0)
#   --vocab N          tokens of the vocabulary (4096)
#   --device NAME      as of `mhla train language` (auto)
# OUT (out/language) gets the folder `tokens`, one folder per run with its log, metrics, report, weights and tokenizer,
# and results.jsonl with one line per finished run: losses of the best weights, seconds of training and tokens per
# second. Finished runs are skipped. The exit code is 0 where every run is finished.
set -uo pipefail

text= out=out/language mhla=build/release/bin/mhla budget=0 steps=3000 depth=8 context=1024 batch_tokens=65536
val_tokens=1048576 seed=0 vocab=4096 device=auto
names=()

complain() { echo "language_experiments: $*" >&2; exit 2; }

while (($# > 0)); do
  case "$1" in
    --text | --out | --mhla | --budget | --steps | --depth | --context | --batch-tokens | --val-tokens | --seed | --vocab | --device)
      [[ -n "${2:-}" ]] || complain "$1 needs a value"
      option="${1#--}"
      declare "${option//-/_}=$2"
      shift ;;
    softmax | linear | gla | mhla | hybrid) names+=("$1") ;;
    *) complain "\"$1\" is neither an option nor a name (softmax, linear, gla, mhla, hybrid)" ;;
  esac
  shift
done
[[ -x "$mhla" ]] || complain "--mhla is \"$mhla\"; it must be the program mhla"
for number in budget steps depth context batch_tokens val_tokens seed vocab; do
  [[ "${!number}" =~ ^[0-9]+$ ]] || complain "--${number//_/-} is \"${!number}\"; it must be a whole number"
done
((depth > 0 && depth % 4 == 0)) || complain "--depth is $depth; it must be a multiple of four"
((${#names[@]} > 0)) || names=(softmax linear gla mhla hybrid)
mkdir -p "$out" || exit 1

# The tokenizer, then the splits, each of which has its name once it is complete.
tokens="$out/tokens"
prepare() {
  local split file
  [[ -f "$out/tokenizer.json" ]] ||
    "$mhla" tokenizer train --data "$text/books_train.txt.gz" --vocab "$vocab" -o "$out/tokenizer.json" || return 1
  for split in train val; do
    [[ -d "$tokens/$split" ]] && continue
    file="$text/books_${split/val/valid}.txt.gz"
    "$mhla" tokenize --tokenizer "$out/tokenizer.json" --data "$file" --out "$tokens" --split "$split" || return 1
  done
}
if [[ ! -d "$tokens/train" || ! -d "$tokens/val" ]]; then
  [[ -f "$text/books_train.txt.gz" && -f "$text/books_valid.txt.gz" ]] ||
    complain "--text is \"$text\"; it must be the folder with books_train.txt.gz and books_valid.txt.gz"
  prepare || exit 1
fi

seconds_left() { if ((budget == 0)); then echo 1000000; else echo $((budget - SECONDS)); fi; }
finished() { grep -qs '"finished": *true' "$out/$1/result.json"; }

attention_of() {
  local words=(softmax) layer
  [[ "$1" == hybrid ]] || { echo "$1"; return; }
  words=()
  for ((layer = 1; layer <= depth; layer++)); do
    if ((layer % 4 == 0)); then words+=(softmax); else words+=(mhla); fi
  done
  local IFS=,
  echo "${words[*]}"
}

# train NAME: the run of that name, from where it was left.
train() {
  local folder="$out/$1"
  mkdir -p "$folder"
  timeout --foreground --signal=TERM --kill-after=60 "$(seconds_left)" \
    "$mhla" train language --data "$tokens" --out "$folder" --json "$folder/result.json" --attention "$(attention_of "$1")" \
      --depth "$depth" --context "$context" --batch-tokens "$batch_tokens" --steps "$steps" --val-tokens "$val_tokens" --seed "$seed" \
      --device "$device" --keep 1 --half >> "$folder/log.txt" 2>&1
}

# One line of results.jsonl. The last log line has the speed of the last interval, without validation and saving.
result_of() {
  local results rate seconds
  results="$(tr -s ' \n' ' ' < "$out/$1/result.json" | grep -o '"results": *{[^}]*}')"
  rate="$(grep -o '"tokens_per_second":[0-9.e+]*' "$out/$1/metrics.jsonl" | tail -n 1)"
  seconds="$(grep -o '"seconds":[0-9.e+]*' "$out/$1/metrics.jsonl" | tail -n 1)"
  echo "{\"name\": \"$1\", \"steps\": $steps, $results, $seconds, $rate}"
}

missing=0
for name in "${names[@]}"; do
  if ! finished "$name" && (($(seconds_left) > 10)); then train "$name"; fi
  if finished "$name"; then
    echo "done     $name: $(grep -o 'val/loss.*' "$out/$name/log.txt" | tail -n 1)"
  else
    echo "not done $name: see $out/$name/log.txt"
    missing=$((missing + 1))
  fi
done
for name in softmax linear gla mhla hybrid; do if finished "$name"; then result_of "$name"; fi; done > "$out/results.jsonl"
echo "$((${#names[@]} - missing)) of ${#names[@]} runs finished after $SECONDS s, in $out"
((missing == 0))
