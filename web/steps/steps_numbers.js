/* The text around the stage: the formula with its shapes, the numbers of the current row, and the export. It is text,
 * not pixels, for screen readers, selection and copying. */

/* ---- The formula ------------------------------------------------------------------------------------------------- */

function formulaElement(parts) {
  return element('p', {class: 'formula'}, parts.map((part) => {
    if (typeof part === 'string') return element('span', {class: 'formula-sign'}, part);
    return element('span', {class: 'formula-part'},
      element('span', {class: 'formula-symbol'}, part.text,
        part.sub !== undefined && element('sub', null, part.sub),
        part.sup !== undefined && element('sup', null, part.sup)),
      element('span', {class: 'formula-shape'}, part.shape));
  }));
}

/* The same drawn with a pen, from x, with the baseline of its symbols at y. */
function drawFormula(pen, x, y, parts, colours) {
  for (const part of parts) {
    if (typeof part === 'string') {
      pen.label(x, y, part, {size: 18, fill: colours.soft});
      x += textWidth(part, 18, 400) + 12;
    } else {
      const under = textWidth(part.shape, 11, 400);
      const wide = Math.max(under, drawName({label: () => {}}, 0, 0, part, {size: 20}));
      drawName(pen, x + wide / 2, y, part, {size: 20, fill: colours.ink});
      pen.label(x + wide / 2, y + 20, part.shape, {size: 11, anchor: 'middle', fill: colours.soft});
      x += wide + 12;
    }
  }
}

/* ---- The numbers ------------------------------------------------------------------------------------------------- */

const vectorMost = 32;

function signedNumber(x) {
  const size = Math.abs(x), text = size.toFixed(size >= 99.5 ? 0 : size >= 9.95 ? 1 : 2);
  return (x < 0 && Number(text) > 0 ? '−' : '') + text;
}

/* A row of a matrix, number by number, each on its colour. own: [first, count] of the framed ones; most: the value with
 * the strongest colour. */
function vectorElement(name, values, {own = null, most = largestSize(values) || 1} = {}) {
  const shown = Math.min(values.length, vectorMost);
  const first = own && own[0] + own[1] > shown ? own[0] : 0, count = own && first ? Math.min(own[1], shown) : shown;
  const cells = Array.from(values.subarray(first, first + count), (x, i) => {
    const inside = own && first + i >= own[0] && first + i < own[0] + own[1];
    const colour = signedColour(x, most);
    return element('span', {class: inside ? 'own' : null,
      style: `background:rgb(${colour.join()});color:${inkFor(...colour)}`}, signedNumber(x));
  });
  const more = values.length - count;
  return element('div', {class: 'step-vector'}, element('b', null, name),
    element('span', {class: 'step-cells'}, cells, more > 0 && element('em', null, `and ${more} more`)));
}

/* One score, number by number: the query, the best matching key, and their products, which sum to the score. */
function scoreVectors({q, k, t, D, key: best, rawRow, keyName}) {
  const query = rowOf(q, D, t), key = rowOf(k, D, best), products = query.map((x, d) => x * key[d]);
  return [vectorElement('q', query), vectorElement('k', key), vectorElement('q × k', products),
    element('p', {class: 'hint'}, `k is that of ${keyName(best)}. The products add up to ` +
      `${signedNumber(rawRow[best])}.`)];
}

/* The weighted sum of values, number by number: the largest parts, the sum of all others, and the total. */
function sumVectors({own, v, t, D, order, weightRow, keyName}) {
  const out = rowOf(own, D, t), rest = Float32Array.from(out), top = order.slice(0, 3);
  const parts = top.map((j) => rowOf(v, D, j).map((x) => weightRow[j] * x));
  parts.forEach((part) => part.forEach((x, d) => (rest[d] -= x)));
  const most = Math.max(...[...parts, rest, out].map(largestSize)) || 1, left = order.length - top.length;
  return [...parts.map((part, n) => vectorElement(`${percent(weightRow[top[n]])} of ${keyName(top[n])}`, part, {most})),
    ...(left > 0 ? [vectorElement(`the other ${left}`, rest, {most})] : []), vectorElement('sum: o', out, {most})];
}

