/* The walk-through over a text: its tokens are words, or pieces of words. steps_image.js says what a walk is. */

const walkMost = 48; /* tokens */

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* What steps read of a model, from its description (mha_model_describe): its only stack, or the encoder of two. */
function textModel({encoder, decoder, output}) {
  const stack = encoder || decoder, {width, mlp, norm, norm_place: place, parallel, causal, attention, input, experts = 0, experts_used: used = 0} = stack;
  return {
    input, output, experts, used,
    config: {width, mlp, norm, causal, parallel, head_width: attention[0].head_width, final_norm: stack.final_norm,
      normed: place === 'before' || place === 'both', out_norm: place === 'both' || place === 'after', post: place === 'behind'},
    blocks: attention.map((own) => ({...own, groups: own.kv_heads, qkv: {bias: own.in_bias}, proj: {bias: own.out_bias}})),
  };
}

/* How tokens get their positions, in words; null: not from their rows. */
const positionWords = {
  learned: 'a learned row for its position is added, so that the model knows where the token stands',
  sinusoidal: 'a fixed wave for its position is added, so that the model knows where the token stands',
};

/* What happens to the product of a query and a key before it is a score: {formula, note, words, more}. */
function scalingOf({blocks}, block, D) {
  const {scale, softcap, alibi, relative_buckets: relative, rotary_base: rotary, window_left: left, window_right: right} = blocks[block];
  const root = scale === null || Math.abs(scale * Math.sqrt(D) - 1) < 1e-6, plain = scale === 1, sign = plain ? '' : root ? ` ÷ √${D}` : ` × ${shortNumber(scale)}`;
  const by = plain ? '' : root ? `, divided by √${D} so that it does not grow with the width` : `, times ${shortNumber(scale)}`;
  const near = [left >= 0 && `${left} before`, right >= 0 && `${right} after`].filter(Boolean).join(' and ');
  const more = [rotary > 0 && 'Queries and keys were turned by their positions before (a rotary embedding), so the distance of the two counts.',
    relative && 'A learned number for the distance of the two tokens is added.',
    alibi && 'The farther the key is away, the more is subtracted (ALiBi).',
    softcap > 0 && `A tanh keeps scores between −${softcap} and ${softcap}.`,
    near && `Of the other tokens only those up to ${near} the query are visible.`].filter(Boolean);
  return {plain: root && !relative && !alibi && !(softcap > 0), note: `QKᵀ${sign}${relative || alibi ? ' + distance' : ''}`, words: by,
    more: more.map((words) => words + ' ').join(''),
    formula: [...(plain ? [] : root ? rootScaling(D).formula : ['×', symbol(shortNumber(scale), {}, 'scale')]),
      ...(relative || alibi ? ['+', symbol('distance', {}, 'T × T')] : [])]};
}

/* ---- Scenes ------------------------------------------------------------------------------------------------------ */

/* The text above its tokens, which come out of it one after the other. */
function wordsScene(facts, layout) {
  const {words, text: whole} = facts.walk, {size, boxes, text, arrow} = cutText(words, whole, layout), all = {x: 0, y: 0, width: layout.width, height: layout.height};
  const origins = boxes.map((box) => ({...box, y: arrow.y - box.height}));
  return {pieces: {
    text: {kind: 'lines', box: all, text, size},
    'cut-sign': {kind: 'sign', text: '↓', box: arrow},
    rail0: {kind: 'rail', boxes, origins, box: all, each: 0, edge: 0, size},
  }};
}

const textTokensScene = (facts, layout) => rowScene(facts, layout, 'tokens', [{id: 'X', how: 'rows', options: {from: 'rail0'}}]);

/* The tokens beside the final rows. */
function textSubject(facts, layout) {
  const {top, bottom} = layout;
  return {left: layout.rail, pieces: {rail0: {...railPiece(facts, layout, 0, top, bottom - top), readOut: true}}};
}

/* ---- The text of steps ------------------------------------------------------------------------------------------- */

