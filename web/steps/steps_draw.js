/* Draws the stage at any time of a step with a pen of pen.js.
 *
 * The time of a step runs from 0 to 1. In the first part pieces move to their positions, old ones fade out and new ones
 * fade in; then the step itself is animated, p = 0 to 1: rows appear one by one, bars move, values are merged. Marks do
 * not change. A frame is about ten images and some text, and takes less than two milliseconds. */

const travelPart = 0.35;

const clamp01 = (x) => Math.max(0, Math.min(1, x));
const easeBoth = (x) => x * x * (3 - 2 * x);
const between = (a, b, e) => a + (b - a) * e;

function boxBetween(a, b, e) {
  return {x: between(a.x, b.x, e), y: between(a.y, b.y, e), width: between(a.width, b.width, e),
    height: between(a.height, b.height, e)};
}

/* ---- Colours of numbers with a sign ------------------------------------------------------------------------------ */

/* Purple below zero, orange above, the background at zero; equal steps in Oklab, so both sides are balanced. The accent
 * colour of the page, used for frames, is neither. */
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
  if (signedTable.theme !== colourTheme) {
    signedTable.theme = colourTheme;
    for (let i = 0; i < 256; i++) {
      const x = (i - 128) / 127;
      signedTable.bytes.set(armColour(Math.min(1, Math.abs(x)), x < 0 ? 300 : 55, colourTheme === 'dark'), 3 * i);
    }
  }
  return signedTable.bytes;
}

/* Three bytes. */
function signedColour(x, most) {
  const at = 3 * Math.round(128 + 127 * Math.max(-1, Math.min(1, x / most)));
  return Array.from(signedColours().subarray(at, at + 3));
}

/* The largest magnitude of the finite numbers. */
function largestSize(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) most = Math.max(most, Math.abs(values[i]));
  return most;
}

/* One pixel per cell, created once per piece and theme. Non-finite cells (hidden keys) are empty. */
function pieceImage(piece) {
  if (piece.image && piece.imageTheme === colourTheme) return piece.image;
  const canvas = piece.image || element('canvas', {width: piece.columns, height: piece.rows});
  if (!piece.signed) {
    const scale = weightScale('linear', 1 / piece.columns, largestOf(piece.values));
    drawHeatmap(canvas, piece.values, piece.rows, piece.columns, scale);
  } else {
    const context = canvas.getContext('2d'), image = context.createImageData(piece.columns, piece.rows);
    const table = signedColours(), most = piece.most || largestSize(piece.values) || 1;
    for (let i = 0; i < piece.values.length; i++) {
      const share = Math.max(-1, Math.min(1, piece.values[i] / most));
      const at = Number.isFinite(piece.values[i]) ? 3 * Math.round(128 + 127 * share) : -1;
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = at < 0 ? 0 : table[at + c];
      image.data[4 * i + 3] = at < 0 ? 0 : 255;
    }
    context.putImageData(image, 0, 0);
  }
  piece.image = canvas;
  piece.imageTheme = colourTheme;
  return canvas;
}

/* ---- Names with a mark below or above ---------------------------------------------------------------------------- */

const measureContext = document.createElement('canvas').getContext('2d');

function textWidth(text, size, weight) {
  measureContext.font = `${weight} ${size}px ${exportFont}`;
  return measureContext.measureText(text).width;
}

