#!/bin/sh
# Looks at what bench/report.py, which `./dev bench` runs, makes of measurements: the table, the chart, the files.
# Without PyTorch, which is not asked of anybody: a program that answers like torch_peer.py stands in for it.
#
#     report.sh REPORT COMMAND...      report.py; the mha command, after the emulator that it needs, if any
set -u
report=$1
shift
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null ||
    { echo '  -     report: no python3' && echo '0 passed, 0 failed, 1 skipped' && exit 0; }

# The command as one file in a folder of its own, which is where the results go.
{
    echo '#!/bin/sh'
    printf 'exec'
    for word; do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
    # shellcheck disable=SC2016 # the $@ of the file that is written here
    echo ' "$@"'
} >"$work/mha"

# An interpreter that answers every path with one line, if the file is there and is what --save writes.
cat >"$work/torch" <<'end'
#!/bin/sh
while read -r path; do
    [ -s "$path" ] && grep -aq '"__metadata__":{"pass":"gemm","shape":"small_512"' "$path" || exit 1
    echo '{"peer": "torch", "version": "9.9", "how": "matmul", "ms_median": 9, "ms_best": 9, "difference": DIFFERENCE}'
done
end
sed 's/DIFFERENCE/0.25/' "$work/torch" >"$work/wrong_torch"
sed -i 's/DIFFERENCE/1e-7/' "$work/torch"
# One for models: the fields that torch_vit.py reads have to be there.
cat >"$work/torch_vit" <<'end'
#!/bin/sh
while read -r path; do
    for word in checkpoint.images checkpoint.labels heads epsilon mean deviation rate decay seconds threads; do
        grep -aq "\"$word\":" "$path" || exit 1
    done
    echo '{"peer": "torch", "version": "9.9", "how": "compiled", "ms_median": 9, "ms_best": 9, "difference": 1e-7}'
done
end
chmod +x "$work/mha" "$work/torch" "$work/wrong_torch" "$work/torch_vit"

run() { python3 -B "$report" "$work/mha" "$@" --shape small_512 --threads 1 --seconds 0 >"$work/out" 2>"$work/err"; }

check() {
    if "$1" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $1"
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$work/log" "$work/out" "$work/err"
        echo "FAILED  $1"
    fi
}

prints_a_table_that_fits() {
    run '' --peer loop && [ "$(wc -L <"$work/out")" -le 80 ] && [ "$(grep -c '^small_512 *gemm ' "$work/out")" = 2 ] &&
        grep -q 'float32, 1 thread' "$work/out" && grep -q 'bfloat16, 1 thread' "$work/out"
}

leaves_a_chart_and_numbers() {
    run '' --peer loop && [ "$(wc -l <"$work/bench.json")" = 2 ] && grep -q '| gemm | small_512 |' "$work/bench.md" &&
        python3 - "$work" <<'end'
import json, sys, xml.dom.minidom
svg = xml.dom.minidom.parse(sys.argv[1] + "/bench.svg")
assert len(svg.getElementsByTagName("path")) == 3, "bars: ours twice, the loop once"
rows = [json.loads(line) for line in open(sys.argv[1] + "/bench.json")]
assert rows[0]["peer_ms"] > 0 and rows[0]["peer"] == "loop", rows[0]
end
}

shows_torch() {
    run "$work/torch" --peer none --dtype f32 && grep -q 'Peer: PyTorch 9.9' "$work/out" &&
        grep -q 'torch f32 1.0e-07' "$work/out" && grep -Eq '^small_512 .* [0-9.]+x +[0-9.e-]+$' "$work/out"
}

shows_images_a_second() {
    python3 -B "$report" "$work/mha" "$work/torch_vit" --shape vit_digits --batch 2 --dtype f32 --threads 1 \
        --seconds 0 --peer none >"$work/out" 2>"$work/err" || return 1
    [ "$(wc -L <"$work/out")" -le 80 ] &&
        [ "$(grep -Ec '^vit_digits +(train|infer) .* img/s .*x ' "$work/out")" = 2 ] &&
        grep -q 'Peer: PyTorch 9.9, models compiled' "$work/out" && grep -q ' img/s' "$work/bench.svg" &&
        grep -q '| train | vit_digits | .* img/s |' "$work/bench.md"
}

# A measurement of a small Llama, and a llama-bench that answers if the file it gets is GGUF with as many tensors.
cat >"$work/mha_llama" <<'end'
#!/usr/bin/env python3
import json, struct, sys
if "--list" in sys.argv or "info" in sys.argv:
    sys.exit(print("generate llama" if "--list" in sys.argv else '{"processor": "P", "version": "0"}'))