/* Whether a token is a sign of the model, such as <s> or [SEP]. */
const isSign = (word) => /^[<[].+[\]>]$/.test(word);

function wordsStep({T, model, name, walk}) {
  return {
    title: 'Cut the text into tokens',
    formula: [symbol('text', {}, plural(lettersOf(walk.text).length, 'character')), '→', symbol('tokens', {}, T)],
    words: [`A transformer reads a list of tokens: words, or pieces of words, that it knows by number. It has ${model.input.vocabulary.toLocaleString('en')} of ` +
      'them; the numbers stand below. ', walk.words.some(isSign) ? `A sign such as ${walk.words.find(isSign)} is no part of the text: it tells the model where something begins or ends. ` : '',
      'We follow ', asQuery(name), `, one of ${plural(T, 'token')}.`, walk.cut],
  };
}

function textTokensStep(facts) {
  const {block, T, M, model, name, run, t} = facts, row = [asQuery(name), `, of length ${shortNumber(lengthOf(rowOf(run.x, M, t)))}.`];
  if (block > 0) return laterTokensStep(facts, row);
  const {positions, vocabulary, norm, scale, width} = model.input, place = positionWords[positions], own = width || M;
  return {
    title: 'Every token becomes a row of numbers',
    formula: [symbol('X', {}, T, M), '=', symbol('rows of E', {}, `${vocabulary} × ${own}`), ...(own === M ? [] : [symbol('W', {}, own, M)]), ...(place ? ['+', symbol('positions', {}, T, M)] : [])],
    words: [`The model has learned a table with a row of ${own} numbers for every token that it knows. Each token of the text gets its row`,
      scale === 1 ? '' : `, times ${shortNumber(scale)}`, own === M ? '; ' : `, and a matrix makes it ${M} numbers wide; `,
      place ? `${place}. ` : 'where it stands comes in later, when tokens are compared. ', norm ? 'All rows are then brought to a similar size. ' : '',
      'From here on, a token is a row. The framed row is ', ...row],
  };
}

function textLookStep({T, H, name, keyName}) {
  return {
    title: H === 1 ? 'Where the head looks' : 'Where each head looks',
    formula: [symbol('row of P', {sub: 'h'}, 1, T), '→', symbol('words', {}, T)],
    words: ['The same weights, each on its word: strong colour where the head looks. Shown are ', asQuery(name), ', ', asKey(keyName),
      ' and the words with the largest weights, in the order of the text.', H === 1 ? '' : ' Every head has weights of its own, and so can look for something else.'],
  };
}

function textBlocksStep({blocks, block, H}) {
  return {
    title: blocks === 1 ? 'One block' : `${blocks} blocks, one after the other`,
    formula: blocksFormula(block, blocks),
    words: [blocksWords(block, blocks),
      `Each square has all weights of one ${H === 1 ? 'block' : 'head'}: a row for each query, a column for each key. `,
      'Later blocks compare tokens that have already gathered information.'],
  };
}

