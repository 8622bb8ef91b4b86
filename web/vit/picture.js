/* An image, and weights drawn over it, patch by patch.
 *
 * A weight fills its patch with the opaque colour of the scale, and the image is drawn on top as an outline: a
 * transparent fill would be darker over ink than over paper and would not match the legend. The outline is the contour
 * halfway between paper and ink, dark with a light rim or vice versa, so that it is visible on any colour. The class
 * token is not part of the image; its weight is the square below the bottom left corner. */

import {colourOf, colourTheme, inkOn} from '../base/colour.js';
import {pointOn} from '../base/dom.js';
import {heatmapSvg, scaleValue} from '../base/heatmap.js';
import {bestOf, largestOf, limit} from '../base/numbers.js';
import {svgCanvas, svgNumber} from '../base/svg.js';
import {tokenPlace} from './model.js';

const MAP_GAP = 0.3; /* between the patches and the class token's square, in patches */
const MAP_WIDTH = 224; /* of a map's canvas, about, in pixels */

/* The position from 0 to 1 at which the outline crosses between two neighbours a and b. */
function crossing(a, b, level) {
  return (level - a) / (b - a);
}

/* The line at half of the largest value, as the text of an SVG path in pixels: marching squares over the centres of
 * pixels, with a border of paper around the image so that every line is closed. */
export function outlinePath(bytes, rows, columns) {
  const level = Math.max(1, largestOf(bytes)) / 2;
  const at = (r, c) => (r < 0 || c < 0 || r >= rows || c >= columns ? 0 : bytes[r * columns + c]);
  const parts = [];
  for (let r = -1; r < rows; r++) {
    for (let c = -1; c < columns; c++) {
      const a = at(r, c), b = at(r, c + 1), d = at(r + 1, c), e = at(r + 1, c + 1);
      const ends = [];
      if (a > level !== b > level) ends.push([c + crossing(a, b, level), r]);
      if (b > level !== e > level) ends.push([c + 1, r + crossing(b, e, level)]);
      if (d > level !== e > level) ends.push([c + crossing(d, e, level), r + 1]);
      if (a > level !== d > level) ends.push([c, r + crossing(a, d, level)]);
      for (let i = 0; i + 1 < ends.length; i += 2) parts.push(outlinePiece(ends[i], ends[i + 1]));
    }
  }
  return parts.join('');
}

function outlinePiece([x0, y0], [x1, y1]) {
  return `M${svgNumber(x0 + 0.5)} ${svgNumber(y0 + 0.5)}L${svgNumber(x1 + 0.5)} ${svgNumber(y1 + 0.5)}`;
}

/* Whether the class of an image is known. */
export const hasLabel = ({label}) => label !== null && label !== undefined;

/* ---- The picture itself ------------------------------------------------------------------------------------------ */

