/* A matrix of weights as an image: every panel's maps, on a canvas and, for export, as SVG; and the legend beside them.
 *
 *     drawHeatmap(canvas, values, rows, columns, {scale: 'log', max: 0.6})
 *
 * Values are shares, from 0 up. Linear: 0 to max. Log: three decades, max / 1000 to max; what is below is drawn as
 * nothing. A canvas has a pixel a cell and is stretched by CSS (image-rendering: pixelated), so drawing stays cheap: a
 * map of 50 x 50 is 2500 pixels however large it is shown. */

const LOG_DECADES = 3;

/* Where a value lies on the scale, from 0 to 1. */
function scaleValue(value, scale, max) {
  if (!(value > 0) || !(max > 0)) return 0;
  const share = Math.min(1, value / max);
  return scale === 'log' ? Math.max(0, 1 + Math.log10(share) / LOG_DECADES) : share;
}

/* The largest of numbers; 0 of none, and what is no number does not count. */
function largestOf(values) {
  let max = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > max) max = values[i];
  return max;
}

/* Where a scale that several maps share ends: at the median of their largest values. If the largest of all were the
 * end, one head that is sure of itself would leave all others pale; what is above shares the last colour. */
function sharedMax(maxima) {
  const sorted = Array.from(maxima).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : 0;
}

function heatmapImage(context, values, rows, columns, options) {
  const {scale = 'linear', max = largestOf(values)} = options || {};
  const image = context.createImageData(columns, rows);
  const pixels = image.data;
  for (let i = 0; i < rows * columns; i++) {
    const at = 3 * colourIndex(scaleValue(values[i], scale, max));
    pixels[4 * i] = colourTable[at];
    pixels[4 * i + 1] = colourTable[at + 1];
    pixels[4 * i + 2] = colourTable[at + 2];
    pixels[4 * i + 3] = 255;
  }
  return image;
}

/* values (rows,columns), or whatever has indices. */
function drawHeatmap(canvas, values, rows, columns, options) {
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  const context = canvas.getContext('2d');
  context.putImageData(heatmapImage(context, values, rows, columns, options), 0, 0);
}

/* The same as SVG elements, a rectangle a run of cells of one colour; at x, y, `width` wide and `height` high. */
function heatmapSvg(values, rows, columns, options) {
  const {scale = 'linear', max = largestOf(values), x = 0, y = 0, width = columns, height = rows} = options || {};
  const wide = width / columns, high = height / rows;
  const parts = [`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${colourOf(0)}"/>`];
  for (let r = 0; r < rows; r++) {
    let c = 0;
    while (c < columns) {
      const index = colourIndex(scaleValue(values[r * columns + c], scale, max));
      let end = c + 1;
      while (end < columns && colourIndex(scaleValue(values[r * columns + end], scale, max)) === index) end++;
      if (index) {
        parts.push(`<rect x="${svgNumber(x + c * wide)}" y="${svgNumber(y + r * high)}" ` +
          `width="${svgNumber((end - c) * wide)}" height="${svgNumber(high)}" fill="${colourOf(index / 255)}"/>`);
      }
      c = end;
    }
  }
  return `<g shape-rendering="crispEdges">${parts.join('')}</g>`;
}

function svgNumber(x) {
  return String(Math.round(x * 1000) / 1000);
}

/* Which cell of a map lies under the pointer; null outside. `box` is the map's part of the element, in shares of it. */
function cellUnder(node, event, rows, columns) {
  const box = node.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
  const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
  return row >= 0 && row < rows && column >= 0 && column < columns ? {row, column} : null;
}

/* ---- Legend ------------------------------------------------------------------------------------------------------ */

/* The texts under the bar of the scale: [place from 0 to 1, text]. `max` null: each map has its own largest value;
 * `open`: there may be more than max. */
function legendMarks(scale, max, open) {
  const most = max === null ? 'its largest' : (open ? '≥ ' : '') + percent(max);
  if (scale !== 'log') return [[0, '0'], [0.5, max === null ? 'half' : percent(max / 2)], [1, most]];
  const part = (by) => (max === null ? '1/' + by : Number(((100 * max) / by).toPrecision(2)) + ' %');
  return [[0, '≤ ' + part(1000)], [2 / 3, part(10)], [1, most]];
}

function createLegend() {
  const canvas = element('canvas', {class: 'legend-bar', 'aria-hidden': true});
  const marks = element('div', {class: 'legend-marks'});
  const node = element('div', {class: 'legend'}, canvas, marks);
  const ramp = Float32Array.from({length: 256}, (_, i) => i / 255);
  return {
    element: node,
    update(scale, max, open = false) {
      drawHeatmap(canvas, ramp, 1, 256, {scale: 'linear', max: 1});
      marks.replaceChildren(...legendMarks(scale, max, open).map(([at, text]) =>
        element('span', {style: `left:${100 * at}%;transform:translateX(${-100 * at}%)`}, text)));
    },
  };
}

/* The legend for export: `width` wide, 34 high. */
function legendSvg(scale, max, x, y, width, ink, open = false) {
  const ramp = Float32Array.from({length: 64}, (_, i) => (i + 0.5) / 64);
  const marks = legendMarks(scale, max, open).map(([at, text]) => {
    const anchor = at === 0 ? 'start' : at === 1 ? 'end' : 'middle';
    return `<text x="${svgNumber(x + at * width)}" y="${y + 26}" text-anchor="${anchor}" font-size="11" ` +
      `fill="${ink}">${escapeText(text)}</text>`;
  });
  return heatmapSvg(ramp, 1, 64, {max: 1, x, y, width, height: 10}) + marks.join('');
}
