#!/usr/bin/env bash
# Formats C++ and Python sources in place; with --check only reports what is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(find include src tests fuzz examples python -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' | sort)
if [[ "${1:-}" == --check ]]; then
  .venv/bin/clang-format --dry-run --Werror "${sources[@]}"
  .venv/bin/ruff format --check --quiet python tests/python tests/peers fuzz
  .venv/bin/ruff check --quiet python tests/python tests/peers fuzz
  echo "format: ${#sources[@]} C++ files and the Python sources are formatted"
else
  .venv/bin/clang-format -i "${sources[@]}"
  .venv/bin/ruff format --quiet python tests/python tests/peers fuzz
fi
