/* The text of the walk-through: title, formula and explanation of each step, with the numbers of the marked query and key.
 *
 * A step of `steps` is a function of the facts that returns {title, formula, words}. A formula is a list of signs and of
 * symbols with their shapes. Words are a list of texts; query`..` and key`..` have the colours of their marks. */

import {percent, plural, shortNumber} from '../base/words.js';
import {barText, hasMask, lengthOf, rowOf} from './facts.js';

export function symbol(text, marks, ...shape) {
  return {text, ...marks, shape: shape.join(' × ')};
}

export const asQuery = (text) => ({text, role: 'query'});
export const asKey = (text) => ({text, role: 'key'});

export const normName = ({model}) => (model.config.norm === 'rms' ? 'RMSNorm' : 'LayerNorm');

/* What the norm of a model does to a row. */
function normWords({model: {config}}) {
  if (config.norm === 'rms') return 'RMSNorm divides the row by its root mean square, then applies a learned scale.';
  return `LayerNorm subtracts the row's mean, divides by its standard deviation, then applies a learned scale${config.norm_bias === false ? '' : ' and shift'}.`;
}

/* ---- Before the heads -------------------------------------------------------------------------------------------- */

/* The tokens of a block behind the first, whatever they were before it; `row` names the framed one. */
export function laterTokensStep({block, T, M}, row) {
  return {
    title: `The rows that block ${block} reads`,
    formula: [symbol('X', {}, T, M)],
    words: [`Block ${block} reads the output of block ${block - 1}. There is still one row of ${M} numbers per token, but a row now also ` +
      'contains information from other tokens. The framed row is that of ', ...row],
  };
}

function normStep(facts) {
  const {T, M, run, t} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  if (run.n.every((x, i) => x === run.x[i])) {
    return {title: 'No norm in this block', formula: [symbol('N', {}, T, M), '=', symbol('X', {}, T, M)],
      words: ['Other blocks of this model normalize the rows first; this one uses them as they are. X stays at the left edge because it is needed again later.']};
  }
  return {
    title: 'Normalize every row',
    formula: [symbol('N', {}, T, M), '=', normName(facts) + '(', symbol('X', {}, T, M), ')'],
    words: [`${normWords(facts)} The length of the framed row goes from ${length(run.x)} to ${length(run.n)}. ` +
      'X itself stays at the left edge because it is needed again later.'],
  };
}

/* ---- The heads --------------------------------------------------------------------------------------------------- */

/* What happens to queries and keys after the product, in words. */
function afterProduct({rotary_base: rotary, qk_norm: norm}) {
  const then = [norm > 0 && 'normalized', rotary > 0 && 'rotated according to their positions (rotary embedding)'].filter(Boolean).join(' and ');
  return then && ` Queries and keys are then ${then}; they are shown after that.`;
}

function projectStep(facts) {
  const {T, M, S, sourceWidth, H, G, D, model, block, normed, cross} = facts;
  const shared = G < H ? ` There are only ${plural(G, 'head')} of keys and values; each is shared by ${H / G} heads of queries.` : '';
  const bias = model.blocks[block].qkv.bias, b = (name, size) => (bias ? ['+', symbol('b', name ? {sub: name} : {}, size)] : []), read = symbol(normed ? 'N' : 'X', {}, T, M);
  const formula = cross ? [symbol('Q', {}, T, H * D), '=', read, symbol('W', {sub: 'Q'}, M, H * D), ...b('Q', H * D), ', ',
    symbol('[K V]', {}, S, 2 * G * D), '=', symbol('E', {}, S, sourceWidth), symbol('W', {sub: 'KV'}, sourceWidth, 2 * G * D), ...b('KV', 2 * G * D)]
    : [symbol('[Q K V]', {}, T, (H + 2 * G) * D), '=', read, symbol('W', {}, M, (H + 2 * G) * D), ...b('', (H + 2 * G) * D)];
  const start = cross ? 'Queries are computed from the rows of the decoder, keys and values from E, the output of the encoder. A '
    : 'One matrix product gives every token three new rows. Its ';
  return {
    title: 'Queries, keys and values',
    formula,
    words: [start, asQuery('query'), ' says what the token is looking for, ', cross ? 'a ' : 'its ', asKey('key'),
      ` says what a token offers, and ${cross ? 'a' : 'its'} value is what it passes on when another token attends to it.` + shared, afterProduct(model.blocks[block])].filter(Boolean),
  };
}

