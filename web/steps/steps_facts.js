/* The numbers of one head for one token, and the description of each step.
 *
 *     N = norm(X)   Q = N W_Q + b   K = N W_K + b   V = N W_V + b   S = Q K^T   P = softmax(S / sqrt(D))   O = P V
 *     C = [O_1 | .. | O_H]   A = C W_O + b   X' = X + A
 *
 * Letters as in the library's header: T tokens, M the width of the model, D that of a head, H heads. Files store weight
 * matrices as (outputs, inputs); here they are transposed, so that formulas read from left to right. */

/* Columns first .. first + count of W^T, for W (outputs,inputs): (inputs,count). */
function turnedWeights(weight, inputs, first, count) {
  const turned = new Float32Array(inputs * count);
  for (let c = 0; c < count; c++) {
    for (let i = 0; i < inputs; i++) turned[i * count + c] = weight[(first + c) * inputs + i];
  }
  return turned;
}

/* exp(s - maximum) of a row of scores, their sum, and the maximum. */
function exponentials(row) {
  const top = row.reduce((most, s) => (s > most ? s : most), -Infinity);
  const values = Float64Array.from(row, (s) => Math.exp(s - top));
  return {values, top, sum: values.reduce((sum, e) => sum + e, 0)};
}

const rowOf = (matrix, width, row) => matrix.subarray(row * width, (row + 1) * width);
const lengthOf = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));

/* All values of the steps, for the block, head and token of `state`; `run` is the result of runBlock for that block. */
function stepFacts(model, state, run) {
  const {config, tokens: T} = model, {block, head, token: t} = state, parts = model.blocks[block];
  const M = config.width, D = config.head_width, H = parts.heads, G = parts.groups;
  const group = Math.floor(head / (H / G));
  const scaled = run.scores[head], root = Math.sqrt(D);
  const own = weighRows(run.weights[head], run.v[group], T, D, 1);
  const facts = {
    model, block, head, t, T, M, D, H, G, group, root, run, scaled, own,
    gate: state.gates[block][head],
    raw: scaled.map((s) => s * root),
    weights: run.weights[head],
    q: run.q[head], k: run.k[group], v: run.v[group],
    wq: turnedWeights(parts.qkv.weight, M, head * D, D),
    wk: turnedWeights(parts.qkv.weight, M, (H + group) * D, D),
    wv: turnedWeights(parts.qkv.weight, M, (H + G + group) * D, D),
    wo: turnedWeights(parts.proj.weight, H * D, 0, M),
    visible: config.causal ? t + 1 : T,
    name: (tokenPlace(model, t) ? 'the patch at ' : '') + tokenName(model, t),
    keyName: (j) => tokenName(model, j),
  };
  facts.rawRow = rowOf(facts.raw, T, t);
  facts.scaledRow = rowOf(scaled, T, t);
  facts.weightRow = rowOf(facts.weights, T, t);
  facts.exp = exponentials(facts.scaledRow);
  const byWeight = (a, b) => facts.weightRow[b] - facts.weightRow[a];
  facts.order = Array.from({length: facts.visible}, (_, j) => j).sort(byWeight);
  facts.key = facts.order[0]; /* the key that is marked and whose numbers are shown */
  facts.share = headShare(facts);
  return facts;
}

/* The share of this head in the output row of attention: the projection of its part onto the whole row. The shares of
 * all heads and of the bias sum to 1. */
function headShare({run, wo, M, D, H, head, t}) {
  const out = rowOf(run.out, M, t), part = rowOf(run.heads[head], D, t);
  let along = 0, whole = 0;
  for (let m = 0; m < M; m++) {
    let sum = 0;
    for (let d = 0; d < D; d++) sum += part[d] * wo[(head * D + d) * M + m];
    along += sum * out[m];
    whole += out[m] * out[m];
  }
  return whole > 0 ? along / whole : 0;
}

/* ---- Formulas: a list of signs and of symbols with their shapes -------------------------------------------------- */

function symbol(text, marks, ...shape) {
  return {text, ...marks, shape: shape.join(' × ')};
}

function stepFormulas({model, block, T, M, D, H, head, group, G}) {
  const post = model.config.order === 'post', norm = model.config.norm === 'rms' ? 'RMSNorm' : 'LayerNorm';
  const N = symbol('N', {}, T, M), {qkv, proj} = model.blocks[block], h = head + 1, g = G < H ? group + 1 : h;
  const product = (left, letter, mark, number) => [symbol(letter, {sub: number}, T, D), '=', left,
    symbol('W', {sub: mark}, M, D), ...(qkv.bias ? ['+', symbol('b', {sub: mark}, D)] : [])];
  const sum = ['X', '+', 'A'].map((part) => (part === '+' ? part : symbol(part, {}, T, M)));
  const next = symbol('X′', {}, T, M);
  return {
    tokens: [symbol('X', {}, T, M), '=', symbol('tokens', {}, `${T} rows of ${M} numbers`)],
    norm: post ? [N, '=', symbol('X', {}, T, M)] : [N, '=', norm + '(', symbol('X', {}, T, M), ')'],
    q: product(N, 'Q', 'Q', h),
    k: product(N, 'K', 'K', g),
    v: product(N, 'V', 'V', g),
    scores: [symbol('S', {}, T, T), '=', symbol('Q', {sub: h}, T, D), symbol('K', {sup: 'T'}, D, T)],
    scale: [symbol('S', {}, T, T), '÷', symbol(`√${D} = ${shortNumber(Math.sqrt(D))}`, {}, 'a number')],
    softmax: [symbol('P', {}, T, T), '=', 'softmax(', symbol(`S ÷ √${D}`, {}, T, T), ')'],
    sum: [symbol('O', {sub: h}, T, D), '=', symbol('P', {}, T, T), symbol('V', {sub: g}, T, D)],
    concat: [symbol('C', {}, T, H * D), '=', '[', ...concatSymbols(T, D, H, head), ']'],
    output: [symbol('A', {}, T, M), '=', symbol('C', {}, T, H * D), symbol('W', {sub: 'O'}, H * D, M),
      ...(proj.bias ? ['+', symbol('b', {sub: 'O'}, M)] : [])],
    residual: post ? [next, '=', norm + '(', ...sum, ')'] : [next, '=', ...sum],
  };
}

