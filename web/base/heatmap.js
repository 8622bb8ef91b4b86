/* A matrix of weights as an image, on a canvas or, for export, as SVG; and the legend.
 *
 *     drawHeatmap(canvas, values, rows, columns, weightScale('log', 1 / tokens, 0.6))
 *
 * A canvas has one pixel per cell and is scaled by CSS (image-rendering: pixelated), so drawing is cheap: a map of 50 x
 * 50 is 2500 pixels at any size. */

import {colourIndex, colourOf, colourTable} from './colour.js';
import {element, pointOn} from './dom.js';
import {escapeXml, svgNumber} from './svg.js';
import {attachTip} from './tip.js';
import {percent, shortNumber} from './words.js';

/* The colour scale of weights, {kind, low, high}, the same for every map of the page.
 *
 *     low     the uniform weight, 1/T for T tokens. Weights up to it have the first colour, so uniform attention is pale
 *             and only larger weights stand out.
 *     high    `max`, but at least 2/T: otherwise a nearly uniform head would show its noise in the
 *             strongest colours. null if `max` is null: each map has its own (legends only).
 *     kind    'linear': (w - low) / (high - low)        'log': log(w / low) / log(high / low) */
export function weightScale(kind, equal, max) {
  return {kind, low: equal, high: max === null ? null : Math.max(max, Math.min(1, 2 * equal))};
}

/* The position of a weight on the scale, from 0 to 1. */
export function scaleValue(weight, {kind, low, high}) {
  if (!(weight > low) || !(high > low)) return 0;
  const share = kind === 'log' ? Math.log(weight / low) / Math.log(high / low) : (weight - low) / (high - low);
  return Math.min(1, share);
}

/* "4.30 %, 2.15 times the uniform weight": a weight in the tip of a map. */
export function weightWords(weight, equal) {
  return `${percent(weight)}, ${shortNumber(weight / equal)} times the uniform weight`;
}

/* The upper end of a scale for several maps: the median of their largest values. With the maximum of all, one peaked
 * head would make all others pale; larger values get the last colour. */
export function sharedMax(maxima) {
  const sorted = Array.from(maxima).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : 0;
}

function heatmapImage(context, values, rows, columns, scale) {
  const image = context.createImageData(columns, rows);
  const pixels = image.data;
  for (let i = 0; i < rows * columns; i++) {
    const at = 3 * colourIndex(scaleValue(values[i], scale));
    pixels[4 * i] = colourTable[at];
    pixels[4 * i + 1] = colourTable[at + 1];
    pixels[4 * i + 2] = colourTable[at + 2];
    pixels[4 * i + 3] = 255;
  }
  return image;
}

/* values (rows,columns): any indexable object. */
export function drawHeatmap(canvas, values, rows, columns, scale) {
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  const context = canvas.getContext('2d');
  context.putImageData(heatmapImage(context, values, rows, columns, scale), 0, 0);
}

/* The same as SVG elements, one rectangle per run of cells of one colour; at x, y, `width` wide and `height` high. */
export function heatmapSvg(values, rows, columns, {scale, x, y, width, height}) {
  const wide = width / columns, high = height / rows;
  const parts = [`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${colourOf(0)}"/>`];
  for (let r = 0; r < rows; r++) {
    let c = 0;
    while (c < columns) {
      const index = colourIndex(scaleValue(values[r * columns + c], scale));
      let end = c + 1;
      while (end < columns && colourIndex(scaleValue(values[r * columns + end], scale)) === index) end++;
      if (index) {
        parts.push(`<rect x="${svgNumber(x + c * wide)}" y="${svgNumber(y + r * high)}" ` +
          `width="${svgNumber((end - c) * wide)}" height="${svgNumber(high)}" fill="${colourOf(index / 255)}"/>`);
      }
      c = end;
    }
  }
  return `<g shape-rendering="crispEdges">${parts.join('')}</g>`;
}

/* The cell of a map under the pointer; null outside. */
export function cellUnder(node, event, rows, columns) {
  const {x, y} = pointOn(node, event, columns, rows), column = Math.floor(x), row = Math.floor(y);
  return row >= 0 && row < rows && column >= 0 && column < columns ? {row, column} : null;
}

/* ---- Legend ------------------------------------------------------------------------------------------------------ */

/* The bar of a legend is a scale from 0 to 1. */
const rampScale = {kind: 'linear', low: 0, high: 1};

/* "1/50", or a percentage if the uniform weight is not such a fraction. */
export function equalWords(equal) {
  const count = Math.round(1 / equal);
  return Math.abs(count * equal - 1) < 1e-6 ? `1/${count}` : percent(equal);
}

/* The labels under the bar of a scale: [position from 0 to 1, text]. `high` null: each map ends at its own largest
 * weight; `open`: weights may exceed `high`. */
function legendMarks({kind, low, high}, open) {
  const first = [0, '≤ ' + equalWords(low)];
  if (high === null) return [first, [1, 'its largest']];
  const middle = kind === 'log' ? Math.sqrt(low * high) : (low + high) / 2;
  return [first, [0.5, percent(middle)], [1, (open ? '≥ ' : '') + percent(high)]];
}

function legendWords({low}) {
  return [`${equalWords(low)} is the uniform weight`, 'Larger weights are coloured.'];
}

/* A bar of colours with marks below, [position from 0 to 1, text]; paint(canvas) fills the bar. */
export function createColourBar(paint) {
  const canvas = element('canvas', {class: 'legend-bar', 'aria-hidden': true}), marks = element('div', {class: 'legend-marks'});
  return {
    element: element('div', {class: 'legend'}, canvas, marks),
    update(all) {
      paint(canvas);
      marks.replaceChildren(...all.map(([at, text]) => element('span', {style: `left:${100 * at}%;transform:translateX(${-100 * at}%)`}, text)));
    },
  };
}

export function createLegend() {
  const ramp = Float32Array.from({length: 256}, (_, i) => i / 255), bar = createColourBar((canvas) => drawHeatmap(canvas, ramp, 1, 256, rampScale));
  let shown = null;
  attachTip(bar.element, () => shown && legendWords(shown));
  return {
    element: bar.element,
    update(scale, open = false) {
      shown = scale;
      bar.update(legendMarks(scale, open));
    },
  };
}

/* The legend for export: `width` wide, 34 high. */
export function legendSvg(scale, x, y, width, ink, open = false) {
  const ramp = Float32Array.from({length: 64}, (_, i) => (i + 0.5) / 64);
  const marks = legendMarks(scale, open).map(([at, text]) => {
    const anchor = at === 0 ? 'start' : at === 1 ? 'end' : 'middle';
    return `<text x="${svgNumber(x + at * width)}" y="${y + 26}" text-anchor="${anchor}" font-size="11" ` +
      `fill="${ink}">${escapeXml(text)}</text>`;
  });
  return heatmapSvg(ramp, 1, 64, {scale: rampScale, x, y, width, height: 10}) + marks.join('');
}
