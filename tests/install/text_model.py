"""Writes a GPT-2 of one block into a folder. Whatever it reads, its next token is number 40.

    python3 text_model.py FOLDER TOKENS
"""
import array, json, struct, sys

folder, tokens = sys.argv[1], int(sys.argv[2])
width, positions, favourite = 4, 8, 40
shapes = {"wte.weight": [tokens, width], "wpe.weight": [positions, width], "ln_f.weight": [width], "ln_f.bias": [width]}
for name, rows, columns in [("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                            ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)]:
    shapes |= {f"h.0.{name}.weight": [rows, columns], f"h.0.{name}.bias": [columns]}
for name in "ln_1", "ln_2":
    shapes |= {f"h.0.{name}.weight": [width], f"h.0.{name}.bias": [width]}

header, numbers = {}, array.array("f")
for name, shape in shapes.items():
    values = [0.0] * (shape[0] * (shape[1] if len(shape) > 1 else 1))
    if name == "ln_f.bias":
        values[0] = 1.0
    elif name == "wte.weight":
        values[favourite * width] = 1.0
    start = 4 * len(numbers)
    numbers.extend(values)
    header["transformer." + name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, 4 * len(numbers)]}
text = json.dumps(header).encode()
with open(folder + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + numbers.tobytes())
config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": tokens, "n_embd": width, "n_layer": 1,
          "n_head": 1, "n_positions": positions}
with open(folder + "/config.json", "w") as file:
    json.dump(config, file)
