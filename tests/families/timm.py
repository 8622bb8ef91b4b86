"""Vision Transformers under timm's tensor names, with their answers, for tools/conformance:

    python tests/families/timm.py FOLDER SEED

The forward pass is written out below in PyTorch's functions, in float64; timm itself is not needed."""
import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu, layer_norm, linear

# What the variants of timm's VisionTransformer have; heads, image size and the rest are random.
VARIANTS = {
    "vit": dict(),
    "vit_rectangle": dict(rectangle=True),
    "vit_without_head": dict(classes=0),
    "deit_distilled": dict(distilled=True),
    "vit_avg": dict(fc_norm=True, pool="avg"),
    "vit_avg_without_class_token": dict(class_token=False, fc_norm=True, pool="avg"),
    "vit_avg_after_norm": dict(class_token=False, pool="avg"),
    "vit_layer_scale": dict(scale=True, qkv_bias=False),
    "vit_clip_quickgelu": dict(norm_pre=True, patch_bias=False),
    "vit_qk_norm": dict(qk_norm=True),
    "vit_known_width": dict(known=True),
}


def make(r, class_token=True, distilled=False, classes=None, rectangle=False, fc_norm=False, pool="token", scale=False,
         norm_pre=False, qk_norm=False, qkv_bias=True, patch_bias=True, known=False):
    """The tensors of a model, and what they do not say."""
    heads = 3 if known else r.choice((1, 2, 3))
    M, P, L, F = heads * (64 if known else r.choice((6, 8, 10))), r.choice((2, 3, 4)), r.randint(1, 3), r.randint(20, 50)
    grid = [r.randint(2, 5), r.randint(2, 5)] if rectangle else [r.randint(2, 5)] * 2
    classes = r.randint(2, 30) if classes is None else classes
    t = {}

    def add(name, *shape):
        values = torch.tensor([r.gauss(0, 1) for _ in range(torch.Size(shape).numel())], dtype=torch.float64).view(shape)
        gain = name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "norm_pre.weight", "gamma"))
        t[name] = (1 + 0.2 * values if gain else values * (0.2 if len(shape) < 2 else shape[-1] ** -0.5)).float()

    def product(name, rows, columns, bias=True):
        add(name + ".weight", rows, columns)
        if bias:
            add(name + ".bias", rows)

    def norm(name, width=M):
        add(name + ".weight", width)
        add(name + ".bias", width)

    if class_token:
        add("cls_token", 1, 1, M)
    if distilled:
        add("dist_token", 1, 1, M)
        product("head_dist", classes, M)
    add("pos_embed", 1, grid[0] * grid[1] + class_token + distilled, M)
    add("patch_embed.proj.weight", M, 3, P, P)
    if patch_bias:
        add("patch_embed.proj.bias", M)
    if norm_pre:
        norm("norm_pre")
    for n in (f"blocks.{i}." for i in range(L)):
        norm(n + "norm1")
        product(n + "attn.qkv", 3 * M, M, qkv_bias)
        product(n + "attn.proj", M, M)
        norm(n + "norm2")
        product(n + "mlp.fc1", F, M)
        product(n + "mlp.fc2", M, F)
        for name in ("q_norm", "k_norm") if qk_norm else ():
            norm(n + "attn." + name, M // heads)
        for name in ("ls1", "ls2") if scale else ():
            add(n + name + ".gamma", M)
    norm("fc_norm" if fc_norm else "norm")
    if classes:
        product("head", classes, M)
    return t, dict(heads=heads, grid=grid, patch=P, depth=L, pool=pool, classes=classes, eps=1e-5 if norm_pre else 1e-6)


def forward(t, about, pixels, quick):
    """timm's VisionTransformer: logits, or rows without a head, and the attention weights of all blocks."""
    B, H, P = len(pixels), about["heads"], about["patch"]
    M = t["pos_embed"].shape[-1]

    def norm(x, name):
        return layer_norm(x, x.shape[-1:], t[name + ".weight"], t[name + ".bias"], about["eps"])

    def product(x, name):
        return linear(x, t[name + ".weight"], t.get(name + ".bias"))

    x = torch.nn.functional.conv2d(pixels, t["patch_embed.proj.weight"], t.get("patch_embed.proj.bias"), stride=P)
    x = x.flatten(2).transpose(1, 2)
    before = [t[name].expand(B, 1, M) for name in ("cls_token", "dist_token") if name in t]
    x = torch.cat([*before, x], 1) + t["pos_embed"]
    if "norm_pre.weight" in t:
        x = norm(x, "norm_pre")
    maps = []
    for n in (f"blocks.{i}." for i in range(about["depth"])):
        q, k, v = product(norm(x, n + "norm1"), n + "attn.qkv").view(B, -1, 3, H, M // H).permute(2, 0, 3, 1, 4)
        if n + "attn.q_norm.weight" in t:
            q, k = norm(q, n + "attn.q_norm"), norm(k, n + "attn.k_norm")
        maps.append((q @ k.transpose(-1, -2) * (M // H) ** -0.5).softmax(-1))
        y = product((maps[-1] @ v).transpose(1, 2).reshape(B, -1, M), n + "attn.proj")
        x = x + y * t.get(n + "ls1.gamma", torch.ones(()))
        y = product(norm(x, n + "norm2"), n + "mlp.fc1")
        y = product(y * torch.sigmoid(1.702 * y) if quick else gelu(y), n + "mlp.fc2")
        x = x + y * t.get(n + "ls2.gamma", torch.ones(()))
    if "norm.weight" in t:
        x = norm(x, "norm")
    if not about["classes"]:
        return x, maps
    pooled = x[:, len(before):].mean(1) if about["pool"] == "avg" else x[:, 0]
    if "fc_norm.weight" in t:
        pooled = norm(pooled, "fc_norm")
    logits = product(pooled, "head")
    if "dist_token" in t:
        logits = (logits + product(x[:, 1], "head_dist")) / 2
    return logits, maps


def write(folder, name, seed):
    r = random.Random(f"{seed} {name}")
    t, about = make(r, **VARIANTS[name])
    size = [n * about["patch"] for n in about["grid"]]
    pixels = torch.tensor([r.gauss(0, 1) for _ in range(2 * 3 * size[0] * size[1])]).view(2, 3, *size).double()
    logits, maps = forward({k: v.double() for k, v in t.items()}, about, pixels, "quickgelu" in name)
    folder.mkdir(parents=True)
    config = dict(architecture=name, num_classes=about["classes"], global_pool=about["pool"],
                  pretrained_cfg=dict(input_size=[3, *size], mean=[0.5] * 3, std=[0.5] * 3))
    if "known" not in VARIANTS[name]:
        config["model_args"] = dict(num_heads=about["heads"])
    (folder / "config.json").write_text(json.dumps(config))
    save_file(t, folder / "model.safetensors")
    save_file(dict(pixel_values=pixels, logits=logits, **{f"attentions.{i}": m.contiguous() for i, m in enumerate(maps)}),
              folder / "expected.safetensors", metadata=dict(kind="image"))


if __name__ == "__main__":
    for variant in VARIANTS:
        write(Path(sys.argv[1]) / variant, variant, sys.argv[2])
