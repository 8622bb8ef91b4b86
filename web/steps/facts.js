/* The numbers of the walk-through: one block, all heads, one query and one key.
 *
 *     N = norm(X)   [Q K V] = N W + b   S_h = Q_h K_h^T / sqrt(D)   P_h = softmax(S_h + mask)   O_h = P_h V_h
 *     C = [O_0 | O_1 | ..]   A = C W_O + b   X' = X + A   Y = X' + MLP(norm(X'))
 *
 * Letters as in the library's header: T queries, S keys (as many, except in cross-attention), M the width of the model, D that of
 * a head, H heads, G heads of keys and values; F is the width of the MLP. Files store weight matrices as (outputs, inputs); here
 * they are transposed, so that formulas read from left to right. Every number comes from the engine, except scores of keys that
 * are hidden, which the library does not compute. */

import {sharedMax, weightScale} from '../base/heatmap.js';
import {largestOf, splitNumbers} from '../base/numbers.js';
import {percent, signedNumber} from '../base/words.js';

/* What lies inside a block of H heads and G heads of keys and values, as the engine gives it (mha_model_inside), by heads: x, n, q[h],
 * k[g], v[g], scores[h], weights[h], heads[h], out (what attention adds), mid (x after that, and after cross-attention), n2, hidden (empty for a mixture of experts),
 * mlp, y (the input of the next block). */
export function splitInside(inside, H, G) {
  const list = (numbers, count) => splitNumbers(numbers, count, numbers.length / count);
  return {
    x: inside.x, n: inside.read,
    q: list(inside.q, H), k: list(inside.k, G), v: list(inside.v, G),
    scores: list(inside.scores, H), weights: list(inside.weights, H), heads: list(inside.heads, H),
    out: inside.attended, mid: inside.middle, n2: inside.mlpRead, hidden: inside.mlpHidden, mlp: inside.mlp, y: inside.y,
  };
}

export const rowOf = (matrix, width, row) => matrix.subarray(row * width, (row + 1) * width);
export const lengthOf = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));

/* The largest magnitude of the finite numbers. */
export function largestSize(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) most = Math.max(most, Math.abs(values[i]));
  return most;
}

/* The 98th percentile of magnitudes: a few numbers of the residual stream are far larger than the others, which would
 * all be pale. */
