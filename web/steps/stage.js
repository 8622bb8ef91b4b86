/* The canvas of the walk-through: lays out its scenes, draws them, and knows what is under the pointer. */

import {element, pointOn} from '../base/dom.js';
import {canvasPen, sizeCanvas} from '../base/pen.js';
import {themeColours} from '../base/svg.js';
import {attachTip} from '../base/tip.js';
import {percent} from '../base/words.js';
import {barText} from './facts.js';
import {stageLayout} from './layout.js';
import {drawStage} from './pieces.js';
import {sceneOf} from './scenes.js';

/* As wide as its container, of one height for all steps, so that nothing below moves. */
export function createStage(store) {
  const canvas = element('canvas', {id: 'steps-stage', class: 'stage', tabindex: 0, role: 'img', 'aria-label': 'The steps of attention'});
  let scenes = new Map(), facts = null, view = null, before = null, now = null;

  function sceneFor(key) {
    if (!scenes.has(key)) scenes.set(key, sceneOf(key, facts, view.layout));
    return scenes.get(key);
  }

  function under(event) {
    if (!now) return null;
    const at = pointOn(canvas, event, view.layout.width, view.layout.height);
    for (const piece of Object.values(now.pieces).reverse()) {
      const hit = pieceUnder(piece, at, facts);
      if (hit) return hit;
    }
    return null;
  }

  attachTip(canvas, (event) => {
    const hit = event && under(event);
    return hit && hit.lines;
  });
  canvas.addEventListener('click', (event) => {
    const hit = under(event);
    if (hit && hit.choice) store.set(hit.choice);
  });

  return {
    canvas,
    show(next) {
      facts = next;
      const layout = stageLayout(facts, Math.max(240, canvas.parentNode ? canvas.parentNode.clientWidth : 0));
      view = {facts, layout, colours: themeColours()};
      scenes = new Map();
      before = null;
      now = null;
      canvas.style.height = layout.height + 'px';
    },
    enter(key) {
      const next = sceneFor(key);
      if (now === next) return;
      before = now;
      now = next;
    },
    draw(time) {
      const {layout} = view, context = sizeCanvas(canvas, layout.width, layout.height);
      drawStage(canvasPen(context), before, now, time, view);
      if (time >= 1) before = null;
    },
    get width() {
      return view ? view.layout.width : 0;
    },
    get room() {
      return canvas.parentNode ? Math.max(240, canvas.parentNode.clientWidth) : 0;
    },
  };
}

/* ---- What is under the pointer: {lines, choice} ------------------------------------------------------------------- */

/* The column and row of a box divided into that many. */
export function cellAt(box, {x, y}, rows, columns) {
  const across = (x - box.x) / box.width, down = (y - box.y) / box.height;
  if (across < 0 || across >= 1 || down < 0 || down >= 1) return null;
  return {row: Math.floor(down * rows), column: Math.floor(across * columns)};
}

function matrixUnder({box, matrix, rows, columns, name, h}, at, facts) {
  const cell = cellAt(box, at, matrix.rows, matrix.columns);
  if (!cell) return null;
  const value = matrix.values[cell.row * matrix.columns + cell.column], head = h === undefined ? null : {head: h};
  const text = !Number.isFinite(value) ? (matrix.hidden ? '−∞: hidden' : 'none') : matrix.signed ? value.toPrecision(4).replace('-', '−') : percent(value);
  const chosen = {...head, ...(rows && {[rows === 'key' ? 'key' : 'token']: cell.row}), ...(columns && {key: cell.column})};
  const about = [rows && `${rows}: ${(rows === 'key' ? facts.keyNameOf : facts.nameOf)(cell.row)}`, columns && `key: ${facts.keyNameOf(cell.column)}`,
    !rows && !columns && `row ${cell.row + 1}, column ${cell.column + 1}`, h !== undefined && `head ${h}`];
  return {lines: [`${name ? name.text + (name.sub || '') + '  ' : ''}${text}`, ...about.filter(Boolean)],
    choice: Object.keys(chosen).length ? chosen : null};
}

const pieceHits = {
  matrix: matrixUnder,

  bars({box, side, stages, h, word}, at, facts) {
    const cell = cellAt(box, at, side ? facts.S : 1, side ? 1 : facts.S), key = cell && (side ? cell.row : cell.column);
    if (!cell) return null;
    return {lines: [barText(word || 'weight', stages.at(-1).values[key]), `key: ${facts.keyNameOf(key)}`, `head ${h}`], choice: {head: h, key}};
  },

  rail({boxes}, at, facts) {
    const token = boxes.findIndex((box) => cellAt(box, at, 1, 1));
    return token < 0 ? null : {lines: [facts.nameOf(token), 'Click to follow this token.'], choice: {token}};
  },

  card({b, places}, at, facts) {
    const h = places.findIndex((place) => cellAt(place, at, 1, 1));
    return h < 0 ? null : {lines: [`Block ${b}, head ${h}`, 'Click to follow this head.'], choice: {block: b, head: h}};
  },

  lane: ({box, h}, at) => (cellAt(box, at, 1, 1) ? {lines: null, choice: {head: h}} : null),
};

function pieceUnder(piece, at, facts) {
  const hit = facts.walk.hits[piece.kind] || pieceHits[piece.kind];
  return hit ? hit(piece, at, facts) : null;
}
