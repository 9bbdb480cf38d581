#!/usr/bin/env bash
# The tests of threads under ThreadSanitizer: tools/tsan_tests.sh BUILD_DIR. The pool, streaming states and what the
# server's threads hand to each other, which know no torch, and the image loader.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$1/bin"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan_suppressions.txt"
# Without random addresses: the sanitizer's runtime cannot place its memory everywhere that Linux may choose.
run() { setarch "$(uname -m)" --addr-no-randomize "$@" --gtest_brief=1; }
run "$bin/test_threads"
run "$bin/test_data" --gtest_filter='ImageLoader.*'
