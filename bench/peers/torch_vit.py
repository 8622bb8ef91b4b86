"""The Vision Transformer of `mha bench --pass train` and `--pass infer` in PyTorch, as its users write it: modules with
timm's names, so that the weights of the saved file fit, fused attention where there is one, AdamW, autocast for
bfloat16. Imported by torch_peer.py."""
import contextlib
import signal

import torch
from torch import nn

F = nn.functional
COMPILE_PATIENCE = 60  # seconds for torch.compile to be through with a model
CHUNK = 128  # images that an inference may take at a time, beside all of them


class Attention(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(self.attend(q, k, v, False).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, epsilon, attend):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=epsilon), nn.LayerNorm(width, eps=epsilon)
        self.attn, self.mlp = Attention(width, heads, attend), Mlp(width, hidden)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """A product with the patches cut out: on a processor it is quicker than the convolution that it is."""

    def __init__(self, width, patch):
        super().__init__()
        self.patch, self.proj = patch, nn.Linear(patch * patch, width)

    def forward(self, x):
        x = x.unflatten(2, (-1, self.patch)).unflatten(1, (-1, self.patch))  # (B, rows, patch, columns, patch)
        return self.proj(x.transpose(2, 3).flatten(3).flatten(1, 2))


class VisionTransformer(nn.Module):
    def __init__(self, weights, heads, epsilon, attend):
        super().__init__()
        classes, width = weights["head.weight"].shape
        hidden = weights["blocks.0.mlp.fc1.weight"].shape[0]
        depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
        self.patch_embed = PatchEmbed(width, weights["patch_embed.proj.weight"].shape[-1])
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(weights["pos_embed"].shape))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden, epsilon, attend) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=epsilon), nn.Linear(width, classes)
        self.load_state_dict({name: x.flatten(1) if x.dim() == 4 else x for name, x in weights.items()})

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def make_model(t, about, attend):
    weights = {name: tensor for name, tensor in t.items() if not name.startswith("checkpoint.")}
    return VisionTransformer(weights, int(about["heads"]), float(about["epsilon"]), attend)


def make_optimizer(model, about):
    """AdamW, where weights of products decay and nothing else does; in one kernel or a few, where that is possible."""
    decaying = [p for name, p in model.named_parameters() if p.dim() > 1 and not name.endswith(("token", "pos_embed"))]
    rest = [p for p in model.parameters() if not any(p is q for q in decaying)]
    decay = float(about["decay"])
    for how in ({"fused": True}, {"foreach": True}, {}):
        # Made anew each time: a constructor that fails leaves its own settings in them.
        groups = [{"params": decaying, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            return torch.optim.AdamW(groups, lr=float(about["rate"]), **how)
    raise RuntimeError("there is no AdamW")


def autocast(about):
    """float32 as it is, bfloat16 as PyTorch does it for a model whose weights are float32."""
    return torch.autocast("cpu", torch.bfloat16) if about["dtype"] == "bf16" else contextlib.nullcontext()


def trainer(model, about, images, labels):
    """A function that takes a step and returns its loss."""
    optimizer = make_optimizer(model, about)

    def step():
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            with autocast(about):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


class TooLong(RuntimeError):
    pass


@contextlib.contextmanager
def time_limit(seconds):
    def ring(_signal, _frame):
        raise TooLong(f"not compiled within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def compiled(make, first_run):
    """What make() gives of torch.compile, after its first runs, in which the compiling happens; None if this version
    cannot, or takes too long."""
    if not hasattr(torch, "compile"):
        return None
    try:
        with time_limit(COMPILE_PATIENCE):
            run = make()
            first_run(run)
            return run
    except Exception:  # whatever a compiler throws: then there is no compiled model
        return None


def best_of(ways, clock, seconds):
    """(milliseconds: median and best, how) of the way with the smallest median."""
    timed = []
    for how, run in ways:
        _, median, best = clock(run, seconds)
        timed.append((median, best, how))
    return min(timed)


def pixels(t, about):
    return (t["checkpoint.images"].float() / 255 - float(about["mean"])) / float(about["deviation"])


def train(t, about, attend, clock):
    """Time of a step, and how far its first losses are from ours."""
    images, labels, ours = pixels(t, about), t["checkpoint.labels"].long(), t["checkpoint.losses"]
    step = trainer(make_model(t, about, attend), about, images, labels)
    theirs = torch.stack([step() for _ in range(len(ours))])
    ways = [("eager", step)]
    quick = compiled(
        lambda: trainer(torch.compile(make_model(t, about, attend)), about, images, labels),
        lambda run: [run() for _ in range(3)],
    )
    ways += [("compiled", quick)] if quick else []
    median, best, how = best_of(ways, clock, float(about["seconds"]))
    return how, median, best, [ours], [theirs]


def infer(t, about, attend, clock):
    """Time of a look at all images, by the quickest of the ways that there are: at a time or in chunks; in bfloat16 by
    autocast or with all weights in it."""
    model, images = make_model(t, about, attend).eval(), pixels(t, about)
    models = [("eager", model, images, lambda: autocast(about))]
    if about["dtype"] == "bf16":
        halved = make_model(t, about, attend).eval().bfloat16()
        models.append(("eager, bfloat16 weights", halved, images.bfloat16(), contextlib.nullcontext))

    def way(net, x, context, size):
        def run():
            with torch.inference_mode(), context():
                return torch.cat([net(part) for part in x.split(size)])

        return run

    sizes = sorted({min(CHUNK, len(images)), len(images)})
    theirs = way(model, images, lambda: autocast(about), len(images))().float()
    ways = [(how, way(net, x, context, size)) for how, net, x, context in models for size in sizes]
    quick = compiled(
        lambda: way(torch.compile(model), images, lambda: autocast(about), sizes[0]), lambda run: [run(), run()]
    )
    ways += [("compiled", quick)] if quick else []
    median, best, how = best_of(ways, clock, float(about["seconds"]))
    return how, median, best, [t["checkpoint.logits"]], [theirs]
