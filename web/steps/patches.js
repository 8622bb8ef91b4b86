/* Draws the tokens of an image: patches, their numbers, the image and maps over it. Drawers are called as in draw.js. */

import {limit} from '../base/numbers.js';
import {textWidth} from '../base/pen.js';
import {clamp01, drawFrame} from './draw.js';
import {tokenPlace} from '../vit/model.js';
import {mapCorner, mapSize} from '../vit/picture.js';

/* A patch of the image, or a square with "cls". */
function drawPatch(pen, t, box, alpha, {facts, colours}) {
  const {model, walk} = facts, place = tokenPlace(model, t), {patch} = model.config;
  if (place) {
    pen.picture(walk.photo(), {x: place.column * patch, y: place.row * patch, width: patch, height: patch}, box, alpha);
    if (box.width >= 6) pen.box(box, {stroke: colours.line, alpha});
  } else {
    pen.box(box, {fill: colours.line, alpha});
    if (box.width >= 18) {
      pen.label(box.x + box.width / 2, box.y + box.height / 2 + 4, 'cls', {size: Math.min(14, box.width * 0.42), weight: 600, anchor: 'middle', fill: colours.ink, alpha});
    }
  }
}

const growBox = (box, size) => ({x: box.x + (box.width - size) / 2, y: box.y + (box.height - size) / 2, width: size, height: size});

/* The numbers beside rows that have one: all if there is room, otherwise the first patch of each row of the image. */
function labelledTokens({model, T}, each) {
  const first = (t) => t >= model.first && (t - model.first) % model.across === 0;
  return Array.from({length: T}, (_, t) => t).filter((t) => each >= 12 || (first(t) && each * model.across >= 12));
}

/* The marked tokens, larger and in their colours, with their numbers. */
function drawMarkedTokens(pen, piece, boxes, alpha, view) {
  const {facts, colours, layout} = view, cut = piece.each === 0, {t, key} = facts;
  const marked = [[t, colours.accent], ...(piece.keyToo && key !== t ? [[key, colours.key]] : [])], places = [];
  for (const [token, colour] of marked.reverse()) {
    const size = cut ? boxes[token].width : Math.max(boxes[token].width, layout.narrow ? 12 : 16);
    const box = cut ? boxes[token] : {...growBox(boxes[token], size), x: piece.edge - 4 - size};
    drawPatch(pen, token, box, alpha, view);
    drawFrame(pen, box, colour, colours, alpha);
    places.push({token, y: box.y + box.height / 2, colour});
  }
  if (cut) return places;
  if (places.length > 1 && Math.abs(places[0].y - places[1].y) < 12) {
    places[0].y = places[1].y + (places[0].y < places[1].y ? -12 : 12);
  }
  for (const {token, y, colour} of places) {
    pen.label(piece.edge - layout.rail + layout.number, y + 4, facts.shortOf(token), {size: 12, weight: 700, anchor: 'end', fill: colour, alpha});
  }
  return places;
}

/* All tokens: a column beside rows, or the patches of the image. Numbers stand beside rows, or in patches with room. */
export function drawPatchRail(pen, piece, boxes, look, view) {
  const {facts, colours, layout} = view, {alpha} = look, cut = piece.each === 0;
  const again = (t) => look.settled && !cut && (t === facts.t || (piece.keyToo && t === facts.key)); /* drawn larger below */
  for (let t = 0; t < facts.T; t++) if (!again(t)) drawPatch(pen, t, boxes[t], alpha, view);
  if (cut && boxes[0].width >= 22) drawPatchNumbers(pen, boxes, alpha, view);
  if (!look.settled) return;
  const marked = drawMarkedTokens(pen, piece, boxes, alpha, view);
  if (cut) return;
  for (const t of labelledTokens(facts, piece.each)) {
    const y = boxes[t].y + boxes[t].height / 2;
    if (marked.some((mark) => Math.abs(mark.y - y) < 12)) continue;
    pen.label(piece.edge - layout.rail + layout.number, y + 4, facts.shortOf(t), {size: 11, anchor: 'end', fill: colours.soft, alpha});
  }
}

/* In the corner of each patch, on a background of their own. */
function drawPatchNumbers(pen, boxes, alpha, {facts, colours}) {
  for (let t = facts.model.first; t < facts.T; t++) {
    const text = facts.shortOf(t), {x, y, height} = boxes[t], size = Math.min(12, height * 0.4);
    pen.box({x, y: y + height - size - 2, width: textWidth(text, size, 600) + 4, height: size + 2}, {fill: colours.card, alpha: alpha * 0.85});
    pen.label(x + 2, y + height - 3, text, {size, weight: 600, fill: colours.ink, alpha});
  }
}

/* ---- The marked key below bars ----------------------------------------------------------------------------------- */

/* Its thumbnail, centred on `middle` as far as the bars' box allows; returns its place. */
export function drawKeyPatch(pen, middle, foot, box, alpha, {facts, colours}) {
  const thumb = {x: limit(middle - 6, box.x, box.x + box.width - 12), y: foot - 12, width: 12, height: 12};
  drawPatch(pen, facts.key, thumb, alpha, {facts, colours});
  drawFrame(pen, thumb, colours.key, colours, alpha);
  return thumb;
}

/* ---- Images ------------------------------------------------------------------------------------------------------ */

/* The image, the lines between patches, the marked one framed. */
export function drawPhoto(pen, piece, box, {alpha}, {facts, colours}) {
  const {model} = facts, wide = box.width / model.across, high = box.height / model.down, line = {stroke: colours.line, alpha: alpha * 0.7};
  pen.picture(facts.walk.photo(), null, box, alpha);
  for (let c = 1; c < model.across; c++) pen.stroke([[box.x + c * wide, box.y], [box.x + c * wide, box.y + box.height]], line);
  for (let r = 1; r < model.down; r++) pen.stroke([[box.x, box.y + r * high], [box.x + box.width, box.y + r * high]], line);
  pen.box(box, {stroke: colours.line, alpha});
  const place = tokenPlace(model, facts.t);
  if (place) drawFrame(pen, {x: box.x + place.column * wide, y: box.y + place.row * high, width: wide, height: high}, colours.accent, colours, alpha);
}

export function drawHeadMap(pen, piece, box, look, {facts, colours}) {
  const late = look.fresh ? (look.settled ? clamp01((look.p - 0.7) / 0.3) : 0) : 1, alpha = look.alpha * late;
  pen.picture(facts.walk.mapOf(piece.h), null, box, alpha);
  if (look.settled) frameOnMap(pen, box, facts, facts.key, colours.key, colours, look.alpha);
  if (look.settled) frameOnMap(pen, box, facts, facts.t, colours.accent, colours, look.alpha);
}

function frameOnMap(pen, box, {model}, token, stroke, colours, alpha) {
  const size = mapSize(model), by = box.width / size.width, {x, y} = mapCorner(model, token, size), each = size.cell * by;
  drawFrame(pen, {x: box.x + x * by + 1, y: box.y + y * by + 1, width: each - 2, height: each - 2}, stroke, colours, alpha);
}
