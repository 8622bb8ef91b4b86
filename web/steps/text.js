/* The walk-through over a text: its tokens are words, or pieces of words. image.js says what a walk is. */

import {element} from '../base/dom.js';
import {drawHeatmap, weightScale} from '../base/heatmap.js';
import {bestOf, remember} from '../base/numbers.js';
import {createStore} from '../base/store.js';
import {clipToken, lettersOf} from '../base/text.js';
import {percent, plural, probabilityWords, shortNumber} from '../base/words.js';
import {lengthOf, rowOf, splitInside, stepFacts} from './facts.js';
import {railPiece, rowScene} from './scenes.js';
import {cellAt} from './stage.js';
import {cutText, drawKeyWord, drawLines, drawWordList, drawWordRail, lookAtWords, wordOf, wordRailBoxes} from './tokens.js';
import {asKey, asQuery, blocksFormula, blocksTitle, blocksWords, laterBlocks, laterTokensStep, lookTitle, normName, rootScaling, symbol} from './words.js';

export const walkMost = 48; /* tokens */

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* What steps read of a model, from its description (mha_model_describe): its only stack, or one of two. `kind`: 'Encoder', 'Decoder' or
 * 'Cross-attention', as sets of maps have them. */
function textModel({encoder, decoder, output}, kind) {
  const pair = encoder && decoder, stack = kind === 'Encoder' || !decoder ? encoder : decoder, cross = kind === 'Cross-attention';
  const {width, mlp, norm, norm_bias: bias, norm_place: place, parallel, causal, attention, input, experts = 0, experts_used: used = 0} = stack;
  const own = cross ? {rotary_base: 0, relative_buckets: 0, alibi: false, sinks: false, qk_norm: 0, window_left: -1, window_right: -1} : {};
  return {
    input, output, experts, used, cross, between: pair && kind === 'Decoder',
    config: {width, mlp, norm, norm_bias: bias, causal: causal && !cross, parallel, head_width: attention[0].head_width, final_norm: stack.final_norm, source_width: cross ? encoder.width : width,
      normed: place === 'before' || place === 'both', out_norm: place === 'both' || place === 'after', post: place === 'behind'},
    blocks: attention.map((block) => ({...block, ...own, groups: block.kv_heads, qkv: {bias: block.in_bias}, proj: {bias: block.out_bias}})),
  };
}

/* How tokens get their positions, in words; null: not from their rows. */
const positionWords = {
  learned: 'a learned row for the position is added, so that the model knows where the token stands',
  sinusoidal: 'a fixed row of sines and cosines for the position is added, so that the model knows where the token stands',
};

