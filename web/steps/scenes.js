/* What is on the stage at each step.
 *
 * A scene is {pieces, flows}. A piece has a kind, a box and what its kind needs; one that is in two scenes has the same
 * id and moves from its old place to the new one. `from` names the piece out of which a new one grows, `into` the piece
 * into which it shrinks when it leaves. A matrix says what its rows and columns are, 'query' or 'key', and the marked
 * query and key are framed there in every step. */

import {largestOf, limit} from '../base/numbers.js';
import {percent} from '../base/words.js';
import {laneColumns, laneGrid, laneInside, laneProduct, rowBoxes} from './layout.js';

const pieceNames = {X: {text: 'X'}, N: {text: 'N'}, A: {text: 'A'}, X1: {text: 'X′'}, X2: {text: 'X″'}, F: {text: 'hidden'}, E: {text: 'MLP'},
  Y: {text: 'Y'}, pixels: {text: 'pixels'}, place: {text: 'positions'}, embed: {text: 'W', sub: 'E'},
  bias: {text: 'cls, b'}, W: {text: 'W'},
  WO: {text: 'W', sub: 'O'}};

function matrixPiece(facts, id, box, options = {}) {
  const matrix = facts.matrices[options.of || id], name = pieceNames[id] || null;
  const rows = matrix.rows === facts.T ? 'query' : null;
  return {kind: 'matrix', box, matrix, name, rows, columns: null, below: `${matrix.rows} × ${matrix.columns}`, ...options};
}

/* The numbers of X wait on the left edge until they are added again. */
function parkedStream(facts, layout) {
  const box = {x: 0, y: layout.top, width: layout.stream, height: layout.bottom - layout.top};
  return {X: matrixPiece(facts, 'X', box, {below: null, faint: true})};
}

/* `keyToo` marks the key among the tokens, where keys are the same tokens as queries; `ofKeys`: the tokens are those of the keys. */
export function railPiece(facts, layout, x, y, height, keyToo = false, ofKeys = false) {
  const keys = ofKeys && facts.cross;
  return {kind: 'rail', boxes: (keys ? facts.walk.keyRailBoxes : facts.walk.railBoxes)(layout, x, y, height), box: {x, y, width: layout.rail, height},
    each: height / (keys ? facts.S : facts.T), edge: x + layout.rail, keyToo: keyToo && !facts.cross, ofKeys: keys};
}

/* A row of matrices and signs. An item is a sign, {id, ...options} of a matrix, or {slices, columns, rows}: `slices(box)`
 * places several matrices next to each other. */
export function rowScene(facts, layout, step, items, keyToo = false) {
  const sized = items.map((item) => (typeof item === 'string' || item.slices ? item
    : {...item, rows: facts.matrices[item.id].rows, columns: facts.matrices[item.id].columns}));
  const {boxes, rail} = rowBoxes(facts, layout, sized);
  const pieces = {rail0: railPiece(facts, layout, rail, layout.top, layout.bottom - layout.top, keyToo)};
  items.forEach((item, n) => {
    if (typeof item === 'string') pieces[`${step}-sign${n}`] = {kind: 'sign', box: boxes[n], text: item};
    else if (item.slices) Object.assign(pieces, item.slices(boxes[n]));
    else pieces[item.id] = matrixPiece(facts, item.id, boxes[n], {...item.options, how: item.how});
  });
  return {pieces};
}

/* ---- Before the heads -------------------------------------------------------------------------------------------- */

const normScene = (facts, layout) =>
  rowScene(facts, layout, 'norm', [{id: 'X'}, '→', {id: 'N', how: 'rows', options: {from: 'X'}}]);

/* ---- Heads, side by side ----------------------------------------------------------------------------------------- */

/* Q, K and V of all heads next to each other, each slice of a head with its tag. */
function projectScene(facts, layout) {
  const {H, G, D, T, S, M} = facts, source = facts.normed ? 'N' : 'X';
  const slices = (box) => {
    const gap = layout.narrow ? 4 : 12, each = (box.width - 2 * gap) / (H + 2 * G), pieces = {};
    const starts = {Q: 0, K: H * each + gap, V: (H + G) * each + 2 * gap};
    for (const [letter, start] of Object.entries(starts)) {
      const count = letter === 'Q' ? H : G;
      pieces['name' + letter] = {kind: 'name', name: {text: letter}, below: `${letter === 'Q' ? T : S} × ${count * D}`,
        box: {x: box.x + start, y: box.y, width: count * each, height: box.height}};
      for (const {h, group} of facts.lanes) {
        const place = {...box, x: box.x + start + (letter === 'Q' ? h : group) * each, width: each};
        pieces[letter + h] = matrixPiece(facts, letter + h, place, {tag: letter === 'Q' || G === H ? h : null, below: null,
          how: 'rows', from: source, rows: letter === 'Q' ? 'query' : 'key'});
      }
    }
    return pieces;
  };
  const product = {slices, columns: (H + 2 * G) * D, rows: T};
  const matrix = facts.matrices.W ? ['×', {id: 'W', options: {below: `${M} × ${product.columns}`}}, '='] : ['→'];
  const scene = rowScene(facts, layout, 'project', [{id: source}, ...matrix, product], true);
  return source === 'X' ? scene : {pieces: {...parkedStream(facts, layout), ...scene.pieces}};
}

