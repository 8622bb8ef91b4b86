/* Draws the other pieces of the stage, and the stage at any time of a step.
 *
 * The time of a step runs from 0 to 1. In the first part pieces travel: those of both scenes from their old place to the
 * new one, new ones out of the piece they are made of, old ones into what becomes of them. Then the step itself is
 * animated, p = 0 to 1: rows appear, bars change, values are mixed. */

import {bestOf, easeBoth, limit} from '../base/numbers.js';
import {textWidth} from '../base/pen.js';
import {fitToken} from '../base/text.js';
import {percent, probabilityWords} from '../base/words.js';
import {between, boxBetween, clamp01, drawCaption, drawMatrix, headColour, matrixImage} from './draw.js';
import {barText} from './facts.js';

export const travelPart = 0.45;

/* ---- Bars -------------------------------------------------------------------------------------------------------- */

/* The values between the stages of bars, p done. */
function barsAt(stages, p) {
  const last = stages.length - 1, along = p * last, n = Math.min(last, Math.floor(along)), e = easeBoth(along - n);
  const a = stages[n], b = stages[Math.min(last, n + 1)];
  return {low: between(a.low, b.low, e), high: between(a.high, b.high, e),
    value: (j) => (!Number.isFinite(a.values[j]) ? NaN : between(a.values[j], Number.isFinite(b.values[j]) ? b.values[j] : 0, e))};
}

/* One bar per key below its column: the marked key in its colour, with its thumbnail below and its number above. */
function drawBars(pen, piece, box, look, view) {
  if (piece.side) return drawSideBars(pen, piece, box, look, view);
  const {facts, colours} = view, {alpha} = look, p = look.fresh && look.settled ? look.p : look.fresh ? 0 : 1;
  const {S, key} = facts, now = barsAt(piece.stages, piece.sweep ? 1 : p), wide = box.width / S;
  const thumb = 12, plot = {y: box.y + 15, height: Math.max(4, box.height - 15 - thumb - 5)};
  const y = (value) => plot.y + (plot.height * (now.high - value)) / (now.high - now.low || 1), zero = y(0);
  const upto = piece.sweep ? Math.ceil(p * S) : S, solid = wide >= 3 ? 0.82 : 1;
  pen.stroke([[box.x, zero], [box.x + box.width, zero]], {stroke: colours.line, alpha});
  for (let j = 0; j < upto; j++) {
    const value = now.value(j), high = Math.abs(y(value) - zero);
    if (!(high > 0.2)) continue;
    pen.box({x: box.x + j * wide + (wide * (1 - solid)) / 2, y: value > 0 ? zero - high : zero, width: wide * solid, height: high},
      {fill: j === key ? colours.key : colours.soft, alpha: alpha * (j === key ? 1 : 0.7)});
  }
  drawBarLabels(pen, piece, box, alpha, view, barText(piece.word, piece.stages.at(-1).values[key]));
}

function drawBarLabels(pen, {word}, box, alpha, {facts, colours}, text) {
  const {S, key} = facts, middle = box.x + ((key + 0.5) * box.width) / S, foot = box.y + box.height;
  const wide = textWidth(text, 12, 700), spare = Math.max(0, box.width - wide) / 2, centre = box.x + box.width / 2;
  const x = limit(middle, centre - spare, centre + spare);
  if (wide <= box.width + 9) pen.label(x, box.y + 11, text, {size: 12, weight: 700, anchor: 'middle', fill: colours.key, alpha});
  const mark = facts.walk.drawKey(pen, middle, foot, box, alpha, {facts, colours});
  const left = x - wide / 2 - box.x, caption = `${word} of key ${facts.keyShortOf(key)}`;
  const room = [[box.x, left], [x + wide / 2 + 5, box.x + box.width - x - wide / 2 - 5]];
  const [from] = room.find(([, free]) => free >= textWidth(caption, 11, 400) + 4) || [null];
  if (from !== null) pen.label(from, box.y + 11, caption, {size: 11, fill: colours.soft, alpha});
  const ends = [[box.x, 'start', 'keys: ' + facts.keyShortOf(0)], [box.x + box.width, 'end', facts.keyShortOf(S - 1)]];
  for (const [at, anchor, end] of ends) {
    const size = textWidth(end, 10, 400), start = anchor === 'start' ? at : at - size;
    if (start > mark.x + mark.width + 4 || start + size < mark.x - 3) pen.label(at, foot - 2, end, {size: 10, anchor, fill: colours.soft, alpha});
  }
}