/* One canvas pixel per pixel; ink is dark on a light page and light on a dark one. */
export function drawPicture(canvas, bytes, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows);
  const [paper, ink] = colourTheme() === 'dark' ? [30, 245] : [255, 24];
  for (let i = 0; i < rows * columns; i++) {
    image.data.fill(Math.round(paper + ((ink - paper) * bytes[i]) / 255), 4 * i, 4 * i + 3);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/* ---- Maps over the picture --------------------------------------------------------------------------------------- */

/* The size in pixels of a map's canvas: the side of a patch, width and height. */
export function mapSize(model) {
  const cell = Math.max(4, Math.floor(MAP_WIDTH / model.across));
  const below = model.first ? Math.round(cell * (1 + MAP_GAP)) : 0;
  return {cell, width: cell * model.across, height: cell * model.down + below};
}

/* Top left corner of token t on such a map. */
export function mapCorner(model, t, {cell, height}) {
  const place = tokenPlace(model, t);
  return place ? {x: place.column * cell, y: place.row * cell} : {x: 0, y: height - cell};
}

/* The token under the pointer, or null. */
export function mapTokenUnder(model, canvas, event) {
  const {cell, width, height} = mapSize(model), {x, y} = pointOn(canvas, event, width, height);
  if (x < 0 || y < 0 || x >= width || y >= height) return null;
  if (y < cell * model.down) return model.first + Math.floor(y / cell) * model.across + Math.floor(x / cell);
  return model.first && x < cell && y >= height - cell ? 0 : null;
}

/* shares (tokens). options: outline (a path's text), scale (of weightScale), mark (a token to frame, or -1), numbers (whether to
 * print percentages into the patches), accent (the frame's colour). */
export function drawMap(canvas, model, shares, options) {
  const {outline, scale, mark = -1, numbers = false, accent = '#000'} = options, size = mapSize(model);
  const by = numbers ? 2 : 1, cell = size.cell * by;
  canvas.width = size.width * by;
  canvas.height = size.height * by;
  const context = canvas.getContext('2d'), scaled = {...size, cell, height: size.height * by};
  for (let t = 0; t < model.tokens; t++) {
    const {x, y} = mapCorner(model, t, scaled);
    context.fillStyle = colourOf(scaleValue(shares[t], scale));
    context.fillRect(x, y, cell, cell);
  }
  strokeOutline(context, outline, cell / model.config.patch, numbers ? 2.4 : 2);
  if (numbers) drawNumbers(context, model, shares, {scale, size: scaled});
  if (mark >= 0) frameCell(context, mapCorner(model, mark, scaled), cell, accent);
}

/* Core and rim of an outline: the core contrasts with the background, the rim with the far end of the scale. */
function outlineInks() {
  const light = '#ffffff', dark = '#17131f';
  return colourTheme() === 'dark' ? {core: light, rim: dark} : {core: dark, rim: light};
}

/* The path of an outline. All maps of a picture have the same, so that the last one is kept. */
let lastOutline = {text: null, path: null};

function pathOf(text) {
  if (lastOutline.text !== text) lastOutline = {text, path: new Path2D(text)};
  return lastOutline.path;
}

/* A pixel of the picture is `by` pixels of the canvas; the core is `line` of them wide. */
export function strokeOutline(context, outline, by, line) {
  const path = pathOf(outline), {core, rim} = outlineInks();
  context.save();
  context.scale(by, by);
  context.lineCap = 'round';
  context.strokeStyle = rim;
  context.lineWidth = (2.4 * line) / by;
  context.stroke(path);
  context.strokeStyle = core;
  context.lineWidth = line / by;
  context.stroke(path);
  context.restore();
}

/* Two lines, so that the frame is visible on any colour. */
function frameCell(context, {x, y}, cell, accent) {
  const wide = limit(cell / 9, 2, 4);
  context.lineWidth = wide * 1.8;
  context.strokeStyle = outlineInks().rim;
  context.strokeRect(x + wide * 0.9, y + wide * 0.9, cell - wide * 1.8, cell - wide * 1.8);
  context.lineWidth = wide;
  context.strokeStyle = accent;
  context.strokeRect(x + wide / 2, y + wide / 2, cell - wide, cell - wide);
}

/* A percentage without its sign, short enough for a patch. */
function cellNumber(share) {
  const x = share * 100;
  return x >= 9.95 ? x.toFixed(0) : x >= 0.095 ? x.toFixed(1) : '0';
}

function drawNumbers(context, model, shares, {scale, size}) {
  context.font = `600 ${Math.round(Math.min(34, size.cell * 0.31))}px system-ui, sans-serif`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.lineJoin = 'round';
  for (let t = 0; t < model.tokens; t++) {
    const {x, y} = mapCorner(model, t, size), at = scaleValue(shares[t], scale);
    const text = cellNumber(shares[t]), ink = inkOn(at);
    context.lineWidth = Math.min(8, size.cell * 0.12);
    context.strokeStyle = colourOf(at);
    context.strokeText(text, x + size.cell / 2, y + size.cell / 2);
    context.fillStyle = ink;
    context.fillText(text, x + size.cell / 2, y + size.cell / 2);
  }
}

/* ---- The same for export ----------------------------------------------------------------------------------------- */

/* The picture in the ink of the page, x, y, `width` wide. */
export function pictureSvg(bytes, rows, columns, {x, y, width}) {
  const canvas = document.createElement('canvas');
  drawPicture(canvas, bytes, rows, columns);
  return svgCanvas(canvas, x, y, width, (width * rows) / columns);
}

/* A map at x, y, `width` wide, with drawMap's options. */
export function mapSvg(model, shares, {x, y, width, outline, scale, mark = -1, accent = '#000'}) {
  const size = mapSize(model), by = width / size.width, cell = size.cell * by, pixel = cell / model.config.patch;
  const patches = Array.from(shares).slice(model.first);
  const frame = {scale, x, y, width, height: cell * model.down};
  const parts = [heatmapSvg(patches, model.down, model.across, frame)];
  const below = y + size.height * by - cell;
  if (model.first) parts.push(heatmapSvg([shares[0]], 1, 1, {scale, x, y: below, width: cell, height: cell}));
  const line = `transform="translate(${svgNumber(x)} ${svgNumber(y)}) scale(${svgNumber(pixel)})" fill="none" ` +
    'stroke-linecap="round"', {core, rim} = outlineInks(), thin = Math.max(0.8, width / 120);
  parts.push(`<path d="${outline}" ${line} stroke="${rim}" stroke-width="${svgNumber((2.4 * thin) / pixel)}"/>`,
    `<path d="${outline}" ${line} stroke="${core}" stroke-width="${svgNumber(thin / pixel)}"/>`);
  if (mark >= 0) {
    const corner = mapCorner(model, mark, size), wide = Math.max(1.5, cell / 9);
    parts.push(`<rect x="${svgNumber(x + corner.x * by + wide / 2)}" y="${svgNumber(y + corner.y * by + wide / 2)}" ` +
      `width="${svgNumber(cell - wide)}" height="${svgNumber(cell - wide)}" fill="none" stroke="${accent}" ` +
      `stroke-width="${svgNumber(wide)}"/>`);
  }
  return parts.join('');
}

/* The height of a map that is `width` wide. */
export function mapHeight(model, width) {
  const size = mapSize(model);
  return (size.height / size.width) * width;
}

/* ---- What a row of weights says ---------------------------------------------------------------------------------- */

/* The token with the largest share, the share, and the effective number of keys, 1 / sum of p^2. */
export function describeRow(shares) {
  const most = bestOf(shares);
  let squares = 0;
  for (let t = 0; t < shares.length; t++) squares += shares[t] * shares[t];
  return {most, share: shares[most], effective: 1 / squares};
}
