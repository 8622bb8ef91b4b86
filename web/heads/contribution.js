/* Panel: what each head adds to the logit of a class, on the direct path.
 *
 * The numbers are the library's (mha_model_contributions) for the images of the page, with all heads on: for each image
 * one row per part, in the order embedding, heads block by block, MLPs, biases. They add up to the logit. */

import {storeControl} from '../base/controls.js';
import {element} from '../base/dom.js';
import {createPanel} from '../base/panel.js';
import {roveFocus} from '../base/roving.js';
import {svgLabel, svgNumber, svgPicture, themeColours} from '../base/svg.js';
import {logitText} from './gates.js';

/* The parts of the sum: {kind, block, head, row}. */
function contributionParts(model) {
  const heads = model.blocks.flatMap((block, b) => Array.from({length: block.heads}, (_, h) => [b, h]));
  const parts = [{kind: 'embedding', name: 'Embedding'},
    ...heads.map(([block, head]) => ({kind: 'head', block, head, name: `Block ${block}, head ${head}`})),
    ...model.blocks.map((_, block) => ({kind: 'mlp', block, name: `Block ${block}, MLP`})),
    {kind: 'biases', name: 'Biases'}];
  return parts.map((part, row) => ({...part, row}));
}

/* The two largest logits: the prediction and the runner-up. */
export function topTwo(logits) {
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  return [order[0], order.length > 1 ? order[1] : order[0]];
}

/* What is shown: the logit of a class, or the difference between the prediction and the runner-up. */
function contributionChoice(choice, image) {
  const [best, second] = topTwo(image.logits);
  if (choice === 'margin') return {of: (row) => row[best] - row[second], words: `logit of ${best} − logit of ${second}`};
  const shown = choice === 'predicted' ? best : Number(choice);
  return {of: (row) => row[shown], words: `logit of ${shown}${shown === best ? ', the prediction' : ''}`};
}

export function createContributionPanel(store, model, data) {
  const parts = contributionParts(model), cells = parts.map((part) => createContributionCell(store, part));
  const total = element('p', {class: 'verdict', id: 'contribution-sum', role: 'status'});
  const text = 'Each logit is a sum: every head, every MLP and the embedding add a row to the residual stream, which ' +
    'the final norm scales and the classification head turns into logits. The numbers are direct contributions; ' +
    'what a head changes in later blocks is counted there. All heads are on.';
  const choices = [['predicted', 'logit of the prediction'], ['margin', 'prediction − runner-up'],
    ...Array.from({length: model.config.classes}, (_, c) => [String(c), `logit of ${c}`])];
  const of = (kind, block) => cells.filter((cell) => cell.part.kind === kind && cell.part.block === block)
    .map((cell) => cell.element);
  const rows = model.blocks.map((_, b) => contributionRow(`Block ${b}`, [...of('head', b), ...of('mlp', b)]));
  const panel = createPanel({
    id: 'contribution',
    title: 'What heads add to the logits',
    text,
    controls: [storeControl(store, 'contribution', 'Show', choices)],
    body: [roveFocus(element('div', {class: 'adds', role: 'group', 'aria-label': 'Parts of the sum'}, rows,
      contributionRow('Rest', [...of('embedding'), ...of('biases')])), 'button'), total],
    toSvg: () => contributionSvg(store.get(), model, data, parts),
  });
  const update = () => {
    const state = store.get(), image = data.images[state.image], shown = contributionShown(state, image);
    cells.forEach((cell) => cell.update(state, shown));
    total.textContent = `Sum of all parts: ${logitText(shown.sum)}, the ${shown.words}.`;
  };
  store.follow(['result', 'contribution', 'block', 'head', 'theme'], update);
  return panel;
}

/* The numbers of the chosen image, their largest size among heads and MLPs, and their sum. */
function contributionShown(state, image) {
  const {of, words} = contributionChoice(state.contribution, image), values = image.contributions.map(of);
  const most = Math.max(...values.slice(1, -1).map(Math.abs), 1e-9);
  return {values, most, words, sum: values.reduce((sum, value) => sum + value, 0)};
}

function contributionRow(name, cells) {
  return element('div', {class: 'adds-row'}, element('span', {class: 'adds-name'}, name),
    element('div', {class: 'adds-cells'}, cells));
}

/* A number on a tint of its size: one colour for what is added, another for what is taken away. */
function createContributionCell(store, part) {
  const tint = element('i', {'aria-hidden': true}), number = element('b');
  const label = {head: `head ${part.head}`, mlp: 'MLP'}[part.kind] || part.name.toLowerCase();
  const inside = [tint, element('span', null, label), ' ', number], isHead = part.kind === 'head';
  const node = isHead ? element('button', {type: 'button', class: 'add', 'data-block': part.block,
    'data-head': part.head, onclick: () => store.set({block: part.block, head: part.head})}, inside)
    : element('div', {class: 'add'}, inside);
  return {
    part, element: node,
    update(state, shown) {
      const value = shown.values[part.row];
      number.textContent = logitText(value);
      tint.style.opacity = Math.min(1, Math.abs(value) / shown.most) * 0.4;
      tint.className = value < 0 ? 'less' : 'more';
      if (!isHead) return;
      node.setAttribute('aria-pressed', String(state.block === part.block && state.head === part.head));
      node.setAttribute('aria-label', `${label} ${number.textContent}, block ${part.block}`);
    },
  };
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function contributionSvg(state, model, data, parts) {
  const colours = themeColours(), image = data.images[state.image], shown = contributionShown(state, image);
  const left = 96, wide = 84, high = 30, most = Math.max(...model.config.heads);
  const body = [];
  const place = (part) => ({head: [part.head, part.block], mlp: [most, part.block],
    embedding: [0, model.blocks.length], biases: [1, model.blocks.length]})[part.kind];
  model.blocks.forEach((_, b) => body.push(svgLabel(24, 103 + b * high, `Block ${b}`, {size: 12, fill: colours.soft})));
  for (const part of parts) {
    const [across, down] = place(part), x = left + across * wide, y = 84 + down * high, value = shown.values[part.row];
    const share = Math.min(1, Math.abs(value) / shown.most) * 0.4;
    const label = {head: String(part.head), mlp: 'MLP', embedding: 'emb.', biases: 'biases'}[part.kind];
    body.push(`<rect x="${x}" y="${y}" width="${wide - 4}" height="${high - 4}" rx="4" fill="${value < 0 ? colours.bad : colours.accent}" ` +
      `fill-opacity="${svgNumber(share)}"/>`, svgLabel(x + 6, y + 18, label, {size: 11, fill: colours.soft}),
    svgLabel(x + wide - 10, y + 18, logitText(value), {size: 13, anchor: 'end'}));
  }
  return svgPicture(left + Math.max(most + 1, 2) * wide + 24, 84 + (model.blocks.length + 1) * high + 20,
    'What heads add to the logits', `${data.title}, ${image.name}: ${shown.words}, ${logitText(shown.sum)}`, body);
}