/* Centred on x, or from x with anchor "start"; returns the width. */
function drawName(pen, x, y, {text, sub, sup}, {size = 15, weight = 600, fill, alpha = 1, anchor = 'middle'}) {
  const mark = String(sub !== undefined ? sub : sup !== undefined ? sup : ''), small = size * 0.72;
  const wide = textWidth(text, size, weight), all = wide + (mark ? textWidth(mark, small, weight) + 1 : 0);
  const left = anchor === 'middle' ? x - all / 2 : x;
  pen.label(left, y, text, {size, weight, fill, alpha});
  const rise = sub !== undefined ? size * 0.24 : -size * 0.38;
  if (mark) pen.label(left + wide + 1, y + rise, mark, {size: small, weight, fill, alpha});
  return all;
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* The cells of a matrix inside its box, without name and shape. */
function cellsBox(box) {
  return {x: box.x, y: box.y + pieceHead, width: box.width, height: box.height - pieceHead - pieceFoot};
}

/* The part of the cells between two rows and two columns. */
function partOf(cells, piece, {row = 0, rows = piece.rows, column = 0, columns = piece.columns}) {
  return {x: cells.x + (cells.width * column) / piece.columns, y: cells.y + (cells.height * row) / piece.rows,
    width: (cells.width * columns) / piece.columns, height: (cells.height * rows) / piece.rows};
}

function drawPart(pen, piece, cells, part, alpha) {
  const {row = 0, rows = piece.rows, column = 0, columns = piece.columns} = part;
  pen.picture(pieceImage(piece), {x: column, y: row, width: columns, height: rows}, partOf(cells, piece, part), alpha);
}

function drawCells(pen, piece, cells, how, p, alpha, mark) {
  if (how === 'rows') drawPart(pen, piece, cells, {rows: Math.round(p * piece.rows)}, alpha);
  else if (how === 'row' || how === 'cells') drawOneRow(pen, piece, cells, how, p, alpha, mark);
  else if (how === 'shares') drawShares(pen, piece, cells, p, alpha);
  else {
    const late = how === 'late' ? clamp01((p - flowEnd) / (1 - flowEnd)) : 1;
    pen.picture(pieceImage(piece), null, cells, alpha * late);
  }
}

/* The number of `count` items shown at progress p; all are shown slightly before the end. */
const comeAt = (p, count) => Math.min(count, Math.floor((p / 0.85) * count) + 1);

/* First the marked row, cell by cell or at once; then the other rows. */
function drawOneRow(pen, piece, cells, how, p, alpha, mark) {
  if (p <= 0 || !mark) return;
  const done = clamp01((p - 0.85) / 0.15), row = {row: mark.row, rows: 1};
  if (done > 0) drawPart(pen, piece, cells, {}, alpha * done);
  if (how === 'cells') drawPart(pen, piece, cells, {...row, columns: comeAt(p, piece.columns)}, alpha);
  else if (p > 0.6) drawPart(pen, piece, cells, row, alpha * clamp01((p - 0.6) / 0.25));
}

/* Rows of values fade according to their weights; the strongest one is opaque. */
function drawShares(pen, piece, cells, p, alpha) {
  const most = largestOf(piece.shares) || 1;
  for (let row = 0; row < piece.rows; row++) {
    drawPart(pen, piece, cells, {row, rows: 1}, alpha * between(1, Math.max(0.06, piece.shares[row] / most), p));
  }
}

function drawMarks(pen, piece, cells, mark, colours, alpha) {
  const edge = {stroke: colours.accent, line: 2, alpha};
  const around = (part) => {
    const box = partOf(cells, piece, part);
    pen.box({x: box.x - 1.5, y: box.y - 1.5, width: box.width + 3, height: box.height + 3}, edge);
  };
  if (mark.row !== undefined) around({row: mark.row, rows: 1});
  if (mark.column !== undefined) around({column: mark.column, columns: 1});
  if (piece.ownRows) around({row: piece.ownRows[0], rows: piece.ownRows[1]});
  if (piece.slices > 1) {
    const each = piece.columns / piece.slices;
    for (let h = 1; h < piece.slices; h++) {
      const x = cells.x + (cells.width * h) / piece.slices;
      pen.stroke([[x, cells.y], [x, cells.y + cells.height]], {stroke: colours.soft, line: 1, alpha: alpha * 0.7});
    }
    around({column: piece.own * each, columns: each});
  }
}

function drawStageMatrix(pen, {piece, box, how, p, alpha, mark, colours}) {
  const cells = cellsBox(box), middle = box.x + box.width / 2;
  const wide = drawName({label: () => {}}, 0, 0, piece.name, {}); /* measures only */
  if (!piece.crowded || wide <= box.width) drawName(pen, middle, box.y + 15, piece.name, {fill: colours.ink, alpha});
  if (!piece.crowded || textWidth(piece.shape, 12, 400) <= box.width + pieceGap) {
    pen.label(middle, box.y + box.height - 4, piece.shape, {size: 12, anchor: 'middle', fill: colours.soft, alpha});
  }
  pen.box(cells, {stroke: colours.line, alpha});
  drawCells(pen, piece, cells, how, p, alpha, mark);
  if (mark && (how !== 'late' || p >= 1)) drawMarks(pen, piece, cells, mark, colours, alpha);
}

/* The values between the stages of the bars, p done. */
function barsAt(stages, p) {
  const last = stages.length - 1, along = p * last, n = Math.min(last, Math.floor(along)), e = easeBoth(along - n);
  const a = stages[n], b = stages[Math.min(last, n + 1)];
  return {low: between(a.low, b.low, e), high: between(a.high, b.high, e),
    value: (j) => (Number.isFinite(a.values[j]) ? between(a.values[j], b.values[j], e) : NaN)};
}

function drawStageBars(pen, {piece, box, p, alpha, mark, colours}) {
  const now = barsAt(piece.stages, piece.sweep ? 1 : p), count = piece.stages[0].values.length;
  const plot = {x: box.x + 46, y: box.y + 24, width: box.width - 50, height: box.height - 42};
  const y = (value) => plot.y + (plot.height * (now.high - value)) / (now.high - now.low || 1);
  const wide = plot.width / count, upto = piece.sweep ? comeAt(p, count) : count;
  pen.label(plot.x, box.y + 13, piece.caption, {size: 13, weight: 600, fill: colours.ink, alpha});
  const ticks = now.low < -0.18 * (now.high - now.low) ? [now.low, 0, now.high] : [0, now.high];
  for (const tick of ticks) {
    const text = tick ? shortNumber(tick) : '0';
    pen.label(plot.x - 6, y(tick) + 4, text, {size: 11, anchor: 'end', fill: colours.soft, alpha});
    pen.stroke([[plot.x, y(tick)], [plot.x + plot.width, y(tick)]], {stroke: colours.line, alpha});
  }
  for (let j = 0; j < upto; j++) {
    const value = now.value(j), top = y(Math.max(0, value)), high = Math.abs(y(value) - y(0));
    const here = mark && mark.column === j;
    if (!(high > 0)) continue;
    pen.box({x: plot.x + j * wide + wide * 0.1, y: top, width: wide * 0.8, height: high},
      {fill: here ? colours.accent : colours.soft, alpha: alpha * (here ? 1 : 0.75)});
  }
  pen.label(plot.x, box.y + box.height - 4, 'keys, first to last', {size: 11, fill: colours.soft, alpha});
}

/* The image with the current patch framed, or, if there are weights, the map over it. */
function drawStagePicture(pen, {piece, box, how, p, alpha, mark, colours, facts}) {
  const cells = cellsBox(box), {model} = facts, middle = box.x + box.width / 2;
  const patches = {...cells, height: (cells.width * model.config.rows) / model.config.columns};
  pen.label(middle, box.y + 15, piece.weights ? 'attention' : 'image',
    {size: 13, weight: 600, anchor: 'middle', fill: colours.ink, alpha});
  pen.picture(facts.photo(), null, patches, alpha);
  if (piece.weights) pen.picture(facts.map(), null, cells, alpha * (how ? p : 1));
  else pen.box(patches, {stroke: colours.line, alpha});
  const place = mark && !piece.weights && tokenPlace(model, mark.token);
  if (place) {
    const wide = patches.width / model.across, high = patches.height / model.down;
    pen.box({x: patches.x + place.column * wide, y: patches.y + place.row * high, width: wide, height: high},
      {stroke: colours.accent, line: 2.5, alpha});
  }
  const foot = piece.weights && model.first ? `class token: ${percent(piece.weights[0])}`
    : mark && !piece.weights && !place ? 'the class token' : `${model.down} × ${model.across} patches`;
  pen.label(middle, box.y + box.height - 4, foot, {size: 12, anchor: 'middle', fill: colours.soft, alpha});
}

function drawStageSign(pen, {piece, box, alpha, colours}) {
  pen.label(box.x + box.width / 2, box.y + box.height / 2 + 8, piece.text,
    {size: piece.text.length > 1 ? 16 : 22, anchor: 'middle', fill: colours.soft, alpha});
}

const pieceDrawers = {matrix: drawStageMatrix, bars: drawStageBars, picture: drawStagePicture, sign: drawStageSign};

const flowEnd = 0.75;

function drawFlows(pen, flows, placed, p) {
  const e = easeBoth(clamp01((p - 0.1) / (flowEnd - 0.1)));
  if (e <= 0 || p >= 1) return;
  for (const {from, part, to, onto, share} of flows) {
    const {piece, box} = placed.get(from), target = placed.get(to);
    const start = partOf(cellsBox(box), piece, part), end = partOf(cellsBox(target.box), target.piece, onto);
    const crop = {x: 0, y: part.row || 0, width: piece.columns, height: part.rows || piece.rows};
    pen.picture(pieceImage(piece), crop, boxBetween(start, end, e), share);
  }
}

/* Whether a piece has the position of another but different colours. */
function looksOther(a, b) {
  return a.values !== b.values || a.most !== b.most;
}

/* Draws the stage at `time`; `before` and `now` are {scene, placed}. */
function drawStage(pen, before, now, time, extras) {
  const e = easeBoth(clamp01(time / travelPart)), p = clamp01((time - travelPart) / (1 - travelPart));
  const {marks} = now.scene, shared = {p, ...extras};
  if (before && e < 1) {
    for (const [id, {piece, box}] of before.placed) {
      if (!now.placed.has(id)) pieceDrawers[piece.kind](pen, {...shared, piece, box, p: 1, alpha: 1 - e, how: null});
    }
  }
  for (const [id, {piece, box}] of now.placed) {
    const old = before && before.placed.get(id), how = now.scene.made[id] || null;
    const place = old && e < 1 ? boxBetween(old.box, box, e) : box, other = old && looksOther(old.piece, piece);
    if (other && e < 1) pieceDrawers[piece.kind](pen, {...shared, piece: old.piece, box: place, p: 1, alpha: 1 - e});
    const alpha = old && !other ? 1 : e, mark = e < 1 ? null : marks[id];
    pieceDrawers[piece.kind](pen, {...shared, piece, box: place, alpha, how, mark});
  }
  if (now.scene.flows) drawFlows(pen, now.scene.flows, now.placed, p);
}
