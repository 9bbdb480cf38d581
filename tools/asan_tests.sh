#!/usr/bin/env bash
# The C++ test suites under AddressSanitizer and UndefinedBehaviorSanitizer: tools/asan_tests.sh BUILD_DIR JOBS.
# LibTorch itself is not instrumented: its global allocations are no leaks of ours, and its containers cross the border.
set -euo pipefail
cd "$(dirname "$0")/.."
export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:detect_odr_violation=0:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
ctest --test-dir "$1" --output-on-failure -j "$2"
