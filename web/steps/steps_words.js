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

function patchesStep({model, T, name}) {
  const {patch} = model.config, size = `${patch} × ${patch}`;
  return {
    title: 'Cut the image into patches',
    formula: [symbol('image', {}, model.config.rows, model.config.columns), '→', symbol('patches', {}, model.patches, size)],
    words: [`A transformer reads a list of tokens. Here the ${plural(model.patches, 'patch', 'patches')} of ${size} pixels are the tokens`,
      model.first ? ', plus one class token, “cls”, which carries no pixels: the answer will be read from it. ' : '. ',
      'We follow ', asQuery(name), `, one of ${T} tokens.`],
  };
}

function tokensStep({block, T, M, model, name, run, t}) {
  const X = symbol('X', {}, T, M), size = model.config.patch ** 2;
  if (block > 0) {
    return {title: `The tokens that block ${block + 1} reads`, formula: [X],
      words: [`Block ${block + 1} reads what block ${block} wrote: still one row of ${M} numbers per token, but a row now also holds ` +
        'what the token has gathered from others. The framed row is ', asQuery(name), '.']};
  }
  return {
    title: 'Every patch becomes a row of numbers',
    formula: [X, '=', symbol('pixels', {}, T, size), symbol('W', {sub: 'E'}, size, M), '+', symbol('positions', {}, T, M)],
    words: [`A learned matrix turns the ${plural(size, 'pixel')} of a patch into ${M} numbers; a row for its position is added, so that ` +
      'the model knows where the patch was. From here on, a token is a row. The framed row is ', asQuery(name),
    `, of length ${shortNumber(lengthOf(rowOf(run.x, M, t)))}.`],
  };
}

function normStep(facts) {
  const {T, M, run, t} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  return {
    title: 'Normalize every row',
    formula: [symbol('N', {}, T, M), '=', normName(facts) + '(', symbol('X', {}, T, M), ')'],
    words: ['Each row is brought to a similar size, so that no token shouts down the others. The length of the framed row goes ' +
      `from ${length(run.x)} to ${length(run.n)}. X itself waits on the left: it will be needed again.`],
  };
}

/* ---- The heads --------------------------------------------------------------------------------------------------- */