function splitStep({H, D, T, S}) {
  return {
    title: H === 1 ? 'One head' : `Split into ${H} heads`,
    formula: [symbol('Q', {sub: 'h'}, T, D), ',', symbol('K', {sub: 'h'}, S, D), ',', symbol('V', {sub: 'h'}, S, D),
      H > 1 ? `h = 0 … ${H - 1}` : 'h = 0'],
    words: [H === 1 ? `This block has a single head, which uses all ${D} columns. ` : `Each head takes its own ${plural(D, 'column')} of Q, K and V and ` +
      'works independently from here on, so that heads can look for different things. ',
    'In Q, the ', asQuery('query'), ' of our token is framed; in K and V, the ', asKey('key'), ' that it is compared with.'],
  };
}

/* What becomes of the product of a query and a key: here, it is divided by the root of the width. `more` is what else happens to it, in
 * sentences; `plain` if nothing does; score(product) is what a score is made from a product, or null if it also depends on the distance. */
export function rootScaling(D) {
  return {plain: true, note: `QKᵀ ÷ √${D}`, words: `, divided by √${D} so that its size does not grow with the width of the head`, more: '',
    formula: ['÷', symbol(`√${D}`, {}, shortNumber(Math.sqrt(D)))], score: (product) => product / Math.sqrt(D)};
}

function scoresStep(facts) {
  const {T, S, D, lanes, head, key, name, keyName, walk: {scaling}} = facts;
  return {
    title: 'Compare the query with every key',
    formula: [symbol('S', {sub: 'h'}, T, S), '=', symbol('Q', {sub: 'h'}, T, D), symbol('K', {sub: 'h', sup: 'T'}, D, S), ...scaling.formula],
    words: [`A score is the dot product of a query and a key${scaling.words}. It is large if the two match. ${scaling.more}`, `In head ${head}, the score of `,
      asQuery(name), ' and ', asKey(keyName), ` is ${barText('score', lanes[head].scoreRow[key])}.`],
  };
}

/* Which keys a query must not see, in words. */
function maskWords({model, block}) {
  const {window_left: left, window_right: right} = model.blocks[block], near = [left >= 0 && `${left} before`, right >= 0 && `${right} after`].filter(Boolean).join(' and ');
  return [model.config.causal && 'A causal model must not look ahead, so the keys after a query are hidden from it. ',
    near && `Of the other tokens, only those up to ${near} the query are visible in this block. `].filter(Boolean).join('') || 'In this block, every key is visible. ';
}

function maskStep(facts) {
  const {T, S, keys, name, model} = facts;
  return {
    title: model.config.causal ? 'Hide the keys after the query' : 'Hide the keys outside the window',
    formula: [symbol('S', {sub: 'h'}, T, S), '←', symbol('S', {sub: 'h'}, T, S), '+', symbol('mask', {}, T, S)],
    words: [maskWords(facts), 'The mask is 0 for a visible key and −∞ for a hidden one, so that the weight of a hidden key becomes exactly 0. Hidden scores are hatched. For ',
      asQuery(name), `, ${keys.length} of ${plural(S, 'key')} ${keys.length === 1 ? 'is' : 'are'} visible.`],
  };
}

