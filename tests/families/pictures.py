"""Pictures as the image processors of transformers prepare them, and what models make of them, beside `mha classify`:

    python tests/families/pictures.py MHA SEED

Random ViTs, DeiTs and DINOv2s with random processors, and PNG files of many kinds. Prints a line per picture and model,
`N passed, N failed`, and exits 1 if one failed. timm's transform is written out below with Pillow; timm is not needed."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.simplefilter("ignore")
import numpy
import PIL
import torch
import transformers
from PIL import Image

TOLERANCE = 2e-4  # of probabilities: a pixel that is rounded the other way changes less than this


def pictures(folder, r):
    """Files of several modes and sizes, by path."""
    rng = numpy.random.default_rng(r.randrange(1 << 30))
    made = {}
    for mode, channels in (("RGB", 3), ("RGBA", 4), ("L", 1), ("LA", 2), ("P", 3), ("1", 1)):
        rows, columns = r.randint(9, 90), r.randint(9, 90)
        base = rng.integers(0, 256, (rows // 4 + 2, columns // 4 + 2, channels), dtype=numpy.uint8)
        image = Image.fromarray(base[..., 0] if channels == 1 else base, {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels])
        image = image.resize((columns, rows), Image.BICUBIC)
        image = image.convert(mode) if mode in ("P", "1") else image
        made[mode] = folder / f"{mode}.png"
        image.save(made[mode])
    return made


def processor(r, kind, side):
    mean, std = [r.uniform(0.2, 0.6) for _ in range(3)], [r.uniform(0.2, 0.4) for _ in range(3)]
    options = dict(image_mean=mean, image_std=std, resample=r.choice((1, 2, 3)))
    if kind == "vit":
        return transformers.ViTImageProcessor(size={"height": side, "width": side}, **options)
    options |= dict(crop_size={"height": side, "width": side})
    larger = side + r.randint(0, 9)
    if kind == "deit":
        return transformers.DeiTImageProcessor(size={"height": larger, "width": larger}, **options)
    return transformers.BitImageProcessor(size={"shortest_edge": larger}, **options)


def model(r, kind, side, patch):
    heads = r.choice((1, 2))
    sizes = dict(hidden_size=heads * 16, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=40,
                 image_size=side, patch_size=patch, num_labels=r.randint(3, 12), initializer_range=0.3)
    name = {"vit": "ViT", "deit": "DeiT", "dinov2": "Dinov2"}[kind]
    config = getattr(transformers, name + "Config")(**sizes)
    return getattr(transformers, name + "ForImageClassification")(config).eval()


def timm_values(path, about, side):
    """The evaluation transform of timm: shorter side to side / crop_pct, centre, mean and deviation."""
    image, scaled = Image.open(path).convert("RGB"), math.floor(side / about["crop_pct"])
    width, height = image.size
    size = (scaled, int(scaled * height / width)) if width <= height else (int(scaled * width / height), scaled)
    if about["crop_mode"] == "squash":
        size = scaled, scaled
    image = image.resize(size, {"bilinear": 2, "bicubic": 3, "lanczos": 1}[about["interpolation"]])
    left, top = (int(round((n - side) / 2.0)) for n in image.size)
    x = numpy.asarray(image.crop((left, top, left + side, top + side)), numpy.float32) / 255
    return torch.tensor(((x - about["mean"]) / about["std"]).transpose(2, 0, 1)[None].astype(numpy.float32))


def timm_folder(folder, vit, r, side):
    """The weights of a ViT of transformers under timm's names."""
    from safetensors.torch import save_file

    about = dict(input_size=[3, side, side], mean=[r.uniform(0.3, 0.6) for _ in range(3)], std=[r.uniform(0.2, 0.4) for _ in range(3)],
                 interpolation=r.choice(("bilinear", "bicubic")), crop_pct=r.choice((0.7, 0.9, 1.0)), crop_mode=r.choice(("center", "squash")))
    s, t, c = vit.state_dict(), {}, vit.config
    t["cls_token"], t["pos_embed"] = s["vit.embeddings.cls_token"], s["vit.embeddings.position_embeddings"]
    for part in ("weight", "bias"):
        t[f"patch_embed.proj.{part}"] = s[f"vit.embeddings.patch_embeddings.projection.{part}"]
        t[f"norm.{part}"], t[f"head.{part}"] = s[f"vit.layernorm.{part}"], s[f"classifier.{part}"]
        for n in range(c.num_hidden_layers):
            names = [k for k in s if f".{n}." in k and k.endswith(part)]
            find = lambda *words: s[next(k for k in names if all(w in k for w in words))]
            t[f"blocks.{n}.attn.qkv.{part}"] = torch.cat([find(w) for w in (("query",), ("key",), ("value",))] if any("query" in k for k in names)
                                                         else [find(w) for w in ("q_proj", "k_proj", "v_proj")])
            t[f"blocks.{n}.attn.proj.{part}"] = find("o_proj") if any("o_proj" in k for k in names) else find("attention.output")
            t[f"blocks.{n}.norm1.{part}"], t[f"blocks.{n}.norm2.{part}"] = find("layernorm_before"), find("layernorm_after")
            t[f"blocks.{n}.mlp.fc1.{part}"] = find("fc1") if any("fc1" in k for k in names) else find("intermediate")
            t[f"blocks.{n}.mlp.fc2.{part}"] = find("fc2") if any("fc2" in k for k in names) else next(
                s[k] for k in names if "output.dense" in k and "attention" not in k)
    folder.mkdir()
    save_file({k: v.contiguous() for k, v in t.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(dict(architecture="vit", model_args=dict(num_heads=c.num_attention_heads), pretrained_cfg=about)))
    return about


def classify(mha, folder, path):
    done = subprocess.run([mha, "classify", folder, path, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    return json.loads(done.stdout)["images"][0]["probabilities"], ""


# What a file says, and what the one line about it must contain.
REFUSED = [
    ({"image_processor_type": "ConvNextImageProcessor"}, "image_processor_type is \"ConvNextImageProcessor\""),
    ({"resample": 0}, "resample is 0"),
    ({"size": {"longest_edge": 30}}, "size must have height and width"),
    ({"image_std": [1, 0, 1]}, "image_std must be above 0"),
    ({"do_pad": True}, "do_pad is not supported"),
    ({"do_resize": False}, "but the model reads"),
]


def refusals(mha, place, picture):
    """Yields (what, whether it is refused in one line)."""
    path = place / "preprocessor_config.json"
    before = path.read_text()
    deep = picture.parent / "deep.png"
    Image.fromarray(numpy.full((9, 9), 1000, numpy.uint16)).save(deep)
    cases = [(path, {**json.loads(before), **said}, picture, word) for said, word in REFUSED]
    cases += [(path, json.loads(before), deep, "16 bits per channel"), (path, None, picture, "preprocessor_config.json")]
    for file, said, image, word in cases:
        file.unlink() if said is None else file.write_text(json.dumps(said))
        done = subprocess.run([mha, "classify", place, image], capture_output=True, text=True, check=False)
        yield word, done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1 and word in done.stderr
    path.write_text(before)


def main():
    if int(PIL.__version__.split(".")[0]) >= 13:
        print("  -     pictures: this Pillow resizes columns before rows where that is quicker")
        return print("0 passed, 0 failed")
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(sys.argv[1], Path(folder), int(sys.argv[2])))


def run(mha, folder, seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    passed = failed = 0

    def compare(name, values, vit, place, path):
        nonlocal passed, failed
        with torch.no_grad():
            want = torch.softmax(vit(values).logits[0].double(), -1).numpy()
        got, error = classify(mha, place, path)
        off = numpy.abs(want - numpy.array(got)).max() if got else math.inf
        good = off <= TOLERANCE
        passed, failed = passed + good, failed + (not good)
        print(f"{'  ok  ' if good else 'FAILED'} {name} {path.name}: {off:.1e} {error}")

    files = pictures(folder, r)
    for kind in ("vit", "deit", "dinov2"):
        patch = r.choice((4, 5))
        side = patch * r.randint(3, 6)
        place, p, vit = folder / kind, processor(r, kind, side), model(r, kind, side, patch)
        vit.save_pretrained(place)
        p.save_pretrained(place)
        for path in files.values():
            compare(kind, p(Image.open(path).convert("RGB"), return_tensors="pt")["pixel_values"], vit, place, path)
    patch = r.choice((4, 5))
    side = patch * r.randint(3, 6)
    vit = model(r, "vit", side, patch)
    vit.config.layer_norm_eps = 1e-6
    for layer in vit.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            layer.eps = 1e-6
    about = timm_folder(folder / "timm", vit, r, side)
    for path in files.values():
        compare("timm", timm_values(path, about, side), vit, folder / "timm", path)
    for what, good in refusals(mha, folder / "vit", files["RGB"]):
        passed, failed = passed + good, failed + (not good)
        print(f"{'  ok  ' if good else 'FAILED'} refused: {what}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    main()
