/* Panel: the attention of every head of every block from the selected token.
 *
 * On the left the image, whose patches are selected by mouse, touch or arrow keys, and the selected head, large, with
 * its numbers; on the right all heads, one row per block, which wraps if there are many. */

import {scaleControls} from '../base/controls.js';
import {announce, element, svgElement} from '../base/dom.js';
import {cellUnder, createLegend, equalWords, legendSvg, sharedMax, weightScale, weightWords} from '../base/heatmap.js';
import {largestOf, limit} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {roveFocus} from '../base/roving.js';
import {svgLabel, svgPicture, themeColours} from '../base/svg.js';
import {attachTip} from '../base/tip.js';
import {percent, shortNumber} from '../base/words.js';
import {createMapCell} from './cell.js';
import {surveyOf} from './survey.js';
import {middleToken, tokenName, tokenPlace} from '../vit/model.js';
import {describeRow, drawMap, drawPicture, mapHeight, mapSvg, mapTokenUnder, pictureSvg} from '../vit/picture.js';

export function createLookPanel(store, model, data) {
  const legend = createLegend();
  const picker = createPatchPicker(store, model, data);
  const large = createLargeMap(store, model, data);
  const wall = createMapWall(store, model, data);
  const text = `Select a patch of the image${model.first ? ', or the class token, from which the prediction is computed' : ''}. Each ` +
    `map shows how one head distributes that token's attention over all patches${model.first ? ' and the class token (the square below)' : ''}; ` +
    'the weights add up to 100\u00a0%. The caption names the head and its largest weight. ' +
    `The colour scale starts at the uniform weight, ${equalWords(1 / model.tokens)}, so uniform attention is pale.`;
  const panel = createPanel({
    id: 'look',
    title: 'Attention maps',
    text,
    controls: [...scaleControls(store), legend.element],
    body: element('div', {class: 'look'}, element('div', {class: 'look-side'}, picker.element, large.element), wall.element),
    toSvg: () => lookSvg(store.get(), model, data),
  });
  const update = () => {
    const state = store.get();
    legend.update(lookScale(state, model, null), true);
    picker.update(state);
    large.update(state);
    wall.update(state);
  };
  store.follow(['result', 'token', 'block', 'head', 'scale', 'range', 'theme', 'survey'], update);
  return panel;
}

/* The weights of one head from the selected token, (tokens). */
export function lookRow(state, model, block, head) {
  return state.result.maps[block][head].subarray(state.token * model.tokens, (state.token + 1) * model.tokens);
}

/* The scale of one head, given as [block, head], or, for null, of the legend. */
export function lookScale(state, model, which) {
  const of = (max) => weightScale(state.scale, 1 / model.tokens, max);
  if (state.range === 'per-head') return of(which ? largestOf(lookRow(state, model, which[0], which[1])) : null);
  const maxima = (heads, b) => heads.map((_, h) => largestOf(lookRow(state, model, b, h)));
  return of(sharedMax(state.result.maps.flatMap(maxima)));
}

/* The description of a head for screen readers and the tip. */
function lookWords(state, model, b, h) {
  const row = describeRow(lookRow(state, model, b, h)), survey = surveyOf(state, b, h);
  const lines = [`Block ${b}, head ${h}` + (state.gates[b][h] ? '' : ' (switched off)'),
    `largest weight ${percent(row.share)}, on ${tokenName(model, row.most)}`,
    `effective number of keys ${shortNumber(row.effective)}`];
  if (survey && survey.words) lines.push('over all images: ' + survey.words);
  return lines;
}

/* ---- The picture, to choose a patch ------------------------------------------------------------------------------ */

function createPatchPicker(store, model, data) {
  const {rows, columns} = model.config;
  const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
  const frame = svgElement('rect', {class: 'pick-frame'});
  const lines = svgElement('path', {class: 'pick-lines', d: patchLines(model)});
  const over = svgElement('svg', {viewBox: `0 0 ${columns} ${rows}`, 'aria-hidden': true}, lines, frame);
  const button = element('button', {type: 'button', id: 'picture', class: 'picture'}, canvas, over);
  const classButton = model.first ? element('button', {type: 'button', id: 'class-token',
    onclick: () => store.set({token: 0})}, 'Class token') : null;
  const where = element('p', {class: 'where', id: 'chosen-token'});

  button.addEventListener('click', (event) => {
    const cell = event.detail ? cellUnder(canvas, event, model.down, model.across) : null; /* 0: by the keyboard */
    if (cell) chooseToken(store, model, model.first + cell.row * model.across + cell.column);
  });
  button.addEventListener('keydown', (event) => moveToken(store, model, event));
  attachTip(button, (event) => {
    const cell = event && cellUnder(canvas, event, model.down, model.across);
    return cell ? [`Row ${cell.row + 1}, column ${cell.column + 1}`] : null;
  });

  return {
    element: element('div', {class: 'pick'}, button,
      element('div', {class: 'pick-foot'}, where, classButton),
      element('p', {class: 'hint key-hint'}, 'Arrow keys move the selection', model.first ? '; C selects the class token.' : '.')),
    update(state) {
      const place = tokenPlace(model, state.token), p = model.config.patch;
      drawPicture(canvas, data.images[state.image].bytes, rows, columns);
      const box = place ? {x: place.column * p, y: place.row * p, width: p, height: p}
        : {x: 0, y: 0, width: 0, height: 0};
      for (const [name, value] of Object.entries(box)) frame.setAttribute(name, value);
      const name = tokenName(model, state.token);
      where.replaceChildren('From ', element('b', null, name));
      if (classButton) classButton.setAttribute('aria-pressed', String(state.token < model.first));
      button.setAttribute('aria-label', `The image. Selected: ${name}. Arrow keys select another patch.`);
    },
  };
}