function softmaxStep(facts) {
  const {T, S, lanes, head, key, name, keyName, model, block, masked} = facts, sinks = model.blocks[block].sinks;
  return {
    title: 'Turn scores into weights',
    formula: [symbol('P', {sub: 'h'}, T, S), '=', 'softmax(', symbol('S', {sub: 'h'}, T, S), ')'],
    words: [`Softmax takes e to the power of each score and divides by the sum over the row${sinks ? ' and a learned sink' : ''}. The weights of ${masked ? 'the visible keys' : 'a query'} are ` +
      `positive and${sinks ? ', with the share of the sink,' : ''} add up to 100 %. In head ${head}, `,
    asQuery(name), ` gives ${percent(lanes[head].weightRow[key])} of its attention to `, asKey(keyName),
    `. Uniform attention would give it ${percent(1 / facts.keys.length)}.`],
  };
}

export const lookTitle = ({H}) => (H === 1 ? 'What the head attends to' : 'What each head attends to');

function sumStep(facts) {
  const {T, S, D, lanes, head, key, keyName} = facts;
  return {
    title: 'Average the values',
    formula: [symbol('O', {sub: 'h'}, T, D), '=', symbol('P', {sub: 'h'}, T, S), symbol('V', {sub: 'h'}, S, D)],
    words: [`The head's output is the weighted average of all value rows. In head ${head}, the value of `, asKey(keyName), ` has the weight ${percent(lanes[head].weightRow[key])}. ` +
      'In this step, information moves from one token to another.' + (lanes[head].off ? ' This head is switched off: its output is set to zero.' : '')],
  };
}

/* ---- After the heads --------------------------------------------------------------------------------------------- */

/* At most four heads are named: the first, the selected one, the last. */
function concatSymbols(T, D, H, head) {
  const shown = [...new Set(H <= 4 ? Array.from({length: H}, (_, h) => h) : [0, head, H - 1])].sort((a, b) => a - b);
  const parts = [];
  shown.forEach((h, n) => {
    if (n) parts.push(h - shown[n - 1] > 1 ? '| … |' : '|');
    parts.push(symbol('O', {sub: h}, T, D));
  });
  return parts;
}

function concatStep({T, D, H, M, head}) {
  return {
    title: H === 1 ? 'The output of the head' : 'Concatenate the heads',
    formula: [symbol('C', {}, T, H * D), '=', '[', ...concatSymbols(T, D, H, head), ']'],
    words: [H === 1 ? `If there were several heads, their outputs would be concatenated here, with ${D} columns each.`
      : `The outputs of the heads are placed side by side: ${H} × ${D} = ${H * D} numbers per token${H * D === M ? ', the width of the model' : ''}. Nothing is mixed yet: each head still has its own columns.`],
  };
}

function outputStep(facts) {
  const {T, M, D, H, head, model, block} = facts, [before, behind] = model.config.out_norm ? [[normName(facts) + '('], [')']] : [[], []];
  return {
    title: H === 1 ? 'The output matrix' : 'Combine the heads',
    formula: [symbol('A', {}, T, M), '=', ...before, symbol('C', {}, T, H * D), symbol('W', {sub: 'O'}, H * D, M), ...(model.blocks[block].proj.bias ? ['+', symbol('b', {sub: 'O'}, M)] : []), ...behind],
    words: [`The output matrix turns the ${H === 1 ? 'output of the head' : 'outputs of all heads'} into one row of ${M} numbers per token.`,
      H > 1 ? ` Each head has ${plural(D, 'row')} of this matrix${facts.matrices.WO ? `; those of head ${head} are framed` : ''}.` : '', before.length ? ' Every row is then normalized.' : ''],
  };
}

function residualStep(facts) {
  const {T, M, run, t, post} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  const sum = [symbol('X', {}, T, M), '+', symbol('A', {}, T, M)];
  return {
    title: 'Add the result to X',
    formula: post ? [symbol('X′', {}, T, M), '=', normName(facts) + '(', ...sum, ')'] : [symbol('X′', {}, T, M), '=', ...sum],
    words: [`Attention does not replace the row of a token, it adds to it (a residual connection). Here a row of length ${length(run.out)} is added to the framed row, whose length is ${length(run.x)}.`,
      post ? ' The sum is then normalized.' : ''],
  };
}

