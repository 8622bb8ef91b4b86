/* Draws the tokens of a text: as a line of words, beside the rows of matrices, and those that a head looks at. Drawers are called as in
 * draw.js. */

import {colourOf, inkOn} from '../base/colour.js';
import {scaleValue} from '../base/heatmap.js';
import {limit} from '../base/numbers.js';
import {textWidth} from '../base/pen.js';
import {fitToken, inOwnDirection, isRightToLeft, visibleToken} from '../base/text.js';
import {percent} from '../base/words.js';
import {clamp01, drawFrame} from './draw.js';
import {byWeight} from './facts.js';
import {wrapWords} from './numbers.js';

export const wordOf = (text) => visibleToken(text.trim() || text);

/* ---- The text, cut into tokens ----------------------------------------------------------------------------------- */

/* The text in lines above its tokens, in the largest letters with which both fit: {size, text, boxes}: {words, x, y} of each line, and
 * the place of each token. */
export function cutText(words, whole, {width, height}) {
  const most = width - 16, mirrored = isRightToLeft(whole), sizes = [37, 31, 26, 22, 19, 16, 14, 12, 10, 8];
  const needs = (size) => {
    const chips = wordLines(words, size, 0.45 * size, most), lines = wrapWords(whole, most, size);
    return {size, chips, lines, text: 1.5 * size * lines.length, tokens: 3 * size * chips.length};
  };
  const {size, chips, lines, text, tokens} = sizes.map(needs).find((found) => found.text + found.tokens + 90 <= height) || needs(sizes.at(-1));
  const edge = Math.min(40, Math.max(4, (height - text - tokens - 60) / 3)), boxes = [];
  chips.forEach((line, n) => {
    let x = (width - line.reduce((sum, wide) => sum + wide, 0.45 * size * (line.length - 1))) / 2;
    for (const wide of line) {
      boxes.push({x: mirrored ? width - x - wide : x, y: height - edge - tokens + 3 * size * n, width: wide, height: 1.7 * size});
      x += wide + 0.45 * size;
    }
  });
  return {size, boxes, text: lines.map((line, n) => ({text: fitToken(line, most, size, 400), y: edge + 1.5 * size * n + size})),
    arrow: {x: 0, y: edge + text, width, height: height - 2 * edge - text - tokens}};
}

/* The widths of the tokens of each line. */
function wordLines(words, size, gap, most) {
  const lines = [[]];
  let used = 0;
  for (const word of words) {
    const wide = Math.min(most, textWidth(fitToken(word, most, size, 500), size, 500) + size * 0.7);
    if (used + wide > most && lines.at(-1).length) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push(wide);
    used += wide + gap;
  }
  return lines;
}

export function drawLines(pen, {text, size}, box, {alpha}, {colours}) {
  for (const {text: line, y} of text) pen.label(box.x + box.width / 2, box.y + y, inOwnDirection(line), {size, anchor: 'middle', fill: colours.ink, alpha});
}

/* Chips with the number of each token below; the marked one framed. */
function drawChips(pen, {size}, boxes, look, {facts, colours}) {
  const {words, ids} = facts.walk, {alpha} = look;
  boxes.forEach((box, t) => {
    pen.box(box, {fill: colours.page, stroke: colours.line, radius: 5, alpha});
    pen.label(box.x + box.width / 2, box.y + box.height * 0.5 + size * 0.35, fitToken(words[t], box.width, size, 500),
      {size, weight: 500, anchor: 'middle', fill: t === facts.t ? colours.accent : colours.ink, alpha});
    const id = String(ids[t]), small = Math.min(12, size * 0.6);
    if (textWidth(id, small, 400) > box.width + size * 0.3) return;
    pen.label(box.x + box.width / 2, box.y + box.height + small * 1.25, id, {size: small, anchor: 'middle', fill: colours.soft, alpha: alpha * clamp01(2 * look.p - 1)});
  });
  if (look.settled) drawFrame(pen, boxes[facts.t], colours.accent, colours, alpha);
}

/* ---- Beside rows ------------------------------------------------------------------------------------------------- */

const railLetter = (each) => limit(each * 0.85, 9, 13);

/* The place of each token on the left of its row, as wide as its word. */
export function wordRailBoxes(words, layout, x, y, height) {
  const each = height / words.length, size = railLetter(each), edge = x + layout.rail - 6;
  return words.map((word, t) => {
    const wide = Math.min(layout.rail - 10, textWidth(fitToken(word, layout.rail - 10, size, 400), size, 400));
    return {x: edge - wide, y: y + t * each, width: wide, height: each};
  });
}

