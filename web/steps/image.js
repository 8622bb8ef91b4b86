/* The walk-through over an image: its tokens are patches.
 *
 * A walk is what the steps have to know of their tokens: their names, how they look beside rows, the steps and scenes that are unlike
 * for images and texts, and the matrices that only one of them has. */

import {colourOf} from '../base/colour.js';
import {element} from '../base/dom.js';
import {scaleValue, sharedMax, weightScale} from '../base/heatmap.js';
import {bestOf, largestOf, limit, remember} from '../base/numbers.js';
import {themeColours} from '../base/svg.js';
import {percent, plural, probabilityWords, shortNumber} from '../base/words.js';
import {commonSize, lengthOf, matrixOf, rowOf, splitInside, stepFacts, transposed} from './facts.js';
import {vectorElement} from './numbers.js';
import {drawHeadMap, drawKeyPatch, drawPatchRail, drawPhoto} from './patches.js';
import {rowScene} from './scenes.js';
import {cellAt} from './stage.js';
import {asKey, asQuery, laterTokensStep, lookTitle, normName, rootScaling, symbol} from './words.js';
import {modelWithGates, tokenName, tokenPlace} from '../vit/model.js';
import {drawMap, drawPicture, mapCorner, mapHeight, mapSize} from '../vit/picture.js';

/* The same of a block on an image. The output of a head that is off is zero. */
function runBlock(model, {index, heads, groups}, pixels, gates) {
  const run = splitInside(modelWithGates(model, gates).insideImage(index, pixels), heads, groups);
  return {...run, heads: run.heads.map((head, h) => (gates[index][h] === 1 ? head : head.map((value) => gates[index][h] * value)))};
}

/* ---- Names and places -------------------------------------------------------------------------------------------- */

/* "cls", or the number of a patch, from 1: what stands beside a row. */
function shortTokenName(model, t) {
  return t < model.first ? 'cls' : String(t - model.first + 1);
}

function longTokenName(model, t) {
  return t < model.first ? 'the class token' : `patch ${shortTokenName(model, t)} (${tokenName(model, t)})`;
}

