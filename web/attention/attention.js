/* The page of attention weights from any model: all heads as thumbnails, the selected one large with its tokens, and
 * the keys of the selected query as text and as a list. In the store, `block` is a layer or a sequence of a batch,
 * `token` a query, `key` the selected key or null, and `set` the maps and their tokens, which a page that runs its model
 * replaces. */

import {countsOf, headName, headNumber, loadAttention, sizesInWords, sortHeads, strongestKeys} from './data.js';
import {createAttentionLines, drawAttentionLines, linesLayout} from './lines.js';
import {attentionImage, attentionLayout, attentionScale, attentionWords, chosenFacts, createAttentionMap, drawAttentionMap, tokenLabel} from './map.js';
import {createMarksLegend, headWords, showMark} from './marks.js';
import {createStrongest, createTokenView} from './tokens.js';
import {scaleControls, storeControl} from '../base/controls.js';
import {element} from '../base/dom.js';
import {createLegend, drawHeatmap, equalWords, legendSvg} from '../base/heatmap.js';
import {createPanel} from '../base/panel.js';
import {svgPen, textWidth} from '../base/pen.js';
import {roveFocus} from '../base/roving.js';
import {svgPicture, themeColours} from '../base/svg.js';
import {fitToken, visibleToken} from '../base/text.js';
import {attachTip} from '../base/tip.js';
import {percent, shortNumber} from '../base/words.js';

/* ---- All heads --------------------------------------------------------------------------------------------------- */

const wallMost = 200; /* heads that are shown without being asked for */

/* All heads, or, if there are very many, the first lines of them with a button for the others: a part that scrolls would
 * hide heads. */
function wallButton(wall, count) {
  const words = (shortened) => (shortened ? `Show all ${count} heads` : 'Show fewer heads');
  const button = element('button', {type: 'button', class: 'small', onclick: () => {
    button.textContent = words(wall.classList.toggle('shortened'));
  }}, words(true));
  wall.classList.add('shortened');
  return button;
}

/* Thumbnails are drawn a few at a time, so that a thousand heads do not block the page. */
function createHeadWall(store, attention) {
  const wall = element('div', {id: attention.idOf('heads'), class: 'head-wall cells', role: 'group', 'aria-label': 'All heads'});
  const cells = attention.facts.map(({layer, head}) => createHeadCell(store, attention, layer, head));
  let waiting = [];
  roveFocus(wall, '.cell');

  function paint() {
    const state = store.get(), end = performance.now() + 10;
    while (waiting.length && performance.now() < end) waiting.shift().paint(state);
    if (waiting.length) requestAnimationFrame(paint);
  }

  return {
    element: wall,
    more: cells.length > wallMost ? wallButton(wall, cells.length) : null,
    paint() {
      const idle = waiting.length === 0;
      waiting = cells.slice();
      if (idle) paint();
    },
    order(sort) {
      wall.classList.toggle('by-entropy', sort === 'entropy');
      wall.style.setProperty('--heads', sort === 'entropy' ? attention.facts.length : attention.heads);
      wall.replaceChildren(...sortHeads(attention.facts, sort)
        .map(({layer, head}) => cells[layer * attention.heads + head].element));
    },
    choose(state) {
      for (const cell of cells) cell.choose(state);
    },
  };
}

