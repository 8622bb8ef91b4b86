"""The whole table, for `./dev bench`: every measurement of `mha bench` with its peers beside it in the same run.

    python3 report.py MHA PYTHON [ARG...]      PYTHON: one that can import torch, or ''; ARGs go to `mha bench`

Measurements take turns: ours and OpenBLAS's in one process, then PyTorch's on the arrays that the first one saved, so
that nothing runs beside what is timed. With --device cuda PyTorch's part is cuda_beside.py, which times our kernels again, in
turns with those of PyTorch's backends, and there is no chart. Leaves, in the folder of MHA, bench.json (a line a measurement), bench.md
(tables) and bench.svg. `--page FILE` also puts the tables into a page such as docs/speed/numbers.md. Exit 1 if results differ, 2 on
wrong use."""
import datetime
import json
import math
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile

import chart
from peers import llama_peer

HERE = pathlib.Path(__file__).parent
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2, "f16": 5e-3}  # of the largest value, as in bench/arrays.c
ONNX_TOLERANCE = {"f32": 1e-4, "f16": 4e-2}  # it adds up in float16
TORCH_PATIENCE = 60  # seconds: some versions multiply 16-bit numbers one by one
MODEL_PATIENCE = 150  # torch_vit.py lets a model be compiled
ONNX_PATIENCE = 600  # it gets a copy of the weights
NAMES = {"llama": "llama.cpp", "onnx": "onnxruntime", "torch": "torch"}  # of peers, by the key of their answers


