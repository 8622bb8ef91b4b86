"""The chart of `./dev bench`: bars a shape, ours beside the peers, as shares of what the machine can do. An SVG without
scripts that follows the reader's light or dark theme. Text has a rim in the colour of the page, so that the lines of
the scale do not cross it."""
from xml.sax.saxutils import escape

WIDTH, MARGIN, LABELS, GAP = 1120, 32, 128, 28  # of the page, its border, the names of shapes, between panels
ROOM = 104  # right of the bars, for the numbers of the longest
BAR, BETWEEN, GROUP, SECTION = 10, 3, 11, 40  # heights: a bar, bars of a group, groups, the title of a pass
PASSES = {
    "forward": "Forward",
    "backward": "Backward",
    "decode": "Decode: a token at a time, bound by reading keys and values",
    "gemm": "Matrix products of the layers",
    "layer": "The multi-head layer",
    "train": "Training a Vision Transformer, a step",
    "infer": "A Vision Transformer at work",
    "prompt": "Language models: the pass over a prompt",
    "generate": "Language models: a new token, bound by reading weights",
}
RATES = {"images_per_s": "img/s", "tokens_per_s": "tok/s"}
TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}

STYLE = """
text { font-family: system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Helvetica, Arial, sans-serif;
       font-size: 12px; fill: #1f2328;
       stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; paint-order: stroke; }
.page { fill: #ffffff; } .grid { stroke: #e4e8ee; } .limit { stroke: #8c96a3; stroke-dasharray: 3 3; }
.title { font-size: 22px; font-weight: 650; } .panel { font-size: 14px; font-weight: 650; } .pass { font-weight: 650; }
.soft { fill: #5b6673; } .small { font-size: 10.5px; } .own { font-weight: 650; }
.mha { fill: #2f6fed; } .openblas, .loop { fill: #aab4c2; } .torch { fill: #f0825a; }
.llama { fill: #7d5bc4; } .onnx { fill: #2f9e6e; }
"""
DARK = """
text { fill: #e6edf3; stroke: #0d1117; } .page { fill: #0d1117; } .grid { stroke: #232a33; } .limit { stroke: #6e7885; }
.soft { fill: #98a4b1; } .mha { fill: #5c96ff; } .openblas, .loop { fill: #566170; } .torch { fill: #e8744c; } .llama { fill: #a78be0; }
.onnx { fill: #4fc08d; }
"""


def text(x, y, words, kind="", anchor="start"):
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{place}>{escape(words)}</text>'


def bar(x, y, width, kind, hint):
    """Square where it starts, rounded where it ends."""
    r = min(2.5, width / 2)
    path = f"M{x:.1f} {y:.1f}h{width - r:.2f}q{r} 0 {r} {r}v{BAR - 2 * r}q0 {r} {-r} {r}h{-(width - r):.2f}z"
    return f'<path class="{kind}" d="{path}"><title>{escape(hint)}</title></path>'


def milliseconds(ms):
    return f"{ms:.3f} ms" if ms < 1 else f"{ms:.2f} ms" if ms < 10 else f"{ms:.1f} ms" if ms < 100 else f"{ms:,.0f} ms"


def bars_of(row):
    """(kind, name, milliseconds, percent of the limit) of ours and of each peer that was timed. OpenBLAS computes in
    float32 whatever the type, so it stands in that panel alone."""
    percent = row.get("percent_of_bandwidth", row.get("percent_of_peak"))
    if percent is None:
        return []
    own = row["ms_median"]
    found = [("mha", "mha", own, percent)]
    if row.get("peer_ms") and row["type"] == "f32":
        found.append((row["peer"], row["peer"], row["peer_ms"], percent * own / row["peer_ms"]))
    for kind, name in (("torch", "torch"), ("llama", "llama.cpp"), ("onnx", "onnxruntime")):
        theirs = row.get(kind, {}).get("ms_median")
        if theirs:
            found.append((kind, name, theirs, percent * own / theirs))
    return found