function projectStep({T, M, H, G, D, model, block, post}) {
  const bias = model.blocks[block].qkv.bias ? ['+', symbol('b', {}, (H + 2 * G) * D)] : [];
  const shared = G < H ? ` Keys and values have ${G} slices only: ${H / G} heads share each.` : '';
  return {
    title: 'Queries, keys and values',
    formula: [symbol('[Q K V]', {}, T, (H + 2 * G) * D), '=', symbol(post ? 'X' : 'N', {}, T, M), symbol('W', {}, M, (H + 2 * G) * D), ...bias],
    words: ['One product gives every token three new rows. Its ', asQuery('query'), ' says what it is looking for. Its ', asKey('key'),
      ' says what it has to offer. Its value is what it hands over when another token attends to it.' + shared],
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

function scoresStep(facts) {
  const {T, D, lanes, head, key, name, keyName, visible} = facts;
  const hidden = visible < T ? ` A causal model hides the ${plural(T - visible, 'token')} after it.` : '';
  return {
    title: 'Compare the query with every key',
    formula: [symbol('S', {sub: 'h'}, T, T), '=', symbol('Q', {sub: 'h'}, T, D), symbol('K', {sub: 'h', sup: 'T'}, D, T), '÷', symbol(`√${D}`, {}, shortNumber(Math.sqrt(D)))],
    words: ['A score is the dot product of a query and a key, divided by √', `${D} so that it does not grow with the width. It is large where the two match. In head ${head + 1}, `,
      asQuery(name), ' and ', asKey(keyName), ` score ${barText('score', lanes[head].scoreRow[key])}.${hidden}`],
  };
}

function softmaxStep(facts) {
  const {T, lanes, head, key, name, keyName} = facts;
  return {
    title: 'Turn scores into weights',
    formula: [symbol('P', {sub: 'h'}, T, T), '=', 'softmax(', symbol('S', {sub: 'h'}, T, T), ')'],
    words: ['e to the power of each score, divided by the sum over the row: all weights of a query are positive and add up to 100 %. In head ',
      `${head + 1}, `, asQuery(name), ` gives ${percent(lanes[head].weightRow[key])} of its attention to `, asKey(keyName),
      `. Uniform attention would be ${percent(1 / facts.visible)}.`],
  };
}

function lookStep({model, H, name, keyName}) {
  return {
    title: H === 1 ? 'Where the head looks' : 'Where each head looks',
    formula: [symbol('row of P', {sub: 'h'}, 1, model.tokens), '→', symbol('patches', {}, model.down, model.across)],
    words: ['The same weights, each put on its patch: strong colour where the head looks',
      model.first ? '; the square below is the class token. ' : '. ', asQuery(name), ` looks somewhere else in ${H === 1 ? 'each block' : 'each head'}; framed is also `,
      asKey(keyName), '.'],
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

function concatStep({T, D, H, head}) {
  return {
    title: H === 1 ? 'The output of the head' : 'Put the heads side by side',
    formula: [symbol('C', {}, T, H * D), '=', '[', ...concatSymbols(T, D, H, head), ']'],
    words: [H === 1 ? `With several heads, their outputs would now be concatenated: ${D} columns each.`
      : `The outputs of the heads are concatenated: ${H} × ${D} = ${H * D} numbers per token again. Nothing is added or lost; each head still has its own columns.`],
  };
}

function outputStep({T, M, D, H, head, model, block}) {
  return {
    title: 'Combine the heads',
    formula: [symbol('A', {}, T, M), '=', symbol('C', {}, T, H * D), symbol('W', {sub: 'O'}, H * D, M), ...(model.blocks[block].proj.bias ? ['+', symbol('b', {sub: 'O'}, M)] : [])],
    words: [`The output matrix mixes what the heads found into one row of ${M} numbers per token. Each head has ${plural(D, 'row')} of it`,
      H > 1 ? `; those of head ${head + 1} are framed.` : '.'],
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
  const {T, M, F, run, t, post} = facts, length = (matrix) => shortNumber(lengthOf(rowOf(matrix, M, t)));
  const sum = [symbol('X′', {}, T, M), '+', 'MLP(', symbol(post ? 'X′' : 'norm(X′)', {}, T, M), ')'];
  return {
    title: 'The MLP: every token on its own',
    formula: post ? [symbol('Y', {}, T, M), '=', normName(facts) + '(', ...sum, ')'] : [symbol('Y', {}, T, M), '=', ...sum],
    words: [`A small network processes each row separately: ${M} numbers become ${F}, pass a nonlinear function, and become ${M} again. ` +
      `The result, of length ${length(run.mlp)} in the framed row, is added too. Attention moves information between tokens; the MLP works on what has arrived.`],
  };
}

function blocksStep({blocks, block, name, H}) {
  return {
    title: blocks === 1 ? 'One block' : `${blocks} blocks, one after the other`,
    formula: [symbol('Y', {}, `block ${block + 1}`), '→', blocks > 1 ? symbol('X', {}, 'next block') : symbol('answer', {}, 'last norm')],
    words: [blocks === 1 ? 'This model has one block. ' : `All of this was block ${block + 1} of ${blocks}. The next block reads Y and does the same with its own weights. `,
      `Each square shows where one ${H === 1 ? 'block' : 'head'} looks from `, asQuery(name), '. Later blocks compare tokens that have already gathered information.'],
  };
}

function answerStep({model, probabilities, M}) {
  const best = bestOf(probabilities), classes = model.config.classes;
  return {
    title: 'The answer',
    formula: [symbol('probabilities', {}, classes), '=', 'softmax(', symbol(model.first ? 'cls row' : 'mean row', {}, M), symbol('W', {}, M, classes), ')'],
    words: [model.first ? 'After the last block only the row of the class token is used: it has attended to the patches in every block. '
      : 'After the last block the mean of all rows is used. ',
    `One last matrix turns it into a score per class, and softmax into probabilities: ${best} with ${percent(probabilities[best])}.`],
  };
}

const steps = {patches: patchesStep, tokens: tokensStep, norm: normStep, project: projectStep, split: splitStep, scores: scoresStep,
  softmax: softmaxStep, look: lookStep, sum: sumStep, concat: concatStep, output: outputStep, residual: residualStep, mlp: mlpStep,
  blocks: blocksStep, answer: answerStep};

/* The steps of a model: one with norms behind attention has no norm before it. */
function stepKeys(model) {
  return Object.keys(steps).filter((key) => key !== 'norm' || model.config.order !== 'post');
}

const wordsText = (words) => words.map((part) => part.text || part).join('');