class Torch:
    """The process of torch_peer.py or, for a GPU, of cuda_beside.py. One that takes too long is ended, and the next question
    starts another."""

    def __init__(self, python, build=None):
        """`build`: the folder of our library, for a GPU."""
        self.python, self.process = python, None
        self.script = ["cuda_beside.py", "answer", build] if build else ["peers/torch_peer.py"]

    def ask(self, path, patience):
        if not self.python:
            return {}
        if not self.process:
            self.process = subprocess.Popen(
                [self.python, "-B", HERE / self.script[0], *self.script[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        line = ""
        if select.select([self.process.stdout], [], [], patience)[0]:
            line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.close()
        return {"peer": "torch", "error": f"no answer within {patience} s"}

    def close(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
        self.process = None


def ask_onnx(python, path):
    """The answer of onnx_peer.py."""
    command = [python or "python3", "-B", HERE / "peers/onnx_peer.py", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ONNX_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {ONNX_PATIENCE} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    return json.loads(done.stdout)


def fail(message):
    print(f"dev: {message}", file=sys.stderr)
    sys.exit(2)


def progress(text):
    """What is being measured, on a terminal; the next row of the table takes its place."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def run_mha(mha, *args):
    """What it printed; its exit status ours if it cannot go on."""
    done = subprocess.run([mha, *args], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 2 or (done.returncode and not done.stdout):
        progress("")
        sys.exit(done.returncode)
    return done.stdout, done.returncode


def take_option(args, name):
    """The value of an option, which is taken out of args; None if it is not there."""
    if name not in args[:-1]:
        return None
    at = args.index(name)
    value = args[at + 1]
    del args[at : at + 2]
    return value


def is_gpu(args):
    """Whether they choose a device other than the CPU."""
    given = [args[n + 1] for n, word in enumerate(args[:-1]) if word == "--device"]
    given += [word.split("=", 1)[1] for word in args if word.startswith("--device=")]
    return bool(given) and given[-1] != "cpu"


# ---- Measuring ----------------------------------------------------------------------------------------------------


class Report:
    def __init__(self, mha, python, args):
        self.as_json = "--json" in args
        self.args = [word for word in args if word != "--json"]
        chosen = take_option(self.args, "--dtype")
        self.gpu = is_gpu(self.args)
        self.dtypes = [chosen] if chosen else ["bf16"] if self.gpu else ["f32", "bf16"]
        self.mha, self.folder = mha, pathlib.Path(mha).parent
        self.torch = Torch(python, self.folder if self.gpu else None)
        self.rows, self.failures, self.remarks = [], 0, {}

    def jobs(self):
        """Pairs of pass and shape; also where wrong use shows before anything is measured."""
        listed, _ = run_mha(self.mha, "bench", "--list", "--dtype", self.dtypes[0], *self.args)
        return [line.split() for line in listed.splitlines()]

    def float32_peer(self, row):
        """OpenBLAS computes in float32 whatever the type: its time is known where float32 has been measured."""
        for other in self.rows:
            if (other["pass"], other["shape"]) == (row["pass"], row["shape"]) and other.get("peer"):
                return {key: other[key] for key in ("peer", "peer_version", "peer_ms")}
        return {}

    def measure(self, folder, dtype, which, shape):
        progress(f"{shape} {which} {dtype} ...")
        args = ["--dtype", dtype, *self.args, "--pass", which, "--shape", shape]
        peer = self.float32_peer({"pass": which, "shape": shape}) if "--peer" not in self.args else {}
        args += ["--peer", "none"] if peer else []
        args += ["--save", folder] if self.torch.python or is_language(which) else []
        printed, status = run_mha(self.mha, "bench", "--json", *args)
        self.failures += status != 0
        row = {**json.loads(printed), **peer, "type": dtype}
        path = os.path.join(folder, f"{which}-{shape}-{dtype}.safetensors")
        model = "images_per_s" in row or "tokens_per_s" in row
        row["torch"] = self.torch.ask(path, MODEL_PATIENCE if model else TORCH_PATIENCE)
        if is_language(which):
            row["llama"], row["onnx"] = llama_peer.ask(path), ask_onnx(self.torch.python, path)
        if os.path.exists(path):
            os.remove(path)
        self.compare(row)
        self.rows.append(row)
        progress("")
        return row

    def compare(self, row):
        """Results that differ are a failure; what a peer could not do is a remark."""
        where = f"{row['shape']} {row['pass']} {row['type']}"
        for key, name in NAMES.items():
            said = row.get(key, {})
            tolerance = ONNX_TOLERANCE if key == "onnx" else TOLERANCE
            if "error" in said:
                self.remarks.setdefault(f"{name}: {said['error']}", []).append(where)
            elif "difference" in said and not said["difference"] <= tolerance[row["type"]]:
                print(f"dev: {where} differs from {name} by {said['difference']:.2g}", file=sys.stderr)
                self.failures += 1
                if not math.isfinite(said["difference"]):
                    said["difference"] = None

    def run(self):
        jobs = self.jobs()
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=self.folder)
        with temporary as folder, open(self.folder / "bench.json", "w", encoding="utf-8") as numbers:
            for dtype in self.dtypes:
                before = None
                for which, shape in jobs:
                    row = self.measure(folder, dtype, which, shape)
                    print(json.dumps(row), file=numbers, flush=True)
                    if self.as_json:
                        print(json.dumps(row), flush=True)
                        continue
                    if before != is_language(which):
                        (print_gpu_head if self.gpu else print_head)(row, self.torch.python)
                    before = is_language(which)
                    (print_gpu_row if self.gpu else print_row)(row)
        self.torch.close()


# ---- The table ----------------------------------------------------------------------------------------------------


def ratio(ms, row):
    if not ms:
        return "-"
    times = ms / row["ms_median"]
    return f"{times:.2f}x" if times < 100 else f"{min(times, 9999):.0f}x"


def is_language(which):
    return which in ("prompt", "generate")


def columns(row):
    """(title, milliseconds) of the peers of a row."""
    keys = ["llama", "onnx"] if is_language(row["pass"]) else []
    first = [] if keys else [(row.get("peer", "peer"), row.get("peer_ms"))]
    return first + [(key, row[key].get("ms_median")) for key in [*keys, "torch"]]


def line(row, cells):
    """A line of the table: a language model has a short name and one peer more."""
    widths = "%-12s%-9s%9s%8s%13s%7s%7s%7s%8s" if is_language(row["pass"]) else "%-15s%-9s%10s%8s%13s%9s%7s%9s"
    return widths % tuple(cells)


def plural(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def print_head(row, python):
    print(f"\n{row['isa']}, {row['dtype']}, {plural(row['threads'])}")
    titles = [title if title != "torch" or python else "" for title, _ in columns(row)]
    print("\n" + line(row, ["shape", "pass", "ms", "rate", "of limit", *titles, "error"]))


def rate(row):
    if "images_per_s" in row:
        return row["images_per_s"], "img/s"
    if "tokens_per_s" in row:
        return row["tokens_per_s"], "tok/s"
    return (row["gb_per_s"], "GB/s") if "gb_per_s" in row else (row["gflops"], "GF/s")


def share(row):
    """Percent of the limit, as a number or None."""
    return row.get("percent_of_bandwidth", row.get("percent_of_peak"))


def error_of(row):
    return f"{row['max_error']:.1e}" if row["max_error"] is not None else "-"


def print_row(row):
    speed, unit = rate(row)
    digits = 2 if is_language(row["pass"]) else 3
    ratios = [ratio(ms, row) if title != "torch" or row["torch"] else "" for title, ms in columns(row)]
    cells = [row["shape"], row["pass"], f"{row['ms_median']:.{digits}f}", f"{speed:.1f}"]
    print(line(row, [*cells, f" {unit:<5}{share(row):>5.0f} %", *ratios, error_of(row)]), flush=True)


BACKENDS = ("cudnn", "flash", "efficient")


def print_gpu_head(row, python):
    peers = ("cudnn", "flash", "effic.") if python else ("", "", "")
    print(f"\n{row['isa']}, {row['dtype']}")
    print("\n%-15s%-9s%9s%7s%10s%7s%7s%7s%9s" % ("shape", "pass", "ms", "rate", "of limit", *peers, "error"))


def beside(row, backend):
    """The time of a backend of PyTorch divided by ours, both measured in turns."""
    ms = row["torch"].get("ms", {})
    return f"{ms[backend] / ms['mha']:.2f}x" if backend in ms and "mha" in ms else "-"


def print_gpu_row(row):
    speed, unit = rate(row)
    speed, unit = (speed / 1e3, unit.replace("G", "T"))
    ratios = [beside(row, backend) if row["torch"] else "" for backend in BACKENDS]
    cells = (row["shape"], row["pass"], row["ms_median"], speed, unit, f"{share(row):.0f}%", *ratios, error_of(row))
    print("%-15s%-9s%9.4f%7.2f %-4s%5s%7s%7s%7s%9s" % cells, flush=True)


def largest(numbers):
    return max((n for n in numbers if n is not None), default=None)


def print_gpu_foot(report, about):
    rows = report.rows
    clocks = [row["sm_mhz"] for row in rows if row.get("sm_mhz")]
    print(f"\n{about['machine']}, {about['date']}")
    if clocks:
        print(f"Clock while measured: {min(clocks):.0f} to {max(clocks):.0f} MHz")
    if about["torch"]:
        print(f"Peer: {about['torch']}\n2.00x: the peer takes twice our time. CUDA graphs, replayed in turns.")
    off = largest(row["torch"].get("difference") for row in rows)
    if off is not None:
        print(f"Largest difference: torch {off:.1e}")
    for remark, where in report.remarks.items():
        print(f"{len(where)} of {len(rows)} without {remark}"[:80])


def print_foot(report, about):
    rows = report.rows
    peaks = {dtype: largest(row.get("peak_gflops") for row in rows if row["type"] == dtype) for dtype in report.dtypes}
    read = largest(row.get("bandwidth_gb_per_s") for row in rows)
    said = [f"{peak:.0f} GFLOP/s {dtype}" for dtype, peak in peaks.items() if peak]
    said += [f"{read:.0f} GB/s read"] if read else []
    print(f"\n{about['machine']}, {about['date']}\nLimits, measured in the same run: {', '.join(said)}")
    for text in (about["peer"], about["torch"], about["llama"], about["onnx"]):
        if text:
            print(f"Peer: {text}")
    print("2.00x: the peer takes twice our time. OpenBLAS and loops compute in float32.")
    off = largest(row.get("peer_error") for row in rows)
    told = [f"{about['peer'].split()[0]} {off:.1e}"] if off is not None and about["peer"] else []
    for dtype in report.dtypes:
        worst = largest(row["torch"].get("difference") for row in rows if row["type"] == dtype)
        told += [f"torch {dtype} {worst:.1e}"] if worst is not None else []
        worst = largest(row.get("onnx", {}).get("difference") for row in rows if row["type"] == dtype)
        told += [f"onnxruntime {dtype} {worst:.1e}"] if worst is not None else []
    if told:
        print("Largest differences: " + ", ".join(told))
    for remark, where in report.remarks.items():
        print(f"{len(where)} of {len(rows)} without {remark}"[:80])


# ---- Files --------------------------------------------------------------------------------------------------------


def describe(report):
    """The machine, the date and the peers, in words."""
    info = json.loads(run_mha(report.mha, "info", "--json")[0])
    row = report.rows[0]
    torch = next((r["torch"] for r in report.rows if "how" in r["torch"]), None)
    hows = [r["torch"].get("how", "") for r in report.rows]
    compiled = ", models compiled" if "compiled" in hows else ""
    cudnn = f", cuDNN {torch['cudnn']}" if torch and torch.get("cudnn") else ""
    gpu = next((g["description"] for g in info["gpus"]), "") if report.gpu else ""
    llama = next((r["llama"] for r in report.rows if "version" in r.get("llama", {})), None)
    onnx = next((r["onnx"] for r in report.rows if "ms_median" in r.get("onnx", {})), None)
    peer = {"openblas": f"OpenBLAS {row.get('peer_version')}", "loop": "loop, plain C, since OpenBLAS is not here"}
    return {
        "machine": gpu or info["processor"],
        "date": datetime.date.today().isoformat(),
        "isa": row["isa"],
        "threads": row.get("threads"),
        "version": info["version"],
        "peer": "" if is_language(row["pass"]) else peer.get(row.get("peer"), ""),
        "torch": f"PyTorch {torch['version']}{compiled}{cudnn}" if torch else "",
        "llama": f"llama.cpp {llama['version']}" if llama else "",
        "onnx": f"onnxruntime {onnx['version']}" if onnx else "",
    }


def tables(report, about):
    """Markdown, a section for each type of numbers; `put_into` takes it over into docs/speed/numbers.md."""
    lines = []
    for dtype in report.dtypes:
        lines.append(f"## {dtype}, {plural(about['threads'])}, {about['isa']}, {about['machine']} ({about['date']})\n")
        peers = [about[key] for key in ("peer", "llama", "onnx", "torch") if about[key]]
        lines.append(f"Peers: {'; '.join(peers) or 'none'}. Ratio = peer / mha.\n")
        before = None
        for row in (r for r in report.rows if r["type"] == dtype):
            titles = [title for title, _ in columns(row)]
            if titles != before:
                lines += [""] if before else []
                lines.append(f"| pass | shape | mha ms | rate | of limit | {' | '.join(titles)} | error |")
                lines.append("|---|---|---|---|---|" + "---|" * len(titles) + "---|")
            before = titles
            speed, unit = rate(row)
            ratios = " | ".join(ratio(ms, row) for _, ms in columns(row))
            lines.append(
                f"| {row['pass']} | {row['shape']} | {row['ms_median']:.4g} | {speed:.1f} {unit} "
                f"| {share(row):.0f} % | {ratios} | {error_of(row)} |"
            )
        lines.append("")
    return "\n".join(lines)


def gpu_tables(report, about):
    """The same for a GPU."""
    lines = [f"## {report.dtypes[0]}, {about['machine']} ({about['date']})\n"]
    lines.append(f"{about['torch'] or 'No PyTorch'}, as CUDA graphs in turns. Ratio = peer / mha.\n")
    lines.append("| pass | shape | mha ms | rate | of limit | cudnn | flash | efficient | error |")
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for row in report.rows:
        speed, unit = rate(row)
        ratios = " | ".join(beside(row, backend) for backend in BACKENDS)
        lines.append(
            f"| {row['pass']} | {row['shape']} | {row['ms_median']:.4g} | {speed / 1e3:.2f} {unit.replace('G', 'T')} "
            f"| {share(row):.0f} % | {ratios} | {error_of(row)} |"
        )
    return "\n".join(lines) + "\n"


def put_into(page, text):
    """Puts the sections of `text` into the page: in place of one with the same heading of any date, or at its end."""
    split = lambda markdown: re.split(r"^(?=## )", markdown, flags=re.MULTILINE)
    name = lambda section: re.sub(r" \([-\d]+\)$", "", section.partition("\n")[0])
    sections = split(page.read_text(encoding="utf-8"))
    for new in split(text)[1:]:
        at = next((i for i, old in enumerate(sections) if name(old) == name(new)), len(sections))
        sections[at : at + 1] = [new]
    page.write_text("\n\n".join(section.rstrip("\n") for section in sections) + "\n", encoding="utf-8")


def main():
    mha, python, *args = sys.argv[1:]
    page = None
    if "--page" in args:
        at = args.index("--page")
        if len(args) < at + 2 or not pathlib.Path(args[at + 1]).is_file():
            fail("bench: --page takes the path of a Markdown file")
        page = pathlib.Path(args[at + 1])
        del args[at : at + 2]
    if "--help" in args or "-h" in args or "--list" in args:
        os.execv(mha, [mha, "bench", *args])
    if "scaling" in args or "--pass=scaling" in args:  # which has no peers but those of mha bench, and a chart of its own
        drawing = pathlib.Path(mha).parent / "scaling.svg"
        drawn = [] if "-o" in args or "--json" in args else ["-o", str(drawing)]
        os.execv(mha, [mha, "bench", *args, *drawn])
    if "--save" in args:
        fail("bench: --save is for build/mha bench; here the arrays are handed to the peers")
    report = Report(mha, python, args)
    try:
        report.run()
    except KeyboardInterrupt:
        report.torch.close()
        sys.exit(130)
    about = describe(report)
    folder = report.folder
    text = (gpu_tables if report.gpu else tables)(report, about)
    (folder / "bench.md").write_text(text, encoding="utf-8")
    if page and not report.failures:
        put_into(page, text)
    if not report.gpu:
        (folder / "bench.svg").write_text(chart.draw(report.rows, about), encoding="utf-8")
    if not report.as_json:
        (print_gpu_foot if report.gpu else print_foot)(report, about)
    sys.stdout.flush()
    drawn = "tables in" if report.gpu else f"drawn in {folder}/bench.svg; tables in"
    print(f"dev: {drawn} {folder}/bench.md, numbers in bench.json beside it", file=sys.stderr)
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