/* Lanes with their headings (`note`: a text, or the number of the marked key), the tokens of each line, unless rowsOf is null, and what `inside(lane, box)` puts into a lane. */
function laneScene(facts, layout, rowsOf, note, inside, ofKeys = false) {
  const pieces = parkedStream(facts, layout);
  layout.lanes.forEach((box, h) => {
    pieces['lane' + h] = {kind: 'lane', box, h, off: facts.lanes[h].off, chosen: h === facts.head,
      note: typeof note === 'function' ? note(facts.lanes[h]) : note, keyed: typeof note === 'function'};
  });
  layout.lanes.forEach((box, h) => {
    if (box.first && layout.laneRail && rowsOf) {
      const {y, height} = rowsOf(box);
      pieces[(ofKeys && facts.cross ? 'keys' : 'rail') + box.line] = railPiece(facts, layout, box.x - layout.laneRail, y, height, true, ofKeys);
    }
    Object.assign(pieces, inside(facts.lanes[h], box));
  });
  return {pieces};
}

function splitScene(facts, layout) {
  const columns = (box) => laneColumns(box, layout, 3, 0.16);
  return laneScene(facts, layout, (box) => columns(box)[0], null, ({h}, box) => {
    const places = columns(box), of = (letter, n) => matrixPiece(facts, letter + h, places[n],
      {name: {text: letter}, below: null, small: true, rows: letter === 'Q' ? 'query' : 'key', into: 'S' + h, h});
    return {['Q' + h]: of('Q', 0), ['K' + h]: of('K', 1), ['V' + h]: of('V', 2)};
  });
}

/* V waits on the right edge of its lane. */
function parkedValues(facts, layout, h, box) {
  const {s} = laneProduct(box, layout);
  const place = {x: box.x + box.width - (layout.narrow ? 4 : 17), y: s.y, width: layout.narrow ? 3 : 8, height: s.height};
  return {['V' + h]: matrixPiece(facts, 'V' + h, place, {name: box.width < 120 ? null : {text: 'V'}, below: null, small: true,
    faint: true, rows: 'key', h})};
}

/* low and high of an axis that contains 0 and the finite numbers of all `rows`. */
function axisOf(rows) {
  const finite = rows.flatMap((row) => Array.from(row)).filter(Number.isFinite);
  return {low: Math.min(0, ...finite), high: Math.max(1e-9, 0, ...finite)};
}

/* The bars of a lane: scores, weights, or on the way from one to the other. Axes are the same in all lanes. */
function barStages(facts) {
  const scores = axisOf(facts.lanes.map((lane) => lane.rawRow));
  const weights = axisOf(facts.lanes.map((lane) => lane.weightRow));
  return {
    raw: ({rawRow}) => ({values: rawRow, ...scores}),
    scores: ({scoreRow}) => ({values: scoreRow, ...scores}),
    weights: ({weightRow}) => ({values: weightRow, ...weights}),
  };
}

function barsPiece(facts, lane, box, stages, options = {}) {
  return {kind: 'bars', box, stages, h: lane.h, from: 'S' + lane.h, ...options};
}

function scoresScene(facts, layout) {
  const stages = barStages(facts), {note} = facts.walk.scaling;
  return laneScene(facts, layout, (box) => laneProduct(box, layout).s, note, (lane, box) => {
    const {h} = lane, {q, kt, s, bars} = laneProduct(box, layout), wide = q.width >= 14;
    const small = {below: null, small: true, into: 'S' + h, h};
    return {
      ...parkedValues(facts, layout, h, box),
      ['Q' + h]: matrixPiece(facts, 'Q' + h, q, {...small, nameBelow: wide && {text: 'Q'}}),
      ['K' + h]: matrixPiece(facts, 'KT' + h, kt, {...small, nameLeft: wide && {text: 'K', sup: 'T'}, rows: null, columns: 'key'}),
      ['S' + h]: matrixPiece(facts, 'S' + h, s, {of: 'R' + h, below: null, how: 'cells', columns: 'key', from: 'Q' + h, h}),
      ['bars' + h]: barsPiece(facts, lane, bars, [stages.raw(lane)], {sweep: true, word: 'score'}),
    };
  });
}

