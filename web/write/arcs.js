/* Every head on one token: arcs from the token to the keys that it attends to, as strong as their weights, and the word of
 * the strongest. The token is the one under the pointer, or the selected one. Export uses the same drawing code. */

import {headName, loadAttention, strongestKeys} from '../attention/data.js';
import {tokenLabel} from '../attention/map.js';
import {createMarksLegend, headWords, showMark} from '../attention/marks.js';
import {element} from '../base/dom.js';
import {easeBoth, limit} from '../base/numbers.js';
import {canvasPen, sizeCanvas} from '../base/pen.js';
import {roveFocus} from '../base/roving.js';
import {themeColours} from '../base/svg.js';
import {clipToken, visibleToken} from '../base/text.js';
import {attachTip} from '../base/tip.js';
import {percent} from '../base/words.js';

export const arcSizes = {high: 36, edge: 5, most: 10, cell: 104};

/* Arcs from token `query` above a line of dots, one for each token; `mirrored`: the first one is on the right. */
function drawArcs(pen, row, query, {x, y, width, height}, colours, mirrored) {
  const inner = width - 2 * arcSizes.edge, base = y + height - 5;
  const at = (n) => x + arcSizes.edge + (((mirrored ? row.length - 1 - n : n) + 0.5) * inner) / row.length;
  drawDots(pen, row, at, base, colours);
  strokeKeys(pen, row, colours, (key) => (key === query ? loopPoints(at(key), base - 3) : arcPoints(at(query), at(key), base - 3, height - 10)));
  pen.box({x: at(query) - 2.5, y: base - 2.5, width: 5, height: 5}, {fill: colours.accent, radius: 2.5});
}

/* The same between two lines of dots, from the query below to keys above. */
function drawCrossArcs(pen, row, query, queries, {x, y, width, height}, colours) {
  const inner = width - 2 * arcSizes.edge, place = (n, count) => x + arcSizes.edge + ((n + 0.5) * inner) / count;
  const top = y + 5, base = y + height - 5, from = place(query, queries);
  drawDots(pen, row, (n) => place(n, row.length), top, colours);
  drawDots(pen, new Float32Array(queries), (n) => place(n, queries), base, colours);
  strokeKeys(pen, row, colours, (key) => Array.from({length: 13}, (_, n) =>
    [from + (place(key, row.length) - from) * easeBoth(n / 12), base - 3 + (top + 6 - base) * (n / 12)]));
  pen.box({x: from - 2.5, y: base - 2.5, width: 5, height: 5}, {fill: colours.accent, radius: 2.5});
}

/* The strongest keys, on top those that are strongest. */
function strokeKeys(pen, row, colours, pointsTo) {
  for (const key of strongestKeys(row, arcSizes.most).filter((n) => row[n] > 0.02).reverse()) {
    pen.stroke(pointsTo(key), {stroke: colours.accent, line: 0.75 + 2.75 * row[key], alpha: 0.25 + 0.75 * row[key]});
  }
}

function drawDots(pen, row, at, y, colours) {
  const step = Math.max(1, Math.ceil(row.length / 48));
  for (let n = 0; n < row.length; n++) {
    const strong = row[n] > 0.1;
    if (!strong && n % step) continue;
    pen.box({x: at(n) - 1, y: y - 1, width: 2, height: 2}, strong ? {fill: colours.accent} : {fill: colours.soft, alpha: 0.5});
  }
}

/* Half of an ellipse, higher for longer ways. */
function arcPoints(from, to, base, room) {
  const middle = (from + to) / 2, half = (from - to) / 2, high = Math.min(room, 5 + 0.55 * Math.abs(half));
  return Array.from({length: 17}, (_, n) => {
    const turn = (n * Math.PI) / 16;
    return [middle + half * Math.cos(turn), base - high * Math.sin(turn)];
  });
}

/* A token's weight on itself. */
function loopPoints(x, base) {
  return Array.from({length: 13}, (_, n) => {
    const turn = (n * Math.PI) / 6;
    return [x + 3.5 * Math.sin(turn), base - 3.5 + 3.5 * Math.cos(turn)];
  });
}

