#!/bin/sh
# Small models of random configurations of every family, against the `transformers` library, with a Python that has it.
# Prints the seed.
#
#     oracle.sh MHA [SEED]      the command; MHA_PYTHON names the Python
set -u
here=$(dirname "$0")
mha=$1
seed=${2:-$(awk 'BEGIN { srand(); print int(rand() * 1000000) }')}
for candidate in "${MHA_PYTHON:-python3}" "$here/../../build/venv/bin/python"; do
    "$candidate" -c 'import torch, transformers' 2>/dev/null && break
    candidate=
done
if [ -z "$candidate" ]; then
    echo '  -     families_live: no Python with the package transformers; MHA_PYTHON names one'
    echo '0 passed, 0 failed, 1 skipped'
    exit
fi

work=$(mktemp -d) || exit 1
passed=0 failed=0
# try NAME ARGUMENT...: models written with these arguments of oracle.py.
try() {
    folder=$work/$1
    shift
    echo "oracle.py $*"
    "$candidate" -B "$here/oracle.py" "$folder" "$@" >"$work/log" 2>&1 || { tail -n 3 "$work/log" && failed=$((failed + 1)) && return; }
    "$mha" conformance "$folder" >"$work/log"
    grep -v '^  ok ' "$work/log" | grep -v ' passed, '
    passed=$((passed + $(sed -n 's/ passed, .*//p' "$work/log")))
    failed=$((failed + $(sed -n 's/.* passed, \(.*\) failed/\1/p' "$work/log")))
}
try five --seed "$seed"
try four --seed "$seed" --spelling 4 --shards
try bfloat16 --seed "$seed" --dtype bfloat16 --only gpt2,llama,gemma3,gpt_oss,bert,t5,pegasus,whisper,vit
try float16 --seed "$seed" --dtype float16 --spelling 4 --only opt,qwen3,phi3,mixtral,modernbert,marian,m2m_100,dinov2
if [ $failed -eq 0 ]; then rm -rf "$work"; else echo "kept $work; to repeat: oracle.sh MHA $seed"; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