names = ["model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "model.norm"]
config = {"model_type": "llama", "max_position_embeddings": 8, "hidden_size": 4, "num_hidden_layers": 1, "vocab_size": 4,
          "intermediate_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1.0}
about = {"config": json.dumps(config), "pass": "generate", "dtype": "f32", "prompt": "2", "tokens": "3", "threads": "1"}
header = {f"{name}.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [64 * n, 64 * n + 64]} for n, name in enumerate(names)}
text = json.dumps({"__metadata__": about, **header}).encode()
with open(sys.argv[sys.argv.index("--save") + 1] + "/generate-llama-f32.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + bytes(256))
print(json.dumps({"shape": "llama", "pass": "generate", "dtype": "float32", "threads": 1, "isa": "scalar", "ms_median": 2,
                  "tokens_per_s": 500, "gb_per_s": 1, "percent_of_bandwidth": 90, "max_error": 0}))
end
cat >"$work/llama-bench" <<'end'
#!/usr/bin/env python3
import json, struct, sys
with open(sys.argv[sys.argv.index("-m") + 1], "rb") as file:
    magic, version, tensors, _ = struct.unpack("<4sIQQ", file.read(24))
    rest = file.read()
good = magic == b"GGUF" and version == 3 and tensors == 4 and b"blk.0.ffn_down.weight" in rest
print(json.dumps([{"samples_ts": [100.0, 125.0, 120.0], "build_commit": "abc", "model_type": "llama"}]))
sys.exit(not good)
end
chmod +x "$work/mha_llama" "$work/llama-bench"

shows_tokens_a_second_beside_llama_cpp() {
    PATH="$work:$PATH" python3 -B "$report" "$work/mha_llama" '' --pass generate --dtype f32 >"$work/out" 2>"$work/err" ||
        return 1
    [ "$(wc -L <"$work/out")" -le 80 ] && grep -Eq '^llama +generate .* 500.0 tok/s +90 % +4.17x' "$work/out" &&
        grep -q 'Peer: llama.cpp abc' "$work/out" && grep -q '500 tok/s' "$work/bench.svg" &&
        grep -q 'class="llama"' "$work/bench.svg" && grep -q '| generate | llama |' "$work/bench.md"
}

says_which_peers_are_missing() {
    PATH=/usr/bin:/bin python3 -B "$report" "$work/mha_llama" "$work/no_onnx" --pass generate --dtype f32 >"$work/out" 2>"$work/err" ||
        return 1
    grep -q '^1 of 1 without llama.cpp: llama-bench is not on the PATH' "$work/out" &&
        grep -q '^1 of 1 without onnxruntime: onnxruntime is not installed' "$work/out"
}

# An interpreter that answers for torch_peer.py and for onnx_peer.py.
cat >"$work/no_onnx" <<'end'
#!/bin/sh
case $2 in
*onnx_peer.py) echo 'onnxruntime is not installed' >&2 && exit 3 ;;
esac
read -r path && echo '{"peer": "torch", "version": "9.9", "how": "linear", "ms_median": 9, "ms_best": 9, "difference": 0}'
end
sed 's|echo .onnxruntime is.*exit 3|echo '"'"'{"version": "7.7", "ms_median": 6, "difference": DIFFERENCE}'"'"' \&\& exit|' "$work/no_onnx" >"$work/onnx"
sed 's/DIFFERENCE/0.5/' "$work/onnx" >"$work/wrong_onnx"
sed -i 's/DIFFERENCE/1e-6/' "$work/onnx"
chmod +x "$work/no_onnx" "$work/onnx" "$work/wrong_onnx"

shows_tokens_a_second_beside_onnxruntime() {
    python3 -B "$report" "$work/mha_llama" "$work/onnx" --pass generate --dtype f32 >"$work/out" 2>"$work/err" || return 1
    [ "$(wc -L <"$work/out")" -le 80 ] && grep -Eq '^llama +generate .* 90 % +[-0-9.x]+ +3.00x +4.50x ' "$work/out" &&
        grep -q 'Peer: onnxruntime 7.7' "$work/out" && grep -q 'onnxruntime f32 1.0e-06' "$work/out" &&
        grep -q 'class="onnx"' "$work/bench.svg" && grep -q '| llama | onnx | torch |' "$work/bench.md" || return 1
    python3 -B "$report" "$work/mha_llama" "$work/wrong_onnx" --pass generate --dtype f32 >"$work/out" 2>"$work/err"
    [ $? = 1 ] && grep -q 'llama generate f32 differs from onnxruntime by 0.5' "$work/err"
}

# Measurements on a GPU, of which the last one fails with --all; and a PyTorch whose kernels were timed beside ours.
cat >"$work/mha_gpu" <<'end'
#!/usr/bin/env python3
import json, sys
if "info" in sys.argv:
    sys.exit(print('{"processor": "P", "version": "0", "gpus": [{"device": "cuda:0", "description": "A GPU"}]}'))
if "--list" in sys.argv:
    sys.exit(print("forward a_shape\ndecode a_shape" + ("\nforward broken" if "--all" in sys.argv else "")))
shape, which = (sys.argv[sys.argv.index(option) + 1] for option in ("--shape", "--pass"))
if shape == "broken":
    sys.exit(2)
rate = {"gb_per_s": 4290.0, "percent_of_bandwidth": 89} if which == "decode" else {"gflops": 665230.0, "percent_of_peak": 62}
print(json.dumps({"shape": shape, "pass": which, "dtype": "bfloat16", "device": "cuda", "isa": "sm_90a", "sm_mhz": 1605,
                  "ms_median": 0.5, "max_error": 1e-4, **rate}))
end
cat >"$work/torch_gpu" <<'end'
#!/bin/sh
[ "${2##*/}" = cuda_beside.py ] && [ "$3" = answer ] || exit 1
while read -r path; do
    echo '{"peer": "torch", "version": "9.9", "cudnn": 91900, "how": "cudnn", "ms_median": 0.4, "difference": 1e-3,' \
        '"ms": {"mha": 0.4, "cudnn": 0.5, "flash": 0.8}}'
done
end
chmod +x "$work/mha_gpu" "$work/torch_gpu"

# The ratios are those of the times that were measured in turns, 0.5 / 0.4 and 0.8 / 0.4.
shows_kernels_beside_ours_on_a_gpu() {
    rm -f "$work/bench.svg"
    python3 -B "$report" "$work/mha_gpu" "$work/torch_gpu" --device cuda >"$work/out" 2>"$work/err" || return 1
    [ "$(wc -L <"$work/out")" -le 80 ] && [ ! -e "$work/bench.svg" ] && [ "$(wc -l <"$work/bench.json")" = 2 ] &&
        grep -Eq '^a_shape +forward +0.5000 +665.23 TF/s +62% +1.25x +2.00x +- +1.0e-04$' "$work/out" &&
        grep -Eq '^a_shape +decode +0.5000 +4.29 TB/s +89% +1.25x +2.00x +- +1.0e-04$' "$work/out" &&
        grep -q '^Peer: PyTorch 9.9, cuDNN 91900$' "$work/out" && grep -q '^A GPU, ' "$work/out" &&
        grep -q '^| forward | a_shape | 0.5 | 665.23 TF/s | 62 % | 1.25x | 2.00x | - | 1.0e-04 |$' "$work/bench.md"
}

keeps_the_numbers_of_a_run_that_ends_early() {
    python3 -B "$report" "$work/mha_gpu" "$work/torch_gpu" --device=cuda --all >"$work/out" 2>"$work/err"
    [ $? = 2 ] && [ "$(grep -c '^a_shape ' "$work/out")" = 2 ] && [ "$(wc -l <"$work/bench.json")" = 2 ]
}

notices_when_results_differ() {
    run "$work/wrong_torch" --peer none --dtype f32
    [ $? = 1 ] && grep -q 'small_512 gemm f32 differs from torch by 0.25' "$work/err"
}

# A section of the same machine is replaced, whatever its date; others stay as they are.
puts_tables_into_a_page() {
    printf '# Page\n\nWords.\n\n## Other (2026-01-01)\n\nold\n' >"$work/page.md" && cp "$work/page.md" "$work/before.md"
    run '' --peer none --dtype f32 --page "$work/page.md" && head -n 7 "$work/page.md" | cmp - "$work/before.md" &&
        [ "$(grep -c '^| gemm | small_512 |' "$work/page.md")" = 1 ] || return 1
    cp "$work/page.md" "$work/before.md" && sed -i 's/^\(## f32, .*(\)[-0-9]*)$/\11999-01-01)/' "$work/page.md" &&
        grep -q 1999-01-01 "$work/page.md" && run '' --peer none --dtype f32 --page "$work/page.md" || return 1
    sed 's/^| gemm.*//' "$work/page.md" >"$work/after.md" && sed 's/^| gemm.*//' "$work/before.md" | cmp - "$work/after.md" || return 1
    run '' --page "$work/absent.md"
    [ $? = 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ]
}

refuses_wrong_use() {
    run '' --pass nonsense
    [ $? = 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] || return 1
    run '' --save .
    [ $? = 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ]
}

leaves_nothing_else() { [ -z "$(find "$work" -name 'bench-*')" ]; }

check prints_a_table_that_fits
check leaves_a_chart_and_numbers
check shows_torch
check shows_images_a_second
check shows_tokens_a_second_beside_llama_cpp
check says_which_peers_are_missing
check shows_tokens_a_second_beside_onnxruntime
check shows_kernels_beside_ours_on_a_gpu
check keeps_the_numbers_of_a_run_that_ends_early
check notices_when_results_differ
check puts_tables_into_a_page
check refuses_wrong_use
check leaves_nothing_else
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