/* Scores become others, in the matrix and in the bars: `letter` is that of the new matrix, `from` and `to` are the stages of the bars. */
function changedScoresScene(facts, layout, {note, letter, from, to, word}) {
  const stages = barStages(facts);
  return laneScene(facts, layout, (box) => laneProduct(box, layout).s, note, (lane, box) => {
    const {h} = lane, {s, bars} = laneProduct(box, layout);
    return {
      ...parkedValues(facts, layout, h, box),
      ['S' + h]: matrixPiece(facts, letter + h, s, {below: null, columns: 'key', into: 'map' + h, h}),
      ['bars' + h]: barsPiece(facts, lane, bars, [stages[from](lane), stages[to](lane)], {word}),
    };
  });
}

const maskScene = (facts, layout) => changedScoresScene(facts, layout, {note: 'S + mask', letter: 'S', from: 'raw', to: 'scores', word: 'score'});
const softmaxScene = (facts, layout) => changedScoresScene(facts, layout, {note: 'softmax', letter: 'P', from: 'scores', to: 'weights', word: 'weight'});

function lookScene(facts, layout) {
  const stages = barStages(facts), flows = [];
  const rowsOf = facts.walk.looksAlone ? null : (box) => laneProduct(box, layout).s;
  const scene = laneScene(facts, layout, rowsOf, 'from the query', (lane, box) => {
    const {h} = lane, {whole, bars} = laneProduct(box, layout), look = facts.walk.look(facts, lane, whole, bars);
    flows.push(...look.flows);
    return {
      ...parkedValues(facts, layout, h, box),
      ['map' + h]: {...look.piece, h, how: 'late', into: 'bars' + h},
      ['bars' + h]: barsPiece(facts, lane, bars, [stages.weights(lane)], {word: 'weight'}),
    };
  });
  return {...scene, flows};
}

function sumScene(facts, layout) {
  const stages = barStages(facts), flows = [], columns = (box) => laneColumns(box, layout, 3, 0.2);
  const scene = laneScene(facts, layout, (box) => columns(box)[0], ({weightRow}) => percent(weightRow[facts.key]), (lane, box) => {
    const {h, weightRow} = lane, [side, v, o] = columns(box), shared = {below: null, small: true, h};
    flows.push(...valueFlows(facts, lane, v, o));
    return {
      ['bars' + h]: barsPiece(facts, lane, side, [stages.weights(lane)], {side: true}),
      ['V' + h]: matrixPiece(facts, 'V' + h, v, {...shared, name: {text: 'V'}, rows: 'key', shares: weightRow, into: 'O' + h}),
      ['O' + h]: matrixPiece(facts, 'O' + h, o, {...shared, name: {text: 'O'}, how: 'row', from: 'V' + h}),
    };
  }, true);
  return {...scene, flows};
}

/* ---- Movements within a step: {box, to, fill, share} or {.., matrix, crop, share} --------------------------------- */

/* Each value that counts, to the row of the query in O. */
function valueFlows({T, S, t, matrices}, {h, weightRow}, v, o) {
  const most = largestOf(weightRow) || 1, flows = [], each = v.height / S, high = o.height / T;
  const to = {x: o.x, y: o.y + t * high, width: o.width, height: high};
  for (let row = 0; row < S; row++) {
    const share = weightRow[row] / most;
    if (share <= 0.03) continue;
    flows.push({box: {...v, y: v.y + row * each, height: each}, to, matrix: matrices['V' + h], share,
      crop: {x: 0, y: row, width: matrices['V' + h].columns, height: 1}});
  }
  return flows;
}

/* ---- From the heads to the answer -------------------------------------------------------------------------------- */

function headSlices(facts) {
  const {H, D, T} = facts;
  return {columns: H * D, rows: T, slices: (box) => {
    const each = box.width / H, pieces = {nameC: {kind: 'name', name: {text: 'C'}, below: `${T} × ${H * D}`, box}};
    facts.lanes.forEach(({h}) => {
      pieces['O' + h] = matrixPiece(facts, 'O' + h, {...box, x: box.x + h * each, width: each},
        {tag: h, below: null, h, chosen: h === facts.head});
    });
    return pieces;
  }};
}

