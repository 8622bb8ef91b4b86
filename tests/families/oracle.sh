#!/bin/sh
# Small models of random configurations of every family, against the `transformers` library, with a Python that has it.
# Prints the seed.
#
#     oracle.sh MHA [SEED]      the command; MHA_PYTHON names the Python. MHA_SAMPLE=k: one in k of the models
set -u
here=$(dirname "$0")
mha=$1
seed=${2:-$(awk 'BEGIN { srand(); print int(rand() * 1000000) }')}
if ! python=$("$here/../support/find_python.sh" torch transformers); then
    echo '  -     families_live: no Python with the package transformers; MHA_PYTHON names one'
    echo '0 passed, 0 failed, 1 skipped'
    exit
fi

work=$(mktemp -d) || exit 1
passed=0 failed=0
# count: what the log says, and its last line; a log without one counts as a failure.
count() {
    grep -v '^  ok ' "$work/log" | grep -v ' passed, '
    # shellcheck disable=SC2046 # two numbers
    set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$work/log")
    passed=$((passed + ${1:-0})) failed=$((failed + ${2:-1}))
}
# One process writes all folders: to import the library takes as long as twenty models.
# The spelling of version 4 is for half of the families, others in each run.
sample=${MHA_SAMPLE:-1}
while read -r folder arguments; do echo "$work/$folder --seed $seed --sample $sample $arguments"; done <<end >"$work/runs"
five
base --base --sample 6
heads --heads --sample 12
four --spelling 4 --shards --sample $((2 * sample))
bfloat16 --dtype bfloat16 --only gpt2,llama,gemma3,gpt_oss,bert,t5,pegasus,whisper,vit
float16 --dtype float16 --spelling 4 --only opt,qwen3,phi3,mixtral,modernbert,marian,m2m_100,dinov2
end
cat "$work/runs"
"$python" -B "$here/oracle.py" - <"$work/runs" >"$work/log" 2>&1 || { tail -n 3 "$work/log" && failed=1; }
"$python" -B "$here/timm.py" "$work/timm" "$seed" >"$work/log" 2>&1 || { tail -n 3 "$work/log" && failed=1; }
for folder in "$work"/*/; do
    "${mha%/*}/tools/conformance" "$folder" >"$work/log"
    count
done
# Each attention opened as a layer; each model saved, and opened by the library.
tests=$(dirname "$mha")/tests
if [ -x "$tests/test_mha_save" ]; then
    ln -s five "$work/hf" && mkdir "$work/saved"
    MHA_MODELS=$work "$tests/test_mha_inside" a_layer_of_every_family >"$work/log" 2>&1
    count
    MHA_MODELS=$work "$tests/test_mha_save" changed_parts >"$work/log" 2>&1
    count
    MHA_MODELS=$work MHA_SAVED=$work/saved "$tests/test_mha_save" every_family >"$work/log" 2>&1
    count
    MHA_MODELS=$work "$tests/test_mha_save" changed_parts >"$work/log" 2>&1
    count
    "$python" -B "$here/saved.py" "$work/five" "$work/saved" >"$work/log" 2>&1 || tail -n 3 "$work/log"
    count
fi
scripts="speech.py rotary.py"
if "$python" -c 'import PIL' 2>/dev/null; then scripts="$scripts pictures.py"; else echo '  -     pictures: no Pillow'; fi
if "$python" -c 'import sentence_transformers' 2>/dev/null; then scripts="$scripts sentence.py"; else echo '  -     sentence: no sentence-transformers'; fi
for script in $scripts; do # which run the command themselves
    echo "$script $seed"
    "$python" -B "$here/$script" "$mha" "$seed" >"$work/log" 2>"$work/err" || tail -n 3 "$work/err"
    count
done
if [ $failed -eq 0 ]; then rm -rf "$work"; else echo "kept $work; to repeat: oracle.sh MHA $seed"; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
