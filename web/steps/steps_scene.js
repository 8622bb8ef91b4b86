/* The pieces on the stage at each step, and their layout.
 *
 * A scene is a list of pieces: matrices, bars, the image, and the signs between them. Pieces are wrapped like words
 * into centred lines, so the same scenes work on a desktop and on a phone. A piece in two scenes has the same id and
 * moves from its old position to the new one. */

/* The cell sizes for a stage of that width: the normal one, and `cramped` next to the bars. */
function stageSizes(facts, width) {
  const narrow = width < 620, most = Math.max(facts.T, facts.M, facts.H * facts.D);
  const cell = Math.min(300, narrow ? (width - 50) / 2 : (width - 140) / 3) / most; /* two or three matrices per line */
  const sign = narrow ? 22 : 40, scores = (width - 2 * sign - 40) / (facts.D + 2 * facts.T);
  return {width, narrow, cell, cramped: Math.min(cell, 190 / facts.T, scores), sign};
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

const pieceHead = 24, pieceFoot = 20; /* room for the name above and the shape below */

function matrixPiece(id, name, values, rows, columns, cell, options = {}) {
  return {
    kind: 'matrix', id, name, values, rows, columns, signed: true, ...options,
    width: Math.max(options.least || 24, columns * cell),
    height: Math.max(12, rows * cell) + pieceHead + pieceFoot,
    shape: `${rows} × ${columns}`,
  };
}

function signPiece(id, text, {sign}) {
  return {kind: 'sign', id, text, width: text.length > 1 ? sign + 9 * text.length : sign, height: 40};
}

/* The row of scores or weights as bars. stages: [{values, low, high}], between which the bars move; with `sweep` they
 * appear one by one. */
function barsPiece(sizes, caption, stages, sweep = false) {
  const width = Math.min(sizes.width, 760), height = sizes.narrow ? 128 : 150;
  return {kind: 'bars', id: 'bars', line: true, width, height, caption, stages, sweep};
}

function picturePiece({model}, sizes, weights) {
  const width = sizes.narrow ? 130 : 190, {rows, columns} = model.config;
  const height = weights ? mapHeight(model, width) : (width * rows) / columns;
  return {kind: 'picture', id: 'picture', width, height: height + pieceHead + pieceFoot, weights,
    apart: Boolean(weights)};
}

/* All matrices of the head, with cells of that size. */
function stagePieces(facts, cell) {
  const {T, M, D, H, G, head, group, run} = facts, h = head + 1, g = G < H ? group + 1 : h;
  const matrix = (id, name, values, rows, columns, options) =>
    matrixPiece(id, name, values, rows, columns, cell, {rowName: facts.keyName, ...options});
  const keys = {rowName: null, columnName: facts.keyName};
  const weight = (id, sub, values, rows, columns, options) =>
    matrix(id, {text: 'W', sub}, values, rows, columns, {rowName: null, ...options});
  return {
    X: matrix('X', {text: 'X'}, run.x, T, M),
    N: matrix('N', {text: 'N'}, run.n, T, M),
    WQ: weight('W', 'Q', facts.wq, M, D), WK: weight('W', 'K', facts.wk, M, D), WV: weight('W', 'V', facts.wv, M, D),
    Q: matrix('Q', {text: 'Q', sub: h}, facts.q, T, D),
    K: matrix('K', {text: 'K', sub: g}, facts.k, T, D),
    V: matrix('V', {text: 'V', sub: g}, facts.v, T, D),
    KT: matrix('KT', {text: 'K', sup: 'T'}, transposed(facts.k, T, D), D, T, keys),
    S: matrix('S', {text: 'S'}, facts.raw, T, T, {columnName: facts.keyName}),
    Z: matrix('Z', {text: `S ÷ √${D}`}, facts.scaled, T, T, {columnName: facts.keyName}),
    P: matrix('P', {text: 'P'}, facts.weights, T, T, {signed: false, columnName: facts.keyName}),
    O: matrix('O', {text: 'O', sub: h}, facts.own, T, D),
    C: matrix('C', {text: 'C'}, run.concat, T, H * D, {slices: H, own: head}),
    heads: run.heads.map((values, n) => (n === head ? null
      : matrix('O' + n, {text: 'O', sub: n + 1}, values, T, D, {least: 12}))),
    WO: weight('WO', 'O', facts.wo, H * D, M, {ownRows: [head * D, D]}),
    A: matrix('A', {text: 'A'}, run.out, T, M),
    Y: matrix('Y', {text: 'X′'}, run.mid, T, M),
  };
}

function transposed(values, rows, columns) {
  const turned = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) turned[c * rows + r] = values[r * columns + c];
  return turned;
}

/* ---- Scenes ------------------------------------------------------------------------------------------------------ */

/* low and high of an axis that contains 0 and the finite numbers of `values`. */
function axisOf(values) {
  const finite = Array.from(values).filter(Number.isFinite);
  return {values, low: Math.min(0, ...finite), high: Math.max(1e-9, 0, ...finite)};
}

/* The 98th percentile of magnitudes: a few numbers of the residual stream are far larger than the others, which would
 * all be pale. */
