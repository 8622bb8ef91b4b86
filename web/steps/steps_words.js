/* The text of the walk-through: title, formula and explanation of each step, with the numbers of the marked query and key.
 *
 * A step of `steps` is a function of the facts that returns {title, formula, words}. A formula is a list of signs and of
 * symbols with their shapes. Words are a list of texts; query`..` and key`..` have the colours of their marks. */

function symbol(text, marks, ...shape) {
  return {text, ...marks, shape: shape.join(' × ')};
}

const asQuery = (text) => ({text, role: 'query'});
const asKey = (text) => ({text, role: 'key'});

const normName = ({model}) => (model.config.norm === 'rms' ? 'RMSNorm' : 'LayerNorm');

/* ---- Before the heads -------------------------------------------------------------------------------------------- */

/* The tokens of a block behind the first, whatever they were before it; `row` names the framed one. */
function laterTokensStep({block, T, M}, row) {
  return {
    title: `The tokens that block ${block + 1} reads`,
    formula: [symbol('X', {}, T, M)],
    words: [`Block ${block + 1} reads what block ${block} wrote: still one row of ${M} numbers per token, but a row now also holds ` +
      'what the token has gathered from others. The framed row is ', ...row],
  };
}

function normStep(facts) {
  const {T, M, run, t} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  if (run.n.every((x, i) => x === run.x[i])) {
    return {title: 'No norm yet', formula: [symbol('N', {}, T, M), '=', symbol('X', {}, T, M)],
      words: ['Other blocks of this model bring each row to a similar size first; this one takes the rows as they are. X itself waits on the left: it will be needed again.']};
  }
  return {
    title: 'Normalize every row',
    formula: [symbol('N', {}, T, M), '=', normName(facts) + '(', symbol('X', {}, T, M), ')'],
    words: ['Each row is brought to a similar size, so that no token shouts down the others. The length of the framed row goes ' +
      `from ${length(run.x)} to ${length(run.n)}. X itself waits on the left: it will be needed again.`],
  };
}

/* ---- The heads --------------------------------------------------------------------------------------------------- */

function projectStep({T, M, H, G, D, model, block, normed}) {
  const bias = model.blocks[block].qkv.bias ? ['+', symbol('b', {}, (H + 2 * G) * D)] : [];
  const shared = G < H ? ` Keys and values have ${G} slices only: ${H / G} heads share each.` : '', {rotary_base: rotary, qk_norm: norm} = model.blocks[block];
  const then = [norm > 0 && 'brought to a similar size', rotary > 0 && 'turned by their positions (a rotary embedding)'].filter(Boolean).join(' and ');
  return {
    title: 'Queries, keys and values',
    formula: [symbol('[Q K V]', {}, T, (H + 2 * G) * D), '=', symbol(normed ? 'N' : 'X', {}, T, M), symbol('W', {}, M, (H + 2 * G) * D), ...bias],
    words: ['One product gives every token three new rows. Its ', asQuery('query'), ' says what it is looking for. Its ', asKey('key'),
      ' says what it has to offer. Its value is what it hands over when another token attends to it.' + shared,
      then && ` Queries and keys are then ${then}, as they are shown here.`],
  };
}

function splitStep({H, D, T}) {
  return {
    title: H === 1 ? 'One head' : `Split them among ${H} heads`,
    formula: [symbol('Q', {sub: 'h'}, T, D), ',', symbol('K', {sub: 'h'}, T, D), ',', symbol('V', {sub: 'h'}, T, D),
      H > 1 ? `h = 1 … ${H}` : 'h = 1'],
    words: [H === 1 ? `This block has a single head; it takes all ${D} columns. ` : `Each head takes its own ${plural(D, 'column')} of Q, K and V, and from ` +
      'here on works alone. That is why there are several: each can look for something else. ',
    'In Q the ', asQuery('query'), ' of our token is framed, in K and V the ', asKey('key'), ' that is compared with it.'],
  };
}

/* What becomes of the product of a query and a key: here, it is divided by the root of the width. `more` is what else happens to it, in
 * sentences; `plain` if nothing does. */
