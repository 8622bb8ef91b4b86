/* Panel: small maps of all heads, in a selectable order.
 *
 * A map has one row per query and one column per key. Sorted by similarity, heads are in pairs: first the two most
 * similar heads of any block, then the most similar two of the remaining ones. */

import {scaleControls, storeControl} from '../base/controls.js';
import {element} from '../base/dom.js';
import {cellUnder, createLegend, drawHeatmap, sharedMax, weightScale} from '../base/heatmap.js';
import {largestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {roveFocus} from '../base/roving.js';
import {svgCanvas, svgLabel, svgPicture, themeColours} from '../base/svg.js';
import {percent, plural, shortNumber} from '../base/words.js';
import {createMapCell} from './cell.js';
import {surveyImportance, surveyOf} from './survey.js';
import {tokenName} from '../vit/model.js';

const gridOrders = (data) => [
  ['place', 'position in the model'],
  ['entropy', 'entropy, lowest first'],
  ['distance', 'distance, lowest first'],
  ['importance', `${importanceName({byPage: !data.survey})}, highest first`],
  ['likeness', 'similarity, most similar first'],
];

/* The page measures a different number than the library's importance, so it has a different name. */
function importanceName({byPage}) {
  return byPage ? 'effect on the loss' : 'importance';
}

export function createGridPanel(store, model, data) {
  const body = roveFocus(element('div', {class: 'grid-body', id: 'grid-body', role: 'group', 'aria-label': 'All heads, in this order'}), '.cell');
  const note = element('p', {class: 'hint', id: 'grid-note'});
  const sort = storeControl(store, 'sort', 'Sorted by', gridOrders(data));
  const legend = createLegend();
  const cells = new Map();
  model.blocks.forEach((block, b) => {
    for (let h = 0; h < block.heads; h++) cells.set(b + ':' + h, createGridCell(store, model, b, h));
  });
  const text = 'Each square is the attention matrix of one head, with a row for each query and a column for each key' +
    (model.first ? '; the class token comes first.' : '.') + ' A diagonal means that patches attend to themselves or ' +
    'to their neighbours; a column means that all patches attend to the same place. Click a head to select it everywhere on the page.';
  const panel = createPanel({
    id: 'grid',
    title: 'All heads at a glance',
    text,
    controls: [sort, ...scaleControls(store), legend.element],
    body: [note, body],
    toSvg: () => gridSvg(store.get(), model, data),
  });
  let asked = false, progress = null;
  const tell = () => (note.textContent = gridNote(store.get(), data, progress));
  const arrange = () => {
    const state = store.get();
    body.replaceChildren(...gridGroups(state, model).map((group) => gridGroup(group, cells, model)));
    tell();
  };
  const draw = () => {
    const state = store.get();
    legend.update(gridScale(state, model, null), true);
    cells.forEach((cell) => cell.update(state));
  };
  store.on(['sort', 'survey'], () => {
    const {sort: order, survey} = store.get();
    if (order === 'importance' && survey && survey.byPage && !survey.importance_images && !asked) {
      asked = true;
      surveyImportance(store, model, data, (share) => {
        progress = share < 1 ? share : null;
        tell();
      });
    }
    arrange();
  });
  store.on('image', tell);
  store.on(['result', 'block', 'head', 'scale', 'range', 'theme', 'survey', 'sort'], draw);
  arrange();
  draw();
  return panel;
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* Groups of heads: {title, heads: [[block, head], ...]}; title may be null. */
function gridGroups(state, model) {
  const order = state.survey ? state.sort : 'place';
  if (order === 'place') {
    return model.blocks.map((block, b) => ({
      title: `Block ${b}`,
      heads: Array.from({length: block.heads}, (_, h) => [b, h]),
    }));
  }
  if (order === 'likeness') return gridPairs(state.survey);
  const sign = order === 'importance' ? -1 : 1, value = (item) => item[order] ?? 0;
  const sorted = state.survey.heads.slice().sort((a, b) => sign * (value(a) - value(b)));
  return [{title: null, heads: sorted.map((item) => [item.block, item.head])}];
}

function gridPairs(survey) {
  const pairs = [], used = new Set(), groups = [], alone = [];
  survey.pairs.forEach((table, b) => table.forEach((row, h) => {
    for (let other = h + 1; other < row.length; other++) pairs.push({b, h, other, divergence: row[other]});
  }));
  pairs.sort((one, two) => one.divergence - two.divergence);
  for (const {b, h, other, divergence} of pairs) {
    if (used.has(b + ':' + h) || used.has(b + ':' + other)) continue;
    used.add(b + ':' + h).add(b + ':' + other);
    groups.push({title: `divergence ${shortNumber(divergence)}`, pair: true, heads: [[b, h], [b, other]]});
  }
  for (const item of survey.heads) {
    if (!used.has(item.block + ':' + item.head)) alone.push([item.block, item.head]);
  }
  if (alone.length) groups.push({title: 'Not paired', pair: true, heads: alone});
  return groups;
}

function gridGroup(group, cells, model) {
  const most = Math.max(...model.config.heads);
  const place = group.title && !group.pair;
  const name = group.pair ? 'pair' : place ? 'grid-row' + (most > 6 ? ' many' : '') : 'grid-all';
  return element('div', {class: name, style: `--heads:${most}`},
    group.title ? element('h3', null, group.title) : null,
    element('div', {class: 'grid-cells cells'}, group.heads.map(([b, h]) => cells.get(b + ':' + h).element)));
}

/* Describes the maps, the source of the numbers, and the sort key. */
function gridNote(state, data, progress) {
  const survey = state.survey, maps = `The maps show the selected image, ${data.images[state.image].name}. `;
  if (!survey) return maps + 'Measuring the heads over the images on this page …';
  const meanings = {
    entropy: ' Entropy: how evenly a head spreads its weights, in nats.',
    distance: ' Distance: the mean distance from a patch to the patches it attends to, in patches.',
    importance: survey.byPage ? ' Effect on the loss: how much the loss changes when the head is switched off.'
      : ' Importance: a first-order estimate of how much the loss changes without the head.',
    likeness: ' Similarity: the Jensen-Shannon divergence of two heads of a block, 0 if they are identical and 0.69 (ln 2) if they ' +
      'have no key in common.',
  };
  const busy = progress === null ? ''
    : ` Measuring the effect on the loss by switching off each head in turn: ${percent(progress)} done …`;
  return maps + surveySource(survey) + (busy || meanings[state.sort] || '');
}

/* Importance is expensive and may be computed from fewer images. */
function surveySource({images, importance_images: fewer, byPage}) {
  const by = byPage ? 'measured on this page' : 'measured by mha', over = `over ${plural(images, 'image')}`;
  const worth = importanceName({byPage});
  if (fewer === images) return `Entropy, distance, ${worth} and similarity were ${by} ${over}.`;
  return `Entropy, distance and similarity were ${by} ${over}${fewer ? `, ${worth} over ${fewer}` : ''}.`;
}

/* ---- One head ---------------------------------------------------------------------------------------------------- */

function createGridCell(store, model, b, h) {
  const T = model.tokens, cell = createMapCell(store, b, h, {
    words: (state) => gridWords(state, model, b, h),
    under(canvas, event, state) {
      const at = cellUnder(canvas, event, T, T);
      return at && `${percent(state.result.maps[b][h][at.row * T + at.column])} from ${tokenName(model, at.row)} to ${tokenName(model, at.column)}`;
    },
  });
  return {
    element: cell.element,
    update(state) {
      const map = state.result.maps[b][h];
      drawHeatmap(cell.canvas, map, T, T, gridScale(state, model, map));
      cell.caption.textContent = gridCaption(state, b, h);
      cell.update(state);
    },
  };
}

/* The upper end of the common scale of all maps, computed once per result. */
const gridMaxima = new WeakMap();

function gridMax(state) {
  if (!gridMaxima.has(state.result)) {
    gridMaxima.set(state.result, sharedMax(state.result.maps.flat().map(largestOf)));
  }
  return gridMaxima.get(state.result);
}

/* The scale of one map, or of the legend (null). */
function gridScale(state, model, map) {
  const own = map ? largestOf(map) : null;
  return weightScale(state.scale, 1 / model.tokens, state.range === 'fixed' ? gridMax(state) : own);
}

function gridCaption(state, b, h) {
  const survey = surveyOf(state, b, h), name = `${b}.${h}`;
  if (!survey || state.sort === 'place' || state.sort === 'likeness') return name;
  return survey[state.sort] === null ? name : `${name}: ${shortNumber(survey[state.sort])}`;
}

function gridWords(state, model, b, h) {
  const survey = surveyOf(state, b, h);
  const lines = [`Block ${b}, head ${h}` + (state.gates[b][h] ? '' : ' (switched off)')];
  if (!survey) return lines;
  if (survey.words) lines.push('over all images: ' + survey.words);
  lines.push(`entropy ${shortNumber(survey.entropy)} nats`,
    `effective number of keys ${shortNumber(survey.effective)}`, `distance ${shortNumber(survey.distance)} patches`);
  if (survey.importance !== null && survey.importance !== undefined) {
    lines.push(`${importanceName(state.survey)} ${shortNumber(survey.importance)}`);
  }
  if (survey.twin !== null) lines.push(`most similar to head ${survey.twin}, divergence ${shortNumber(survey.divergence)}`);
  return lines;
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function gridSvg(state, model, data) {
  const colours = themeColours(), groups = gridGroups(state, model), size = 96, gap = 16, left = 24;
  const heads = groups.flatMap((group) => group.heads.map((head, n) => ({head, title: n ? null : group.title})));
  const columns = state.sort === 'place' || !state.survey ? Math.max(...model.config.heads) : 6;
  const order = gridOrders(data).find(([name]) => name === state.sort)[1];
  const parts = [], canvas = document.createElement('canvas'); /* thousands of rectangles per head would take megabytes */
  let row = 0, column = 0;
  for (const {head: [b, h], title} of heads) {
    if (column === columns || (columns !== 6 && title && column)) row++, column = 0;
    const x = left + column * (size + gap), y = 80 + row * (size + gap + 18), map = state.result.maps[b][h];
    drawHeatmap(canvas, map, model.tokens, model.tokens, gridScale(state, model, map));
    parts.push(svgCanvas(canvas, x, y, size, size),
      svgLabel(x, y + size + 14, gridCaption(state, b, h), {size: 11, fill: colours.soft}));
    column++;
  }
  const width = Math.max(420, left * 2 + columns * (size + gap) - gap);
  return svgPicture(width, 80 + (row + 1) * (size + gap + 18) + 10, 'All heads at a glance',
    `${data.title}, ${data.images[state.image].name}, by ${order}`, parts);
}