function createHeadCell(store, attention, layer, head) {
  const canvas = element('canvas', {class: 'map', 'aria-hidden': true}), number = headNumber(attention, layer, head);
  const about = () => headWords(attention, layer, head), caption = element('span', {class: 'cell-caption'}), named = element('span', {class: 'cell-words'});
  const facts = () => attention.facts[layer * attention.heads + head];
  const lines = () => [headName(attention, layer, head), about(), `effective number of keys ${shortNumber(facts().effective)}`,
    `entropy ${shortNumber(facts().entropy)} nats`,
    `largest ${attention.pooled ? 'cell' : 'weight'} ${percent(facts().largest)}`].filter(Boolean);
  const button = element('button', {type: 'button', class: 'cell', 'data-layer': layer, 'data-head': head,
    onclick: () => store.set({block: layer, head})}, canvas, caption, ' ', named);
  attachTip(button, lines);
  return {
    element: button,
    choose: (state) => button.setAttribute('aria-pressed', String(layer === state.block && head === state.head)),
    paint(state) {
      const {small, effective} = facts(), words = lines(), own = about();
      named.textContent = own || '';
      showMark(button, attention, layer, head);
      drawHeatmap(canvas, small.values, small.rows, small.columns, attentionScale(attention, state, facts()));
      caption.textContent = number ? `${number}\u00a0· ${effective.toFixed(1)}` : effective.toFixed(1);
      button.setAttribute('aria-label', [own ? `${caption.textContent} ${own}` : caption.textContent,
        ...words.filter((line) => line !== own)].join(', '));
    },
  };
}

/* ---- Controls ---------------------------------------------------------------------------------------------------- */

