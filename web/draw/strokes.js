/* Strokes of a pen or an eraser, and their text for links.
 *
 * A stroke is {erase, points}: points is a flat array x, y, width, x, y, width ... of whole numbers, in units of 1/1024 of
 * the sheet's side, so that a stroke that went through a link is the same stroke.
 *
 * Curves are smooth: quadratic, from the middle between two points to the next middle, with the point itself as control
 * point. Each point adds its own piece, so a stroke grows without being drawn again. */

import {decodeBase64, encodeBase64} from '../base/bytes.js';
import {limit} from '../base/numbers.js';

export const SHEET_UNITS = 1024;
export const PEN_WIDTH = 84; /* about that of MNIST's strokes, for a digit that fills two thirds of the sheet */
export const ERASER_WIDTH = 160;
const POINT_BYTES = 4;

/* Adds a point unless it is too close to the last one; returns whether it did. */
export function addPoint(stroke, x, y, width) {
  const clamp = (value) => limit(Math.round(value), 0, SHEET_UNITS - 1);
  const {points} = stroke, at = points.length, [px, py] = [clamp(x), clamp(y)];
  if (at && Math.hypot(px - points[at - 3], py - points[at - 2]) < 6) return false;
  points.push(px, py, limit(Math.round(width), 1, 255));
  return true;
}

/* Draws point n, from 0, and what connects it with the points before; the context's side is `side` pixels. */
export function drawPoint(context, {points}, n, side) {
  const by = side / SHEET_UNITS, at = (i) => [(points[3 * i] + 0.5) * by, (points[3 * i + 1] + 0.5) * by];
  const middle = ([x0, y0], [x1, y1]) => [(x0 + x1) / 2, (y0 + y1) / 2];
  context.lineCap = 'round';
  context.lineJoin = 'round';
  context.lineWidth = points[3 * n + 2] * by;
  context.beginPath();
  if (n === 0) {
    context.moveTo(...at(0));
    context.lineTo(at(0)[0] + 0.01, at(0)[1]); /* a dot, with round caps; a line of no length would not be drawn */
  } else {
    context.moveTo(...(n === 1 ? at(0) : middle(at(n - 2), at(n - 1))));
    context.quadraticCurveTo(...at(n - 1), ...middle(at(n - 1), at(n)));
    context.lineTo(...at(n));
  }
  context.stroke();
}

/* ---- As bytes ---------------------------------------------------------------------------------------------------- */

/* Per stroke: its kind, the number of points in two bytes, and the points: ten bits of x, ten of y, in three bytes, and
 * the width. */
export function strokesToBytes(strokes) {
  const bytes = [];
  for (const {erase, points} of strokes) {
    const count = Math.min(65535, points.length / 3);
    bytes.push(erase ? 1 : 0, count >> 8, count & 255);
    for (let n = 0; n < count; n++) {
      const both = points[3 * n] * SHEET_UNITS + points[3 * n + 1];
      bytes.push(both >> 16, (both >> 8) & 255, both & 255, points[3 * n + 2]);
    }
  }
  return Uint8Array.from(bytes);
}

/* The strokes, or null if the bytes are none. */
export function strokesFromBytes(bytes) {
  const strokes = [];
  let at = 0;
  while (at < bytes.length) {
    const [kind, high, low] = bytes.subarray(at, at + 3), end = at + 3 + POINT_BYTES * ((high << 8) + low);
    if (kind > 1 || !(end > at + 3) || end > bytes.length) return null;
    const stroke = {erase: kind === 1, points: []};
    for (at += 3; at < end; at += POINT_BYTES) {
      const both = (bytes[at] << 16) + (bytes[at + 1] << 8) + bytes[at + 2];
      if (both >= SHEET_UNITS * SHEET_UNITS || !bytes[at + 3]) return null;
      stroke.points.push(both >> 10, both & 1023, bytes[at + 3]);
    }
    strokes.push(stroke);
  }
  return strokes.length ? strokes : null;
}

/* Base64 with the two letters that need no escape in a link, and without padding. */
export function bytesToText(bytes) {
  return encodeBase64(bytes).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

/* Null if the text is not of this kind. */
export function textToBytes(text) {
  if (typeof text !== 'string' || !/^[\w-]*$/.test(text)) return null;
  try {
    return decodeBase64(text.replace(/-/g, '+').replace(/_/g, '/'));
  } catch {
    return null;
  }
}
