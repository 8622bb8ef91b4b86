/* What heads attend to, in words, and the marks of the kinds of heads that a language model copies with. */

/* What a head attends to, in words; null if nobody says, or if it is no single pattern ("mixed"). */
function headWords({words, heads}, layer, head) {
  const own = words && words[layer * heads + head];
  return own && own !== 'mixed' ? own : null;
}

/* The kinds with a mark, by their words, and what the legend says. */
const headKinds = [
  {name: 'induction', words: 'induction', letter: 'I', text: 'induction: mostly to what followed the same token before'},
  {name: 'previous', words: 'the previous token', letter: 'P', text: 'mostly to the previous token'},
];

function headKind(attention, layer, head) {
  const own = headWords(attention, layer, head);
  return headKinds.find(({words}) => words === own) || null;
}

const kindMark = ({name, letter}) => element('span', {class: `head-mark ${name}`, 'data-letter': letter, 'aria-hidden': true});

/* The mark of a head; null for most. Its words are said beside it. */
function headMark(attention, layer, head) {
  const kind = headKind(attention, layer, head);
  return kind && kindMark(kind);
}

/* What the marks mean; null if no head has one. */
function marksLegend(attention) {
  const found = new Set(attention.facts.map(({layer, head}) => headKind(attention, layer, head)));
  const shown = headKinds.filter((kind) => found.has(kind));
  return shown.length ? element('p', {class: 'hint marks-legend'}, shown.map((kind) => element('span', null, kindMark(kind), ` ${kind.text}`))) : null;
}