/* What the last rows are for, by the kind of model. */
function textAnswerStep({model, answers, M, walk}) {
  const classes = model.output.classes, best = answers[0], {softcap} = model.output, row = symbol(walk.masked ? 'row of the mask' : 'last row', {}, M);
  if (!best) return {title: 'The result', formula: [symbol('rows', {}, walk.T, M)], words: [walk.aim]};
  return {
    title: 'The answer',
    formula: [symbol('probabilities', {}, classes), '=', 'softmax(', ...(model.config.final_norm ? ['norm(', row, ')'] : [row]), symbol('W', {}, M, classes), ')'],
    words: [`After the last block only the row of ${walk.masked ? 'the mask' : walk.lastName} is used. `,
      `One last matrix turns it into a score for each of the ${classes.toLocaleString('en')} tokens, ${softcap > 0 ? `a tanh keeps it between −${softcap} and ${softcap}, ` : ''}and ` +
      `softmax makes probabilities of them: “${best.name}” with ${percent(best.share)}, before the settings above change it. `,
      walk.masked ? 'That is the word which the model expects in place of the mask.' : 'The model appends one of them, and everything begins anew with a longer text.'],
  };
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

const textWalk = {
  steps: {cut: wordsStep, tokens: textTokensStep, look: textLookStep, blocks: textBlocksStep, answer: textAnswerStep},
  scenes: {cut: wordsScene, tokens: textTokensScene},
  drawers: {rail: drawWordRail, list: drawWordList, lines: drawLines},
  hits: {
    list({box, keys, each, h}, at, facts) {
      const cell = cellAt(box, at, keys.length, 1), key = cell && keys[cell.row];
      return cell ? {lines: [percent(facts.lanes[h].weightRow[key]), `key: ${facts.nameOf(key)}`, `head ${h + 1}`], choice: {head: h, key}} : null;
    },
  },
  look: lookAtWords,
  looksAlone: true, /* its words stand in lists, not in rows */
  subject: textSubject,
  drawKey: drawKeyWord,
  cardHeight: 1,
  railSizes: (narrow) => ({rail: narrow ? 56 : 96}),
  matrices: () => ({}),
  isOn: () => true,
  numbers: {
    cut: () => [],
    answer: () => [],
  },
};

/* The whole maps of heads as pictures, created on demand. */
function textCards(set, T) {
  const cards = new Map(), size = set.queries * set.keys, scale = weightScale('linear', 1 / T, 1);
  return (b, h) => {
    const n = b * set.heads + h;
    if (!cards.has(n)) {
      const map = set.weights.numbers.subarray(n * size, (n + 1) * size), canvas = element('canvas');
      drawHeatmap(canvas, Float32Array.from({length: T * T}, (_, i) => map[Math.floor(i / T) * set.keys + (i % T)]), T, T, scale);
      cards.set(n, canvas);
    }
    return cards.get(n);
  };
}

/* What the rows at the end are, where no token is predicted from them. */
const textAims = {
  pair: () => 'After the last block of the encoder every row knows its token and what stands around it. The decoder reads these rows: with each token that ' +
    'it writes, its queries are compared with their keys (cross-attention).',
  masks: () => 'After the last block every row knows its token and what stands around it. With a mask in the text, the model would predict the word in its place from its row.',
  classes: ({output}) => `After the last block every row knows its token and what stands around it. From them the model computes a score for each of the ${output.classes} ` +
    'classes that it tells apart.',
  rows: () => 'After the last block every row knows its token and what stands around it: words with the same meaning in the same role have similar rows. Their mean ' +
    'can stand for the whole text, for example to find similar ones.',
};

function aimOf({kind, mask}, {output}) {
  if (kind === 'pair') return 'pair';
  return mask >= 0 ? 'masks' : output.classes && output.pool !== 'none' ? 'classes' : 'rows';
}

/* The head of a block that looks most at one key other than the first token and the query itself. */
function tellingHead(set, block, token) {
  const size = set.queries * set.keys;
  const strength = Array.from({length: set.heads}, (_, h) => {
    const row = rowOf(set.weights.numbers.subarray((block * set.heads + h) * size, (block * set.heads + h + 1) * size), set.keys, token);
    return Math.max(0, ...Array.from(row).filter((_, j) => j !== 0 && j !== token));
  });
  return bestOf(strength);
}

/* The store of a walk that begins in block 1, where tokens still are words. It follows the text and the query of the panel of maps, `maps`,
 * and is followed in the query. */
function createWalkStore(maps) {
  const follow = ({set, token, theme}) => ({set, token, theme}), first = follow(maps.get());
  const head = first.set.weights.numbers ? tellingHead(first.set, 0, first.token) : 0;
  const store = createStore({...first, block: 0, head, key: null, step: 0, problem: null});
  maps.on(['set', 'token', 'theme'], (state) => store.set(follow(state)));
  store.on('token', ({token}) => token !== maps.get().token && maps.set({token}));
  return store;
}

/* What the panel walks over: the text of the writing panel, as its only stack or its encoder reads it. */
function textSource(maps, writing, {live, title}) {
  const model = textModel(live.description), store = createWalkStore(maps), engine = writing.writer.model, pair = live.kind === 'pair';
  /* The attentions of the stack, block by block. */
  const own = Array.from(engine.attentions.keys()).filter((n) => !engine.attentions[n].cross && !(pair && engine.attentions[n].decoder));
  let run = null;
  writing.store.on('problem', ({problem}) => store.set({problem}));
  /* What the tokens stand for, on one line. */
  const textOf = (ids) => engine.text(ids).trim().replace(/\s+/g, ' ');
  const sideNow = () => writing.store.get().result && writing.store.get().result.sides[0];
  const idsNow = () => Array.from(sideNow().ids.slice(0, walkMost));

  function inside(state, b) {
    if (!run || run.set !== state.set) run = {set: state.set, blocks: new Map()};
    if (!run.blocks.has(b)) {
      const found = engine.insideTokens(own[b], idsNow(), pair ? writing.store.get().result.sides[1].ids : []), {heads, groups} = model.blocks[b];
      run.blocks.set(b, splitInside(found, heads, groups));
    }
    return run.blocks.get(b);
  }

  /* What is predicted: {answers, readOut, masked}, with the row that it is read from, if it is one of those that are shown. */
  function predicted(T) {
    const {next} = writing.store.get(), masked = live.kind === 'encoder';
    if (pair || !next || !next.length) return {answers: [], readOut: undefined};
    const {row, list} = next[0];
    return {answers: list.slice(0, 10).map(({word, raw}) => ({name: wordOf(word), share: raw})), readOut: row < T ? row : undefined, masked};
  }

  return {
    model, store,
    changes: ['set', 'block', 'head', 'token', 'key', 'theme', 'problem'],
    forgetKey: ['set', 'block', 'token'],
    hint: 'Click a row, a word or a bar to mark another query, key or head.',
    choices: () => idsNow().map((_, t) => `${t + 1} “${wordOf(sideNow().words[t])}”`),
    about: () => `${title}, ${pair ? 'encoder' : 'text'}`,
    /* Why there is nothing to walk over; null if there is. */
    why() {
      const side = sideNow();
      if (writing.store.get().problem || !side) return 'There is no text that the model can read.';
      if (model.config.causal || side.ids.length <= walkMost) return null;
      return `The walk-through takes up to ${walkMost} tokens; this text has ${side.ids.length.toLocaleString('en')}. Shorten it to see its steps.`;
    },
    facts() {
      const state = store.get(), side = sideNow(), ids = idsNow(), T = ids.length, words = side.words.slice(0, T).map(wordOf), {block} = state;
      const head = Math.min(state.head, model.blocks[block].heads - 1), {masked, ...answer} = predicted(T);
      const cut = T < side.ids.length ? ` The steps show the first ${T} of ${side.ids.length.toLocaleString('en')}: later ones change nothing in them.` : '';
      const scaling = scalingOf(model, block, model.config.head_width);
      const walk = {...textWalk, model, T, ids, words, cut, masked, scaling, text: textOf(ids),
        aim: textAims[aimOf(live, model)](model), lastName: `“${clipToken(wordOf(side.words.at(-1)), 24)}” (token ${side.words.length})`,
        longName: (t) => `“${clipToken(words[t], 24)}” (token ${t + 1})`, shortName: (t) => `“${clipToken(words[t], 12)}”`,
        railBoxes: (...place) => wordRailBoxes(words, ...place), cardOf: textCards(state.set, T)};
      const facts = stepFacts(walk, {...state, head, token: Math.min(state.token, T - 1)}, inside(state, block), () => inside(state, model.blocks.length - 1));
      return Object.assign(facts, answer);
    },
  };
}
