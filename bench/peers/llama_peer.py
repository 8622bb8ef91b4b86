"""llama.cpp on the Llamas of `mha bench --pass generate` and `--pass prompt`: writes the weights of a saved file as GGUF
and runs `llama-bench`, which is looked for on PATH. It draws its own tokens and keeps its results to itself, so times are
compared, results are not."""
import json
import math
import os
import shutil
import struct
import subprocess

ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
TYPES = {"f32": 0, "f16": 1, "bf16": 30}  # of tensors; vectors are float32
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def text(words):
    return struct.pack("<Q", len(words)) + words.encode()


def pair(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<f" if kind == FLOAT32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + packed


def pairs(config, dtype):
    """What llama.cpp has to know; there is no tokenizer."""
    numbers = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "vocab_size": config["vocab_size"],
    }
    found = [pair("general.architecture", STRING, "llama"), pair("tokenizer.ggml.model", STRING, "none")]
    found += [pair("general.file_type", UINT32, FILE_TYPES[dtype])]
    found += [pair(f"llama.{key}", UINT32, value) for key, value in numbers.items()]
    found += [pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"])]
    return found + [pair("llama.rope.freq_base", FLOAT32, config["rope_theta"])]


def name_of(name):
    stem = name[: -len(".weight")]
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.weight"
    _, _, block, rest = stem.split(".", 3)
    return f"blk.{block}.{NAMES[rest]}.weight"


def read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return header.pop("__metadata__"), header, 8 + length


def write_gguf(path, saved):
    """The tensors of a saved file, in its order and one at a time."""
    about, header, begin = read_header(saved)
    tensors = [(entry["data_offsets"], name, entry["shape"]) for name, entry in header.items()]
    tensors = sorted(tensor for tensor in tensors if not tensor[1].startswith("bench."))
    head = pairs(json.loads(about["config"]), about["dtype"])
    infos, at, sizes = b"", 0, []
    for _, name, shape in tensors:
        kind = TYPES[about["dtype"] if len(shape) > 1 else "f32"]
        infos += text(name_of(name)) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", kind, at)
        sizes.append(math.prod(shape) * (2 if kind else 4))
        at += -(-sizes[-1] // ALIGNMENT) * ALIGNMENT
    with open(saved, "rb") as source, open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(head)) + b"".join(head) + infos)
        file.write(bytes(-file.tell() % ALIGNMENT))
        for ((first, _), _, _), size in zip(tensors, sizes):
            source.seek(begin + first)
            file.write(source.read(size))
            file.write(bytes(-size % ALIGNMENT))


def program():
    return shutil.which("llama-bench")


def ask(saved):
    """Its answer as torch_peer.py gives one."""
    about = read_header(saved)[0]
    if not program():
        return {"error": "llama-bench is not on the PATH"}
    if json.loads(about["config"])["model_type"] != "llama":
        return {"error": "only Llamas are written as GGUF"}
    path = saved + ".gguf"
    write_gguf(path, saved)
    prompt = about["pass"] == "prompt"
    tokens = ["-p", about["prompt"], "-n", "0"] if prompt else ["-p", "0", "-n", about["tokens"], "-d", about["prompt"]]
    done = subprocess.run(
        [program(), "-m", path, "-t", about["threads"], "-r", "3", "-o", "json", *tokens],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )
    os.remove(path)
    if done.returncode:
        return {"peer": "llama.cpp", "error": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    said = json.loads(done.stdout)[0]
    rates = sorted(said["samples_ts"])
    per = int(about["prompt"]) if prompt else 1
    return {
        "peer": "llama.cpp",
        "version": said["build_commit"],
        "type": said["model_type"],
        "ms_median": 1e3 * per / rates[len(rates) // 2],
        "ms_best": 1e3 * per / rates[-1],
    }