/* At most four heads are named: the first, this one, the last. */
function concatSymbols(T, D, H, head) {
  const shown = [...new Set(H <= 4 ? Array.from({length: H}, (_, h) => h) : [0, head, H - 1])].sort((a, b) => a - b);
  const parts = [];
  shown.forEach((h, n) => {
    if (n) parts.push(h - shown[n - 1] > 1 ? '| … |' : '|');
    parts.push(symbol('O', {sub: h + 1}, T, D));
  });
  return parts;
}

/* ---- Words: what happens, with the numbers of this token --------------------------------------------------------- */

function stepWords(facts) {
  const {model, block, head, t, T, M, D, H, G, group, name, run, visible, exp, keyName} = facts;
  const best = facts.key, n = shortNumber;
  const length = (matrix) => n(lengthOf(rowOf(matrix, M, t)));
  const post = model.config.order === 'post';
  const hidden = visible < T ? ` A causal model hides the ${plural(T - visible, 'token')} after it.` : '';
  const shared = G < H ? ` Heads share keys and values here: head ${head + 1} reads those of group ${group + 1}.` : '';
  return {
    tokens: `The image is split into patches; each is a row of X${model.first ? ', after the class token' : ''}. ` +
      (block ? `Block ${block + 1} gets the output of the previous ${block > 1 ? block + ' blocks' : 'block'}.`
        : 'In the first block a row is the patch times a matrix, plus its position embedding.') +
      ` The marked row is ${name}: ${M} numbers, length ${length(run.x)}.`,
    norm: post ? 'This model normalizes after attention: the heads read X unchanged.'
      : `Each row is normalized, so that tokens with large values do not dominate. ` +
        `Its length goes from ${length(run.x)} to ${length(run.n)}.`,
    q: `A query describes what a token searches for. ` +
      `A ${M} × ${D} matrix of the head maps every row to a query of ${D} numbers.`,
    k: `A key describes what a token offers to queries. Same rows, another matrix.${shared}`,
    v: `A value is what a token contributes when it is attended to. A third matrix.`,
    scores: `The dot product of the query of ${name} with every key. The larger it is, the better they ` +
      `match; the best is ${keyName(best)} with ${n(facts.rawRow[best])}.${hidden}`,
    scale: `Sums of ${D} products grow with ${D}; dividing by √${D} = ${n(facts.root)} keeps the softmax from ` +
      `saturating on one key. ${n(facts.rawRow[best])} becomes ${n(facts.scaledRow[best])}.`,
    softmax: `e to the power of each score (the largest, ${n(exp.top)}, subtracted first) is positive; their sum ` +
      `is ${n(exp.sum)}. Divided by the sum they add up to 1: ${percent(facts.weightRow[best])} goes to ` +
      `${keyName(best)}.`,
    sum: `The weighted sum of the values is one row of ${D} numbers: the output of the head for ${name}. ` +
      `The largest part, ${percent(facts.weightRow[best])}, is the value of ${keyName(best)}.`,
    concat: (H === 1 ? 'The block has no other head; the rows of several heads would be concatenated: '
      : `All ${H} heads do the same with their own matrices. Their rows are concatenated: `) +
      `${H} × ${D} = ${H * D} numbers per token.` +
      (facts.gate ? '' : ' This head is switched off, so its part is zeros.'),
    output: `The output matrix combines the heads. ${shareWords(facts)}`,
    residual: `The result is added to the input of the block: attention adds a row of length ${length(run.out)} to a ` +
      `row of length ${length(run.x)}. ${post ? 'Then comes the norm.' : 'The MLP of the block reads it next.'}`,
  };
}

/* The share of this head in the output row, in words. */
function shareWords({model, block, head, H, name, share}) {
  const others = [H > 1 && 'the other heads', model.blocks[block].proj.bias && 'the bias'].filter(Boolean);
  if (share < 0) return `Head ${head + 1} contributes against the other parts of the output row of ${name}.`;
  return `Head ${head + 1} contributes ${percent(share)} of the output row of ${name}` +
    `${others.length ? `, ${others.join(' and ')} the rest` : ''}.`;
}

const stepTitles = {
  tokens: 'Tokens', norm: 'Norm', q: 'Queries', k: 'Keys', v: 'Values', scores: 'Scores', scale: 'Scaling',
  softmax: 'Softmax', sum: 'Weighted sum', concat: 'Concat', output: 'Output matrix', residual: 'Residual',
};
const stepKeys = Object.keys(stepTitles);
