/* The text around the stage: the formula with its shapes, the numbers of the marked query and key, and the export. It is
 * text, not pixels, for screen readers, selection and copying. */

import {inkFor} from '../base/colour.js';
import {element} from '../base/dom.js';
import {svgPen, textWidth} from '../base/pen.js';
import {svgPicture, themeColours} from '../base/svg.js';
import {percent, shortNumber, signedNumber} from '../base/words.js';
import {drawName, signedColour} from './draw.js';
import {largestSize, rowOf} from './facts.js';
import {stageLayout} from './layout.js';
import {drawStage} from './pieces.js';
import {sceneOf} from './scenes.js';
import {stepText, wordsText} from './words.js';

/* ---- The formula ------------------------------------------------------------------------------------------------- */

export function formulaElement(parts) {
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

export function wordsElement(words) {
  return words.map((part) => (part.role ? element('span', {class: 'is-' + part.role}, part.text) : part));
}

/* ---- The numbers ------------------------------------------------------------------------------------------------- */

const vectorMost = 32;

/* A row of a matrix, number by number, each on its colour. own: [first, count] of the framed ones; most: the value with
 * the strongest colour. */
export function vectorElement(name, values, {own = null, role = null, most = largestSize(values) || 1} = {}) {
  const shown = Math.min(values.length, vectorMost), size = Math.max(most, largestSize(values)), digits = size >= 0.5 ? 2 : size >= 0.05 ? 3 : 4;
  const first = own && own[0] + own[1] > shown ? own[0] : 0, count = own && first ? Math.min(own[1], shown) : shown;
  const texts = Array.from(values.subarray(first, first + count), (x) => signedNumber(x, digits)), longest = Math.max(...texts.map(({length}) => length));
  const cells = texts.map((text, i) => {
    const inside = own && first + i >= own[0] && first + i < own[0] + own[1];
    const colour = signedColour(values[first + i], most);
    return element('span', {class: inside ? 'own' : null, style: `background:rgb(${colour.join()});color:${inkFor(...colour)}`}, text);
  });
  const more = values.length - count;
  return element('div', {class: 'step-vector'}, element('b', {class: role && 'is-' + role}, name),
    element('span', {class: 'step-cells', style: `--digits:${longest}`}, cells, more > 0 && element('em', null, `and ${more} more`)));
}

/* One score, number by number: the query, the marked key, and their products, which sum to the score. */
function scoreVectors({lanes, head, t, D, key, root, keyName, walk}) {
  const {q, k, scoreRow} = lanes[head], query = rowOf(q, D, t), other = rowOf(k, D, key);
  const products = query.map((x, d) => x * other[d]), n = shortNumber;
  return [vectorElement('query', query, {role: 'query'}), vectorElement('key', other, {role: 'key'}), vectorElement('products', products),
    element('p', {class: 'hint'}, `Head ${head}, key: ${keyName}. The products add up to ${n(products.reduce((sum, x) => sum + x, 0))}.`,
      walk.scaling.plain ? ` Divided by √${D} = ${n(root)}, the score is ${n(scoreRow[key])}.` : ` The score made from that is ${n(scoreRow[key])}.`)];
}

/* What the marked key gets in every head. */
function headsElement({lanes, head, key, keyName, order}, word) {
  const line = ({h, scoreRow, weightRow, off}) => element('tr', {class: h === head ? 'best' : null},
    element('th', {scope: 'row'}, `head ${h}${off ? ' (off)' : ''}`), element('td', null, signedNumber(scoreRow[key])),
    word === 'weight' && element('td', null, percent(weightRow[key])));
  const columns = ['', 'score', word === 'weight' && 'weight'].filter((text) => text !== false);
  return element('table', {class: 'step-keys'}, element('caption', null, 'The selected key, ', element('span', {class: 'is-key'}, keyName), ', in every head',
    word === 'weight' && order[0] === key ? `: the largest weight of head ${head}` : ''),
  element('thead', null, element('tr', null, columns.map((text) => (text ? element('th', {scope: 'col'}, text) : element('td'))))),
  element('tbody', null, lanes.map(line)));
}

/* The output of the selected head as a sum: the marked key's part, and the others. */
function sumVectors({lanes, head, t, D, key, keyName}) {
  const {weightRow, v, out, off} = lanes[head], own = rowOf(out, D, t), value = rowOf(v, D, key);
  const part = value.map((x) => x * weightRow[key]), rest = own.map((x, d) => x - part[d]), most = largestSize(own) || 1;
  if (off) return [vectorElement('value', value, {role: 'key'}), vectorElement('output', own)];
  return [vectorElement('value', value, {role: 'key'}), vectorElement(`× ${percent(weightRow[key])}`, part, {most}),
    vectorElement('all others', rest, {most}), vectorElement('output', own, {most, role: 'query'}),
    element('p', {class: 'hint'}, `Head ${head}, key: ${keyName}.`)];
}

export function stepNumbers(facts, key) {
  const {run, t, M, D, head, lanes, walk} = facts, row = (name, matrix, width) => vectorElement(name, rowOf(matrix, width, t), {role: 'query'});
  const own = {own: [head * D, D], role: 'query'};
  const whose = element('p', {class: 'hint'}, `Head ${head}: the query of ${facts.name}, the key and the value of ${facts.keyName}.`);
  const concat = () => vectorElement('c', concatRow(facts), own);
  const rows = {
    tokens: () => [row('x', run.x, M)],
    norm: () => [row('x', run.x, M), row('n', run.n, M)],
    project: () => [row(facts.normed ? 'n' : 'x', run.n, M), row('query', lanes[head].q, D), vectorElement('key', rowOf(lanes[head].k, D, facts.key), {role: 'key'}),
      vectorElement('value', rowOf(lanes[head].v, D, facts.key), {role: 'key'}), whose],
    split: () => [row('query', lanes[head].q, D), vectorElement('key', rowOf(lanes[head].k, D, facts.key), {role: 'key'}),
      vectorElement('value', rowOf(lanes[head].v, D, facts.key), {role: 'key'}), whose],
    scores: () => [...scoreVectors(facts), headsElement(facts, 'score')],
    mask: () => [headsElement(facts, 'score')],
    softmax: () => [headsElement(facts, 'weight')],
    look: () => [headsElement(facts, 'weight')],
    sum: () => sumVectors(facts),
    concat: () => [concat()],
    output: () => [concat(), row('a', run.out, M)],
    residual: () => [row('x', run.x, M), row('a', run.out, M), row('x′', run.mid, M)],
    mlp: () => [row(facts.between ? 'x″' : 'x′', facts.between ? run.between : run.mid, M), ...(run.hidden.length ? [row('hidden', run.hidden, run.hidden.length / facts.T)] : []), row('MLP', run.mlp, M), row('y', run.y, M)],
    blocks: () => [row('y', run.y, M)],
  };
  return (walk.numbers[key] || rows[key])(facts);
}

/* The outputs of all heads for the query, side by side. */
function concatRow({lanes, t, D, H}) {
  const row = new Float32Array(H * D);
  lanes.forEach(({h, out}) => row.set(rowOf(out, D, t), h * D));
  return row;
}

/* The main numbers, for screen readers. */
export function stepSummary(facts, {title}) {
  const {lanes, key, keyName, name, block} = facts;
  const weights = lanes.slice(0, 16).map(({h, weightRow}) => `head ${h} ${percent(weightRow[key])}`).join(', ');
  return `${title}. Block ${block}, query: ${name}, key: ${keyName}. Weights of the key: ${weights}.`;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* Wraps words into lines of at most `width`. */
export function wrapWords(text, width, size) {
  const lines = [];
  for (const word of text.split(' ')) {
    const longer = lines.length ? lines[lines.length - 1] + ' ' + word : word;
    if (lines.length && textWidth(longer, size, 400) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/* The finished step as SVG: title, formula, stage, words. */
export function stepSvg(facts, key, number, source) {
  const width = 1000, edge = 24, top = 130, colours = themeColours(), layout = stageLayout(facts, width - 2 * edge);
  const scene = sceneOf(key, facts, layout), {title, formula, words} = stepText(key, facts), pen = svgPen();
  drawFormula(pen, edge, 92, formula, colours);
  pen.shift(edge, top);
  drawStage(pen, null, scene, 1, {facts, colours, layout});
  pen.shift(0, 0);
  const lines = wrapWords(wordsText(words), layout.width, 14);
  lines.forEach((line, n) => pen.label(edge, top + layout.height + 34 + 21 * n, line, {size: 14, fill: colours.ink}));
  return svgPicture(width, top + layout.height + 40 + 21 * lines.length, `${number}. ${title}`,
    `${source}, block ${facts.block}, head ${facts.head}, query: ${facts.name}`, [pen.text()], `${title}: multi-head attention, step by step`);
}
