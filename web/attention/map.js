/* The map of one head with its tokens along both axes: queries down the side, keys below.
 *
 * Labels are thinned out until they do not overlap; the selected query and key are always labelled. The selected row is
 * framed. Export uses the same drawing code. */

import {headName, poolMap, strongestKeys} from './data.js';
import {announce, element, pointOn} from '../base/dom.js';
import {drawHeatmap, weightScale, weightWords} from '../base/heatmap.js';
import {limit} from '../base/numbers.js';
import {canvasPen, sizeCanvas, textWidth} from '../base/pen.js';
import {themeColours} from '../base/svg.js';
import {clipToken, fitToken, visibleToken} from '../base/text.js';
import {attachTip} from '../base/tip.js';
import {percent} from '../base/words.js';

const mapSizes = {cell: 28, high: 640, label: 12, spacing: 15};

/* The layout for a given width, or less with few keys. Cells are not square if the map is far from square. */
export function attentionLayout(attention, width) {
  const {queries, keys} = attention, most = width < 560 ? 84 : 150;
  const widest = (texts) => Math.min(most, labelsWidth(texts, 600) + 4);
  const left = widest(attention.queryTexts) + 10, below = widest(attention.keyTexts) + 12;
  let wide = Math.min(mapSizes.cell, (width - left - 8) / keys);
  let high = Math.min(mapSizes.cell, mapSizes.high / queries);
  if (queries <= 3 * keys && keys <= 3 * queries) wide = high = Math.min(wide, high);
  const plot = {x: left, y: 4, width: wide * keys, height: high * queries};
  const used = Math.min(width, Math.ceil(left + plot.width) + 8);
  return {width: used, plot, wide, high, left, below, height: plot.y + plot.height + below};
}

/* The width of the widest label, of a sample of the texts. */
export function labelsWidth(texts, weight) {
  const step = Math.ceil(texts.length / 200), sample = texts.filter((_, n) => n % step === 0);
  return Math.max(...sample.map((text) => textWidth(clipToken(visibleToken(text), 60), mapSizes.label, weight)));
}

/* Which of `count` labels are drawn: every n-th, and the selected one instead of its neighbours. */
function labelPlaces(count, cell, chosen) {
  const step = Math.max(1, Math.ceil(mapSizes.spacing / cell)), places = [];
  for (let n = 0; n < count; n += step) {
    if (chosen === null || n === chosen || Math.abs(n - chosen) * cell >= mapSizes.spacing) places.push(n);
  }
  if (chosen !== null && !places.includes(chosen)) places.push(chosen);
  return places;
}

function drawAttentionLabels(pen, attention, layout, {query, key}, colours) {
  const {plot, wide, high} = layout, size = mapSizes.label;
  const style = (chosen) => ({size, weight: chosen ? 700 : 400, fill: chosen ? colours.accent : colours.soft});
  for (const n of labelPlaces(attention.queries, high, query)) {
    const text = fitToken(visibleToken(attention.queryTexts[n]), layout.left - 8, size, n === query ? 700 : 400);
    pen.label(plot.x - 6, plot.y + (n + 0.5) * high + size * 0.35, text, {...style(n === query), anchor: 'end'});
  }
  for (const n of labelPlaces(attention.keys, wide, key)) {
    const text = fitToken(visibleToken(attention.keyTexts[n]), layout.below - 10, size, n === key ? 700 : 400);
    pen.label(plot.x + (n + 0.5) * wide + size * 0.35, plot.y + plot.height + 6, text,
      {...style(n === key), anchor: 'end', rotate: -90});
  }
}

/* `image` is the head's map, one pixel per cell; chosen: {query, key}, key may be null. */
export function drawAttentionMap(pen, attention, layout, image, chosen, colours) {
  const {plot, wide, high} = layout, frame = {stroke: colours.accent, line: 2};
  pen.picture(image, null, plot);
  pen.box(plot, {stroke: colours.line});
  drawAttentionLabels(pen, attention, layout, chosen, colours);
  pen.box({x: plot.x - 1, y: plot.y + chosen.query * high - 1, width: plot.width + 2, height: high + 2}, frame);
  if (chosen.key === null) return;
  const cell = {x: plot.x + chosen.key * wide, y: plot.y + chosen.query * high, width: wide, height: high};
  pen.box({x: cell.x - 2, y: cell.y - 2, width: cell.width + 4, height: cell.height + 4}, {...frame, line: 3});
  pen.stroke([[cell.x + wide / 2, cell.y + high + 3], [cell.x + wide / 2, plot.y + plot.height + 3]],
    {stroke: colours.accent, line: 1, alpha: 0.6});
}

/* ---- On the page ------------------------------------------------------------------------------------------------- */

/* The scale of one map, given by its facts, or, for null, of the legend. */
export function attentionScale(attention, {scale, range}, facts) {
  const own = facts ? facts.largest : null;
  return weightScale(scale, attention.equal, range === 'per-head' ? own : attention.max);
}

