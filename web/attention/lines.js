/* The tokens of one head as two columns, queries and keys, with a line for each weight: the same weights as on the map,
 * beside which it stands, row by row.
 *
 * The selected query has lines in the accent colour, as wide as their weights; those of the others are faint. With many
 * tokens, only the strongest lines of each query are drawn. Export uses the same drawing code. */

import {strongestKeys} from './data.js';
import {attentionScale, attentionWords, chosenFacts, labelsWidth, moveOnMap, tokenLabel} from './map.js';
import {colourOf, inkOn} from '../base/colour.js';
import {element, pointOn} from '../base/dom.js';
import {scaleValue, weightWords} from '../base/heatmap.js';
import {easeBoth, limit} from '../base/numbers.js';
import {canvasPen, sizeCanvas} from '../base/pen.js';
import {themeColours} from '../base/svg.js';
import {fitToken, visibleToken} from '../base/text.js';
import {attachTip} from '../base/tip.js';

const lineSizes = {low: 17, high: 28, gap: 8, label: 12, most: 6, steps: 14};

/* The layout for a width; `high` is the height of a row of the map. */
export function linesLayout(attention, width, high, top) {
  const row = limit(high, lineSizes.low, lineSizes.high);
  const widest = (texts) => Math.min(0.34 * width, 14 + labelsWidth(texts, 700));
  const left = widest(attention.queryTexts), right = width - widest(attention.keyTexts);
  return {width, row, top, left, right, height: top + row * Math.max(attention.queries, attention.keys) + 4};
}

const lineY = (layout, n) => layout.top + (n + 0.5) * layout.row;

/* A smooth way from a query to a key. */
function linePoints(layout, query, key) {
  const [x0, x1] = [layout.left + lineSizes.gap, layout.right - lineSizes.gap];
  const [y0, y1] = [lineY(layout, query), lineY(layout, key)];
  return Array.from({length: lineSizes.steps + 1}, (_, n) => {
    const t = n / lineSizes.steps;
    return [x0 + (x1 - x0) * t, y0 + (y1 - y0) * easeBoth(t)];
  });
}

/* The keys of a row with a line: the strongest of those above the uniform weight. */
function linedKeys(attention, row) {
  return strongestKeys(row, attention.keys <= 40 ? 12 : lineSizes.most).filter((key) => row[key] > Math.max(0.02, attention.equal));
}

function drawLabels(pen, attention, layout, state, row, scale, colours) {
  const {label: size} = lineSizes, room = {query: layout.left - 10, key: layout.width - layout.right - 10};
  for (let n = 0; n < attention.queries; n++) {
    const chosen = n === state.token, y = lineY(layout, n);
    if (chosen) {
      pen.box({x: 0, y: y - layout.row / 2 + 1, width: layout.left + 2, height: layout.row - 2},
        {stroke: colours.accent, line: 2, radius: 4});
    }
    pen.label(layout.left - 4, y + size * 0.35,
      fitToken(visibleToken(attention.queryTexts[n]), room.query, size, chosen ? 700 : 400),
      {size, anchor: 'end', weight: chosen ? 700 : 400, fill: chosen ? colours.accent : colours.ink});
  }
  for (let n = 0; n < attention.keys; n++) {
    const x = scaleValue(row[n], scale), y = lineY(layout, n), chosen = n === state.key;
    pen.box({x: layout.right - 2, y: y - layout.row / 2 + 1, width: layout.width - layout.right + 1, height: layout.row - 2},
      {fill: colourOf(x), radius: 4, ...(chosen ? {stroke: colours.accent, line: 2} : {})});
    pen.label(layout.right + 4, y + size * 0.35,
      fitToken(visibleToken(attention.keyTexts[n]), room.key, size, chosen ? 700 : 400),
      {size, weight: chosen ? 700 : 400, fill: inkOn(x)});
  }
}

/* state: {block, head, token, key}. */
export function drawAttentionLines(pen, attention, layout, state, scale, colours) {
  const line = (query, key, weight, own) => pen.stroke(linePoints(layout, query, key), own
    ? {stroke: colours.accent, line: 1 + 4 * weight, alpha: 0.35 + 0.65 * weight}
    : {stroke: colours.soft, line: 0.5 + 1.5 * weight, alpha: 0.05 + 0.4 * weight});
  for (let query = 0; query < attention.queries; query++) {
    const row = attention.row(state.block, state.head, query);
    if (query !== state.token) for (const key of linedKeys(attention, row)) line(query, key, row[key], false);
  }
  const row = attention.row(state.block, state.head, state.token);
  for (const key of linedKeys(attention, row)) line(state.token, key, row[key], true);
  drawLabels(pen, attention, layout, state, row, scale, colours);
}

/* ---- On the page ------------------------------------------------------------------------------------------------- */

export function createAttentionLines(store, attention) {
  const canvas = element('canvas', {id: attention.idOf('attention-lines'), class: 'attention-lines', tabindex: 0, role: 'img'});
  const box = element('div', {class: 'lines-scroll'}, canvas);
  let layout = null;

  /* The token under the pointer: {query} or {key}. */
  function tokenAt(event) {
    const {x, y} = pointOn(canvas, event, layout.width, layout.height);
    const n = Math.floor((y - layout.top) / layout.row);
    if (n < 0) return null;
    if (x < layout.width / 2) return n < attention.queries ? {query: n} : null;
    return n < attention.keys ? {key: n} : null;
  }

  attachTip(canvas, (event) => {
    const at = event && layout && tokenAt(event);
    if (!at) return null;
    const {block, head, token} = store.get();
    if (at.query !== undefined) return [`from ${tokenLabel(attention, attention.queryTexts, at.query)}`];
    return [weightWords(attention.row(block, head, token)[at.key], attention.equal),
      `from ${tokenLabel(attention, attention.queryTexts, token)}`, `to ${tokenLabel(attention, attention.keyTexts, at.key)}`];
  });
  canvas.addEventListener('click', (event) => {
    const at = tokenAt(event);
    if (at) store.set(at.query === undefined ? {key: at.key} : {token: at.query});
  });
  canvas.addEventListener('keydown', (event) => moveOnMap(store, attention, event));

  function keepInSight(n) {
    const top = lineY(layout, n) - layout.row, bottom = top + 2 * layout.row;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }

  return {
    element: element('div', {class: 'lines-place'}, box),
    /* `high` and `top`: the height of a row of the map, and where its first row begins. */
    update(state, high, top) {
      layout = linesLayout(attention, Math.max(220, box.clientWidth), high, top);
      canvas.style.width = layout.width + 'px';
      canvas.style.height = layout.height + 'px';
      const scale = attentionScale(attention, state, chosenFacts(attention, state));
      drawAttentionLines(canvasPen(sizeCanvas(canvas, layout.width, layout.height)), attention, layout, state, scale,
        themeColours());
      canvas.setAttribute('aria-label',
        'Lines from queries to keys. ' + attentionWords(attention, state) + ' Up and down select a query, left and right a key.');
      keepInSight(state.token);
    },
  };
}