export function commonSize(values) {
  const sizes = values.map(Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
}

/* Keys by their weight, largest first. */
export const byWeight = (keys, weightRow) => [...keys].sort((a, b) => weightRow[b] - weightRow[a]);

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* All values of the walk that panels of images and of texts share. `walk` says what its tokens are (image.js and text.js);
 * `run` is the inside of the block, `last()` that of the last one, which the end alone needs. */
export function stepFacts(walk, state, run, last) {
  const {model, T, S = T, keyLongName = walk.longName, keyShortName = walk.shortName} = walk, {config} = model, {block, head, token: t} = state, parts = model.blocks[block];
  const H = parts.heads, G = parts.groups, D = config.head_width, hidden = hiddenKeys(run.scores[0], T, S);
  const lanes = Array.from({length: H}, (_, h) => {
    const group = Math.floor(h / (H / G)), raw = hidden ? rawScores(run.scores[h], run.q[h], run.k[group], {S, D}, walk.scaling.score) : run.scores[h];
    return {h, group, q: run.q[h], k: run.k[group], v: run.v[group], scores: run.scores[h], raw, weights: run.weights[h],
      out: run.heads[h], off: !walk.isOn(block, h), scoreRow: rowOf(run.scores[h], S, t), rawRow: rowOf(raw, S, t),
      weightRow: rowOf(run.weights[h], S, t)};
  });
  const keys = Array.from({length: S}, (_, j) => j).filter((j) => Number.isFinite(lanes[head].scoreRow[j])); /* those that the query sees */
  const order = byWeight(keys, lanes[head].weightRow), key = keys.includes(state.key) ? state.key : order[0];
  return {
    walk, model, block, head, t, key, keys, order, lanes, run, T, S, D, H, G, masked: hasMask(model), hidden,
    M: config.width, F: config.mlp, blocks: model.blocks.length, root: Math.sqrt(D), sourceWidth: config.source_width || config.width,
    normed: config.normed, post: config.post, parallel: config.parallel, cross: Boolean(model.cross), between: Boolean(model.between),
    name: walk.longName(t), keyName: keyLongName(key), nameOf: walk.longName, keyNameOf: keyLongName, shortOf: walk.shortName, keyShortOf: keyShortName,
    matrices: {...streamMatrices(run, T, config), ...headMatrices(lanes, {T, S, D, hidden}), ...walk.matrices(block, run)},
    get finalMatrix() {
      const {y} = last();
      return matrixOf(y, T, config.width, commonSize(y));
    },
  };
}

/* 1 for each (query,key) that is hidden; null if none is. */
function hiddenKeys(scores, T, S) {
  const hidden = Uint8Array.from({length: T * S}, (_, n) => Number(!Number.isFinite(scores[n])));
  return hidden.includes(1) ? hidden : null;
}

/* The scores before any are hidden; `score` makes one of a product, or is null: then hidden ones stay as they are. */
function rawScores(scores, q, k, {S, D}, score) {
  if (!score) return scores;
  return scores.map((value, n) => {
    if (Number.isFinite(value)) return value;
    const query = rowOf(q, D, Math.floor(n / S)), key = rowOf(k, D, n % S);
    return score(query.reduce((sum, x, d) => sum + x * key[d], 0));
  });
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* {values, rows, columns, most, signed}: `most` is the value with the strongest colour. Matrices that are added or
 * compared share it, and a matrix has the same one in every step. Weights have a scale instead, pixels are ink. `hidden` marks cells
 * of hidden keys, which are hatched. */
export function matrixOf(values, rows, columns, most = largestSize(values) || 1) {
  return {values, rows, columns, most, signed: true};
}

/* values (rows,columns) as (columns,rows). */
export function transposed(values, rows, columns) {
  const turned = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) turned[c * rows + r] = values[r * columns + c];
  return turned;
}

/* The scale of weights ends where the marked query's do: most heads have their largest weight below it. */
function headMatrices(lanes, {T, S, D, hidden}) {
  const most = (pick) => Math.max(...lanes.map((lane) => largestSize(pick(lane)))) || 1;
  const sizes = {q: most((lane) => lane.q), k: most((lane) => lane.k), v: most((lane) => lane.v),
    scores: most((lane) => lane.raw), out: most((lane) => lane.out)};
  const high = sharedMax(lanes.map((lane) => largestOf(lane.weightRow)));
  const all = {};
  for (const {h, q, k, v, scores, raw, weights, out} of lanes) {
    all['Q' + h] = matrixOf(q, T, D, sizes.q);
    all['K' + h] = matrixOf(k, S, D, sizes.k);
    all['KT' + h] = matrixOf(transposed(k, S, D), D, S, sizes.k);
    all['V' + h] = matrixOf(v, S, D, sizes.v);
    all['R' + h] = {...matrixOf(raw, T, S, sizes.scores), hidden: raw === scores ? hidden : null};
    all['S' + h] = {...matrixOf(scores, T, S, sizes.scores), hidden};
    all['P' + h] = {values: weights, rows: T, columns: S, signed: false, scale: weightScale('linear', 1 / S, high), hidden};
    all['O' + h] = matrixOf(out, T, D, sizes.out);
  }
  return all;
}

/* The rows of tokens on their way through the block. Behind cross-attention there is no MLP of its own. */
function streamMatrices(run, T, {width: M}) {
  const stream = commonSize(run.x), of = (values) => matrixOf(values, T, M, stream);
  return {X: of(run.x), A: of(run.out), X1: of(run.mid), ...(run.between && {X2: of(run.between)}), E: of(run.mlp), Y: of(run.y), N: matrixOf(run.n, T, M),
    ...(run.hidden.length && {F: matrixOf(run.hidden, T, run.hidden.length / T, commonSize(run.hidden))})};
}

export const barText = (word, value) => (word === 'score' ? signedNumber(value) : percent(value));

/* Whether some block hides keys from queries. */
export const hasMask = ({config, blocks}) => Boolean(config.causal) || blocks.some(({window_left: left, window_right: right}) => left >= 0 || right >= 0);