/* A cell's picture and words for a query. */
export function drawHeadArcs(pen, attention, facts, query, box, colours) {
  const row = attention.row(facts.layer, facts.head, query);
  if (attention.same) drawArcs(pen, row, query, box, colours, attention.rightToLeft);
  else drawCrossArcs(pen, row, query, attention.queries, box, colours);
}

/* {word, share} of the key with the largest weight; null if no key is seen. */
export function strongestWord(attention, {layer, head}, query) {
  const row = attention.row(layer, head, query), [key] = strongestKeys(row, 1);
  return key === undefined ? null : {key, word: visibleToken(attention.keyTexts[key]), share: row[key]};
}

/* ---- On the page ------------------------------------------------------------------------------------------------- */

function createArcCell(store, attention, layer, head) {
  const canvas = element('canvas', {class: 'arc-map', 'aria-hidden': true}), word = element('bdi', {class: 'arc-word'}), share = element('span', {class: 'arc-share'});
  const number = `${layer}.${head}`;
  const button = element('button', {type: 'button', class: 'cell arc-cell', 'data-layer': layer, 'data-head': head,
    onclick: () => store.set({block: layer, head})},
  element('span', {class: 'arc-name'}, number, ' ', share), ' ', canvas, word);
  let lines = [];
  attachTip(button, () => lines);
  return {
    element: button,
    choose: (state) => button.setAttribute('aria-pressed', String(layer === state.block && head === state.head)),
    get width() {
      return canvas.clientWidth;
    },
    paint(query, width, colours) {
      button.classList.toggle('marked', showMark(button, attention, layer, head));
      const best = strongestWord(attention, {layer, head}, query), box = {x: 0, y: 0, width, height: arcSizes.high};
      drawHeadArcs(canvasPen(sizeCanvas(canvas, width, arcSizes.high)), attention, {layer, head}, query, box, colours);
      word.textContent = best ? clipToken(best.word, 18) : '–';
      share.textContent = best ? `${Math.round(100 * best.share)}\u00a0%` : '';
      lines = [headName(attention, layer, head), headWords(attention, layer, head), best && `from ${tokenLabel(attention, attention.queryTexts, query)}`,
        best && `to ${tokenLabel(attention, attention.keyTexts, best.key)} ${percent(best.share)}`].filter(Boolean);
      button.setAttribute('aria-label', [`${number} ${share.textContent} ${word.textContent}`, ...lines].join(', '));
    },
  };
}

/* How many heads stand beside each other on a narrow page: at most `most`, and as many in each line, if that can be. */
function evenColumns(heads, most) {
  for (let columns = Math.min(heads, most); columns > 1; columns--) if (heads % columns === 0) return columns;
  return Math.min(heads, most);
}

/* All heads of a set of maps; `title` is '' if the page has only one. */
export function createArcs(store, set, title, id) {
  const attention = loadAttention(set, id), heading = element('h3', {class: 'arcs-about'}), legend = createMarksLegend(attention);
  const cells = attention.facts.flatMap(({layer, head}, n) => (set.words && set.words[n] === 'removed' ? [] : [createArcCell(store, attention, layer, head)]));
  const body = element('div', {class: 'arc-cells cells', style: `--heads:${attention.heads};--columns-tablet:${evenColumns(attention.heads, 4)};--columns-phone:${evenColumns(attention.heads, 3)}`},
    cells.map((cell) => cell.element));
  roveFocus(body, '.cell');
  return {
    attention, title, body,
    element: element('div', {class: 'arcs', id: `arcs-${id}`}, element('div', {class: 'arcs-head'}, heading, legend.element), body),
    /* The token that they are shown for. */
    update(asked) {
      const state = store.get(), colours = themeColours(), width = cells[0].width || arcSizes.cell;
      if (attention.set !== state.set) {
        attention.take(state.set);
        legend.update();
      }
      const query = limit(asked, 0, attention.queries - 1);
      cells.forEach((cell) => cell.paint(query, width, colours));
      cells.forEach((cell) => cell.choose(state));
      heading.replaceChildren(`${title || 'Every head'}, from `, element('b', null, tokenLabel(attention, attention.queryTexts, query)));
    },
  };
}
