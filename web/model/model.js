/* The Vision Transformer, computed in the browser.
 *
 *     x = [class token] + patches Wp^T + bp + positions
 *     x = x + attention(norm1(x));  x = x + mlp(norm2(x))    or, with post-norm, x = norm1(x + attention(x)) ..
 *     logits = (class token, or mean of the tokens, of norm(x)) Wh^T + bh
 *
 * Sums are computed in float64, JavaScript's number type, and stored in float32, so logits agree with the library's to
 * about 1e-5. Weight matrices are (outputs, inputs), as in the file; `linearRows` processes four rows at a time, so
 * that each input is loaded once for four sums: one image of the demo's model takes about 20 ms.
 *
 * A head that is switched off has gate 0: its part of concat(heads) is zero, as in the library and in pruning. */

/* Base64 to bytes. atob returns one character per byte. */
function decodeBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/* Little-endian float32 numbers; byte-swapped on big-endian machines. */
function decodeFloats(text) {
  const bytes = decodeBase64(text);
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(bytes.buffer);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({length: bytes.length / 4}, (_, i) => view.getFloat32(4 * i, true));
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

function loadModel(data) {
  const config = data.config, all = decodeFloats(data.parameters.data), parts = new Map();
  for (const part of data.parameters.parts) {
    const count = part.shape.reduce((product, size) => product * size, 1);
    parts.set(part.name, all.subarray(part.first, part.first + count));
  }
  const across = config.columns / config.patch, down = config.rows / config.patch;
  const first = config.pool === 'cls' ? 1 : 0;
  const part = (name) => parts.get(name) || null;
  return {
    config, part, across, down, first,
    patches: across * down,
    tokens: across * down + first,
    input: data.input || {mean: 0, deviation: 1},
    blocks: Array.from({length: config.depth}, (_, b) => blockParts(config, part, b)),
  };
}

function blockParts(config, part, b) {
  const of = (name) => part('blocks.' + b + '.' + name);
  return {
    heads: config.heads[b],
    groups: config.kv_heads[b],
    norm1: {gain: of('norm1.weight'), bias: of('norm1.bias')},
    norm2: {gain: of('norm2.weight'), bias: of('norm2.bias')},
    qkv: {weight: of('attn.qkv.weight'), bias: of('attn.qkv.bias')},
    proj: {weight: of('attn.proj.weight'), bias: of('attn.proj.bias')},
    fc1: {weight: of('mlp.fc1.weight'), bias: of('mlp.fc1.bias')},
    fc2: {weight: of('mlp.fc2.weight'), bias: of('mlp.fc2.bias')},
  };
}

/* All heads on. */
function openGates(model) {
  return model.blocks.map((block) => new Float32Array(block.heads).fill(1));
}

/* A copy of gates with the results of `change(gate, block, head)`. */
function changeGates(gates, change) {
  return gates.map((row, b) => row.map((gate, h) => change(gate, b, h)));
}

/* The row and column of token t among the patches; null for the class token. */
function tokenPlace(model, t) {
  const n = t - model.first;
  return n < 0 ? null : {row: Math.floor(n / model.across), column: n % model.across};
}

/* The patch at the centre of the image. */
function middleToken(model) {
  return model.first + Math.floor(model.down / 2) * model.across + Math.floor(model.across / 2);
}

/* Rows and columns count from 1, as blocks and heads do. */
function tokenName(model, t) {
  const place = tokenPlace(model, t);
  return place ? `row ${place.row + 1}, column ${place.column + 1}` : 'the class token';
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* y (rows,outputs) = x (rows,inputs) W^T + b. */
function linearRows(x, rows, inputs, {weight, bias}, outputs) {
  const y = new Float32Array(rows * outputs);
  for (let r = 0; r < rows; r++) {
    const from = r * inputs, to = r * outputs;
    let o = 0;
    for (; o + 4 <= outputs; o += 4) {
      const w0 = o * inputs, w1 = w0 + inputs, w2 = w1 + inputs, w3 = w2 + inputs;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let i = 0; i < inputs; i++) {
        const value = x[from + i];
        s0 += value * weight[w0 + i];
        s1 += value * weight[w1 + i];
        s2 += value * weight[w2 + i];
        s3 += value * weight[w3 + i];
      }
      y[to + o] = s0 + (bias ? bias[o] : 0);
      y[to + o + 1] = s1 + (bias ? bias[o + 1] : 0);
      y[to + o + 2] = s2 + (bias ? bias[o + 2] : 0);
      y[to + o + 3] = s3 + (bias ? bias[o + 3] : 0);
    }
    for (; o < outputs; o++) {
      let sum = bias ? bias[o] : 0;
      for (let i = 0; i < inputs; i++) sum += x[from + i] * weight[o * inputs + i];
      y[to + o] = sum;
    }
  }
  return y;
}

/* LayerNorm, or RMS norm, which does not subtract the mean. */
function normRows(x, rows, width, {gain, bias}, config) {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++) {
    const at = r * width;
    let mean = 0, square = 0;
    if (config.norm === 'layer') {
      for (let i = 0; i < width; i++) mean += x[at + i];
      mean /= width;
    }
    for (let i = 0; i < width; i++) square += (x[at + i] - mean) * (x[at + i] - mean);
    const by = 1 / Math.sqrt(square / width + config.epsilon);
    for (let i = 0; i < width; i++) y[at + i] = (x[at + i] - mean) * by * gain[i] + (bias ? bias[i] : 0);
  }
  return y;
}