function createAttentionControls(store, attention) {
  const numbers = (count) => Array.from({length: count}, (_, n) => [n, String(n)]);
  const batch = attention.axes.includes('batch'), outer = batch || attention.axes.includes('layers');
  return {
    pick: [outer && storeControl(store, 'block', batch ? 'Sequence' : 'Layer', numbers(attention.layers)),
      attention.axes.includes('heads') && storeControl(store, 'head', 'Head', numbers(attention.heads))],
    look: scaleControls(store, 'map'),
    sort: storeControl(store, 'sort', 'Order', [['number', batch ? 'by sequence' : 'by layer'], ['entropy', 'lowest entropy first']]),
  };
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function attentionSvg(attention, state, data) {
  const edge = 24, top = 84, listed = 216, lined = 320, colours = themeColours(), pen = svgPen();
  const layout = attentionLayout(attention, 700), row = attention.row(state.block, state.head, state.token);
  layout.plot = {...layout.plot, x: layout.plot.x + edge, y: layout.plot.y + top};
  const title = `${data.title}: ${headName(attention, state.block, state.head)}`;
  const lines = linesLayout(attention, lined, layout.high, 0);
  const x = edge + layout.width + lined + 60, right = x + listed;
  const sizes = state.set.pooled ? state.set.pooled.text : sizesInWords(state.set);
  const words = Math.max(textWidth(title, 20, 600), textWidth(sizes, 13, 400));
  const width = Math.ceil(Math.max(right, edge + words) + edge);
  const image = attentionImage(attention, state, layout);
  drawAttentionMap(pen, attention, layout, image, {query: state.token, key: state.key}, colours);
  pen.shift(edge + layout.width + 24, layout.plot.y);
  drawAttentionLines(pen, attention, lines, state, attentionScale(attention, state, chosenFacts(attention, state)), colours);
  pen.shift(0, 0);
  const list = strongestKeys(row, 12);
  const from = fitToken(`From ${tokenLabel(attention, attention.queryTexts, state.token)}`, listed, 14, 600);
  pen.label(x, top + 14, from, {size: 14, weight: 600, fill: colours.ink});
  list.forEach((n, place) => {
    const y = top + 42 + 24 * place, share = Math.min(1, row[n]);
    pen.label(x, y, fitToken(visibleToken(attention.keyTexts[n]), 80, 13, 400), {size: 13, fill: colours.ink});
    pen.box({x: x + 90, y: y - 10, width: Math.max(0.5, 60 * share), height: 11}, {fill: colours.accent});
    pen.label(right, y, percent(row[n]), {size: 13, anchor: 'end', fill: colours.soft});
  });
  const legendTop = top + 42 + 24 * list.length;
  const scale = attentionScale(attention, state, chosenFacts(attention, state));
  const legend = legendSvg(scale, x, legendTop, listed, colours.soft);
  const height = Math.max(top + layout.height, layout.plot.y + lines.height, legendTop + 40) + edge;
  return svgPicture(width, height, title, sizes, [pen.text(), legend], attentionWords(attention, state));
}

/* ---- The panel --------------------------------------------------------------------------------------------------- */

const restTime = 250; /* milliseconds without new maps, after which a panel out of sight shows them */

function isInSight(node) {
  const {top, bottom} = node.getBoundingClientRect();
  return bottom > 0 && top < window.innerHeight;
}

/* `id` and `title` differ where a page has several panels. */
export function createAttentionPanel(store, data, id = 'attention', title = 'Attention maps') {
  const attention = loadAttention(data, id);
  store.set({key: null, sort: 'number', set: store.get().set || data});
  const controls = createAttentionControls(store, attention), legend = createLegend();
  const wall = createHeadWall(store, attention), map = createAttentionMap(store, attention);
  const tokens = createTokenView(store, attention), strongest = createStrongest(store, attention);
  const lines = createAttentionLines(store, attention), legendOfMarks = createMarksLegend(attention);
  const chosen = element('h3', {id: attention.idOf('chosen-head'), class: 'chosen-head'});
  const both = element('div', {class: 'attention'}, element('div', {class: 'attention-place'}, map.canvas),
    lines.element);
  const lead = () => 'Each row of a map is a query and each column a key; the colour shows the weight. The colour scale starts at ' +
    `the uniform weight, ${equalWords(attention.equal)}, so uniform attention is pale.`;

  const body = [
    data.pooled && element('p', {class: 'notice', id: attention.idOf('pooled'), role: 'note'}, data.pooled.text),
    element('div', {class: 'wall-head-row'},
      element('h3', null, countsOf(attention).join(', ') || 'The weights'),
      controls.sort),
    wall.element, wall.more, legendOfMarks.element,
    element('p', {class: 'hint'}, 'The last number under a map is its effective number of keys: 1 / Σ p² over the weights p of a ' +
      'query, averaged over queries. Click a map to select it.'),
    element('div', {class: 'controls'}, controls.pick),
    chosen,
    both,
    element('div', {class: 'token-row'}, tokens.element, strongest.element),
  ];
  const panel = createPanel({id, title, text: lead(), controls: [...controls.look, legend.element], body,
    toSvg: () => attentionSvg(attention, store.get(), data)});
  const pooledNotice = panel.element.querySelector('.notice');
  let late = 0;

  /* New maps and tokens. */
  function adopt(set) {
    attention.take(set);
    legendOfMarks.update();
    map.forget();
    tokens.fill();
    if (pooledNotice) pooledNotice.hidden = !set.pooled;
    panel.element.querySelector('.lead').textContent = lead();
    wall.order(store.get().sort);
    wall.paint();
  }

  function update(fresh) {
    const state = store.get(), changed = state.set !== attention.set;
    if (changed) adopt(state.set);
    const {entropy} = chosenFacts(attention, state);
    const about = headWords(attention, state.block, state.head), named = about ? `${about}, ` : '';
    chosen.textContent = `${headName(attention, state.block, state.head)}: ${named}entropy ${shortNumber(entropy)} nats`;
    legend.update(attentionScale(attention, state, null));
    map.update(state, fresh || changed);
    both.style.setProperty('--spare', map.spare + 'px');
    lines.update(state, map.rows.high, map.rows.top);
    tokens.update(state);
    strongest.update(state);
    wall.choose(state);
  }

  store.on(['block', 'head', 'scale', 'range', 'theme', 'token', 'key', 'set'], (state, changed) => {
    clearTimeout(late);
    if (changed.has('set') && !isInSight(panel.element)) late = setTimeout(() => update(true), restTime);
    else update(['block', 'head', 'scale', 'range', 'theme'].some((key) => changed.has(key)));
  });
  store.on(['scale', 'range', 'theme'], () => wall.paint());
  store.on('sort', (state) => wall.order(state.sort));
  new ResizeObserver(() => {
    if (map.canvas.parentNode.clientWidth !== map.room) update(false);
  }).observe(panel.element);
  wall.order('number');
  wall.paint();
  update(true);
  return panel;
}