/* The lines between patches. */
function patchLines(model) {
  const {patch, rows, columns} = model.config, parts = [];
  for (let x = patch; x < columns; x += patch) parts.push(`M${x} 0V${rows}`);
  for (let y = patch; y < rows; y += patch) parts.push(`M0 ${y}H${columns}`);
  return parts.join('');
}

export function chooseToken(store, model, token) {
  store.set({token});
  announce(`From ${tokenName(model, token)}`);
}

/* Arrow keys. From the class token they move to the centre of the image. */
function moveToken(store, model, event) {
  const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
  const step = steps[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const at = tokenPlace(model, store.get().token);
  if (!at) return chooseToken(store, model, middleToken(model));
  const row = limit(at.row + step[0], 0, model.down - 1), column = limit(at.column + step[1], 0, model.across - 1);
  chooseToken(store, model, model.first + row * model.across + column);
}

/* ---- The chosen head, large -------------------------------------------------------------------------------------- */

function createLargeMap(store, model, data) {
  const canvas = element('canvas', {role: 'img', id: 'large-map'});
  const title = element('h3', null), words = element('p', {class: 'hint'});
  let shown = null;
  attachTip(canvas, (event) => {
    const token = event && mapTokenUnder(model, canvas, event);
    if (token === null || !shown) return null;
    return [weightWords(shown[token], 1 / model.tokens), 'on ' + tokenName(model, token)];
  });
  return {
    element: element('div', {class: 'large'}, title, canvas, words),
    update(state) {
      const {block, head} = state, lines = lookWords(state, model, block, head);
      shown = lookRow(state, model, block, head);
      drawMap(canvas, model, shown, {...mapLook(state, model, data, [block, head]), numbers: model.across <= 16});
      title.textContent = lines[0];
      words.textContent = `Numbers are percentages; ${lines.slice(1).join('; ')}.`;
      canvas.setAttribute('aria-label', `From ${tokenName(model, state.token)}: ${lines.join(', ')}`);
    },
  };
}

/* The current options of drawMap for a head. */
function mapLook(state, model, data, which) {
  return {
    outline: data.images[state.image].outline,
    scale: lookScale(state, model, which),
    mark: state.token,
    accent: themeColours().accent,
  };
}

/* ---- All heads --------------------------------------------------------------------------------------------------- */

function createMapWall(store, model, data) {
  const most = Math.max(...model.config.heads), cells = [];
  const wall = element('div', {class: most > 9 ? 'wall many' : 'wall', id: 'wall', style: `--heads:${most}`, role: 'group',
    'aria-label': 'All heads, block by block'});
  model.blocks.forEach((block, b) => {
    const row = Array.from({length: block.heads}, (_, h) => createWallCell(store, model, b, h));
    cells.push(...row);
    wall.append(element('div', {class: 'wall-row'},
      element('span', {class: 'wall-block', 'aria-hidden': true}, element('span', null, `block ${b}`)),
      element('div', {class: 'cells'}, row.map((cell) => cell.element))));
  });
  roveFocus(wall, '.cell');
  return {
    element: wall,
    update(state) {
      const look = mapLook(state, model, data, null), own = state.range === 'per-head';
      for (const cell of cells) {
        const which = [cell.block, cell.head], row = lookRow(state, model, ...which);
        cell.update(state, row, own ? {...look, scale: lookScale(state, model, which)} : look);
      }
    },
  };
}

function createWallCell(store, model, b, h) {
  const narrow = Math.max(...model.config.heads) > 5, name = [narrow ? '' : element('span', {class: 'caption-word'}, 'head '), `${h}\u00a0· `];
  const cell = createMapCell(store, b, h, {
    canvas: element('canvas', {'aria-hidden': true}),
    words: (state) => lookWords(state, model, b, h),
    under(canvas, event, state) {
      const token = mapTokenUnder(model, canvas, event);
      return token === null ? null : `${percent(lookRow(state, model, b, h)[token])} on ${tokenName(model, token)}`;
    },
  });
  return {
    ...cell,
    update(state, row, look) {
      drawMap(cell.canvas, model, row, look);
      cell.caption.replaceChildren(...name, state.gates[b][h] ? percent(largestOf(row)) : 'off');
      cell.update(state);
    },
  };
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function lookSvg(state, model, data) {
  const colours = themeColours(), most = Math.max(...model.config.heads), size = most > 8 ? 64 : 96, gap = 14;
  const high = mapHeight(model, size), left = 250, top = 76;
  const image = data.images[state.image];
  const parts = [pictureSvg(image.bytes, model.config.rows, model.config.columns, {x: 24, y: top + 20, width: 180}),
    legendSvg(lookScale(state, model, null), 24, top + 220, 180, colours.soft, true)];
  for (let h = 0; h < most; h++) {
    parts.push(svgLabel(left + h * (size + gap) + size / 2, top + 10, `head ${h}`,
      {size: 12, anchor: 'middle', fill: colours.soft}));
  }
  model.blocks.forEach((block, b) => {
    const y = top + 20 + b * (high + gap);
    parts.push(svgLabel(left - 10, y + size / 2, `${b}`, {size: 12, anchor: 'end', fill: colours.soft}));
    for (let h = 0; h < block.heads; h++) {
      parts.push(mapSvg(model, lookRow(state, model, b, h), {...mapLook(state, model, data, [b, h]),
        x: left + h * (size + gap), y, width: size}));
    }
  });
  const width = left + most * (size + gap) + 10, height = Math.max(340, top + 30 + model.blocks.length * (high + gap));
  return svgPicture(width, height, `Attention from ${tokenName(model, state.token)}`, `${data.title}, ${image.name}`, parts);
}