/* Words that have room: all, or every second, or fewer. The marked ones come last, in frames, and push their neighbours out. */
export function drawWordRail(pen, piece, boxes, look, view) {
  if (piece.size) return drawChips(pen, piece, boxes, look, view);
  const {facts, colours, layout} = view, words = piece.ofKeys ? facts.walk.keyWords : facts.walk.words, {alpha} = look, size = railLetter(piece.each), every = Math.ceil(10 / piece.each);
  const middle = (t) => boxes[t].y + boxes[t].height / 2, marked = markedWords(facts, piece, middle, colours);
  const near = (t) => look.settled && marked.some(({y}) => Math.abs(y - middle(t)) < 13);
  boxes.forEach((box, t) => {
    if ((t % every && look.settled) || near(t)) return;
    pen.label(box.x + box.width, middle(t) + size * 0.36, fitToken(words[t], layout.rail - 10, size, 400),
      {size, anchor: 'end', fill: colours.soft, alpha});
  });
  if (look.settled) drawMarkedWords(pen, marked, words, boxes[0].x + boxes[0].width, alpha, view);
}

/* The query and the key, {t, colour, y}, far enough from each other for both; or the row that the answer is read from. */
function markedWords({t, key, readOut}, {keyToo, ofKeys, readOut: last}, middle, colours) {
  if (ofKeys) return [{t: key, colour: colours.key, y: middle(key)}];
  if (last) return readOut === undefined ? [] : [{t: readOut, colour: colours.accent, y: middle(readOut)}];
  const query = {t, colour: colours.accent, y: middle(t)}, away = middle(key) - query.y;
  if (!keyToo || key === t) return [query];
  return [query, {t: key, colour: colours.key, y: query.y + (away < 0 ? Math.min(-17, away) : Math.max(17, away))}];
}

function drawMarkedWords(pen, marked, words, edge, alpha, {colours, layout}) {
  for (const {t, colour, y} of marked) {
    const word = fitToken(words[t], layout.rail - 12, 12, 700), wide = textWidth(word, 12, 700);
    pen.box({x: edge - wide - 3, y: y - 8, width: wide + 6, height: 16}, {fill: colours.card, stroke: colour, line: 1.5, radius: 3, alpha});
    pen.label(edge, y + 4, word, {size: 12, weight: 700, anchor: 'end', fill: colour, alpha});
  }
}

/* The marked key below bars, centred on `middle` as far as their box allows; returns its place. */
export function drawKeyWord(pen, middle, foot, box, alpha, {facts, colours}) {
  const word = fitToken(facts.walk.keyWords[facts.key], box.width, 11, 700), width = textWidth(word, 11, 700);
  const x = limit(middle - width / 2, box.x, Math.max(box.x, box.x + box.width - width));
  pen.label(x, foot - 2, word, {size: 11, weight: 700, fill: colours.key, alpha});
  return {x, width};
}

/* ---- What a head looks at ---------------------------------------------------------------------------------------- */

const listRow = 17;

/* The keys with the largest weights, as many as there is room for, in the order of the text. */
export function lookAtWords(facts, {h, weightRow}, whole, bars) {
  const {S, key, t, keys: seen, cross} = facts, room = Math.max(2, Math.floor(whole.height / listRow));
  const keys = [...new Set([key, ...seen.filter((j) => !cross && j === t), ...byWeight(seen, weightRow)])].slice(0, room).sort((a, b) => a - b);
  const each = Math.min(22, whole.height / keys.length), width = Math.min(whole.width, 190);
  const box = {x: whole.x + (whole.width - width) / 2, y: whole.y + (whole.height - each * keys.length) / 2, width, height: each * keys.length};
  const wide = bars.width / S, scale = facts.matrices['P' + h].scale;
  const flows = keys.map((j, n) => ({box: {x: bars.x + j * wide, y: bars.y + bars.height / 2, width: wide, height: wide},
    to: {x: box.x, y: box.y + n * each, width, height: each - 1}, fill: colourOf(scaleValue(weightRow[j], scale)), share: 1}));
  return {piece: {kind: 'list', box, keys, each, scale}, flows};
}

export function drawWordList(pen, {keys, each, scale, h}, box, look, {facts, colours}) {
  const late = look.fresh ? (look.settled ? clamp01((look.p - 0.7) / 0.3) : 0) : 1, alpha = look.alpha * late, {weightRow} = facts.lanes[h];
  const size = limit(each * 0.7, 9, 13);
  keys.forEach((j, n) => {
    const x = scaleValue(weightRow[j], scale), row = {x: box.x, y: box.y + n * each, width: box.width, height: each - 1};
    const share = percent(weightRow[j]), beside = textWidth(share, size - 1, 400) + 8, wide = row.width - beside > 30;
    pen.box(row, {fill: colourOf(x), alpha});
    pen.label(row.x + 4, row.y + each / 2 + size * 0.33, fitToken(facts.walk.keyWords[j], row.width - 8 - (wide ? beside : 0), size, 500),
      {size, weight: 500, fill: inkOn(x), alpha});
    if (wide) pen.label(row.x + row.width - 4, row.y + each / 2 + size * 0.33, share, {size: size - 1, anchor: 'end', fill: inkOn(x), alpha});
    if (!look.settled || (j !== facts.key && (facts.cross || j !== facts.t))) return;
    drawFrame(pen, {x: row.x + 1, y: row.y + 1, width: row.width - 2, height: row.height - 2}, j === facts.key ? colours.key : colours.accent, colours, look.alpha);
  });
}
