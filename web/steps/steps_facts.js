/* The numbers of the walk-through: one block, all heads, one query and one key.
 *
 *     N = norm(X)   [Q K V] = N W + b   S_h = Q_h K_h^T / sqrt(D)   P_h = softmax(S_h)   O_h = P_h V_h
 *     C = [O_1 | .. | O_H]   A = C W_O + b   X' = X + A   Y = X' + MLP(norm(X'))
 *
 * Letters as in the library's header: T tokens, M the width of the model, D that of a head, H heads, G heads of keys and
 * values; F is the width of the MLP. Files store weight matrices as (outputs, inputs); here they are transposed, so that
 * formulas read from left to right. Every number comes from runBlock and the model's result. */

/* W^T for W (outputs,inputs): (inputs,outputs). */
function turnedWeights(weight, inputs, outputs) {
  const turned = new Float32Array(inputs * outputs);
  for (let c = 0; c < outputs; c++) {
    for (let i = 0; i < inputs; i++) turned[i * outputs + c] = weight[c * inputs + i];
  }
  return turned;
}

const rowOf = (matrix, width, row) => matrix.subarray(row * width, (row + 1) * width);
const lengthOf = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));

/* The largest magnitude of the finite numbers. */
function largestSize(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) most = Math.max(most, Math.abs(values[i]));
  return most;
}

/* The 98th percentile of magnitudes: a few numbers of the residual stream are far larger than the others, which would
 * all be pale. */
function commonSize(values) {
  const sizes = values.map(Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
}

/* The keys that query t of a head sees, by weight, largest first. */
function keysByWeight(weightRow, visible) {
  return Array.from({length: visible}, (_, j) => j).sort((a, b) => weightRow[b] - weightRow[a]);
}

/* The patch with the most ink, the first one in case of a tie: a query that is easy to recognize. */
function inkToken(model, bytes) {
  const {patch, columns} = model.config;
  let best = model.first, most = -1;
  for (let n = 0; n < model.patches; n++) {
    const {row, column} = tokenPlace(model, model.first + n);
    let sum = 0;
    for (let i = 0; i < patch * patch; i++) {
      sum += bytes[(row * patch + Math.floor(i / patch)) * columns + column * patch + (i % patch)];
    }
    if (sum > most) [best, most] = [model.first + n, sum];
  }
  return best;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* "cls", or the number of a patch, from 1: what stands beside a row. */
function shortTokenName(model, t) {
  return t < model.first ? 'cls' : String(t - model.first + 1);
}

function longTokenName(model, t) {
  return t < model.first ? 'the class token' : `patch ${shortTokenName(model, t)} (${tokenName(model, t)})`;
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* All values of the walk for `state`; `run` is the result of runBlock for the block, `last` that for the last one. */
function stepFacts(model, state, run, last, image) {
  const {config, tokens: T} = model, {block, head, token: t} = state, parts = model.blocks[block];
  const H = parts.heads, G = parts.groups, D = config.head_width, visible = config.causal ? t + 1 : T;
  const lanes = Array.from({length: H}, (_, h) => {
    const group = Math.floor(h / (H / G));
    return {h, group, q: run.q[h], k: run.k[group], v: run.v[group], scores: run.scores[h], weights: run.weights[h],
      out: run.heads[h], off: !state.gates[block][h], scoreRow: rowOf(run.scores[h], T, t),
      weightRow: rowOf(run.weights[h], T, t)};
  });
  const order = keysByWeight(lanes[head].weightRow, visible);
  const key = state.key === null || state.key >= visible ? order[0] : state.key;
  return {
    model, block, head, t, key, order, visible, lanes, run, image, T, D, H, G,
    M: config.width, F: config.mlp, blocks: model.blocks.length, root: Math.sqrt(D),
    post: config.order === 'post', maps: state.result.maps, finalMatrix: matrixOf(last.y, T, config.width, commonSize(last.y)),
    probabilities: state.result.probabilities, logits: state.result.logits,
    name: longTokenName(model, t), keyName: longTokenName(model, key),
    nameOf: (j) => longTokenName(model, j), shortOf: (j) => shortTokenName(model, j),
    matrices: stepMatrices(model, block, run, lanes, image),
  };
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* {values, rows, columns, most, signed}: `most` is the value with the strongest colour. Matrices that are added or
 * compared share it, and a matrix has the same one in every step. Weights have a scale instead, pixels are ink. */
function matrixOf(values, rows, columns, most = largestSize(values) || 1) {
  return {values, rows, columns, most, signed: true};
}

function transposed(values, rows, columns) {
  const turned = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) turned[c * rows + r] = values[r * columns + c];
  return turned;
}

/* The pixels of patches as rows (T,P), from 0 to 1; the class token has none. */
function patchRows(model, bytes) {
  const {patch, columns} = model.config, size = patch * patch, rows = new Float32Array(model.tokens * size);
  for (let t = 0; t < model.tokens; t++) {
    const place = tokenPlace(model, t);
    for (let i = 0; i < size; i++) {
      rows[t * size + i] = !place ? NaN
        : bytes[(place.row * patch + Math.floor(i / patch)) * columns + place.column * patch + (i % patch)] / 255;
    }
  }
  return rows;
}

/* The scale of weights ends where the marked query's do: most heads have their largest weight below it. */
function headMatrices(lanes, T, D) {
  const most = (pick) => Math.max(...lanes.map((lane) => largestSize(pick(lane)))) || 1;
  const sizes = {q: most((lane) => lane.q), k: most((lane) => lane.k), v: most((lane) => lane.v),
    scores: most((lane) => lane.scores), out: most((lane) => lane.out)};
  const high = sharedMax(lanes.map((lane) => largestOf(lane.weightRow)));
  const all = {};
  for (const {h, q, k, v, scores, weights, out} of lanes) {
    all['Q' + h] = matrixOf(q, T, D, sizes.q);
    all['K' + h] = matrixOf(k, T, D, sizes.k);
    all['KT' + h] = matrixOf(transposed(k, T, D), D, T, sizes.k);
    all['V' + h] = matrixOf(v, T, D, sizes.v);
    all['S' + h] = matrixOf(scores, T, T, sizes.scores);
    all['P' + h] = {values: weights, rows: T, columns: T, signed: false, scale: weightScale('linear', 1 / T, high)};
    all['O' + h] = matrixOf(out, T, D, sizes.out);
  }
  return all;
}

function stepMatrices(model, block, run, lanes, image) {
  const {config, tokens: T} = model, M = config.width, D = config.head_width, H = lanes.length;
  const {groups, qkv, proj} = model.blocks[block], stream = commonSize(run.x), size = config.patch * config.patch;
  const of = (values) => matrixOf(values, T, M, stream);
  return {
    pixels: {values: patchRows(model, image.bytes), rows: T, columns: size, ink: true},
    embed: matrixOf(turnedWeights(model.part('patch_embed.proj.weight'), size, M), size, M),
    place: of(model.part('pos_embed')),
    X: of(run.x), A: of(run.out), X1: of(run.mid), E: of(run.mlp), Y: of(run.y),
    N: matrixOf(run.n, T, M), N2: matrixOf(run.n2, T, M),
    W: matrixOf(turnedWeights(qkv.weight, M, (H + 2 * groups) * D), M, (H + 2 * groups) * D),
    WO: matrixOf(turnedWeights(proj.weight, H * D, M), H * D, M),
    F: matrixOf(run.hidden, T, config.mlp),
    ...headMatrices(lanes, T, D),
  };
}