/* The patch with the most ink, the first one in case of a tie: a query that is easy to recognize. */
export function inkToken(model, bytes) {
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

/* The place of each token's thumbnail in a column beside rows that begin at y and are `height` high together. */
function patchRailBoxes(T, layout, x, y, height) {
  const each = height / T, size = Math.min(each * 0.94, layout.thumb), left = x + layout.rail - 5 - size;
  return Array.from({length: T}, (_, t) => ({x: left, y: y + each * t + (each - size) / 2, width: size, height: size}));
}

/* The class token is no patch: it stands below the image. In patches. */
const classPlace = ({down}) => ({row: down + 0.15, column: 0});

const cutGap = 0.24; /* between patches, in patches */

/* The place of each token in the image cut apart, or, without a gap, in the image. */
function cutBoxes({model, T}, box, gap = cutGap) {
  const {across} = model;
  const each = box.width / (across + (across - 1) * gap), step = each * (1 + gap);
  return Array.from({length: T}, (_, t) => {
    const place = tokenPlace(model, t) || classPlace(model);
    return {x: box.x + place.column * step, y: box.y + place.row * step, width: each, height: each};
  });
}

/* The height of the image cut apart, for its width. */
function cutHeight({model: {across, down, first}}, width) {
  const rows = down + (first ? 1.15 : 0);
  return (width * (rows + (rows - 1) * cutGap)) / (across + (across - 1) * cutGap);
}

/* A map over the image, as large as fits in a box. */
function mapBox(model, box) {
  const width = Math.min(box.width, (box.height * box.width) / mapHeight(model, box.width)), height = mapHeight(model, width);
  return {x: box.x + (box.width - width) / 2, y: box.y + (box.height - height) / 2, width, height};
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* The pixels of patches as rows (T,P), as the model reads them: (pixel - mean) / deviation; the class token has none. */
function patchRows(model, bytes) {
  const {mean, deviation} = model.input;
  return patchPixels(model, bytes).map((pixel) => (pixel - mean) / deviation);
}

const normalizes = ({input: {mean, deviation}}) => mean !== 0 || deviation !== 1;

/* The same from 0 to 1. */
function patchPixels(model, bytes) {
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

/* What is added to each row beside its position: the bias of the product, or, in the row of the class token, its learned row. */
function biasRows({part, first, tokens: T}, M) {
  const bias = part('patch_embed.proj.bias'), rows = new Float32Array(T * M);
  if (first) rows.set(part('cls_token').subarray(0, M));
  for (let t = first; bias && t < T; t++) rows.set(bias, t * M);
  return rows;
}

/* The pixels, and the weights that turn them into rows, and rows into queries, keys, values and the result. */
function imageMatrices(model, block, image, run) {
  const {config, tokens: T} = model, M = config.width, D = config.head_width, size = config.patch * config.patch;
  const {heads: H, groups, qkv, proj} = model.blocks[block];
  return {
    pixels: {values: patchPixels(model, image.bytes), rows: T, columns: size, ink: true},
    embed: matrixOf(transposed(model.part('patch_embed.proj.weight'), M, size), size, M),
    bias: matrixOf(biasRows(model, M), T, M, commonSize(run.x)),
    place: matrixOf(model.part('pos_embed'), T, M, commonSize(run.x)),
    W: matrixOf(transposed(qkv.weight, (H + 2 * groups) * D, M), M, (H + 2 * groups) * D),
    WO: matrixOf(transposed(proj.weight, M, H * D), H * D, M),
  };
}

/* ---- Scenes ------------------------------------------------------------------------------------------------------ */

function patchesScene(facts, layout) {
  const {width, height} = layout, both = width >= 780, {rows, columns} = facts.model.config;
  const wide = Math.min(both ? width / 2 - 45 : width - 4, ((height - 16) * 100) / cutHeight(facts, 100));
  const high = cutHeight(facts, wide), cut = {x: both ? width / 2 + 40 : (width - wide) / 2, y: (height - high) / 2, width: wide};
  const photo = {x: width / 2 - 40 - wide, y: 0, width: wide, height: (wide * rows) / columns};
  photo.y = (height - photo.height) / 2;
  const whole = {...cut, height: (wide * rows) / columns};
  return {pieces: {
    ...(both && {photo: {kind: 'photo', box: photo}, 'cut-sign': {kind: 'sign', text: '→',
      box: {x: width / 2 - 40, y: 0, width: 80, height}}}),
    rail0: {kind: 'rail', boxes: cutBoxes(facts, cut), origins: cutBoxes(facts, whole, 0), box: {...cut, height: high},
      each: 0, edge: 0},
  }};
}

function imageTokensScene(facts, layout) {
  const X = {id: 'X', how: 'rows', options: {from: 'rail0'}}, {model} = facts;
  const pixels = {id: 'pixels', options: {from: 'rail0', into: 'X', name: {text: normalizes(model) ? 'pixels′' : 'pixels'}, below: `${model.patches} × ${model.config.patch ** 2}`}};
  if (facts.block > 0) return rowScene(facts, layout, 'tokens', [X]);
  const all = layout.narrow ? [pixels, '→', X]
    : [pixels, '×', {id: 'embed', options: {into: 'X'}}, '+', {id: 'bias', options: {into: 'X'}}, '+', {id: 'place', options: {into: 'X'}}, '=', X];
  return rowScene(facts, layout, 'tokens', all);
}

/* The weights of a head on the image. */
function lookAtPatches(facts, lane, whole, bars) {
  const map = mapBox(facts.model, whole);
  return {piece: {kind: 'map', box: map}, flows: patchFlows(facts, lane, bars, map)};
}

/* Each weight of the query, from its bar to its patch. */
function patchFlows(facts, {weightRow}, bars, map) {
  const size = mapSize(facts.model), by = map.width / size.width, wide = bars.width / facts.T;
  const scale = facts.matrices.P0.scale, each = size.cell * by;
  return facts.keys.map((j) => {
    const {x, y} = mapCorner(facts.model, j, size);
    return {box: {x: bars.x + j * wide, y: bars.y + bars.height / 2, width: wide, height: wide},
      to: {x: map.x + x * by, y: map.y + y * by, width: each, height: each},
      fill: colourOf(scaleValue(weightRow[j], scale)), share: 1};
  });
}

/* The image on the left of the answer, if there is room. */
function imageSubject(facts, layout, gap) {
  const {narrow, width, top, bottom} = layout, photo = narrow ? 0 : Math.min(300, width * 0.26), {rows, columns} = facts.model.config;
  const high = (photo * rows) / columns;
  if (!photo) return {pieces: {}, left: layout.rail};
  return {left: photo + gap, pieces: {
    photo: {kind: 'photo', box: {x: 0, y: top + (bottom - top - high) / 2, width: photo, height: high}},
    'answer-sign': {kind: 'sign', text: '→', box: {x: photo, y: top, width: gap, height: bottom - top}},
  }};
}

/* ---- What is under the pointer ----------------------------------------------------------------------------------- */

const patchHits = {
  map({box, h}, at, facts) {
    const size = mapSize(facts.model), by = size.width / box.width, x = (at.x - box.x) * by, y = (at.y - box.y) * by;
    const key = Array.from({length: facts.T}, (_, t) => t).find((t) => {
      const corner = mapCorner(facts.model, t, size);
      return x >= corner.x && x < corner.x + size.cell && y >= corner.y && y < corner.y + size.cell;
    });
    return key === undefined ? null
      : {lines: [percent(facts.lanes[h].weightRow[key]), `key: ${facts.nameOf(key)}`, `head ${h}`], choice: {head: h, key}};
  },

  photo({box}, at, facts) {
    const {model} = facts, cell = cellAt(box, at, model.down, model.across);
    if (!cell) return null;
    const token = model.first + cell.row * model.across + cell.column;
    return {lines: [facts.nameOf(token), 'Click to follow this token.'], choice: {token}};
  },
};

/* ---- The text of steps ------------------------------------------------------------------------------------------- */

function patchesStep({model, T, name}) {
  const {patch} = model.config, size = `${patch} × ${patch}`;
  return {
    title: 'Cut the image into patches',
    formula: [symbol('image', {}, model.config.rows, model.config.columns), '→', symbol('patches', {}, model.patches, size)],
    words: [`A transformer reads a sequence of tokens. Here, each of the ${plural(model.patches, 'patch', 'patches')} of ${size} pixels becomes a token`,
      model.first ? ', and a class token, “cls”, is added, which has no pixels: the prediction is computed from it. ' : '. ',
      'We follow ', asQuery(name), `, one of ${T} tokens.`],
  };
}

function imageTokensStep(facts) {
  const {block, T, M, model, name, run, t} = facts, size = model.config.patch ** 2, {mean, deviation} = model.input, bias = model.part('patch_embed.proj.bias');
  if (block > 0) return laterTokensStep(facts, [asQuery(name), '.']);
  const normal = normalizes(model), pixels = symbol(normal ? 'pixels′' : 'pixels', {}, model.patches, size), product = [pixels, symbol('W', {sub: 'E'}, size, M), ...(bias ? ['+', symbol('b', {sub: 'E'}, M)] : [])];
  return {
    title: 'Every patch becomes a row of numbers',
    formula: [symbol('X', {}, T, M), '=', ...(model.first ? ['[', symbol('cls', {}, 1, M), ';', ...product, ']'] : product), '+', symbol('positions', {}, T, M),
      ...(normal ? [', ', symbol('pixels′', {}, model.patches, size), '=', '(', symbol('pixels', {}, '0 … 1'), `− ${shortNumber(mean)} ) ÷ ${shortNumber(deviation)}`] : [])],
    words: [normal ? 'The pixels, from 0 to 1, are normalized with the mean and the standard deviation of the training images. ' : '',
      `A learned matrix${bias ? ' and a bias turn' : ' turns'} the ${plural(size, 'pixel')} of a patch into ${M} numbers. A learned row for the position is added, so that the model knows where the patch is. `,
      model.first ? 'The class token has a learned row of its own in place of pixels. ' : '',
      'From here on, a token is a row. The framed row is that of ', asQuery(name), `; its length is ${shortNumber(lengthOf(rowOf(run.x, M, t)))}.`],
  };
}

function imageLookStep(facts) {
  const {model, H, name, keyName} = facts;
  return {
    title: lookTitle(facts),
    formula: [symbol('row of P', {sub: 'h'}, 1, model.tokens), '→', symbol('patches', {}, model.down, model.across)],
    words: ['The same weights, each drawn on its patch: the stronger the colour, the larger the weight',
      model.first ? '. The square below the image is the class token. ' : '. ', `In each ${H === 1 ? 'block' : 'head'}, `, asQuery(name), ' attends to different patches. The selected key, ',
      asKey(keyName), ', is framed as well.'],
  };
}

function imageAnswerStep(facts) {
  const {model, answers, T, M} = facts, {name, share} = answers[bestOf(answers.map((one) => one.share))], {classes, final_norm: norm} = model.config, bias = model.part('head.bias');
  const row = (inner) => (norm ? [`${normName(facts)}(`, inner, ')'] : [inner]);
  const read = model.first ? row(symbol('cls row of Y', {}, M)) : ['mean of', ...row(symbol('Y', {}, T, M))];
  return {
    title: 'The prediction',
    formula: [symbol('probabilities', {}, classes), '=', 'softmax(', ...read, symbol('W', {sub: 'C'}, M, classes), ...(bias ? ['+', symbol('b', {sub: 'C'}, classes)] : []), ')'],
    words: [model.first ? `After the last block, only the row of the class token is used: it has attended to the patches in every block. ${norm ? 'It is normalized once more. ' : ''}`
      : `After the last block, ${norm ? 'the rows are normalized once more and ' : ''}the mean of all rows is used. `,
    `A last matrix${bias ? ' and a bias turn' : ' turns'} it into one score (logit) for each class, and softmax turns the logits into probabilities. Prediction: ${name} (${probabilityWords(share)}).`],
  };
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

const imageWalk = {
  steps: {cut: patchesStep, tokens: imageTokensStep, look: imageLookStep, answer: imageAnswerStep},
  scenes: {cut: patchesScene, tokens: imageTokensScene},
  drawers: {rail: drawPatchRail, photo: drawPhoto, map: drawHeadMap},
  hits: patchHits,
  look: lookAtPatches,
  subject: imageSubject,
  drawKey: drawKeyPatch,
  /* Thumbnails beside rows of height `each`, with numbers on their left. */
  railSizes(narrow, each) {
    const number = narrow ? 21 : 28, thumb = limit(each, 2, 26);
    return {number, thumb, rail: number + Math.max(narrow ? 12 : 16, thumb) + 6};
  },
  numbers: {
    cut: ({t, model, matrices}) => (t < model.first ? []
      : [vectorElement('pixels', rowOf(matrices.pixels.values, matrices.pixels.columns, t), {role: 'query', most: 1})]),
    tokens({block, t, M, model, matrices, run, walk}) {
      const x = vectorElement('x', rowOf(run.x, M, t), {role: 'query'}), row = (name, {values, columns}) => vectorElement(name, rowOf(values, columns, t));
      if (block > 0) return [x];
      const pixels = t < model.first ? [] : [vectorElement('pixels′', rowOf(walk.normalPixels(), model.config.patch ** 2, t))];
      return [...pixels, row(t < model.first ? 'cls' : 'bias', matrices.bias), row('position', matrices.place), x];
    },
    answer: ({logits, finalRow}) => [vectorElement('final row', finalRow()), vectorElement('logits', Float32Array.from(logits))],
  },
};

/* Canvases of the image and of the maps of heads over it, created on demand. */
function imagePictures(model, state, image, scale) {
  const {rows, columns} = model.config, maps = new Map(), row = (map) => rowOf(map, model.tokens, state.token);
  const ofBlock = remember((b) => weightScale('linear', 1 / model.tokens, sharedMax(state.result.maps[b].map((map) => largestOf(row(map))))));
  const made = (id, b, h, options) => {
    if (!maps.has(id)) {
      maps.set(id, element('canvas'));
      drawMap(maps.get(id), model, row(state.result.maps[b][h]), {outline: image.outline, ...options});
    }
    return maps.get(id);
  };
  let photo = null;
  return {
    photo() {
      if (!photo) drawPicture((photo = element('canvas')), image.bytes, rows, columns);
      return photo;
    },
    /* Of a head of the block, in the colours of its matrix; and of any head, in colours common to its block. */
    mapOf: (h) => made('own' + h, state.block, h, {scale: scale()}),
    cardOf: (b, h) => made(`${b}:${h}`, b, h, {scale: ofBlock(b), mark: state.token, accent: themeColours().accent}),
  };
}

/* The classes with the largest probabilities, in their own order. */
function shownClasses(probabilities, most) {
  const order = Array.from(probabilities.keys()).sort((a, b) => probabilities[b] - probabilities[a]).slice(0, most);
  return order.sort((a, b) => a - b);
}

/* The row that the classes are computed from: that of the class token after the last norm, or the mean of all. */
function finalRow(model, {gates}, bytes) {
  const run = modelWithGates(model, gates), {config: {depth, width: M}, tokens: T} = model;
  run.run(bytes, 0);
  const last = run.take('hidden', T * M, depth * T * M);
  if (model.first) return last.subarray(0, M);
  return Float32Array.from({length: M}, (_, m) => Array.from({length: T}, (_, t) => last[t * M + m]).reduce((sum, x) => sum + x, 0) / T);
}

/* What the panel walks over: facts() for the state of the store, whose `changes` make them old. */
export function imageSource(store, model, data) {
  let run = null;
  const imageNow = () => data.images[store.get().image];

  /* Blocks are recomputed only for another image or set of gates. */
  function inside(state, b) {
    if (!run || run.result !== state.result) run = {result: state.result, blocks: new Map()};
    if (!run.blocks.has(b)) run.blocks.set(b, runBlock(model, model.blocks[b], imageNow().bytes, state.gates));
    return run.blocks.get(b);
  }

  return {
    model, store, stacks: null,
    changes: ['result', 'block', 'head', 'token', 'key', 'theme'],
    forgetKey: ['image', 'drawing', 'block', 'token'],
    hint: 'Click a row, a patch or a bar to select another query, key or head.',
    choices: () => Array.from({length: model.tokens}, (_, t) => (t < model.first ? 'class token' : `patch ${shortTokenName(model, t)}`)),
    about: () => `${data.title}, ${imageNow().name}`,
    why: () => null,
    facts() {
      const state = store.get(), image = imageNow(), {probabilities, logits} = state.result, {block} = state;
      const walk = {...imageWalk, model, T: model.tokens, cardHeight: mapHeight(model, 1), scaling: rootScaling(model.config.head_width), normalPixels: () => patchRows(model, image.bytes), isOn: (b, h) => Boolean(state.gates[b][h]),
        longName: (t) => longTokenName(model, t), shortName: (t) => shortTokenName(model, t),
        railBoxes: (...place) => patchRailBoxes(model.tokens, ...place), matrices: (b, blockRun) => imageMatrices(model, b, image, blockRun),
        ...imagePictures(model, state, image, () => facts.matrices.P0.scale)};
      const facts = stepFacts(walk, state, inside(state, block), () => inside(state, model.blocks.length - 1));
      const answers = shownClasses(probabilities, 10).map((c) => ({name: String(c), share: probabilities[c]}));
      return Object.assign(facts, {answers, logits, readOut: model.first ? 0 : null, finalRow: () => finalRow(model, state, image.bytes)});
    },
  };
}