/* The same beside the rows of V, growing to the left. */
function drawSideBars(pen, piece, box, look, {facts, colours}) {
  const {values, high} = piece.stages.at(-1), each = box.height / facts.S, {alpha} = look;
  pen.stroke([[box.x + box.width, box.y], [box.x + box.width, box.y + box.height]], {stroke: colours.line, alpha});
  for (let j = 0; j < facts.S; j++) {
    const wide = (box.width * values[j]) / (high || 1);
    if (!(wide > 0.2)) continue;
    pen.box({x: box.x + box.width - wide, y: box.y + j * each + each * 0.08, width: wide, height: each * 0.84},
      {fill: j === facts.key ? colours.key : colours.soft, alpha: alpha * (j === facts.key ? 1 : 0.7)});
  }
}

/* ---- Frames of heads and blocks ---------------------------------------------------------------------------------- */

/* The ways to write a heading: the first that fits. In the smallest lanes the number stands only in the list below. */
function laneTexts({h, off, note, keyed}) {
  const name = `${h}${off ? ' (off)' : ''}`, short = keyed ? note.replace(/\.\d+/, '') : null;
  return [{name: 'head ' + name, note}, ...(keyed ? [{name, note}, {name, note: short}] : [{name: 'head ' + name}, {name}])];
}

function drawLane(pen, piece, box, {alpha}, {facts, colours}) {
  const {h, chosen, keyed} = piece, size = keyed ? 12 : 11, weight = keyed ? 700 : 400;
  const needs = ({name, note}) => 24 + textWidth(name, 12, 700) + (note ? 8 + textWidth(note, size, weight) : 0);
  const texts = laneTexts(piece), {name, note} = texts.find((one) => needs(one) <= box.width - 4) || texts.at(-1);
  const tight = needs({name, note}) > box.width - 4; /* no room for the colour */
  pen.box(box, {fill: colours.page, stroke: chosen ? colours.ink : colours.line, line: chosen ? 1.5 : 1, radius: 6, alpha});
  if (!tight) pen.box({x: box.x + 7, y: box.y + 6, width: 9, height: 9}, {fill: headColour(h, facts.H), radius: 2, alpha});
  pen.label(box.x + (tight ? 5 : 21), box.y + 15, name, {size: 12, weight: chosen ? 700 : 500, fill: colours.ink, alpha});
  if (note && needs({name, note}) - 16 <= box.width) {
    pen.label(box.x + box.width - 5, box.y + 15, note, {size, weight, anchor: 'end', fill: keyed ? colours.key : colours.soft, alpha});
  }
}

/* A block: its number, if there is room, and the maps of its heads. */
function drawCard(pen, {b, chosen, places}, box, {alpha, settled, e}, {facts, colours}) {
  pen.box(box, {fill: colours.page, stroke: chosen ? colours.accent : colours.line, line: chosen ? 2 : 1, radius: 6, alpha});
  const text = [`block ${b}`, String(b)].find((words) => textWidth(words, 12, 700) + 4 <= box.width), wide = text ? textWidth(text, 12, chosen ? 700 : 500) : 0;
  if (text) pen.label(box.x + Math.min(8, (box.width - wide) / 2), box.y + 15, text, {size: 12, weight: chosen ? 700 : 500, fill: colours.ink, alpha});
  if (settled || e >= 1) places.forEach((place, h) => pen.picture(facts.walk.cardOf(b, h), null, place, alpha));
}

function drawSign(pen, {text}, box, {alpha}, {colours, layout}) {
  const size = text.length > 2 ? (layout.narrow ? 12 : 16) : layout.narrow ? 17 : 24;
  pen.label(box.x + box.width / 2, box.y + box.height / 2 + size * 0.35, text, {size, anchor: 'middle', fill: colours.soft, alpha});
}

const drawNamePiece = (pen, piece, box, {alpha}, view) => drawCaption(pen, {...piece, tag: 0, below: null}, box, alpha, view);

/* ---- The answer -------------------------------------------------------------------------------------------------- */