export function chosenFacts(attention, {block, head}) {
  return attention.facts[block * attention.heads + head];
}

/* One pixel per cell, or, if cells are smaller than pixels, the maximum of several cells. */
export function attentionImage(attention, state, {plot}) {
  const canvas = element('canvas'), ratio = window.devicePixelRatio || 1, {queries, keys} = attention;
  const most = [plot.height, plot.width].map((size) => Math.max(1, Math.floor(size * ratio)));
  const map = poolMap(attention.map(state.block, state.head), queries, keys, ...most);
  const scale = attentionScale(attention, state, chosenFacts(attention, state));
  drawHeatmap(canvas, map.values, map.rows, map.columns, scale);
  return canvas;
}

export function createAttentionMap(store, attention) {
  const canvas = element('canvas', {id: attention.idOf('attention-map'), class: 'attention-map', tabindex: 0, role: 'img'});
  let layout = null, image = null, room = 0;

  function cellAt(event) {
    const {plot} = layout, at = pointOn(canvas, event, layout.width, layout.height), x = at.x - plot.x, y = at.y - plot.y;
    if (x >= plot.width || y < 0 || y >= plot.height || (x < 0 && x < -layout.left)) return null;
    return {query: Math.floor(y / layout.high), key: x < 0 ? null : Math.floor(x / layout.wide)};
  }

  attachTip(canvas, (event) => {
    const cell = event && layout && cellAt(event);
    if (!cell) return null;
    const {block, head} = store.get();
    const query = `from ${tokenLabel(attention, attention.queryTexts, cell.query)}`;
    if (cell.key === null) return [query];
    return [weightWords(attention.row(block, head, cell.query)[cell.key], attention.equal), query,
      `to ${tokenLabel(attention, attention.keyTexts, cell.key)}`];
  });
  canvas.addEventListener('click', (event) => {
    const cell = cellAt(event);
    if (cell) store.set({token: cell.query, key: cell.key});
  });
  canvas.addEventListener('keydown', (event) => moveOnMap(store, attention, event));

  return {
    canvas,
    /* `fresh`: the map itself has changed, not only the selection. */
    update(state, fresh) {
      const given = canvas.parentNode.clientWidth, moved = !layout || given !== room;
      room = given;
      if (moved) layout = attentionLayout(attention, Math.max(240, room));
      if (fresh || moved) image = attentionImage(attention, state, layout);
      canvas.style.width = layout.width + 'px';
      canvas.style.height = layout.height + 'px';
      const context = sizeCanvas(canvas, layout.width, layout.height);
      const chosen = {query: state.token, key: state.key};
      drawAttentionMap(canvasPen(context), attention, layout, image, chosen, themeColours());
      canvas.setAttribute('aria-label',
        attentionWords(attention, state) + ' Up and down select a query, left and right a key.');
    },
    /* The tokens have changed. */
    forget: () => (layout = null),
    /* The width that it was drawn for, and the unused part of it. */
    get room() {
      return room;
    },
    get spare() {
      return Math.max(0, room - layout.width);
    },
    /* The height of a row, and where the first one begins. */
    get rows() {
      return {high: layout.high, top: layout.plot.y};
    },
  };
}

/* Whether a token has only a number, from 0, as its name, or, if pooled, the numbers of the first and last in its
 * cell. */
export function isNumbered({pooled}, texts, n) {
  return texts[n] === String(n) || (pooled && /^\d+( … \d+)?$/.test(texts[n]));
}

/* "“cat” (4)": a token and its position, from 1; or "token 3", pooled "group 0 … 2", if it has no name. U+2068 and
 * U+2069 isolate right-to-left tokens. */
export function tokenLabel(attention, texts, n) {
  if (isNumbered(attention, texts, n)) return (attention.pooled ? 'group ' : 'token ') + texts[n];
  return `“\u2068${clipToken(visibleToken(texts[n]), 40)}\u2069” (${n + 1})`;
}

/* The main numbers, in a sentence. */
export function attentionWords(attention, {block, head, token, key}) {
  const row = attention.row(block, head, token);
  const name = (n) => `${tokenLabel(attention, attention.keyTexts, n)} ${percent(row[n])}`;
  const best = strongestKeys(row, 3).map(name).join(', ') || 'no key';
  const chosen = key === null ? '' : ` Selected key: ${name(key)}.`;
  const from = tokenLabel(attention, attention.queryTexts, token);
  return `${headName(attention, block, head)}, from ${from}: ${best}.${chosen}`;
}

export function moveOnMap(store, attention, event) {
  const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}, move = moves[event.key];
  if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const {token, key} = store.get(), within = (x, count) => limit(x, 0, count - 1);
  const next = {token: within(token + move[0], attention.queries), key};
  if (move[1]) next.key = key === null ? 0 : within(key + move[1], attention.keys);
  store.set(next);
  announce(attentionWords(attention, store.get()));
}
