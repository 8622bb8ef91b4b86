/* Draws matrices with a pen of pen.js: colours of signed numbers, names, frames of the marked query and key.
 *
 * A drawer gets (pen, piece, box, look, view): `box` is where the piece is now, look = {alpha, p, settled} how visible it
 * is, how far its step has come, and whether it has arrived; view = {facts, colours, ...} what all pieces share. */

import {colourTheme, linearToByte, oklabToLinear} from '../base/colour.js';
import {element} from '../base/dom.js';
import {createColourBar, drawHeatmap} from '../base/heatmap.js';
import {largestOf, limit} from '../base/numbers.js';
import {textWidth} from '../base/pen.js';
import {shortNumber} from '../base/words.js';
import {drawPicture} from '../vit/picture.js';

export const clamp01 = (x) => limit(x, 0, 1);
export const between = (a, b, e) => a + (b - a) * e;

export function boxBetween(a, b, e) {
  return {x: between(a.x, b.x, e), y: between(a.y, b.y, e), width: between(a.width, b.width, e),
    height: between(a.height, b.height, e)};
}

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

/* Purple below zero, orange above, the background at zero; equal steps in Oklab, so both sides are balanced. The colours
 * of the query and the key are neither. */
const signedTable = {theme: null, bytes: new Uint8Array(256 * 3)};

function armColour(share, degrees, dark) {
  const lightness = dark ? between(0.24, 0.86, share) : between(0.97, 0.45, share);
  const turn = (degrees * Math.PI) / 180;
  for (let chroma = 0.16 * share; ; chroma *= 0.92) {
    const linear = oklabToLinear(lightness, chroma * Math.cos(turn), chroma * Math.sin(turn));
    if (chroma < 1e-3 || linear.every((x) => x >= -1e-4 && x <= 1.0001)) return linear.map(linearToByte);
  }
}

function signedColours() {
  if (signedTable.theme !== colourTheme()) {
    signedTable.theme = colourTheme();
    for (let i = 0; i < 256; i++) {
      const x = (i - 128) / 127;
      signedTable.bytes.set(armColour(Math.min(1, Math.abs(x)), x < 0 ? 300 : 55, colourTheme() === 'dark'), 3 * i);
    }
  }
  return signedTable.bytes;
}

/* Where the three bytes of a number begin. */
const signedPlace = (x, most) => 3 * Math.round(128 + 127 * limit(x / most, -1, 1));

export const signedColour = (x, most) => signedColours().slice(signedPlace(x, most), signedPlace(x, most) + 3);

/* One pixel per number; those that are not finite (hidden keys) are empty. */
function paintSigned(canvas, {values, rows, columns, most}) {
  Object.assign(canvas, {width: columns, height: rows});
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows), table = signedColours();
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) continue;
    const at = signedPlace(values[i], most);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = table[at + c];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/* A legend of signed numbers from -most to most. */
export function createSignedLegend() {
  const ramp = Float32Array.from({length: 255}, (_, i) => i - 127);
  const bar = createColourBar((canvas) => paintSigned(canvas, {values: ramp, rows: 1, columns: 255, most: 127}));
  return {element: bar.element, update: (most) => bar.update([[0, `−${shortNumber(most)}`], [0.5, '0'], [1, shortNumber(most)]])};
}