/* The best answer, large, and a bar for each. */
function drawAnswer(pen, piece, box, look, {facts, colours, layout}) {
  const {answers} = facts, {alpha} = look, best = bestOf(answers.map(({share}) => share)), title = layout.narrow ? 44 : 64;
  const grown = look.fresh ? (look.settled ? easeBoth(look.p) : 0) : 1, note = `(${probabilityWords(answers[best].share)})`;
  const small = layout.narrow ? 13 : 20, room = box.width - textWidth(note, small, 400) - 10, sizes = layout.narrow ? [34, 26, 20, 15] : [52, 40, 30, 22];
  const large = sizes.find((size) => textWidth(answers[best].name, size, 700) <= room) || sizes.at(-1);
  const text = fitToken(answers[best].name, room, large, 700), wide = textWidth(text, large, 700);
  pen.label(box.x, box.y + title - 14, text, {size: large, weight: 700, fill: colours.ink, alpha});
  pen.label(box.x + wide + 10, box.y + title - 14, note, {size: small, fill: colours.soft, alpha});
  const each = (box.height - title) / answers.length, right = 62, names = answers.map(({name}) => fitToken(name, box.width * 0.4, 13, 700));
  const left = 12 + Math.max(...names.map((name) => textWidth(name, 13, 700))), across = box.width - left - right;
  answers.forEach(({share}, n) => {
    const y = box.y + title + n * each, strong = n === best;
    pen.label(box.x, y + each / 2 + 5, names[n], {size: 13, weight: strong ? 700 : 400, fill: colours.ink, alpha});
    pen.box({x: box.x + left, y: y + each * 0.2, width: across, height: each * 0.6}, {fill: colours.page, alpha});
    pen.box({x: box.x + left, y: y + each * 0.2, width: Math.max(1, across * share * grown), height: each * 0.6},
      {fill: strong ? colours.accent : colours.soft, alpha});
    pen.label(box.x + box.width - 2, y + each / 2 + 5, percent(share), {size: 12, weight: strong ? 700 : 400, anchor: 'end', fill: colours.ink, alpha});
  });
}

const pieceDrawers = {matrix: drawMatrix, bars: drawBars, lane: drawLane, card: drawCard, sign: drawSign, name: drawNamePiece, answer: drawAnswer};

/* ---- The stage --------------------------------------------------------------------------------------------------- */

function drawFlows(pen, flows, p) {
  const e = easeBoth(clamp01(p / 0.7));
  if (e <= 0 || p >= 1) return;
  const fade = 1 - clamp01((p - 0.7) / 0.3);
  for (const {box, to, fill, matrix, crop, share} of flows) {
    const at = boxBetween(box, to, e);
    if (fill) pen.box(at, {fill, alpha: fade * share});
    else pen.picture(matrixImage(matrix), crop, at, fade * share);
  }
}

/* The boxes of tokens on their way, one after the other. */
function railBetween(from, to, e) {
  return to.map((box, t) => boxBetween(from[t], box, easeBoth(clamp01(1.5 * e - (0.5 * t) / to.length))));
}

/* Whether a piece keeps its place but has other contents. */
const looksOther = (a, b) => a.matrix !== b.matrix || a.kind !== b.kind || Boolean(a.side) !== Boolean(b.side);

function drawPiece(pen, piece, box, look, view) {
  if (look.alpha > 0.004) (view.facts.walk.drawers[piece.kind] || pieceDrawers[piece.kind])(pen, piece, box, look, view);
}

function drawLeaving(pen, before, now, e, view) {
  for (const [id, piece] of Object.entries(before.pieces)) {
    if (now.pieces[id]) continue;
    const into = now.pieces[piece.into], look = {alpha: (1 - e) ** 2, p: 1, settled: false, e: 1};
    const box = into && piece.kind !== 'rail' ? boxBetween(piece.box, into.box, easeBoth(e)) : piece.box;
    drawPiece(pen, piece, piece.kind === 'rail' ? piece.boxes : box, look, view);
  }
}

function drawArriving(pen, piece, before, id, moved, look, view) {
  const old = before && before.pieces[id], e = easeBoth(moved), settled = moved >= 1;
  const source = before && before.pieces[piece.from], fresh = !old || looksOther(old, piece) || Boolean(piece.stages);
  const start = old || source, p = look.p;
  if (piece.kind === 'rail') {
    const from = old ? old.boxes : piece.origins && settled ? piece.origins : null;
    const along = settled && piece.origins ? p : moved;
    const boxes = piece.origins && settled ? railBetween(piece.origins, piece.boxes, along) : from && !settled ? railBetween(from, piece.boxes, moved) : piece.boxes;
    return drawPiece(pen, piece, boxes, {alpha: old ? 1 : e, p, settled, fresh}, view);
  }
  const box = start && !settled ? boxBetween(start.box, piece.box, e) : piece.box;
  const other = old && looksOther(old, piece);
  if (other && !settled) drawPiece(pen, old, box, {alpha: 1 - e, p: 1, settled: false}, view);
  return drawPiece(pen, piece, box, {alpha: old && !other ? 1 : e, p, settled, fresh, e: 1}, view);
}

/* Draws the stage at `time`; `before` and `now` are scenes, view = {facts, colours, layout}. */
export function drawStage(pen, before, now, time, view) {
  const moved = before ? clamp01(time / travelPart) : 1;
  const p = clamp01(before ? (time - travelPart) / (1 - travelPart) : time);
  if (before && moved < 1) drawLeaving(pen, before, now, moved, view);
  for (const [id, piece] of Object.entries(now.pieces)) drawArriving(pen, piece, before, id, moved, {p}, view);
  if (now.flows && moved >= 1) drawFlows(pen, now.flows, p);
}
