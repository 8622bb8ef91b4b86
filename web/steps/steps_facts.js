/* The numbers of the walk-through: one block, all heads, one query and one key.
 *
 *     N = norm(X)   [Q K V] = N W + b   S_h = Q_h K_h^T / sqrt(D)   P_h = softmax(S_h)   O_h = P_h V_h
 *     C = [O_1 | .. | O_H]   A = C W_O + b   X' = X + A   Y = X' + MLP(norm(X'))
 *
 * Letters as in the library's header: T tokens, M the width of the model, D that of a head, H heads, G heads of keys and
 * values; F is the width of the MLP. Files store weight matrices as (outputs, inputs); here they are transposed, so that
 * formulas read from left to right. Every number comes from the engine. */

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

/* Keys by their weight, largest first. */
const byWeight = (keys, weightRow) => [...keys].sort((a, b) => weightRow[b] - weightRow[a]);

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* All values of the walk that panels of images and of texts share. `walk` says what its tokens are (steps_image.js and steps_text.js);
 * `run` is the inside of the block, `last()` that of the last one, which the end alone needs. */
function stepFacts(walk, state, run, last) {
  const {model, T} = walk, {config} = model, {block, head, token: t} = state, parts = model.blocks[block];
  const H = parts.heads, G = parts.groups, D = config.head_width;
  const lanes = Array.from({length: H}, (_, h) => {
    const group = Math.floor(h / (H / G));
    return {h, group, q: run.q[h], k: run.k[group], v: run.v[group], scores: run.scores[h], weights: run.weights[h],
      out: run.heads[h], off: !walk.isOn(block, h), scoreRow: rowOf(run.scores[h], T, t),
      weightRow: rowOf(run.weights[h], T, t)};
  });
  const keys = Array.from({length: T}, (_, j) => j).filter((j) => Number.isFinite(lanes[head].scoreRow[j])); /* those that the query sees */
  const order = byWeight(keys, lanes[head].weightRow), key = keys.includes(state.key) ? state.key : order[0];
  return {
    walk, model, block, head, t, key, keys, order, lanes, run, T, D, H, G,
    M: config.width, F: config.mlp, blocks: model.blocks.length, root: Math.sqrt(D),
    normed: config.normed, post: config.post, parallel: config.parallel,
    name: walk.longName(t), keyName: walk.longName(key), nameOf: walk.longName, shortOf: walk.shortName,
    matrices: {...streamMatrices(run, T, config), ...headMatrices(lanes, T, D), ...walk.matrices(block, run)},
    get finalMatrix() {
      const {y} = last();
      return matrixOf(y, T, config.width, commonSize(y));
    },
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

/* The rows of tokens on their way through the block. */
function streamMatrices(run, T, {width: M}) {
  const stream = commonSize(run.x), of = (values) => matrixOf(values, T, M, stream);
  return {X: of(run.x), A: of(run.out), X1: of(run.mid), E: of(run.mlp), Y: of(run.y), N: matrixOf(run.n, T, M),
    ...(run.hidden.length && {F: matrixOf(run.hidden, T, run.hidden.length / T, commonSize(run.hidden))})};
}
