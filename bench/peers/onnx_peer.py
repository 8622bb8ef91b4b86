"""onnxruntime on the language models of `mha bench --pass generate` and `--pass prompt`: writes the weights of a saved
file as an ONNX graph of its fused operators (GroupQueryAttention over a cache of a fixed size, which it fills in place)
and times it on the saved prompt. Prints one JSON object like those of torch_peer.py.

    python3 onnx_peer.py FILE      FILE: of `mha bench --save`; exit 3 if onnxruntime, onnx or numpy is not installed"""
import json
import math
import os
import sys
import tempfile
import time

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as problem:
    print(f"{problem.name} is not installed", file=sys.stderr)
    sys.exit(3)

import llama_peer

STORED = {"F32": numpy.float32, "F16": numpy.float16, "I32": numpy.int32}
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
KINDS = {"f32": (FLOAT, numpy.float32), "f16": (HALF, numpy.float16)}  # its CPU operators have no bfloat16
MICROSOFT = "com.microsoft"


class Graph:
    """The nodes of a graph, and its weights, which come from the tensors of the saved file."""

    def __init__(self, tensors, kind):
        self.tensors, (self.kind, self.dtype) = tensors, kind
        self.nodes, self.weights = [], []

    def weight(self, *names, swap=False, rows=None):
        """One or more tensors of the file as one matrix of a product, (in, out); or a vector."""
        found = [self.tensors[name] if rows is None else self.tensors[name][:rows] for name in names]
        value = numpy.concatenate([x.T if swap else x for x in found], axis=-1)
        self.weights.append(onnx.numpy_helper.from_array(numpy.ascontiguousarray(value, self.dtype), "+".join(names)))
        return self.weights[-1].name

    def constant(self, name, value):
        self.weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def add(self, op, inputs, outputs=1, domain="", **settings):
        """Returns the name of the first output, or of the outputs whose places are listed."""
        places = [0] if outputs == 1 else outputs
        made = [f"{op}{len(self.nodes)}.{n}" if n in places else "" for n in range(max(places) + 1)]
        self.nodes.append(onnx.helper.make_node(op, inputs, made, domain=domain, **settings))
        return made[0] if outputs == 1 else [made[n] for n in places]


def attention(g, block, qkv, shape, rotary):
    """Over the cache of the block, which the new keys and values are appended to."""
    inputs = [qkv, "", "", f"past.{block}.key", f"past.{block}.value", "last", "total", *rotary]
    made = g.add("GroupQueryAttention", inputs, [0], MICROSOFT, num_heads=shape["heads"],
                 kv_num_heads=shape["kv_heads"], do_rotary=int(bool(rotary)))
    g.nodes[-1].output.extend([f"present.{block}.key", f"present.{block}.value"])
    return made[0]


