"""llama.cpp on the language models of `mha bench --pass generate` and `--pass prompt`: writes the weights of a saved file as GGUF
and runs `llama-bench`, which is looked for on PATH. It draws its own tokens and keeps its results to itself, so times are
compared, results are not."""
import array
import json
import os
import shutil
import struct
import subprocess

ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
TYPES = {"F32": 0, "F16": 1, "BF16": 30}  # of tensors
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}
LLAMA = {
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
GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
# The names of tensors, what comes before those of a block, and which are stored (in, out), by family.
FAMILIES = {
    "llama": (LLAMA, "model.layers.", ()),
    "gpt2": (GPT2, "transformer.h.", (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")),
}


def text(words):
    return struct.pack("<Q", len(words)) + words.encode()


def pair(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<f" if kind == FLOAT32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + packed


def llama_numbers(config):
    numbers = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "vocab_size": config["vocab_size"],
    }
    return numbers, {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": config["rope_theta"]}


def gpt2_numbers(config):
    numbers = {
        "context_length": config["n_positions"],
        "embedding_length": config["n_embd"],
        "block_count": config["n_layer"],
        "feed_forward_length": config["n_inner"],
        "attention.head_count": config["n_head"],
        "vocab_size": config["vocab_size"],
    }
    return numbers, {"attention.layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5)}


def pairs(config, dtype):
    """What llama.cpp has to know; there is no tokenizer."""
    family = config["model_type"]
    numbers, reals = (llama_numbers if family == "llama" else gpt2_numbers)(config)
    found = [pair("general.architecture", STRING, family), pair("tokenizer.ggml.model", STRING, "none")]
    found += [pair("general.file_type", UINT32, FILE_TYPES[dtype])]
    found += [pair(f"{family}.{key}", UINT32, value) for key, value in numbers.items()]
    return found + [pair(f"{family}.{key}", FLOAT32, value) for key, value in reals.items()]


def name_of(name, family):
    names, blocks, _ = FAMILIES[family]
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith(blocks):
        return f"{names[stem]}.{kind}"
    block, rest = stem[len(blocks) :].split(".", 1)
    return f"blk.{block}.{names[rest]}.{kind}"


def swapped(data, shape, size):
    """The bytes of a matrix with rows and columns swapped."""
    numbers = array.array("H" if size == 2 else "I", data)
    return b"".join(numbers[column :: shape[1]].tobytes() for column in range(shape[1]))


def read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return header.pop("__metadata__"), header, 8 + length


def write_gguf(path, saved):
    """The tensors of a saved file, in its order and one at a time."""
    about, header, begin = read_header(saved)
    config = json.loads(about["config"])
    family = config["model_type"]
    tensors = [(entry["data_offsets"], name, entry) for name, entry in header.items() if not name.startswith("bench.")]
    tensors.sort(key=lambda tensor: tensor[0])
    head = pairs(config, about["dtype"])
    infos, at = b"", 0
    for (first, end), name, entry in tensors:
        shape = entry["shape"][::-1] if name.endswith(FAMILIES[family][2]) else entry["shape"]
        infos += text(name_of(name, family)) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", TYPES[entry["dtype"]], at)
        at += -(-(end - first) // ALIGNMENT) * ALIGNMENT
    with open(saved, "rb") as source, open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(head)) + b"".join(head) + infos)
        file.write(bytes(-file.tell() % ALIGNMENT))
        for (first, end), name, entry in tensors:
            source.seek(begin + first)
            data = source.read(end - first)
            swaps = name.endswith(FAMILIES[family][2])
            file.write(swapped(data, entry["shape"], 4 if entry["dtype"] == "F32" else 2) if swaps else data)
            file.write(bytes((first - end) % ALIGNMENT))


def program():
    return shutil.which("llama-bench")


def ask(saved):
    """Its answer as torch_peer.py gives one."""
    about = read_header(saved)[0]
    if not program():
        return {"error": "llama-bench is not on the PATH"}
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
