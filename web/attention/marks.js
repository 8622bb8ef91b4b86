/* What heads attend to, in words, and the marks of the kinds of heads that a language model copies with. */

import {element} from '../base/dom.js';

/* What a head attends to, in words; null if nobody says, or if it is no single pattern ("mixed"). */
export function headWords({words, heads}, layer, head) {
  const own = words && words[layer * heads + head];
  return own && own !== 'mixed' ? own : null;
}

/* The kinds with a mark, by their words, and what the legend says. */
const headKinds = [
  {name: 'induction', words: 'induction', letter: 'I', text: 'induction: attends mostly to the token that followed an earlier occurrence of the same token'},
  {name: 'previous', words: 'the previous token', letter: 'P', text: 'attends mostly to the previous token'},
];

function headKind(attention, layer, head) {
  const own = headWords(attention, layer, head);
  return headKinds.find(({words}) => words === own) || null;
}

const kindMark = ({name, letter}) => element('span', {class: `head-mark ${name}`, 'data-letter': letter, 'aria-hidden': true});

/* Shows the mark of a head, which most do not have, as the last part of its button. Its words are said beside it. */
export function showMark(button, attention, layer, head) {
  const kind = headKind(attention, layer, head), old = button.querySelector('.head-mark');
  if (old) old.remove();
  if (kind) button.append(kindMark(kind));
  return Boolean(kind);
}

/* What the marks mean; hidden if no head has one. The names of heads follow the text: update() shows those of other maps. */
export function createMarksLegend(attention) {
  const legend = element('p', {class: 'hint marks-legend'});
  const update = () => legend.replaceChildren(...marksInWords(attention));
  update();
  return {element: legend, update};
}

function marksInWords(attention) {
  const found = new Set(attention.facts.map(({layer, head}) => headKind(attention, layer, head)));
  const shown = headKinds.filter((kind) => found.has(kind));
  return shown.map((kind) => element('span', null, kindMark(kind), ` ${kind.text}`));
}