function concatScene(facts, layout) {
  return {pieces: {...parkedStream(facts, layout), ...rowScene(facts, layout, 'concat', [headSlices(facts)]).pieces}};
}

function outputScene(facts, layout) {
  const {H, D} = facts, A = {id: 'A', how: 'rows', options: {from: 'O0'}};
  const WO = {id: 'WO', options: {slabs: H, ownRows: H > 1 ? [facts.head * D, D] : null}};
  const {pieces} = rowScene(facts, layout, 'output', [headSlices(facts), ...(facts.matrices.WO ? ['×', WO, '='] : ['→']), A]);
  return {pieces: {...parkedStream(facts, layout), ...pieces}};
}

/* After cross-attention, whose sum X″ is, comes the MLP of a decoder. */
const residualScene = (facts, layout) => rowScene(facts, layout, 'residual',
  [{id: 'X'}, '+', {id: 'A', options: {into: 'X1'}}, facts.post ? '→' : '=', {id: 'X1', how: 'rows', options: {from: 'A'}}]);

/* With attention and MLP side by side, both read X. A mixture of MLPs has no hidden layer to show. */
function mlpScene(facts, layout) {
  const source = facts.parallel ? 'X' : facts.between ? 'X2' : 'X1', name = facts.between ? 'X″' : 'X′', E = {id: 'E', how: 'rows', options: {from: facts.matrices.F ? 'F' : source}};
  const hidden = facts.matrices.F ? [{id: 'F', how: 'rows', options: {from: source, into: 'E'}}, '→'] : [];
  return rowScene(facts, layout, 'mlp', [{id: source}, '→', ...hidden, E,
    layout.narrow ? '→' : facts.post ? `+ ${name} →` : `+ ${name} =`, {id: 'Y', how: 'rows', options: {from: 'E'}}]);
}

/* Every block with the maps of its heads, from the marked query. */
function blocksScene(facts, layout) {
  const boxes = laneGrid(facts.blocks, {...layout, left: 0, laneRail: 0}), pieces = {};
  boxes.forEach((box, b) => {
    const count = facts.model.blocks[b].heads;
    pieces['card' + b] = {kind: 'card', box, b, chosen: b === facts.block, from: 'Y', into: 'final',
      places: gridPlaces(count, laneInside(box, layout), facts.walk.cardHeight)};
  });
  return {pieces};
}

/* `count` boxes of that height per width in as many columns as make them largest. */
function gridPlaces(count, box, tall) {
  let best = null;
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns), wide = Math.min(box.width / columns, box.height / rows / tall);
    if (!best || wide > best.wide + 0.01) best = {columns, rows, wide};
  }
  const {columns, rows, wide} = best, left = box.x + (box.width - columns * wide) / 2;
  const top = box.y + (box.height - rows * wide * tall) / 2, gap = Math.min(6, wide * 0.08);
  return Array.from({length: count}, (_, n) => ({x: left + (n % columns) * wide + gap / 2,
    y: top + Math.floor(n / columns) * wide * tall + gap / 2, width: wide - gap, height: (wide - gap) * tall}));
}

/* What the model makes of the final tokens: a list of answers, beside what `walk.subject` shows on the left. */
function answerScene(facts, layout) {
  const {width, top, bottom, narrow} = layout, gap = narrow ? 22 : 46, {pieces, left} = facts.walk.subject(facts, layout, gap);
  const stream = facts.answers.length ? limit(width * 0.24, 60, 260) : width - left - 2, right = left + stream + gap, high = bottom - top;
  const final = {kind: 'matrix', box: {x: left, y: top, width: stream, height: high}, name: {text: 'Y'},
    below: `${facts.T} × ${facts.M}`, rows: 'query', readOut: true, matrix: facts.finalMatrix};
  if (!facts.answers.length) return {pieces: {...pieces, final}};
  return {pieces: {
    ...pieces, final,
    'answer-arrow': {kind: 'sign', text: '→', box: {x: left + stream, y: top, width: gap, height: high}},
    answer: {kind: 'answer', box: {x: right, y: 8, width: width - right - 2, height: layout.height - 16}, from: 'final'},
  }};
}

const sceneMakers = {norm: normScene, project: projectScene, split: splitScene, scores: scoresScene, mask: maskScene, softmax: softmaxScene, look: lookScene,
  sum: sumScene, concat: concatScene, output: outputScene, residual: residualScene, mlp: mlpScene, blocks: blocksScene, answer: answerScene};

/* The scene of a step; those before the heads depend on what the tokens are. */
export const sceneOf = (key, facts, layout) => (facts.walk.scenes[key] || sceneMakers[key])(facts, layout);