def ticks(most):
    """The scale's end and its steps, in percent: at least up to the limit, and in round numbers beyond it."""
    step = next(s for s in (25, 50, 100, 200, 500, 1000, 10**9) if most <= 5 * s or s == 10**9)
    end = max(100, -(-int(most + 0.999) // step) * step)
    return end, list(range(0, end + 1, step))


def draw_group(x, y, scale, row):
    parts = []
    for kind, name, ms, percent in bars_of(row):
        width = max(1.0, percent * scale)
        hint = f"{row['shape']} {row['pass']}, {name}: {milliseconds(ms)}, {percent:.0f} %"
        parts.append(bar(x, y, width, kind, hint))
        if kind == "mha":
            rates = [f"{row[key]:,.0f} {unit}" for key, unit in RATES.items() if key in row]
            speed = rates[0] if rates else milliseconds(ms)
            label = text(x + width + 6, y + BAR - 1, f"{percent:.0f} % · {speed}", "small own")
        else:
            label = text(x + width + 6, y + BAR - 1, f"{ms / row['ms_median']:.2f}× our time", "small soft")
        parts.append(label)
        y += BAR + BETWEEN
    return parts


def draw_scale(x, top, bottom, width, steps, end):
    parts = []
    for step in steps:
        at = x + width * step / end
        kind = "limit" if step == 100 else "grid"
        parts.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
        parts.append(text(at, bottom + 16, f"{step} %", "small soft", "middle"))
    return parts


def layout(rows):
    """Where things stand, the same in every panel: [(pass, y)], {(pass, shape): y}, and the end."""
    y, titles, places = 0, [], {}
    for which in PASSES:
        shapes = list(dict.fromkeys(row["shape"] for row in rows if row["pass"] == which))
        if not shapes:
            continue
        titles.append((which, y + 24))
        y += SECTION
        for shape in shapes:
            count = max(len(bars_of(r)) for r in rows if (r["pass"], r["shape"]) == (which, shape))
            places[which, shape] = y, count
            y += count * (BAR + BETWEEN) - BETWEEN + GROUP
    return titles, places, y


def draw_panel(x, top, width, rows, places, height):
    end, steps = ticks(max((bar[3] for row in rows for bar in bars_of(row)), default=100))
    parts = draw_scale(x, top + 8, top + height, width, steps, end)
    for row in rows:
        y, _ = places[row["pass"], row["shape"]]
        parts += draw_group(x, top + y, width / end, row)
    return parts


def draw_legend(y, kinds):
    names = {"mha": "mha", "torch": "PyTorch", "llama": "llama.cpp", "onnx": "onnxruntime"}
    names.update({"openblas": "unfused over OpenBLAS", "loop": "unfused, plain loops"})
    parts, x = [], MARGIN
    for kind in (k for k in names if k in kinds):
        parts.append(f'<rect class="{kind}" x="{x}" y="{y - 9}" width="22" height="{BAR}" rx="2.5"/>')
        parts.append(text(x + 28, y, names[kind]))
        x += 54 + int(6.2 * len(names[kind]))
    parts.append(f'<line class="limit" x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}"/>')
    parts.append(text(x + 28, y, "what the machine can do, measured in the same run"))
    return parts


def limits(rows):
    peaks = {}
    for row in rows:
        peaks[row["type"]] = max(peaks.get(row["type"], 0), row.get("peak_gflops") or 0)
    peak = max(peaks.values(), default=0)
    multiplied = " and ".join(f"{most:,.0f} in {kind}" for kind, most in peaks.items() if most)
    read = max((row.get("bandwidth_gb_per_s") or 0 for row in rows), default=0)
    said = [f"{multiplied} GFLOP/s of multiply-adds"] * (peak > 0) + [f"{read:,.0f} GB/s read"] * (read > 0)
    return "100 % = " + ", or for decode ".join(said) if peak else "100 % = " + said[0] if said else ""


def draw(rows, about):
    types = list(dict.fromkeys(row["type"] for row in rows))
    titles, places, height = layout(rows)
    top, panel = 152, (WIDTH - 2 * MARGIN - LABELS - GAP * (len(types) - 1)) / len(types)
    whole = top + height + 56
    threads = f"{about['threads']} thread{'s' if about['threads'] > 1 else ''}"
    peers = "; ".join(words for words in (about[key] for key in ("peer", "torch", "llama", "onnx")) if words)
    parts = [f'<rect class="page" width="{WIDTH}" height="{whole}" rx="12"/>']
    parts.append(text(MARGIN, 46, f"mha {about['version']} on {about['machine']}", "title"))
    parts.append(text(MARGIN, 70, f"{about['date']}  ·  {about['isa']}  ·  {threads}  ·  {limits(rows)}", "soft"))
    parts += draw_legend(100, {bar[0] for row in rows for bar in bars_of(row)})
    for (_, shape), (y, count) in places.items():
        middle = (count * (BAR + BETWEEN) - BETWEEN) / 2
        parts.append(text(MARGIN + LABELS - 14, top + y + middle + 4, shape, "", "end"))
    for number, dtype in enumerate(types):
        x = MARGIN + LABELS + number * (panel + GAP)
        parts.append(text(x, top - 10, TYPES[dtype], "panel"))
        parts += draw_panel(x, top, panel - ROOM, [row for row in rows if row["type"] == dtype], places, height)
    for which, y in titles:
        parts.append(text(MARGIN, top + y, PASSES[which], "pass"))
    parts.append(text(MARGIN, whole - 14, f"Share of the limit; longer is faster. {peers}", "small soft"))
    alt = f"mha and its peers on {about['machine']}, {about['date']}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" width="{WIDTH}" height="{whole}" '
        f'role="img">'
        f"<title>{escape(alt)}</title>\n<style>{STYLE}@media (prefers-color-scheme: dark) {{{DARK}}}\n</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )
