/* A common drawing interface for a canvas and for SVG.
 *
 *     const pen = canvasPen(context);            or   const pen = svgPen();   ... pen.text() is the SVG
 *     pen.picture(canvas, crop, box, alpha);     crop and box: {x, y, width, height}; crop null: the whole canvas
 *     pen.box(box, {fill, stroke, line, radius, alpha});
 *     pen.label(x, y, text, {size, anchor, weight, fill, alpha, rotate});     (x, y): the start of the baseline
 *     pen.stroke([[x, y], ...], {stroke, line, alpha});
 *     pen.shift(x, y);                           svgPen: what follows is drawn from this point on; 0, 0 ends it */

import {element} from './dom.js';
import {escapeXml, exportFont, svgCanvas, svgLabel, svgNumber} from './svg.js';

const measureContext = document.createElement('canvas').getContext('2d'), measuredWidths = new Map();

/* The width of a text, remembered: every frame of an animation asks for the same ones. */
export function textWidth(text, size, weight) {
  const id = `${weight} ${size} ${text}`;
  if (!measuredWidths.has(id)) {
    if (measuredWidths.size > 5000) measuredWidths.clear();
    measureContext.font = `${weight} ${size}px ${exportFont}`;
    measuredWidths.set(id, measureContext.measureText(text).width);
  }
  return measuredWidths.get(id);
}

export function canvasPen(context) {
  const anchors = {start: 'left', middle: 'center', end: 'right'};
  return {
    /* No smoothing while each cell has at least one pixel; below that, smoothing keeps rows from disappearing. */
    picture(canvas, crop, box, alpha = 1) {
      const part = crop || {x: 0, y: 0, width: canvas.width, height: canvas.height};
      if (!(part.width > 0 && part.height > 0 && box.width > 0 && box.height > 0)) return;
      context.globalAlpha = alpha;
      context.imageSmoothingEnabled = box.width < part.width || box.height < part.height;
      context.drawImage(canvas, part.x, part.y, part.width, part.height, box.x, box.y, box.width, box.height);
    },

    box(box, {fill = null, stroke = null, line = 1, radius = 0, alpha = 1}) {
      context.globalAlpha = alpha;
      if (fill && !stroke && !radius) {
        context.fillStyle = fill;
        context.fillRect(box.x, box.y, box.width, box.height);
        return;
      }
      context.beginPath();
      if (radius && context.roundRect) context.roundRect(box.x, box.y, box.width, box.height, radius);
      else context.rect(box.x, box.y, box.width, box.height);
      if (fill) {
        context.fillStyle = fill;
        context.fill();
      }
      if (stroke) {
        context.strokeStyle = stroke;
        context.lineWidth = line;
        context.stroke();
      }
    },

    label(x, y, text, {size = 13, anchor = 'start', weight = 400, fill = '#000', alpha = 1, rotate = 0}) {
      context.save();
      context.globalAlpha = alpha;
      context.font = `${weight} ${size}px ${exportFont}`;
      context.textAlign = anchors[anchor];
      context.fillStyle = fill;
      context.translate(x, y);
      if (rotate) context.rotate((rotate * Math.PI) / 180);
      context.fillText(text, 0, 0);
      context.restore();
    },

    stroke(points, {stroke = '#000', line = 1, alpha = 1}) {
      context.globalAlpha = alpha;
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.beginPath();
      points.forEach(([x, y], n) => (n ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
    },
  };
}

export function svgPen() {
  const parts = [];
  const faint = (alpha) => (alpha < 1 ? ` opacity="${svgNumber(alpha)}"` : '');
  const frame = (box) => `x="${svgNumber(box.x)}" y="${svgNumber(box.y)}" width="${svgNumber(box.width)}" ` +
    `height="${svgNumber(box.height)}"`;
  return {
    text: () => parts.join('\n'),

    shift(x, y) {
      parts.push(x || y ? `<g transform="translate(${svgNumber(x)} ${svgNumber(y)})">` : '</g>');
    },

    picture(canvas, crop, box, alpha = 1) {
      let part = canvas;
      if (crop) {
        if (!(crop.width >= 1 && crop.height >= 1)) return;
        part = element('canvas', {width: Math.round(crop.width), height: Math.round(crop.height)});
        part.getContext('2d').drawImage(canvas, -Math.round(crop.x), -Math.round(crop.y));
      }
      parts.push(`<g${faint(alpha)}>${svgCanvas(part, box.x, box.y, box.width, box.height)}</g>`);
    },

    box(box, {fill = null, stroke = null, line = 1, radius = 0, alpha = 1}) {
      const round = radius ? ` rx="${svgNumber(radius)}"` : '';
      const edge = stroke ? ` stroke="${escapeXml(stroke)}" stroke-width="${svgNumber(line)}"` : '';
      parts.push(`<rect ${frame(box)}${round} fill="${fill ? escapeXml(fill) : 'none'}"${edge}${faint(alpha)}/>`);
    },

    label(x, y, text, options) {
      const {alpha = 1, ...rest} = options;
      parts.push(svgLabel(x, y, text, {...rest, opacity: alpha}));
    },

    stroke(points, {stroke = '#000', line = 1, alpha = 1}) {
      const path = points.map(([x, y]) => `${svgNumber(x)},${svgNumber(y)}`).join(' ');
      parts.push(`<polyline points="${path}" fill="none" stroke="${escapeXml(stroke)}" ` +
        `stroke-width="${svgNumber(line)}"${faint(alpha)}/>`);
    },
  };
}

/* Sets a canvas to `width` x `height` CSS pixels at the resolution of the screen; returns its cleared context, scaled
 * to CSS pixels. The memory is reused if the size does not change. */
export function sizeCanvas(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext('2d');
  context.setTransform(wide / width, 0, 0, high / height, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
