/* Panel: switching heads off, and the effect on the prediction.
 *
 * A switch sets the gate of a head, a factor of the head's part of concat(heads): 0 removes it from the sum, like
 * pruning. The whole model is recomputed at each click, so later blocks are affected. */

import {element} from '../base/dom.js';
import {bestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {roveFocus} from '../base/roving.js';
import {svgLabel, svgNumber, svgPicture, themeColours} from '../base/svg.js';
import {attachTip} from '../base/tip.js';
import {percent, plural, probabilityWords} from '../base/words.js';
import {changeGates, countOff} from '../vit/model.js';
import {drawPicture, hasLabel} from '../vit/picture.js';

export function createGatesPanel(store, model, data) {
  const switches = createSwitches(store, model);
  const bars = createBars(model);
  const verdict = element('p', {class: 'verdict', id: 'verdict', role: 'status'});
  const canvas = element('canvas', {class: 'map', role: 'img'});
  const text = 'Switch heads off to see how the prediction changes. Typically most heads have little effect and a few have a large one.';
  const panel = createPanel({
    id: 'gates',
    title: 'Switch heads off',
    text,
    body: element('div', {class: 'gates'}, switches.element,
      element('div', {class: 'outcome'}, element('div', {class: 'outcome-head'}, canvas, verdict), bars.element)),
    toSvg: () => gatesSvg(store.get(), model, data),
  });
  const update = () => {
    const state = store.get(), image = data.images[state.image];
    drawPicture(canvas, image.bytes, model.config.rows, model.config.columns);
    canvas.setAttribute('aria-label', image.name);
    switches.update(state);
    bars.update(state);
    verdict.textContent = gatesVerdict(state, image);
  };
  store.follow(['result', 'block', 'head', 'theme'], update);
  return panel;
}

function gatesVerdict(state, image) {
  const off = countOff(state.gates), before = bestOf(state.baseline.logits), after = bestOf(state.result.logits);
  const truth = hasLabel(image) ? ` The label is ${image.label}.` : '';
  const now = `${after} (${probabilityWords(state.result.probabilities[after])})`;
  if (!off) return `All heads on: the prediction is ${now}.${truth}`;
  const was = `with all heads on it was ${after === before ? '' : `${before}, with `}${probabilityWords(state.baseline.probabilities[before])}`;
  const start = `${plural(off, 'head')} off: `;
  if (after === before) return `${start}the prediction is still ${now}; ${was}.${truth}`;
  return `${start}the prediction becomes ${now}; ${was}.${truth}`;
}

/* ---- Switches ---------------------------------------------------------------------------------------------------- */

/* One row per block; its switches, labelled with head numbers, wrap if there are many. */
function createSwitches(store, model) {
  const cells = [];
  const setBlock = (block, gate) => store.set({
    gates: changeGates(store.get().gates, (old, b) => (block === null || b === block ? gate : old)),
  });
  const rows = model.blocks.map((block, b) => {
    const boxes = Array.from({length: block.heads}, (_, h) => {
      const cell = createSwitch(store, b, h);
      cells.push(cell);
      return cell.element;
    });
    const buttons = [['off', 0], ['on', 1]].map(([word, gate]) => element('button', {type: 'button', class: 'small',
      'data-block': b, 'data-all': word, 'aria-label': `Block ${b}: all ${word}`,
      onclick: () => setBlock(b, gate)}, 'all ' + word));
    return element('div', {class: 'switch-row', role: 'group', 'aria-label': `Block ${b}`},
      element('div', {class: 'switch-head'}, element('span', null, `Block ${b}`), buttons),
      element('div', {class: 'switch-cells'}, boxes));
  });
  const allOn = element('button', {type: 'button', id: 'all-on', onclick: () => setBlock(null, 1)}, 'All on');
  return {
    element: roveFocus(element('div', {class: 'switches', role: 'group', 'aria-label': 'Heads, block by block'},
      element('div', {class: 'switch-all'}, element('p', {class: 'hint'}, 'Each button is a head; blue means on.'), allOn),
      rows), 'input, button'),
    update(state) {
      cells.forEach((cell) => cell.update(state));
      allOn.disabled = countOff(state.gates) === 0;
    },
  };
}

function createSwitch(store, b, h) {
  const box = element('input', {type: 'checkbox', 'data-block': b, 'data-head': h,
    'aria-label': `Block ${b}, head ${h}`});
  box.addEventListener('change', () => {
    const set = (old, block, head) => (block === b && head === h ? Number(box.checked) : old);
    store.set({gates: changeGates(store.get().gates, set)});
  });
  const label = element('label', {class: 'switch'}, box, element('span', {'aria-hidden': true}, String(h)));
  attachTip(label, () => [`Block ${b}, head ${h}`, store.get().gates[b][h] ? 'on' : 'off']);
  return {
    element: label,
    update(state) {
      box.checked = state.gates[b][h] !== 0;
      label.classList.toggle('chosen', state.block === b && state.head === h);
    },
  };
}

/* ---- Probabilities and logits ------------------------------------------------------------------------------------ */

export function logitText(x) {
  const text = x.toFixed(2);
  return text === '-0.00' ? '0.00' : text.replace('-', '−');
}

function createBars(model) {
  const rows = Array.from({length: model.config.classes}, (_, c) => {
    const before = element('i', {class: 'before'}), after = element('i', {class: 'after'});
    const share = element('td', {class: 'number'}), was = element('td', {class: 'number soft'});
    const logit = element('td', {class: 'number'}), logitWas = element('td', {class: 'number soft'});
    const node = element('tr', {'data-class': c}, element('th', {scope: 'row'}, String(c)),
      element('td', {class: 'bar-cell'}, element('span', {class: 'bar', 'aria-hidden': true}, before, after)),
      share, was, logit, logitWas);
    return {node, before, after, share, was, logit, logitWas};
  });
  const heading = (words, more) => element('th', {scope: 'col', class: 'number' + (more || '')}, words);
  return {
    element: element('table', {class: 'bars', id: 'bars'},
      element('caption', {class: 'hidden'}, 'Probabilities and logits, now and with all heads on'),
      element('thead', null, element('tr', null, element('th', {scope: 'col'}, 'Class'),
        element('td'), heading('now'), heading('all on'), heading('logit'), heading('all on'))),
      element('tbody', null, rows.map((row) => row.node))),
    update({result, baseline}) {
      const best = bestOf(result.logits);
      rows.forEach((row, c) => {
        row.before.style.width = baseline.probabilities[c] * 100 + '%';
        row.after.style.width = result.probabilities[c] * 100 + '%';
        row.share.textContent = percent(result.probabilities[c]);
        row.was.textContent = percent(baseline.probabilities[c]);
        row.logit.textContent = logitText(result.logits[c]);
        row.logitWas.textContent = logitText(baseline.logits[c]);
        row.node.classList.toggle('best', c === best);
      });
    },
  };
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function gatesSvg(state, model, data) {
  const colours = themeColours(), left = 24, step = 24, image = data.images[state.image];
  const most = Math.max(...model.config.heads), side = left + 40 + most * 26 + 40, wide = 240;
  const parts = [];
  model.blocks.forEach((block, b) => {
    parts.push(svgLabel(left + 14, 98 + b * step, `${b}`, {size: 12, anchor: 'end', fill: colours.soft}));
    for (let h = 0; h < block.heads; h++) {
      const on = state.gates[b][h] !== 0;
      parts.push(`<rect x="${left + 28 + h * 26}" y="${84 + b * step}" width="18" height="18" rx="4" ` +
        `fill="${on ? colours.accent : 'none'}" stroke="${colours.accent}"/>`);
    }
  });
  for (let c = 0; c < model.config.classes; c++) {
    const y = 84 + c * step, now = state.result.probabilities[c], was = state.baseline.probabilities[c];
    parts.push(svgLabel(side, y + 13, String(c), {size: 12, fill: colours.soft}),
      `<rect x="${side + 20}" y="${y}" width="${svgNumber(wide * now)}" height="11" fill="${colours.accent}"/>`,
      `<rect x="${side + 20}" y="${y + 12}" width="${svgNumber(wide * was)}" height="5" fill="${colours.soft}"/>`,
      svgLabel(side + wide + 32, y + 13,
        `${percent(now)} (all on ${percent(was)}), logit ${logitText(state.result.logits[c])}`, {size: 12}));
  }
  const height = 110 + step * Math.max(model.blocks.length, model.config.classes);
  return svgPicture(side + wide + 290, height, 'Heads switched off', `${data.title}, ${image.name}. ${gatesVerdict(state, image)}`, parts);
}