function rootScaling(D) {
  return {plain: true, note: `QKᵀ ÷ √${D}`, words: `, divided by √${D} so that it does not grow with the width`, more: '',
    formula: ['÷', symbol(`√${D}`, {}, shortNumber(Math.sqrt(D)))]};
}

function scoresStep(facts) {
  const {T, D, lanes, head, key, name, keyName, t, model, walk: {scaling}} = facts, later = model.config.causal ? T - 1 - t : 0;
  const hidden = later ? ` A causal model hides the ${later === 1 ? 'token' : plural(later, 'token')} after it.` : '';
  return {
    title: 'Compare the query with every key',
    formula: [symbol('S', {sub: 'h'}, T, T), '=', symbol('Q', {sub: 'h'}, T, D), symbol('K', {sub: 'h', sup: 'T'}, D, T), ...scaling.formula],
    words: [`A score is the dot product of a query and a key${scaling.words}. It is large where the two match. ${scaling.more}`, `In head ${head + 1}, `,
      asQuery(name), ' and ', asKey(keyName), ` score ${barText('score', lanes[head].scoreRow[key])}.${hidden}`],
  };
}

function softmaxStep(facts) {
  const {T, lanes, head, key, name, keyName, model, block} = facts;
  return {
    title: 'Turn scores into weights',
    formula: [symbol('P', {sub: 'h'}, T, T), '=', 'softmax(', symbol('S', {sub: 'h'}, T, T), ')'],
    words: [model.blocks[block].sinks ? 'e to the power of each score, divided by the sum over the row and a learned sink: all weights of a query are positive; with the share of the sink they add up to 100 %. In head '
      : 'e to the power of each score, divided by the sum over the row: all weights of a query are positive and add up to 100 %. In head ',
    `${head + 1}, `, asQuery(name), ` gives ${percent(lanes[head].weightRow[key])} of its attention to `, asKey(keyName),
      `. Uniform attention would be ${percent(1 / facts.keys.length)}.`],
  };
}

function sumStep(facts) {
  const {T, D, lanes, head, key, keyName} = facts;
  return {
    title: 'Mix the values',
    formula: [symbol('O', {sub: 'h'}, T, D), '=', symbol('P', {sub: 'h'}, T, T), symbol('V', {sub: 'h'}, T, D)],
    words: ['Every value counts as much as its weight, and their sum is the output of the head for our token. In head ', `${head + 1} it holds ${percent(lanes[head].weightRow[key])} of the value of `,
      asKey(keyName), '. This is the moment when information moves from one token to another.' + (lanes[head].off ? ' This head is switched off: its output is zero.' : '')],
  };
}

/* ---- After the heads --------------------------------------------------------------------------------------------- */

/* At most four heads are named: the first, the selected one, the last. */
function concatSymbols(T, D, H, head) {
  const shown = [...new Set(H <= 4 ? Array.from({length: H}, (_, h) => h) : [0, head, H - 1])].sort((a, b) => a - b);
  const parts = [];
  shown.forEach((h, n) => {
    if (n) parts.push(h - shown[n - 1] > 1 ? '| … |' : '|');
    parts.push(symbol('O', {sub: h + 1}, T, D));
  });
  return parts;
}

function concatStep({T, D, H, M, head}) {
  return {
    title: H === 1 ? 'The output of the head' : 'Put the heads side by side',
    formula: [symbol('C', {}, T, H * D), '=', '[', ...concatSymbols(T, D, H, head), ']'],
    words: [H === 1 ? `With several heads, their outputs would now be concatenated: ${D} columns each.`
      : `The outputs of the heads are concatenated: ${H} × ${D} = ${H * D} numbers per token${H * D === M ? ' again' : ''}. Nothing is added or lost; each head still has its own columns.`],
  };
}

