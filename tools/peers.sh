#!/usr/bin/env bash
# tools/peers.sh [BUILD]: lets lm-evaluation-harness ask a language model what `mhla eval language` asks, and compares
# the scores. The model is MHLA_LANGUAGE_MODEL, or a small one that is trained for it in a minute. tools/bootstrap.sh
# --peers installs the harness.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/release}
program=$build/bin/mhla
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The Python package on the libraries of this build.
mkdir -p "$work/site/mhla"
ln -s "$PWD"/python/mhla/* "$work/site/mhla/"
for library in mhla_torch mhla_generators; do
  ln -s "$PWD/$build/lib/lib$library.so" "$work/site/mhla/"
done

if [[ -z "${MHLA_LANGUAGE_MODEL:-}" ]]; then
  cat README.md docs/*.md > "$work/text.txt"
  "$program" tokenizer train --data "$work/text.txt" --vocab 512 -o "$work/tokens/tokenizer.json"
  "$program" tokenize --tokenizer "$work/tokens" --data "$work/text.txt" --out "$work/tokens"
  "$program" train language --data "$work/tokens" --out "$work/model" --device cpu --width 64 --depth 2 --context 256 \
    --batch-tokens 2048 --steps 30
  MHLA_LANGUAGE_MODEL="$work/model"
fi
export MHLA_LANGUAGE_MODEL
MHLA_PROGRAM=$PWD/$program PYTHONPATH=$work/site .deps/peers/bin/python -m pytest -q -p no:cacheprovider tests/peers
