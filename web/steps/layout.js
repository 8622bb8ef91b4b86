/* Where pieces stand on the stage: matrices in a row beside the tokens, or one lane per head.
 *
 * The stage has one size for all steps, and every layout fills its height. The row of a token has the same position in
 * all matrices of a row, so that the eye can follow it. */

import {limit} from '../base/numbers.js';

export function stageLayout(facts, width) {
  const {T, H, walk} = facts, narrow = width < 620, base = narrow ? limit(width * 1.3, 380, 400) : 450;
  const height = base + (H > (narrow ? 9 : 4) ? 40 : 0);
  const top = 36, bottom = height - 24;
  const stream = narrow ? 7 : 10;
  const layout = {
    width, height, narrow, top, bottom, stream,
    ...walk.railSizes(narrow, (bottom - top) / T),
    left: stream + (narrow ? 5 : 12),
    sign: narrow ? 17 : 38,
    least: narrow ? 18 : 34, /* width of a matrix */
    cell: narrow ? 10 : 13, /* largest width of a column */
  };
  layout.laneRail = narrow && H > 9 ? 0 : layout.rail; /* many lanes need the room themselves */
  layout.lanes = laneGrid(H, layout);
  return layout;
}

/* ---- A row of matrices ------------------------------------------------------------------------------------------- */

/* Widths that share the room by columns, with at least `least` and at most `cell` a column. */
function shareWidths(columns, room, least, cell) {
  let each = cell;
  const widths = () => columns.map((count) => Math.max(Math.min(least, room / columns.length), count * each));
  for (let pass = 0; pass < 40 && widths().reduce((a, b) => a + b, 0) > room; pass++) each *= 0.9;
  return widths();
}

/* Boxes of `items` behind the tokens: {columns, rows} of a matrix, or the text of a sign. Returns {boxes, rail}: those
 * of the items, and the left edge of the tokens. */
export function rowBoxes({T}, layout, items) {
  const signWidth = (text) => layout.sign + (text.length > 2 ? 7.5 * text.length : 0);
  const matrices = items.filter((item) => typeof item !== 'string');
  const signs = items.filter((item) => typeof item === 'string').reduce((sum, text) => sum + signWidth(text), 0);
  const room = layout.width - layout.left - layout.rail - signs - 2;
  const widths = shareWidths(matrices.map((item) => item.columns), room, layout.least, layout.cell);
  const all = widths.reduce((sum, wide) => sum + wide, 0) + signs, full = layout.bottom - layout.top;
  const rail = layout.left + Math.max(0, (layout.width - layout.left - layout.rail - all) / 2);
  let x = rail + layout.rail, n = 0;
  const boxes = items.map((item) => {
    const width = typeof item === 'string' ? signWidth(item) : widths[n++];
    const height = typeof item === 'string' || item.rows === T ? full : limit((item.rows / T) * full, 48, full);
    const box = {x, y: layout.top + (full - height) / 2, width, height};
    x += width;
    return box;
  });
  return {boxes, rail};
}

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

const laneHead = 20;

/* One lane per head, in as many lines as give the largest squares. */
export function laneGrid(H, layout) {
  const {narrow} = layout, gap = narrow ? 4 : 10, height = layout.height - 1, room = layout.width - 1 - layout.left - layout.laneRail;
  let best = null;
  for (let columns = 1; columns <= H; columns++) {
    const rows = Math.ceil(H / columns);
    const wide = (room - gap * (columns - 1)) / columns, high = (height - gap * (rows - 1)) / rows;
    const side = Math.min(0.85 * wide, 0.62 * (high - laneHead), 260);
    if (!best || side > best.side + 1) best = {columns, rows, wide, high, side};
  }
  const {columns, rows, wide, high} = best, left = layout.left + layout.laneRail;
  const widest = Math.min(wide, 1.15 * (high - laneHead)), spare = (room - columns * widest - gap * (columns - 1)) / 2;
  return Array.from({length: H}, (_, h) => ({
    x: left + spare + (h % columns) * (widest + gap), y: Math.floor(h / columns) * (high + gap),
    width: widest, height: high, line: Math.floor(h / columns), first: h % columns === 0, lines: rows,
  }));
}

/* The room inside a lane, below its heading. */
export function laneInside(lane, {narrow}) {
  const edge = narrow ? 4 : 9;
  return {x: lane.x + edge, y: lane.y + laneHead, width: lane.width - 2 * edge, height: lane.height - laneHead - 5};
}

/* `count` columns of equal width with a name above, `share` of the width for the gaps between them. */
export function laneColumns(lane, layout, count, share) {
  const inside = laneInside(lane, layout), gap = (inside.width * share) / (count - 1 || 1);
  const wide = Math.min(72, (inside.width * (1 - share)) / count), name = 15;
  const left = inside.x + (inside.width - wide * count - gap * (count - 1)) / 2;
  return Array.from({length: count}, (_, n) =>
    ({x: left + n * (wide + gap), y: inside.y + name, width: wide, height: inside.height - name}));
}

/* The product Q K^T: K^T above S, Q on its left, so that rows and columns meet in S; below it bars, one per column. */
export function laneProduct(lane, layout) {
  const inside = laneInside(lane, layout), gap = 3;
  inside.width -= layout.narrow ? 4 : 16; /* V waits there */
  const strip = limit(inside.width * 0.1, 6, 20);
  const foot = limit(inside.height * 0.3, 40, 120);
  const side = Math.max(10, Math.min(inside.width - strip - gap, inside.height - strip - gap - foot));
  const x = inside.x + (inside.width - strip - gap - side) / 2, y = inside.y, s = x + strip + gap, below = y + strip + gap;
  const bars = below + side + 4;
  return {
    q: {x, y: below, width: strip, height: side},
    kt: {x: s, y, width: side, height: strip},
    s: {x: s, y: below, width: side, height: side},
    bars: {x: s, y: bars, width: side, height: inside.y + inside.height - bars},
    whole: {x: s, y, width: side, height: strip + gap + side},
  };
}