function outputStep(facts) {
  const {T, M, D, H, head, model, block} = facts, [before, behind] = model.config.out_norm ? [[normName(facts) + '('], [')']] : [[], []];
  return {
    title: H === 1 ? 'The output matrix' : 'Combine the heads',
    formula: [symbol('A', {}, T, M), '=', ...before, symbol('C', {}, T, H * D), symbol('W', {sub: 'O'}, H * D, M), ...(model.blocks[block].proj.bias ? ['+', symbol('b', {sub: 'O'}, M)] : []), ...behind],
    words: [`The output matrix mixes what the ${H === 1 ? 'head' : 'heads'} found into one row of ${M} numbers per token.`,
      H > 1 ? ` Each head has ${plural(D, 'row')} of it${facts.matrices.WO ? `; those of head ${head + 1} are framed` : ''}.` : '', before.length ? ' Then every row is brought to a similar size.' : ''],
  };
}

function residualStep(facts) {
  const {T, M, run, t, post} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  const sum = [symbol('X', {}, T, M), '+', symbol('A', {}, T, M)];
  return {
    title: 'Add the result to the tokens',
    formula: post ? [symbol('X′', {}, T, M), '=', normName(facts) + '(', ...sum, ')'] : [symbol('X′', {}, T, M), '=', ...sum],
    words: [`X comes back: attention does not replace a token, it adds to it (a residual connection). A row of length ${length(run.out)} is added to the framed row of length ${length(run.x)}.`,
      post ? ' Then the sum is normalized.' : ''],
  };
}

function mlpStep(facts) {
  const {T, M, F, run, t, post, parallel, model} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  const [before, behind] = model.config.out_norm ? ['norm(MLP(', '))'] : ['MLP(', ')'];
  const sum = [symbol('X′', {}, T, M), '+', before, symbol(parallel ? 'norm(X)' : facts.normed ? 'norm(X′)' : 'X′', {}, T, M), behind];
  return {
    title: 'The MLP: every token on its own',
    formula: post ? [symbol('Y', {}, T, M), '=', normName(facts) + '(', ...sum, ')'] : [symbol('Y', {}, T, M), '=', ...sum],
    words: [parallel ? 'Beside attention, and from the same X: a' : 'A', ` small network processes each row separately: ${M} numbers become ${F}, pass a nonlinear function, and become ${M} again. `,
      model.experts ? `There are ${model.experts} of them, and each row goes through the ${model.used} that fit it best. ` : '',
      `The result, of length ${length(run.mlp)} in the framed row, is added too. Attention moves information between tokens; the MLP works ${parallel ? 'on each alone' : 'on what has arrived'}.`],
  };
}

const blocksFormula = (block, blocks) => [symbol('Y', {}, `block ${block + 1}`), '→',
  block + 1 < blocks ? symbol('X', {}, 'next block') : symbol('answer', {}, 'last norm')];

function blocksWords(block, blocks) {
  if (blocks === 1) return 'This model has one block. ';
  const here = `All of this was block ${block + 1} of ${blocks}. `;
  return here + (block + 1 < blocks ? 'The next block reads Y and does the same with its own weights. ' : 'It is the last one: the answer comes from Y. ');
}

function blocksStep({blocks, block, name, H}) {
  return {
    title: blocks === 1 ? 'One block' : `${blocks} blocks, one after the other`,
    formula: blocksFormula(block, blocks),
    words: [blocksWords(block, blocks),
      `Each square shows where one ${H === 1 ? 'block' : 'head'} looks from `, asQuery(name), '. Later blocks compare tokens that have already gathered information.'],
  };
}

/* All steps, in their order; those that depend on what the tokens are come from the walk. */
const stepOrder = ['cut', 'tokens', 'norm', 'project', 'split', 'scores', 'softmax', 'look', 'sum', 'concat', 'output', 'residual', 'mlp',
  'blocks', 'answer'];
const steps = {norm: normStep, project: projectStep, split: splitStep, scores: scoresStep, softmax: softmaxStep, sum: sumStep, concat: concatStep,
  output: outputStep, residual: residualStep, mlp: mlpStep, blocks: blocksStep};

const stepText = (key, facts) => (facts.walk.steps[key] || steps[key])(facts);

/* The steps of a model: one whose attention reads the tokens themselves has no norm before it. */
const stepKeys = ({config}) => stepOrder.filter((key) => key !== 'norm' || config.normed);

const wordsText = (words) => words.map((part) => part.text || part).join('');