def llama(g, config, room):
    shape = {"blocks": config["num_hidden_layers"], "heads": config["num_attention_heads"],
             "kv_heads": config["num_key_value_heads"], "width": config["hidden_size"] // config["num_attention_heads"]}
    epsilon = {"epsilon": config["rms_norm_eps"]}
    angles = numpy.arange(room)[:, None] * config["rope_theta"] ** (-numpy.arange(0, shape["width"], 2) / shape["width"])
    rotary = [g.constant(name, f(angles).astype(g.dtype)) for name, f in (("cos", numpy.cos), ("sin", numpy.sin))]
    x = g.add("Gather", [g.weight("model.embed_tokens.weight"), "tokens"])
    norm = g.add("SimplifiedLayerNormalization", [x, g.weight("model.layers.0.input_layernorm.weight")], **epsilon)
    for n in range(shape["blocks"]):
        at = f"model.layers.{n}."
        after = f"model.layers.{n + 1}.input_layernorm.weight" if n + 1 < shape["blocks"] else "model.norm.weight"
        qkv = g.weight(*(f"{at}self_attn.{c}_proj.weight" for c in "qkv"), swap=True)
        y = attention(g, n, g.add("MatMul", [norm, qkv]), shape, rotary)
        y = g.add("MatMul", [y, g.weight(f"{at}self_attn.o_proj.weight", swap=True)])
        gain = g.weight(f"{at}post_attention_layernorm.weight")
        norm, x = g.add("SkipSimplifiedLayerNormalization", [x, y, gain], [0, 3], MICROSOFT, **epsilon)
        gate, up = (g.add("MatMul", [norm, g.weight(f"{at}mlp.{c}_proj.weight", swap=True)]) for c in ("gate", "up"))
        y = g.add("Mul", [g.add("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0), up])
        y = g.add("MatMul", [y, g.weight(f"{at}mlp.down_proj.weight", swap=True)])
        norm, x = g.add("SkipSimplifiedLayerNormalization", [x, y, g.weight(after)], [0, 3], MICROSOFT, **epsilon)
    return shape, norm, "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"


def gpt2(g, config, room):
    shape = {"blocks": config["n_layer"], "heads": config["n_head"], "kv_heads": config["n_head"],
             "width": config["n_embd"] // config["n_head"]}
    epsilon = {"epsilon": config.get("layer_norm_epsilon", 1e-5)}

    def both(name):
        return [g.weight(f"{name}.weight"), g.weight(f"{name}.bias")]

    def linear(x, name):
        weight, bias = both(name)
        return g.add("MatMul", [x, weight]), bias

    x = g.add("Gather", [g.weight("transformer.wte.weight"), "tokens"])
    x = g.add("Add", [x, g.add("Gather", [g.weight("transformer.wpe.weight", rows=room), "positions"])])
    norm = g.add("LayerNormalization", [x, *both("transformer.h.0.ln_1")], **epsilon)
    for n in range(shape["blocks"]):
        at = f"transformer.h.{n}"
        after = f"transformer.h.{n + 1}.ln_1" if n + 1 < shape["blocks"] else "transformer.ln_f"
        y = attention(g, n, g.add("Add", linear(norm, f"{at}.attn.c_attn")), shape, [])
        y, bias = linear(y, f"{at}.attn.c_proj")
        norm, x = g.add("SkipLayerNormalization", [x, y, *both(f"{at}.ln_2"), bias], [0, 3], MICROSOFT, **epsilon)
        y = g.add("FastGelu", linear(norm, f"{at}.mlp.c_fc"), domain=MICROSOFT)
        y, bias = linear(y, f"{at}.mlp.c_proj")
        norm, x = g.add("SkipLayerNormalization", [x, y, *both(after), bias], [0, 3], MICROSOFT, **epsilon)
    return shape, norm, "transformer.wte.weight"


FAMILIES = {"llama": llama, "gpt2": gpt2}


def write_model(path, t, about, room):
    """The graph over 1 sequence: tokens, the cache and its length; the logits of the last token, and the cache."""
    config = json.loads(about["config"])
    g = Graph(t, KINDS[about["dtype"]])
    shape, x, table = FAMILIES[config["model_type"]](g, config, room)
    last = g.add("Gather", [x, g.constant("end", numpy.array(-1))], axis=1)
    head = g.weight(table, swap=True)
    g.weights[-1].name = "head"  # the table of tokens may be there as well
    g.nodes.append(onnx.helper.make_node("MatMul", [last, "head"], ["logits"]))
    value, cache = onnx.helper.make_tensor_value_info, [1, shape["kv_heads"], room, shape["width"]]
    names = [f"{n}.{part}" for n in range(shape["blocks"]) for part in ("key", "value")]
    whole = [("tokens", onnx.TensorProto.INT64, [1, "T"]), ("last", onnx.TensorProto.INT32, [1]),
             ("total", onnx.TensorProto.INT32, [1])]
    whole += [("positions", onnx.TensorProto.INT64, [1, "T"])] if config["model_type"] == "gpt2" else []
    inputs = [value(*entry) for entry in whole] + [value(f"past.{name}", g.kind, cache) for name in names]
    outputs = [value("logits", g.kind, [1, "vocabulary"])] + [value(f"present.{name}", g.kind, cache) for name in names]
    graph = onnx.helper.make_graph(g.nodes, "language", inputs, outputs, g.weights)
    versions = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location="weights")
    return names, cache


class Session:
    """The graph, and memory for its cache, which is the same before and after a step."""

    def __init__(self, path, threads, names, cache, dtype):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.wanted = {entry.name for entry in self.session.get_inputs()}
        self.names = names
        self.cache = [onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(cache, dtype)) for _ in names]

    def step(self, tokens, before):
        """The logits behind tokens (1, T), of which `before` tokens are in the cache."""
        total = before + tokens.shape[1]
        given = {"tokens": tokens, "last": numpy.array([total - 1], numpy.int32), "total": numpy.array([total], numpy.int32)}
        given["positions"] = numpy.arange(before, total)[None]
        binding = self.session.io_binding()
        binding.bind_output("logits")
        for name in self.wanted & given.keys():
            binding.bind_cpu_input(name, given[name])
        for name, value in zip(self.names, self.cache):
            binding.bind_ortvalue_input(f"past.{name}", value)
            binding.bind_ortvalue_output(f"present.{name}", value)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()[0]


def timed(run, seconds):
    """Median and best milliseconds of at least three runs, after one to warm up."""
    run()
    times, begun = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    return times[len(times) // 2], times[0]


def measure(session, tokens, count, prompt, seconds):
    if prompt:
        return timed(lambda: session.step(tokens, 0), seconds)

    def new_tokens():
        for n in range(count):
            new = session.step(new if n else first, tokens.shape[1] + n).argmax().reshape(1, 1)

    first = session.step(tokens, 0).argmax().reshape(1, 1)
    return [ms / count for ms in timed(new_tokens, seconds)]


def load(path):
    """The tensors of the file, mapped, by name."""
    _, header, begin = llama_peer.read_header(path)
    data = numpy.memmap(path, mode="r")
    return {name: data[begin + e["data_offsets"][0] : begin + e["data_offsets"][1]].view(STORED[e["dtype"]]).reshape(e["shape"])
            for name, e in header.items()}


def main():
    about = llama_peer.read_header(sys.argv[1])[0]
    said = {"peer": "onnxruntime", "version": onnxruntime.__version__}
    if about["dtype"] not in KINDS:
        print(json.dumps({**said, "error": f"its operators for CPUs do not take {about['dtype']}"}))
        return
    t = load(sys.argv[1])
    tokens, ours = t.pop("bench.prompt").astype(numpy.int64)[None], t.pop("bench.logits")
    count, room = int(about["tokens"]), int(about["prompt"]) + int(about["tokens"])
    with tempfile.TemporaryDirectory(dir=os.path.dirname(sys.argv[1])) as folder:
        names, cache = write_model(f"{folder}/model.onnx", t, about, room)
        t.clear()
        session = Session(f"{folder}/model.onnx", int(about["threads"]), names, cache, KINDS[about["dtype"]][1])
    theirs = session.step(tokens, 0).astype(numpy.float32)
    median, best = measure(session, tokens, count, about["pass"] == "prompt", float(about["seconds"]))
    worst = float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())
    said |= {"how": "GroupQueryAttention", "ms_median": median, "ms_best": best}
    print(json.dumps({**said, "difference": worst if math.isfinite(worst) else math.inf}))


if __name__ == "__main__":
    main()
