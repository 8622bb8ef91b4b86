#!/bin/sh
# Runs the tests of the Python package with libraries and extension built under clang's address and undefined-behaviour sanitizers.
#
#     sanitize.sh [ARGUMENT...]      arguments of pytest, such as test_torch_sdpa.py
#
# Python itself is not instrumented, so the run-time library is loaded in front of it, and leaks are not looked for.
set -e
cd "$(dirname "$0")/../../.."
cmake --preset asan --log-level=NOTICE
cmake --build --preset asan --target mha_python mha_python_package
library=$(clang -print-file-name="libclang_rt.asan-$(uname -m).so")
[ -f "$library" ] || library=$(clang -print-file-name=libclang_rt.asan.so)
cd bindings/python/tests
ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 LD_PRELOAD=$library PYTHONPATH=../../../build/asan/python \
    exec ../../../build/venv/bin/python -B -m pytest -q -p no:cacheprovider "$@"