/* What happens to the product of a query and a key before it is a score: {formula, note, words, more, score}. */
function scalingOf({blocks}, block, D) {
  const {scale, softcap, alibi, relative_buckets: relative, rotary_base: rotary} = blocks[block];
  const root = scale === null || Math.abs(scale * Math.sqrt(D) - 1) < 1e-6, plain = scale === 1, sign = plain ? '' : root ? ` ÷ √${D}` : ` × ${shortNumber(scale)}`;
  const by = plain ? '' : root ? rootScaling(D).words : `, times ${shortNumber(scale)}`, times = root ? 1 / Math.sqrt(D) : scale;
  const more = [rotary > 0 && 'Queries and keys have been rotated according to their positions (rotary embedding), so their distance matters.',
    relative && 'A learned number for the distance between the two tokens is added.',
    alibi && 'A number that grows with the distance between the two tokens is subtracted (ALiBi).',
    softcap > 0 && `A tanh keeps the scores between −${softcap} and ${softcap}.`].filter(Boolean);
  return {plain: root && !relative && !alibi && !(softcap > 0), note: `QKᵀ${sign}${relative || alibi ? ' + distance' : ''}`, words: by,
    more: more.map((words) => words + ' ').join(''),
    formula: [...(plain ? [] : root ? rootScaling(D).formula : ['×', symbol(shortNumber(scale), {}, 'scale')]),
      ...(relative || alibi ? ['+', symbol('distance', {}, 'T × T')] : [])],
    score: relative || alibi ? null : (product) => (softcap > 0 ? softcap * Math.tanh((product * times) / softcap) : product * times)};
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
export const isSign = (word) => /^[<[].+[\]>]$/.test(word);

function wordsStep({T, model, name, walk}) {
  return {
    title: 'Cut the text into tokens',
    formula: [symbol('text', {}, plural(lettersOf(walk.text).length, 'character')), '→', symbol('tokens', {}, T)],
    words: [`A transformer reads a sequence of tokens: words, or pieces of words, each with a number. The vocabulary of this model has ${model.input.vocabulary.toLocaleString('en')} tokens; ` +
      'the numbers are shown below the tokens. ', walk.words.some(isSign) ? `A special token such as ${walk.words.find(isSign)} is not part of the text: it marks where something begins or ends. ` : '',
      'We follow ', asQuery(name), `, one of ${plural(T, 'token')}.`, walk.cut],
  };
}

/* The rows that enter a block: of the first block, how tokens become rows. */
function textTokensStep(facts) {
  const {block, T, M, model, name, run, t} = facts, row = [asQuery(name), `; its length is ${shortNumber(lengthOf(rowOf(run.x, M, t)))}.`];
  if (model.cross) {
    return {title: 'The rows that cross-attention reads', formula: [symbol('X', {}, T, M)],
      words: [`In block ${block} of the decoder, cross-attention follows self-attention and reads the rows that self-attention has left. The framed row is that of `, ...row]};
  }
  if (block > 0) return laterTokensStep(facts, row);
  const {positions, vocabulary, norm, scale, width, token_types: types, width_first: first} = model.input, place = positionWords[positions], own = width || M;
  const product = own === M ? [] : [symbol('W', {}, own, M)], later = first ? ['+', symbol('positions', {}, T, M)] : [];
  const sum = [...(scale === 1 ? [] : [`${shortNumber(scale)} ×`]), symbol('rows of E', {}, `${vocabulary} × ${own}`), ...(first ? product : []),
    ...(place && !first ? ['+', symbol('positions', {}, T, own)] : []), ...(place ? later : []), ...(types ? ['+', symbol('type', {}, own)] : [])];
  const normed = norm ? [`${normName(facts)}(`, ...sum, ')'] : sum;
  return {
    title: 'Every token becomes a row of numbers',
    formula: [symbol('X', {}, T, M), '=', ...(product.length && !first ? ['[', ...normed, ']', ...product] : normed)],
    words: [`The model has learned a table E with a row of ${own} numbers for every token of its vocabulary. Each token of the text is replaced by its row`,
      scale === 1 ? '' : `, multiplied by ${shortNumber(scale)}`, own === M ? '; ' : `, which a matrix turns into ${M} numbers; `,
      place ? `${place}. ` : 'positions are taken into account later, when queries are compared with keys. ', types ? 'A row for the type of the token (here, the first type) is added as well. ' : '',
      norm ? 'Every row is then normalized. ' : '',
      'From here on, a token is a row. The framed row is that of ', ...row],
  };
}

function textLookStep(facts) {
  const {S, H, name, keyName, cross} = facts;
  return {
    title: lookTitle(facts),
    formula: [symbol('row of P', {sub: 'h'}, 1, S), '→', symbol('tokens', {}, S)],
    words: ['The same weights, each beside its token: the stronger the colour, the larger the weight. ',
      ...(cross ? ['The list for ', asQuery(name), ' contains '] : ['The list contains ', asQuery(name), ', ']), asKey(keyName),
      ' and the tokens with the largest weights, in the order of the text.', H === 1 ? '' : ' Every head has its own weights, so each can look for something different.'],
  };
}

function textBlocksStep({blocks, block, H}) {
  return {
    title: blocksTitle(blocks),
    formula: blocksFormula(block, blocks),
    words: [blocksWords(block, blocks),
      `Each square shows all weights of one ${H === 1 ? 'block' : 'head'}, with a row for each query and a column for each key.`, laterBlocks(blocks)],
  };
}

/* What the last rows are for, by the kind of model. The parts of a formula: {before, after} the row. */
function outputFormula(facts) {
  const {model, M} = facts, {output, config} = model, {classes, bias, softcap, scale, transform, transform_norm: norm} = output;
  const wrap = (on, name, inner) => (on ? [`${name}(`, ...inner, ')'] : inner), row = symbol(facts.walk.masked ? 'row of the mask' : 'last row of Y', {}, M);
  const final = wrap(config.final_norm, normName(facts), [row]), changed = transform ? wrap(true, 'f', [...final, symbol('W', {sub: 'T'}, M, transform), '+', symbol('b', {sub: 'T'}, transform)]) : final;
  const read = wrap(norm, normName(facts), changed), width = transform || M;
  const logits = [...(scale === 1 || scale === undefined ? [] : [`${shortNumber(scale)} ×`]), ...read, symbol('W', {}, width, classes), ...(bias ? ['+', symbol('b', {}, classes)] : [])];
  return [symbol('probabilities', {}, classes), '=', 'softmax(', ...(softcap > 0 ? [`${softcap} tanh(`, ...logits, `÷ ${softcap} )`] : logits), ')'];
}

function textAnswerStep(facts) {
  const {model, answers, M, walk} = facts, {classes, softcap, transform, transform_norm: norm} = model.output, best = answers[0];
  if (!best) return {title: 'The result', formula: [symbol('Y', {}, walk.T, M)], words: [walk.aim]};
  return {
    title: 'The prediction',
    formula: outputFormula(facts),
    words: [`After the last block, only the row of ${walk.masked ? 'the mask' : walk.lastName} is used. ${model.config.final_norm ? 'It is normalized once more. ' : ''}`,
      transform ? `A layer with the nonlinear function f changes it${norm ? ', and it is normalized' : ''}. ` : '',
      `A last matrix turns it into one score (logit) for each of the ${classes.toLocaleString('en')} tokens of the vocabulary, ${softcap > 0 ? `a tanh keeps the logits between −${softcap} and ${softcap}, ` : ''}and ` +
      `softmax turns the logits into probabilities. The most likely token is “${best.name}” (${probabilityWords(best.share)})${walk.masked ? '.' : ', before temperature, top-k and top-p.'} `,
      walk.masked ? 'It is what the model predicts in place of the mask.' : 'The model appends a token, and all steps are repeated with the longer text.'],
  };
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

const textWalk = {
  steps: {cut: wordsStep, tokens: textTokensStep, look: textLookStep, blocks: textBlocksStep, answer: textAnswerStep},
  scenes: {cut: wordsScene, tokens: textTokensScene},
  drawers: {rail: drawWordRail, list: drawWordList, lines: drawLines},
  hits: {
    list({box, keys, h}, at, facts) {
      const cell = cellAt(box, at, keys.length, 1), key = cell && keys[cell.row];
      return cell ? {lines: [percent(facts.lanes[h].weightRow[key]), `key: ${facts.keyNameOf(key)}`, `head ${h}`], choice: {head: h, key}} : null;
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

/* The whole maps of heads as pictures, created on demand, in colours common to a block: a few weights that are far larger, such as that of the first
 * token on itself, do not count. */
function textCards(set, T) {
  const size = set.queries * set.keys, own = remember((n) => {
    const map = set.weights.numbers.subarray(n * size, (n + 1) * size);
    return Float32Array.from({length: T * T}, (_, i) => map[Math.floor(i / T) * set.keys + (i % T)]);
  });
  const scaleOf = remember((b) => {
    const all = Array.from({length: set.heads}, (_, h) => Array.from(own(b * set.heads + h)).filter((x) => x > 0)).flat().sort((x, y) => x - y);
    return weightScale('linear', 1 / T, all[Math.floor(0.97 * (all.length - 1))] || 1);
  });
  const cards = remember((n) => {
    const canvas = element('canvas');
    drawHeatmap(canvas, own(n), T, T, scaleOf(Math.floor(n / set.heads)));
    return canvas;
  });
  return (b, h) => cards(b * set.heads + h);
}

/* What the rows at the end are, where no token is predicted from them. */
const inContext = 'After the last block, every row represents its token in context.';
const textAims = {
  pair: () => `${inContext} The decoder reads these rows: for each token that it writes, its queries are compared with their keys (cross-attention; choose it above).`,
  masks: () => `${inContext} If the text contains a mask, the model predicts the token in its place from the row of the mask.`,
  classes: ({output}) => `${inContext} From the rows, the model computes a score for each of its ${output.classes} classes.`,
  rows: () => `${inContext} The mean of the rows can represent the whole text, for example to find similar texts.`,
};

function aimOf({kind, mask}, {output}) {
  if (kind === 'pair') return 'pair';
  return mask >= 0 ? 'masks' : output.classes && output.pool !== 'none' ? 'classes' : 'rows';
}

/* The head of a block that looks most at one key other than the first token and the query itself. */
function tellingHead(set, block, token) {
  const size = set.queries * set.keys, cross = set.title === 'Cross-attention';
  const strength = Array.from({length: set.heads}, (_, h) => {
    const row = rowOf(set.weights.numbers.subarray((block * set.heads + h) * size, (block * set.heads + h + 1) * size), set.keys, token);
    return Math.max(0, ...Array.from(row).filter((_, j) => cross || (j !== 0 && j !== token)));
  });
  return bestOf(strength);
}

/* The store of a walk that begins in block 0, where tokens still are words. It follows the text and the query of a panel of maps, that of `stack` among
 * `allMaps`, and is followed in the query. */
function createWalkStore(allMaps, stack, follow) {
  const headOf = ({set, token}) => (set.weights.numbers ? tellingHead(set, 0, token) : 0), first = follow(stack);
  const store = createStore({...first, stack, block: 0, head: headOf(first), key: null, step: 0, problem: null});
  allMaps.forEach((maps, n) => maps.on(['set', 'token', 'theme'], () => store.get().stack === n && store.set(follow(n))));
  store.on('stack', (state, changed) => {
    const next = follow(state.stack);
    store.set({...next, ...(!changed.has('block') && {block: 0}), ...(!changed.has('head') && {head: headOf(next)}), ...(!changed.has('key') && {key: null})});
  });
  store.on('token', ({token, stack: n}) => token !== allMaps[n].get().token && allMaps[n].set({token}));
  return store;
}

/* What the panel walks over: the text of the writing panel, as its only stack, its encoder or its decoder reads it. */
export function textSource(allMaps, writing, {live, title, sets}) {
  const engine = writing.writer.model, pair = live.kind === 'pair', first = Math.max(0, sets.findIndex((set) => set.title === 'Encoder'));
  const models = sets.map((set) => textModel(live.description, set.title));
  const follow = (n) => {
    const {set, token, theme} = allMaps[n].get();
    return {set, words: set.tokens, token, theme};
  };
  const store = createWalkStore(allMaps, first, follow);
  const modelNow = () => models[store.get().stack];
  /* The attentions of a stack, block by block. */
  const kinds = {'Encoder': ({decoder, cross}) => !decoder && !cross, 'Decoder': ({decoder, cross}) => !cross && (decoder || !pair), 'Cross-attention': ({cross}) => cross};
  const own = sets.map((set) => Array.from(engine.attentions.keys()).filter((n) => !pair || kinds[set.title](engine.attentions[n])));
  const crossed = sets.findIndex((set) => set.title === 'Cross-attention');
  let run = null;
  writing.store.on('problem', ({problem}) => store.set({problem}));
  /* What the tokens stand for, on one line. */
  const textOf = (ids, target) => engine.text(ids, target).trim().replace(/\s+/g, ' ');
  /* The tokens of queries and of keys: of one stack, the same. */
  const sidesNow = () => {
    const {result} = writing.store.get(), model = modelNow();
    if (!result) return null;
    const queries = result.sides[pair && (model.between || model.cross) ? 1 : 0];
    return {queries, keys: model.cross ? result.sides[0] : queries};
  };
  const idsNow = () => Array.from(sidesNow().queries.ids.slice(0, walkMost));
  const keysNow = () => (modelNow().cross ? sidesNow().keys.ids.length : idsNow().length);

  /* Of a decoder, rows between attention and cross-attention are what cross-attention reads. */
  function look(stack, b) {
    const model = models[stack], {result} = writing.store.get(), {heads, groups} = model.blocks[b], ids = idsNow();
    const [source, target] = !pair ? [ids, []] : [result.sides[0].ids, stack === first ? result.sides[1].ids : ids];
    const found = splitInside(engine.insideTokens(own[stack][b], pair && stack === first ? ids : source, target), heads, groups);
    return model.between ? {...found, between: found.mid, mid: look(crossed, b).x} : found;
  }

  function inside(state, b) {
    if (!run || run.set !== state.set || run.stack !== state.stack) run = {set: state.set, stack: state.stack, blocks: new Map()};
    if (!run.blocks.has(b)) run.blocks.set(b, look(state.stack, b));
    return run.blocks.get(b);
  }

  /* What is predicted: {answers, readOut, masked}, with the row that it is read from, if it is one of those that are shown. */
  function predicted(T, model) {
    const {next} = writing.store.get(), masked = live.kind === 'encoder';
    if ((pair && !model.between) || !next || !next.length) return {answers: [], readOut: undefined};
    const {row, list} = next[0];
    return {answers: list.slice(0, 10).map(({word, raw}) => ({name: wordOf(word), share: raw})), readOut: row < T ? row : undefined, masked};
  }

  return {
    store, models, follow, firstStack: first,
    get model() {
      return modelNow();
    },
    stacks: sets.length > 1 ? sets.map((set) => set.title) : null,
    changes: ['stack', 'set', 'block', 'head', 'token', 'key', 'theme', 'problem'],
    forgetKey: ['words', 'block', 'token'],
    hint: 'Click a row, a word or a bar to select another query, key or head.',
    choices: () => idsNow().map((_, t) => `${t + 1} “${wordOf(sidesNow().queries.words[t])}”`),
    keyChoices: () => Array.from({length: keysNow()}, (_, t) => `${t + 1} “${wordOf(sidesNow().keys.words[t])}”`),
    about: () => `${title}, ${sets.length > 1 ? sets[store.get().stack].title.toLowerCase() : 'text'}`,
    /* Why there is nothing to walk over; null if there is. */
    why() {
      const sides = sidesNow(), model = modelNow();
      if (writing.store.get().problem || !sides) return 'There is no text that the model can read.';
      const {length} = (model.cross ? sides.keys : sides.queries).ids;
      if (model.config.causal || length <= walkMost) return null;
      return `The walk-through takes up to ${walkMost} tokens; this text has ${length.toLocaleString('en')}. Shorten it to see its steps.`;
    },
    facts() {
      const state = store.get(), model = modelNow(), {queries: side, keys: other} = sidesNow(), ids = idsNow(), T = ids.length, S = keysNow(), {block} = state;
      const words = side.words.slice(0, T).map(wordOf), keyWords = other.words.slice(0, S).map(wordOf), target = side !== writing.store.get().result.sides[0];
      const head = Math.min(state.head, model.blocks[block].heads - 1), {masked, ...answer} = predicted(T, model);
      const cut = T < side.ids.length ? ` The steps show the first ${T} of ${side.ids.length.toLocaleString('en')} tokens; later tokens change nothing in their rows.` : '';
      const scaling = scalingOf(model, block, model.config.head_width), long = (all) => (t) => `“${clipToken(all[t], 24)}” (token ${t + 1})`, short = (all) => (t) => `“${clipToken(all[t], 12)}”`;
      const walk = {...textWalk, model, T, S, ids, words, keyWords, cut, masked, scaling, text: textOf(ids, target),
        aim: textAims[aimOf(live, model)](model), lastName: `“${clipToken(wordOf(side.words.at(-1)), 24)}” (token ${side.words.length})`,
        longName: long(words), shortName: short(words), keyLongName: long(keyWords), keyShortName: short(keyWords),
        railBoxes: (...place) => wordRailBoxes(words, ...place), keyRailBoxes: (...place) => wordRailBoxes(keyWords, ...place), cardOf: textCards(state.set, T)};
      const facts = stepFacts(walk, {...state, head, token: Math.min(state.token, T - 1)}, inside(state, block), () => inside(state, model.blocks.length - 1));
      return Object.assign(facts, answer);
    },
  };
}