function mlpStep(facts) {
  const {T, M, F, run, t, post, parallel, between, model} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  const [before, behind] = model.config.out_norm ? [`${normName(facts)}(MLP(`, '))'] : ['MLP(', ')'], name = between ? 'X″' : 'X′';
  const inner = parallel ? 'X' : name, norm = parallel || facts.normed ? [`${normName(facts)}(`, symbol(inner, {}, T, M), ')'] : [symbol(inner, {}, T, M)];
  const sum = [symbol(name, {}, T, M), '+', before, ...norm, behind];
  return {
    title: 'The MLP: each token by itself',
    formula: post ? [symbol('Y', {}, T, M), '=', normName(facts) + '(', ...sum, ')'] : [symbol('Y', {}, T, M), '=', ...sum],
    words: [between ? 'Cross-attention comes first; it adds to X′ and leaves X″ (choose it above to walk through it). ' : '',
      parallel ? 'In parallel with attention, and from the same X, a' : between ? 'Then a' : 'A', ` small network processes each row separately: ${M} numbers become ${F}, pass through a nonlinear function, and become ${M} again. `,
      model.experts ? `There are ${model.experts} such networks (experts), and a router selects ${model.used} for each row. ` : '',
      `The result, a row of length ${length(run.mlp)} for the framed token, is added as well. Attention moves information between tokens; the MLP works on each token by itself.`],
  };
}

export const blocksFormula = (block, blocks) => [symbol('Y', {}, `block ${block}`), '→',
  block + 1 < blocks ? symbol('X', {}, `block ${block + 1}`) : symbol('output', {}, 'last block')];

export function blocksWords(block, blocks) {
  if (blocks === 1) return 'This model has a single block. ';
  const here = `These were the steps of block ${block}; the blocks are numbered from 0 to ${blocks - 1}. `;
  return here + (block + 1 < blocks ? 'The next block reads Y and does the same with its own weights. ' : 'It is the last one, so the output is computed from Y. ');
}

export const blocksTitle = (blocks) => (blocks === 1 ? 'One block' : `${blocks} blocks, one after the other`);
export const laterBlocks = (blocks) => (blocks === 1 ? ''
  : ' Later blocks compare rows that already contain information from other tokens. Each block has a colour scale of its own.');

function blocksStep({blocks, block, name, H}) {
  return {
    title: blocksTitle(blocks),
    formula: blocksFormula(block, blocks),
    words: [blocksWords(block, blocks),
      `Each square shows what one ${H === 1 ? 'block' : 'head'} attends to from `, asQuery(name), '.', laterBlocks(blocks)],
  };
}

/* All steps, in their order; those that depend on what the tokens are come from the walk. */
export const stepOrder = ['cut', 'tokens', 'norm', 'project', 'split', 'scores', 'mask', 'softmax', 'look', 'sum', 'concat', 'output', 'residual', 'mlp',
  'blocks', 'answer'];
const steps = {norm: normStep, project: projectStep, split: splitStep, scores: scoresStep, mask: maskStep, softmax: softmaxStep, sum: sumStep, concat: concatStep,
  output: outputStep, residual: residualStep, mlp: mlpStep, blocks: blocksStep};

export const stepText = (key, facts) => (facts.walk.steps[key] || steps[key])(facts);

/* The steps of a model: one whose attention reads the tokens themselves has no norm before it, one whose queries see all keys no mask. Cross-attention
 * begins with the rows that the attention before it has left, and ends where it adds to them. */
const crossSkips = ['cut', 'mlp', 'blocks', 'answer'];
export const stepKeys = (model) => stepOrder.filter((key) => (key !== 'norm' || model.config.normed) && (key !== 'mask' || hasMask(model)) &&
  !(model.cross && crossSkips.includes(key)));

export const wordsText = (words) => words.map((part) => part.text || part).join('');
