#!/usr/bin/env bash
# Lets lm-evaluation-harness ask a language model what `mhla eval language` asks, and compares the scores. The model is
# MHLA_LANGUAGE_MODEL, or a small one that is trained for it in a minute. tools/bootstrap.sh --peers installs the harness.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${MHLA_PROGRAM:-build/release/bin/mhla}
if [[ -z "${MHLA_LANGUAGE_MODEL:-}" ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cat README.md docs/*.md > "$work/text.txt"
  "$program" tokenizer train --data "$work/text.txt" --vocab 512 -o "$work/tokens/tokenizer.json"
  "$program" tokenize --tokenizer "$work/tokens" --data "$work/text.txt" --out "$work/tokens"
  "$program" train language --data "$work/tokens" --out "$work/model" --device cpu --width 64 --depth 2 --context 256 \
    --batch-tokens 2048 --steps 30
  MHLA_LANGUAGE_MODEL="$work/model"
fi
export MHLA_LANGUAGE_MODEL
MHLA_PROGRAM=$(realpath "$program") .deps/peers/bin/python -m pytest -q -p no:cacheprovider tests/peers
