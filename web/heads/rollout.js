/* Panel: attention rollout through the blocks.
 *
 * Each block is assumed to pass on half of its input (the residual stream) and half of the output of its heads:
 *
 *     A_b = 0.5 mean over heads of weights + 0.5 I, rows normalized        R_b = A_b R_(b-1),  R_0 = I
 *
 * Row t of R_b estimates how much each patch contributes to token t after block b. Values and the MLP are ignored.
 * Heads that are switched off are excluded from the mean; a block without heads passes on its input. */

import {scaleControls, selectControl} from '../base/controls.js';
import {element} from '../base/dom.js';
import {createLegend, legendSvg, weightScale, weightWords} from '../base/heatmap.js';
import {bestOf, splitNumbers} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {svgLabel, svgPicture, themeColours} from '../base/svg.js';
import {attachTip} from '../base/tip.js';
import {percent} from '../base/words.js';
import {headsOff, tokenName} from '../vit/model.js';
import {drawMap, mapHeight, mapSvg, mapTokenUnder} from '../vit/picture.js';

/* R_b for each block, (T,T), computed by the engine. */
export function rollOut(model, maps, gates) {
  return splitNumbers(model.whole.rollOut(maps.flat(), model.tokens, headsOff(gates)), maps.length, model.tokens ** 2);
}

/* The row to show: the class token's, or the mean of all rows; or, on request, the row of a token. */
export function rolloutRow(model, matrix, from, token) {
  const T = model.tokens;
  if (from === 'chosen') return matrix.slice(token * T, (token + 1) * T);
  if (model.first) return matrix.slice(0, T);
  const mean = new Float32Array(T);
  for (let i = 0; i < T * T; i++) mean[i % T] += matrix[i] / T;
  return mean;
}

/* A token's own share is by far the largest and would hide the rest: the scale ends at the largest of the others. */
export function rolloutMax(rows, own) {
  let max = 0;
  for (const row of rows) row.forEach((value, t) => (max = t === own ? max : Math.max(max, value)));
  return max;
}

export function createRolloutPanel(store, model, data) {
  const view = {from: 'read-out', matrices: [], rows: []};
  const readOut = model.first ? 'the class token' : 'the mean of all tokens';
  const choices = [['read-out', readOut], ['chosen', 'the selected token']];
  const from = selectControl('Rollout of', choices, 'read-out', (value) => {
    view.from = value;
    draw();
  });
  const legend = createLegend();
  const cells = model.blocks.map((_, b) => createRolloutCell(model, view, b));
  const note = element('p', {class: 'hint'});
  const text = 'Attention rollout estimates how much each patch contributes to a token after each block. It assumes that ' +
    'every block keeps half of its input and takes the other half from the mean attention of its heads. The last map ' +
    'estimates which patches the prediction is based on.';
  const panel = createPanel({
    id: 'rollout',
    title: 'Attention rollout',
    text,
    controls: [from, ...scaleControls(store, 'block'), legend.element],
    body: [element('ol', {class: 'rollout', id: 'rollout-row'}, cells.map((cell) => cell.element)), note],
    toSvg: () => rolloutSvg(store.get(), model, data, view),
  });
  const draw = () => {
    const state = store.get();
    view.own = view.from === 'chosen' ? state.token : model.first ? 0 : -1;
    view.rows = view.matrices.map((matrix) => rolloutRow(model, matrix, view.from, state.token));
    legend.update(rolloutScale(state, model, view, null), true);
    cells.forEach((cell) => cell.update(rolloutLook(state, model, data, view)));
    const off = state.gates.some((row) => row.some((gate) => !gate));
    note.textContent = 'The colour scale ends at the largest share among the other tokens.' +
      (off ? ' Heads that are switched off are excluded.' : '');
  };
  const compute = () => {
    const {result, gates} = store.get();
    view.matrices = rollOut(model, result.maps, gates);
  };
  store.on(['result', 'token', 'scale', 'range', 'theme'], (_, changed) => {
    if (changed.has('result')) compute();
    draw();
  });
  compute();
  draw();
  return panel;
}

/* The scale of block b, or of the legend (null). */
function rolloutScale(state, model, view, b) {
  const shared = state.range === 'fixed', rows = shared ? view.rows : [view.rows[b]];
  return weightScale(state.scale, 1 / model.tokens, shared || b !== null ? rolloutMax(rows, view.own) : null);
}

/* drawMap's options for block b. */
function rolloutLook(state, model, data, view) {
  return (b) => ({
    outline: data.images[state.image].outline,
    scale: rolloutScale(state, model, view, b),
    mark: view.own,
    accent: themeColours().accent,
  });
}

function createRolloutCell(model, view, b) {
  const canvas = element('canvas', {role: 'img'});
  const words = element('span', {class: 'cell-caption'});
  attachTip(canvas, (event) => {
    const token = event && mapTokenUnder(model, canvas, event);
    return token === null ? null : [weightWords(view.rows[b][token], 1 / model.tokens), 'from ' + tokenName(model, token)];
  });
  return {
    element: element('li', null, element('h3', null, `After block ${b}`), canvas, words),
    update(lookAt) {
      const row = view.rows[b], others = row.slice();
      drawMap(canvas, model, row, lookAt(b));
      if (view.own >= 0) others[view.own] = 0;
      const most = bestOf(others);
      words.textContent = view.own >= 0 ? `self ${percent(row[view.own])}` : `max ${percent(row[most])}`;
      canvas.setAttribute('aria-label', `After block ${b}: ` +
        (view.own >= 0 ? `${percent(row[view.own])} from itself, ` : '') +
        `most of the others from ${tokenName(model, most)}, ${percent(others[most])}`);
    },
  };
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function rolloutSvg(state, model, data, view) {
  const colours = themeColours(), size = 110, gap = 18, left = 24, columns = Math.min(6, view.rows.length);
  const high = mapHeight(model, size) + 40, look = rolloutLook(state, model, data, view);
  const name = view.from === 'chosen' ? tokenName(model, state.token) : model.first ? 'the class token' : 'all tokens';
  const parts = [];
  view.rows.forEach((row, b) => {
    const x = left + (b % columns) * (size + gap), y = 96 + Math.floor(b / columns) * high;
    parts.push(svgLabel(x, y - 8, `After block ${b}`, {size: 12, fill: colours.soft}),
      mapSvg(model, row, {...look(b), x, y, width: size}));
  });
  const bottom = 96 + Math.ceil(view.rows.length / columns) * high;
  parts.push(legendSvg(rolloutScale(state, model, view, null), left, bottom - 10, 220, colours.soft, true));
  const width = Math.max(420, left * 2 + columns * (size + gap) - gap);
  return svgPicture(width, bottom + 34, `Attention rollout of ${name}`, `${data.title}, ${data.images[state.image].name}`, parts);
}