/* A hue per head, all of the same lightness: its tag above slices and lanes. */
export function headColour(h, H) {
  const turn = ((30 + (360 * h) / H) * Math.PI) / 180, lightness = colourTheme() === 'dark' ? 0.74 : 0.62;
  const linear = oklabToLinear(lightness, 0.11 * Math.cos(turn), 0.11 * Math.sin(turn));
  return `rgb(${linear.map(linearToByte).join()})`;
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* One pixel per cell, created once per matrix and theme. */
export function matrixImage(matrix) {
  if (matrix.image && matrix.imageTheme === colourTheme()) return matrix.image;
  const {rows, columns, values} = matrix, canvas = matrix.image || element('canvas', {width: columns, height: rows});
  if (matrix.ink) drawPicture(canvas, values.map((x) => (x > 0 ? 255 * x : 0)), rows, columns);
  else if (matrix.signed) paintSigned(canvas, matrix);
  else drawHeatmap(canvas, values, rows, columns, matrix.scale);
  if (matrix.hidden) hatchHidden(canvas.getContext('2d'), matrix);
  matrix.image = canvas;
  matrix.imageTheme = colourTheme();
  return canvas;
}

/* Hidden cells alternate between two greys, which is no colour of a number. */
function hatchHidden(context, {hidden, rows, columns}) {
  const image = context.getImageData(0, 0, columns, rows), greys = colourTheme() === 'dark' ? [[42, 40, 48], [62, 59, 70]] : [[233, 231, 236], [207, 203, 212]];
  for (let i = 0; i < rows * columns; i++) {
    if (hidden[i]) image.data.set([...greys[(Math.floor(i / columns) + (i % columns)) % 2], 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

/* The part of a matrix's box between two rows and two columns. */
function partOf(box, matrix, {row = 0, rows = matrix.rows, column = 0, columns = matrix.columns}) {
  return {x: box.x + (box.width * column) / matrix.columns, y: box.y + (box.height * row) / matrix.rows,
    width: (box.width * columns) / matrix.columns, height: (box.height * rows) / matrix.rows};
}

function drawPart(pen, matrix, box, part, alpha) {
  const {row = 0, rows = matrix.rows, column = 0, columns = matrix.columns} = part;
  if (rows <= 0 || columns <= 0) return;
  const image = narrowImage(matrix, box.width), by = image.width / matrix.columns;
  pen.picture(image, {x: column * by, y: row, width: columns * by, height: rows}, partOf(box, matrix, part), alpha);
}

/* The image of a matrix with more columns than a box has pixels: neighbouring columns are mixed, rows never are. */
function narrowImage(matrix, wide) {
  const image = matrixImage(matrix), width = Math.max(1, wide >= 32 ? 16 * Math.floor(wide / 16) : Math.floor(wide));
  if (width >= matrix.columns) return image;
  if (!matrix.narrow || matrix.narrow.theme !== colourTheme()) matrix.narrow = {theme: colourTheme(), images: new Map()};
  const {images} = matrix.narrow;
  if (!images.has(width)) {
    const canvas = element('canvas', {width, height: matrix.rows}), context = canvas.getContext('2d');
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, width, matrix.rows);
    images.set(width, canvas);
  }
  return images.get(width);
}

/* How the cells of a new matrix come, p from 0 to 1. */
const arrivals = {
  rows: (pen, {matrix}, box, alpha, p) => drawPart(pen, matrix, box, {rows: Math.round(p * matrix.rows)}, alpha),

  /* The row of the query cell by cell, then the others. */
  cells(pen, {matrix}, box, alpha, p, t) {
    const rest = clamp01((p - 0.7) / 0.3), row = {row: t, rows: 1};
    if (rest > 0) drawPart(pen, matrix, box, {}, alpha * rest);
    drawPart(pen, matrix, box, {...row, columns: Math.min(matrix.columns, Math.ceil((p / 0.7) * matrix.columns))}, alpha);
  },

  /* The row of the query when its parts have arrived, then the others. */
  row(pen, {matrix}, box, alpha, p, t) {
    drawPart(pen, matrix, box, {row: t, rows: 1}, alpha * clamp01((p - 0.6) / 0.2));
    drawPart(pen, matrix, box, {}, alpha * clamp01((p - 0.8) / 0.2));
  },
};

/* Rows fade according to their shares; the largest one is opaque. */
function drawShares(pen, {matrix, shares}, box, alpha, p) {
  const most = largestOf(shares) || 1;
  for (let row = 0; row < matrix.rows; row++) {
    drawPart(pen, matrix, box, {row, rows: 1}, alpha * between(1, Math.max(0.08, shares[row] / most), Math.min(1, 2 * p)));
  }
}

/* A frame with a rim in the colour of the card, so that it is visible on any colour. */
export function drawFrame(pen, box, stroke, colours, alpha) {
  const out = (by) => ({x: box.x - by, y: box.y - by, width: box.width + 2 * by, height: box.height + 2 * by});
  pen.box(out(2.5), {stroke: colours.card, line: 1.5, alpha});
  pen.box(out(1), {stroke, line: 2, alpha});
}

/* The marked query and key in a matrix, by what its rows and columns are. */
function drawMarks(pen, {matrix, rows, columns, readOut, ownRows}, box, alpha, {facts, colours}) {
  const row = {query: facts.t, key: facts.key}[rows], all = readOut && facts.readOut === null;
  if (readOut && facts.readOut === undefined) return;
  if (columns === 'key') drawFrame(pen, partOf(box, matrix, {column: facts.key, columns: 1}), colours.key, colours, alpha);
  if (all) drawFrame(pen, box, colours.accent, colours, alpha);
  else if (row !== undefined) {
    const part = partOf(box, matrix, {row: readOut ? facts.readOut : row, rows: 1});
    drawFrame(pen, part, rows === 'key' ? colours.key : colours.accent, colours, alpha);
  }
  if (ownRows) pen.box(partOf(box, matrix, {row: ownRows[0], rows: ownRows[1]}), {stroke: colours.ink, line: 1.5, alpha});
}

/* ---- Names with a mark below or above ---------------------------------------------------------------------------- */

/* Centred on x, or from x with anchor "start"; returns the width. */
export function drawName(pen, x, y, {text, sub, sup}, {size = 15, weight = 600, fill, alpha = 1, anchor = 'middle'}) {
  const mark = String(sub !== undefined ? sub : sup !== undefined ? sup : ''), small = size * 0.72;
  const wide = textWidth(text, size, weight), all = wide + (mark ? textWidth(mark, small, weight) + 1 : 0);
  const left = anchor === 'middle' ? x - all / 2 : anchor === 'end' ? x - all : x;
  pen.label(left, y, text, {size, weight, fill, alpha});
  const rise = sub !== undefined ? size * 0.24 : -size * 0.38;
  if (mark) pen.label(left + wide + 1, y + rise, mark, {size: small, weight, fill, alpha});
  return all;
}

/* The name above and the shape below, as far as there is room: `free` pixels beside the box. */
export function drawCaption(pen, {name, below, small, tag, faint}, box, alpha, {colours, layout}) {
  const middle = box.x + (faint ? limit(box.width / 2, 5 - box.x, box.width - 5) : box.width / 2), size = small ? 12 : layout.narrow ? 12 : 15, free = layout.narrow ? 16 : 40;
  const rise = tag === undefined || tag === null ? 0 : 8;
  if (name) drawName(pen, middle, box.y - 7 - rise, name, {size, fill: colours.ink, alpha});
  const wide = below ? textWidth(below, 12, 400) : 0, inside = middle >= wide / 2 && middle + wide / 2 <= layout.width;
  if (below && wide <= box.width + free && inside) {
    pen.label(middle, box.y + box.height + 16, below, {size: 12, anchor: 'middle', fill: colours.soft, alpha});
  }
}

export function drawMatrix(pen, piece, box, look, view) {
  const {matrix, tag = null} = piece, {colours, facts, layout} = view, alpha = look.alpha * (piece.faint ? 0.5 : 1);
  const p = look.settled ? look.p : 0, arrive = look.fresh && piece.how ? arrivals[piece.how] : null;
  drawCaption(pen, piece, box, look.alpha, view);
  pen.box(box, {stroke: colours.line, alpha: look.alpha});
  if (arrive) arrive(pen, piece, box, alpha, p, facts.t);
  else if (piece.shares) drawShares(pen, piece, box, alpha, p);
  else drawPart(pen, matrix, box, {}, alpha);
  for (let slab = 1; slab < (piece.slabs || 0); slab++) {
    const y = box.y + (box.height * slab) / piece.slabs;
    pen.stroke([[box.x, y], [box.x + box.width, y]], {stroke: colours.card, line: 1, alpha: look.alpha * 0.8});
  }
  if (tag !== null) drawTag(pen, piece, box, look.alpha, view);
  if (piece.nameBelow) drawName(pen, box.x + box.width / 2, box.y + box.height + 14, piece.nameBelow, {size: 12, fill: colours.ink, alpha: look.alpha});
  if (piece.nameLeft) drawName(pen, box.x - 4, box.y + box.height / 2 + 4, piece.nameLeft, {size: 12, fill: colours.ink, alpha: look.alpha, anchor: 'end'});
  if (look.settled && !piece.faint) drawMarks(pen, piece, box, look.alpha, {facts, colours, layout});
}

/* The colour of a head above its slice, with its number where there is room. */
function drawTag(pen, {tag}, box, alpha, {facts, colours}) {
  pen.box({x: box.x + 0.5, y: box.y - 6, width: Math.max(1, box.width - 1), height: 4}, {fill: headColour(tag, facts.H), alpha});
  pen.stroke([[box.x, box.y], [box.x, box.y + box.height]], {stroke: colours.card, line: tag ? 1.5 : 0.01, alpha});
  const text = String(tag);
  if (textWidth(text, 10, 600) + 3 <= box.width) {
    pen.label(box.x + box.width / 2, box.y + box.height + 12, text, {size: 10, weight: 600, anchor: 'middle', fill: colours.soft, alpha});
  }
}