function commonSize(values) {
  const sizes = values.map(Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
}

/* scenes[key] = {pieces, made, flows, marks}: `made` lists the ids that this step creates, and how they appear (rows:
 * one by one; cells: those of the marked row one by one, then the other rows; row: the marked one first; late: at the
 * end); `marks` gives the framed row, column or token of each piece. Their numbers are shown below the stage during the
 * whole step. */
function stepScenes(facts, sizes) {
  const {D, t, key} = facts, has = stagePieces(facts, sizes.cell), small = stagePieces(facts, sizes.cramped);
  let signs = 0;
  const sign = (text) => signPiece('sign' + signs++, text, sizes);
  const rows = (...ids) => Object.fromEntries(ids.map((id) => [id, {row: t}]));
  const raw = axisOf(facts.rawRow), scaled = {...axisOf(facts.rawRow), values: facts.scaledRow};
  const most = largestOf(facts.weightRow), e = {values: facts.exp.values, low: 0, high: 1};
  const weights = {values: facts.weightRow, low: 0, high: most};
  const project = (W, made, ...kept) => ({
    pieces: [has.N, sign('×'), has[W], sign('='), has[made], ...kept.map((id) => ({...has[id], apart: true}))],
    made: {[made]: 'rows'},
    marks: rows('N', made, ...kept),
  });
  const loudest = largestSize(facts.run.concat), widest = commonSize(facts.run.x);
  const alike = (piece) => ({...piece, most: widest}); /* summands share one colour scale */
  return {
    tokens: {pieces: [picturePiece(facts, sizes, null), sign('→'), has.X], made: {X: 'rows'},
      marks: {X: {row: t}, picture: {token: t}}},
    norm: {pieces: [has.X, sign('→'), has.N], made: {N: 'rows'}, marks: rows('X', 'N')},
    q: project('WQ', 'Q'),
    k: project('WK', 'K', 'Q'),
    v: project('WV', 'V', 'Q', 'K'),
    scores: {
      pieces: [small.Q, sign('×'), small.KT, sign('='), small.S, barsPiece(sizes, 'q · k', [raw], true)],
      made: {S: 'cells'},
      marks: {Q: {row: t}, KT: {column: key}, S: {row: t, column: key}, bars: {column: key}},
    },
    scale: {
      pieces: [small.S, sign(`÷ √${D} =`), small.Z, barsPiece(sizes, `q · k ÷ √${D}`, [raw, scaled])],
      made: {Z: 'rows'},
      marks: {...rows('S', 'Z'), bars: {column: key}},
    },
    softmax: {
      pieces: [...(sizes.narrow ? [] : [small.Z, sign('→')]), small.P, picturePiece(facts, sizes, facts.weightRow),
        barsPiece(sizes, 'weight', [scaled, e, weights])],
      made: {P: 'rows', picture: 'fade'},
      marks: {...rows('Z', 'P'), bars: {column: key}},
    },
    sum: {
      pieces: [has.P, sign('×'), {...has.V, shares: facts.weightRow}, sign('='), has.O],
      made: {V: 'shares', O: 'row'},
      flows: valueFlows(facts),
      marks: {...rows('P', 'O'), V: {row: key}},
    },
    concat: {
      pieces: [...has.heads.map((piece, n) =>
        ({...(piece || has.O), values: facts.run.heads[n], most: loudest, crowded: n !== facts.head})), sign('='), has.C],
      made: {C: 'late'},
      flows: headFlows(facts),
      marks: rows('C', ...has.heads.map((_, n) => headId(facts, n))),
    },
    output: {
      pieces: [has.C, sign('×'), has.WO, sign('='), has.A],
      made: {A: 'rows'},
      marks: {...rows('C', 'A'), WO: {}},
    },
    residual: {
      pieces: [alike(has.X), sign('+'), alike(has.A), sign('='), alike(has.Y)],
      made: {Y: 'rows'},
      marks: rows('X', 'A', 'Y'),
    },
  };
}

const headId = (facts, n) => (n === facts.head ? 'O' : 'O' + n);

/* Movements within a step: a part of one piece to a part of another, with opacity `share`. Here the rows of V, to the
 * row of O. */
function valueFlows({T, t, weightRow}) {
  const most = largestOf(weightRow) || 1, flows = [];
  for (let row = 0; row < T; row++) {
    const share = weightRow[row] / most;
    if (share > 0.03) flows.push({from: 'V', part: {row, rows: 1}, to: 'O', onto: {row: t, rows: 1}, share});
  }
  return flows;
}

/* And here the heads, each to its position in C. */
function headFlows(facts) {
  return Array.from({length: facts.H}, (_, n) =>
    ({from: headId(facts, n), part: {}, to: 'C', onto: {column: n * facts.D, columns: facts.D}, share: 1}));
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

const pieceGap = 8, apartGap = 44, lineGap = 10;

/* Wraps pieces into lines that fit the width: a sign stays with the piece after it. */
function flowLines(pieces, width) {
  const lines = [];
  let line = null, pending = [];
  for (const piece of pieces) {
    pending.push(piece);
    if (piece.kind === 'sign') continue;
    const need = pending.reduce((sum, one) => sum + one.width + (one.apart ? apartGap : pieceGap), 0);
    if (!line || piece.line || line.need + need > width + pieceGap) lines.push((line = {need: 0, pieces: []}));
    line.need += need;
    line.pieces.push(...pending);
    pending = [];
  }
  return lines;
}

/* A Map from id to {piece, box}, and the total height. */
function placePieces(pieces, width) {
  const placed = new Map();
  let y = 0;
  for (const line of flowLines(pieces, width)) {
    const gaps = line.pieces.map((piece, n) => (n === 0 ? 0 : piece.apart ? apartGap : pieceGap));
    const wide = line.pieces.reduce((sum, piece, n) => sum + piece.width + gaps[n], 0);
    const high = Math.max(...line.pieces.map((piece) => piece.height));
    let x = (width - wide) / 2;
    line.pieces.forEach((piece, n) => {
      x += gaps[n];
      const {id, width: w, height: h} = piece;
      placed.set(id, {piece, box: {x, y: y + (high - h) / 2, width: w, height: h}});
      x += piece.width;
    });
    y += high + lineGap;
  }
  return {placed, height: Math.max(0, y - lineGap)};
}