function addRows(x, y) {
  return x.map((value, i) => value + y[i]);
}

/* The error function, by a series with positive terms only, which has no cancellation. */
function errorFunction(x) {
  const size = Math.abs(x);
  if (size > 5.5) return Math.sign(x);
  let term = size, sum = size;
  for (let n = 1; term > sum * 1e-16; n++) {
    term *= (2 * size * size) / (2 * n + 1);
    sum += term;
  }
  return ((Math.sign(x) * 2) / Math.sqrt(Math.PI)) * Math.exp(-size * size) * sum;
}

const activations = {
  gelu: (x) => 0.5 * x * (1 + errorFunction(x * Math.SQRT1_2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  relu: (x) => (x > 0 ? x : 0),
  silu: (x) => x / (1 + Math.exp(-x)),
  linear: (x) => x,
};

/* Softmax of row[at .. at + count), in place; the rest of the row becomes 0. */
function softmaxRow(row, at, count, length) {
  let max = -Infinity, sum = 0;
  for (let i = 0; i < count; i++) if (row[at + i] > max) max = row[at + i];
  for (let i = 0; i < count; i++) sum += row[at + i] = Math.exp(row[at + i] - max);
  for (let i = 0; i < count; i++) row[at + i] /= sum;
  for (let i = count; i < length; i++) row[at + i] = 0;
}

function softmaxOf(logits) {
  const row = Float64Array.from(logits);
  softmaxRow(row, 0, row.length, row.length);
  return Float32Array.from(row);
}

/* The index of the largest number (the first one in case of a tie). */
function bestOf(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* The tokens (T,M) of an image of bytes. */
function embedImage(model, pixels) {
  const {config, across, patches, first} = model, p = config.patch, M = config.width;
  const cut = new Float32Array(patches * p * p);
  for (let n = 0; n < patches; n++) {
    const top = Math.floor(n / across) * p, left = (n % across) * p;
    for (let i = 0; i < p * p; i++) {
      const pixel = pixels[(top + Math.floor(i / p)) * config.columns + left + (i % p)];
      cut[n * p * p + i] = (pixel / 255 - model.input.mean) / model.input.deviation;
    }
  }
  const projection = {weight: model.part('patch_embed.proj.weight'), bias: model.part('patch_embed.proj.bias')};
  const embedded = linearRows(cut, patches, p * p, projection, M);
  const x = Float32Array.from(model.part('pos_embed'));
  if (first) model.part('cls_token').forEach((value, i) => (x[i] += value));
  for (let i = 0; i < embedded.length; i++) x[first * M + i] += embedded[i];
  return x;
}

/* Rows of qkv (T, (H + 2 G) D) from column `at`, dense (T,D). */
function takeColumns(qkv, rows, stride, at, width) {
  const part = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) part.set(qkv.subarray(r * stride + at, r * stride + at + width), r * width);
  return part;
}

/* Scores q.k / sqrt(D) (T,T) of one head; in a causal model those of later keys are -infinity. */
function scoreRows(q, k, T, D, causal) {
  const scores = new Float32Array(T * T), by = 1 / Math.sqrt(D);
  for (let i = 0; i < T; i++) {
    for (let j = 0; j < T; j++) {
      let sum = 0;
      for (let d = 0; d < D; d++) sum += q[i * D + d] * k[j * D + d];
      scores[i * T + j] = causal && j > i ? -Infinity : sum * by;
    }
  }
  return scores;
}

/* out (T,D) = weights (T,T) v (T,D) times the head's gate. */
function weighRows(weights, v, T, D, gate) {
  const out = new Float32Array(T * D), sum = new Float64Array(D);
  for (let i = 0; i < T; i++) {
    sum.fill(0);
    for (let j = 0; j < T; j++) {
      const weight = weights[i * T + j];
      for (let d = 0; d < D; d++) sum[d] += weight * v[j * D + d];
    }
    for (let d = 0; d < D; d++) out[i * D + d] = gate * sum[d];
  }
  return out;
}

/* Attention of one block on n (T,M): its output (T,M) and all intermediate results. */
function attendBlock(model, block, n, gates) {
  const {config, tokens: T} = model, D = config.head_width, H = block.heads, G = block.groups;
  const stride = (H + 2 * G) * D, concat = new Float32Array(T * H * D);
  const qkv = linearRows(n, T, config.width, block.qkv, stride);
  const step = {q: [], k: [], v: [], scores: [], weights: [], heads: [], concat, out: null};
  for (let g = 0; g < G; g++) {
    step.k.push(takeColumns(qkv, T, stride, (H + g) * D, D));
    step.v.push(takeColumns(qkv, T, stride, (H + G + g) * D, D));
  }
  for (let h = 0; h < H; h++) {
    const g = Math.floor(h / (H / G));
    step.q.push(takeColumns(qkv, T, stride, h * D, D));
    step.scores.push(scoreRows(step.q[h], step.k[g], T, D, config.causal));
    const weights = step.scores[h].slice();
    for (let i = 0; i < T; i++) softmaxRow(weights, i * T, config.causal ? i + 1 : T, T);
    step.weights.push(weights);
    step.heads.push(weighRows(weights, step.v[g], T, D, gates[h]));
    for (let i = 0; i < T; i++) concat.set(step.heads[h].subarray(i * D, i * D + D), (i * H + h) * D);
  }
  step.out = linearRows(concat, T, H * D, block.proj, config.width);
  return step;
}

/* One block on x (T,M). Returns its steps: x, n, q[h], k[g], v[g], scores[h], weights[h], heads[h], concat, out (the
 * output of attention), mid (x after adding it), n2, hidden, mlp, y (the input of the next block). */
function runBlock(model, block, x, gates) {
  const {config, tokens: T} = model, M = config.width, pre = config.order !== 'post';
  const n = pre ? normRows(x, T, M, block.norm1, config) : x;
  const step = attendBlock(model, block, n, gates);
  let mid = addRows(x, step.out);
  if (!pre) mid = normRows(mid, T, M, block.norm1, config);
  const n2 = pre ? normRows(mid, T, M, block.norm2, config) : mid;
  const hidden = linearRows(n2, T, M, block.fc1, config.mlp).map(activations[config.activation]);
  const mlp = linearRows(hidden, T, config.mlp, block.fc2, M);
  let y = addRows(mid, mlp);
  if (!pre) y = normRows(y, T, M, block.norm2, config);
  return {x, n, ...step, mid, n2, hidden, mlp, y};
}

function readLogits(model, x) {
  const {config, tokens: T} = model, M = config.width, count = model.first ? 1 : T;
  const last = {gain: model.part('norm.weight'), bias: model.part('norm.bias')};
  const y = last.gain && config.final_norm ? normRows(x, T, M, last, config) : x;
  const pooled = new Float32Array(M);
  for (let i = 0; i < M; i++) {
    let sum = 0;
    for (let t = 0; t < count; t++) sum += y[t * M + i];
    pooled[i] = sum / count;
  }
  const head = {weight: model.part('head.weight'), bias: model.part('head.bias')};
  return linearRows(pooled, 1, M, head, config.classes);
}

/* Runs the model on an image (bytes, rows * columns). `wanted.trace` keeps every block's steps; `wanted.start`, {block,
 * x}, starts at that block with input x. */
function runModel(model, pixels, gates, wanted) {
  const {trace: keep = false, start = null} = wanted || {};
  let x = start ? start.x : embedImage(model, pixels);
  const maps = [], inputs = [], trace = [];
  for (let b = start ? start.block : 0; b < model.blocks.length; b++) {
    const step = runBlock(model, model.blocks[b], x, gates[b]);
    maps[b] = step.weights;
    inputs[b] = x;
    if (keep) trace[b] = step;
    x = step.y;
  }
  const logits = readLogits(model, x);
  return {logits, probabilities: softmaxOf(logits), maps, inputs, trace: keep ? trace : null};
}