/* The strongest keys, from score to weight, up to the current step. */
function keysElement(facts, key) {
  const n = shortNumber, shown = facts.order.slice(0, 4);
  const heads = ['key', 'q · k', `÷ √${facts.D}`, 'e^(s − max)', 'weight'];
  const cells = (j) => [facts.keyName(j), n(facts.rawRow[j]), n(facts.scaledRow[j]), n(facts.exp.values[j]),
    percent(facts.weightRow[j])];
  const upto = key === 'scale' ? 3 : 5;
  const line = (tag, texts) => element('tr', null, texts.slice(0, upto).map((text, c) =>
    element(c && tag === 'td' ? 'td' : 'th', {scope: c && tag === 'td' ? null : tag === 'td' ? 'row' : 'col'}, text)));
  const rest = facts.order.length - shown.length;
  const foot = upto === 5 && rest > 0 ? line('td', [`the other ${rest}`, '', '',
    n(facts.exp.sum - shown.reduce((sum, j) => sum + facts.exp.values[j], 0)),
    percent(1 - shown.reduce((sum, j) => sum + facts.weightRow[j], 0))]) : null;
  const sum = upto === 5 ? line('td', ['together', '', '', n(facts.exp.sum), '100 %']) : null;
  return element('table', {class: 'step-keys'}, element('caption', null, 'The keys with the largest weights'),
    element('thead', null, line('th', heads)),
    element('tbody', null, shown.map((j) => line('td', cells(j))), foot, sum));
}

function stepNumbers(facts, key) {
  const {run, t, M, D, H, head} = facts, row = (name, matrix, width) => vectorElement(name, rowOf(matrix, width, t));
  const rows = {
    tokens: () => [row('x', run.x, M)],
    norm: () => [row('x', run.x, M), row('n', run.n, M)],
    q: () => [row('n', run.n, M), row('q', facts.q, D)],
    k: () => [row('n', run.n, M), row('k', facts.k, D)],
    v: () => [row('n', run.n, M), row('v', facts.v, D)],
    scores: () => scoreVectors(facts),
    sum: () => sumVectors(facts),
    concat: () => [vectorElement('c', rowOf(run.concat, H * D, t), {own: [head * D, D]})],
    output: () => [vectorElement('c', rowOf(run.concat, H * D, t), {own: [head * D, D]}), row('a', run.out, M)],
    residual: () => [row('x', run.x, M), row('a', run.out, M), row('x′', run.mid, M)],
  };
  return rows[key] ? rows[key]() : [keysElement(facts, key)];
}

/* The main numbers, for screen readers. */
function stepSummary(facts, key) {
  const best = facts.order.slice(0, 3).map((j) => `${facts.keyName(j)} ${percent(facts.weightRow[j])}`).join(', ');
  return `Step ${stepTitles[key]}, block ${facts.block + 1}, head ${facts.head + 1}, from ${facts.name}. ` +
    `Largest weights: ${best}.`;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* Wraps words into lines of at most `width`. */
function wrapWords(text, width, size) {
  const lines = [];
  for (const word of text.split(' ')) {
    const longer = lines.length ? lines[lines.length - 1] + ' ' + word : word;
    if (lines.length && textWidth(longer, size, 400) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/* The finished step as SVG: title, formula, stage, words. */
function stepSvg(facts, key, source) {
  const width = 1000, edge = 24, colours = themeColours(), sizes = stageSizes(facts, width - 2 * edge);
  const scene = stepScenes(facts, sizes)[key], {placed, height} = placePieces(scene.pieces, sizes.width);
  const moved = new Map(Array.from(placed, ([id, {piece, box}]) =>
    [id, {piece, box: {...box, x: box.x + edge, y: box.y + 130}}]));
  const pen = svgPen(), number = stepKeys.indexOf(key) + 1;
  pen.label(edge, 38, `${number}. ${stepTitles[key]}`, {size: 20, weight: 600, fill: colours.ink});
  pen.label(edge, 60, `${source}, block ${facts.block + 1}, head ${facts.head + 1}, from ${facts.name}`,
    {size: 13, fill: colours.soft});
  drawFormula(pen, edge, 92, stepFormulas(facts)[key], colours);
  drawStage(pen, null, {scene, placed: moved}, 1, {colours, facts});
  const lines = wrapWords(stepWords(facts)[key], sizes.width, 14);
  lines.forEach((line, n) => pen.label(edge, 130 + height + 34 + 21 * n, line, {size: 14, fill: colours.ink}));
  const high = 130 + height + 40 + 21 * lines.length;
  return svgDocument(width, high, pen.text(), `${stepTitles[key]}: one head, step by step`);
}
