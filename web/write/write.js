/* Panel: write a text, and see what the model makes of it: its tokens, what may come next, and every head on any token.
 *
 * The text has a store of its own (writer.js); the tokens and maps of each run go to the stores of the attention panels,
 * which follow. The token under the pointer is `pointed`, {side, n}; the selected one is `token` of those stores. */

import {headName} from '../attention/data.js';
import {createTokenText, paintTokens} from '../attention/tokens.js';
import {copyText, flash} from '../base/controls.js';
import {announce, element} from '../base/dom.js';
import {weightScale} from '../base/heatmap.js';
import {largestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {attachTip} from '../base/tip.js';
import {percent, plural} from '../base/words.js';
import {createArcs, strongestWord} from './arcs.js';
import {createNext} from './next.js';
import {createSettings} from './settings.js';
import {writeSvg} from './svg.js';
import {createWordArcs, wordTip} from './word_arcs.js';

/* What differs by the kind of model. */
const writeKinds = {
  decoder: {box: 'Your text', chips: ['Tokens'], lead: 'Type the beginning of a text. The model splits it into tokens and predicts the next one. ' +
    'Let it continue, token by token, and point at a token to see what each head attends to.'},
  encoder: {box: 'Your text', chips: ['Tokens'], lead: 'Type a sentence. The model splits it into tokens and reads all of them at once. ' +
    'Point at a token to see what each head attends to.'},
  pair: {box: 'Source', chips: ['Source tokens', 'Output so far'], lead: 'Type a source text. The encoder reads it, and the decoder writes the output ' +
    'token by token. Point at a token to see what each head attends to.'},
};

const maskLead = ' Replace a word with a mask to see what the model predicts there.';

/* ---- The text box and the buttons -------------------------------------------------------------------------------- */

/* The model reads when typing pauses. */
function createTextBox(store, writer) {
  const {box} = writeKinds[writer.live.kind];
  const area = element('textarea', {id: 'write-text', rows: 3, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', dir: 'auto',
    'aria-describedby': 'write-count'});
  const count = element('span', {id: 'write-count', class: 'hint', title: 'The page has room for the maps of this many tokens.'});
  let timer = 0, typed = null;
  const read = () => {
    clearTimeout(timer);
    timer = 0;
    typed = area.value;
    store.set({text: typed, more: [], running: false, mask: 0});
  };
  area.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(read, writer.patience());
    writer.preview(area.value);
  });
  const update = ({text, tokens, problem}) => {
    if (text !== typed) area.value = typed = text;
    if (problem) count.textContent = '';
    else if (tokens) count.textContent = `${tokens.map(({ids}) => plural(ids.length, 'token')).join(' + ')} of ${writer.most.toLocaleString('en')}`;
  };
  store.follow(['text', 'tokens', 'problem'], update);
  const flush = () => timer && read(); /* what was typed last */
  return {area, read, flush, element: element('div', null,
    element('div', {class: 'write-label'}, element('label', {for: 'write-text'}, box), count), area)};
}

/* Says that a text is longer than those that the model was trained on, where it could read more. */
function createContextNote(store, {live: {context}}) {
  const note = element('p', {class: 'notice mild', id: 'write-context', role: 'status', hidden: true});
  const update = ({tokens, problem}) => {
    const most = tokens ? Math.max(...tokens.map(({ids}) => ids.length)) : 0;
    note.hidden = !context || most <= context || Boolean(problem);
    note.textContent = note.hidden ? '' : `The text has ${plural(most, 'token')}, but the model was made for at most ${context.toLocaleString('en')}: what it computes for longer texts may be meaningless.`;
  };
  store.follow(['tokens', 'problem'], update);
  return note;
}

/* Puts a mask at the cursor, in place of what is selected. */
function maskButton(writer, text) {
  return element('button', {type: 'button', id: 'write-mask', onclick: () => {
    text.area.setRangeText(writer.maskWord, text.area.selectionStart, text.area.selectionEnd, 'end');
    text.area.focus();
    text.read();
  }}, 'Insert a mask');
}

function createWriteButtons(store, writer, text) {
  const button = (id, words, press) => element('button', {type: 'button', id, onclick: press}, words);
  if (writer.live.kind === 'encoder') return writer.maskWord ? element('div', {class: 'write-buttons'}, maskButton(writer, text)) : null;
  const one = () => {
    text.flush();
    store.set({running: false});
    writer.step();
  };
  const step = button('write-step', 'Step', one), on = button('write-on', 'Continue', () => {
    text.flush();
    store.set({running: !store.get().running});
  });
  text.area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    one();
  });
  const back = button('write-back', 'Back', writer.back), again = button('write-again', 'Start over', writer.startAgain);
  const copy = button('write-copy', 'Copy text', async () => flash(copy, (await copyText(writer.whole(store.get()))) ? 'Copied' : 'Could not copy'));
  const update = ({running, problem, ended, more}) => {
    on.textContent = running ? 'Pause' : 'Continue';
    on.classList.toggle('primary', !running);
    step.disabled = on.disabled = Boolean(problem || ended);
    copy.disabled = Boolean(problem);
    back.disabled = again.disabled = more.length === 0;
  };
  store.follow(['running', 'problem', 'ended', 'more'], update);
  return element('div', {class: 'write-buttons', role: 'group', 'aria-label': 'Writing'}, on, step, back, again, copy,
    element('span', {class: 'hint key-hint'}, 'Ctrl+Enter in the text box: one step'));
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* The weights of a query, averaged over all heads. */
function meanRow(attention, query) {
  const mean = new Float32Array(attention.keys);
  for (const {layer, head} of attention.facts) attention.row(layer, head, query).forEach((x, n) => (mean[n] += x / attention.facts.length));
  return mean;
}

/* The tokens of one stack as chips; those behind the text are marked. */
function createChips(store, side, label, {choose, tip}) {
  const text = createTokenText(`write-tokens-${side}`, label, choose), {element: box} = text;
  box.classList.add('chips');
  box.addEventListener('pointermove', (event) => { /* not pointerover: tokens that move under a pointer are not pointed at */
    const chip = event.target.closest('[data-token]'), {pointed} = store.get();
    if (!chip || event.pointerType !== 'mouse') return;
    const n = Number(chip.dataset.token);
    if (!pointed || pointed.side !== side || pointed.n !== n) store.set({pointed: {side, n}});
  });
  box.addEventListener('pointerleave', () => store.set({pointed: null}));
  attachTip(box, (event) => {
    const chip = event && event.pointerType === 'mouse' && event.target.closest('[data-token]');
    return chip ? tip(Number(chip.dataset.token)) : null;
  });
  return {
    element: element('div', {class: 'chips-place'}, element('p', {class: 'hint'}, label), box),
    box,
    get spans() {
      return text.spans;
    },
    fill({words, prompt}, grows) {
      text.fill(words);
      text.spans.forEach((span, n) => span.classList.toggle('written', grows && n >= prompt));
      box.classList.toggle('grows', grows);
    },
    shade(row) {
      const scale = weightScale('linear', 1 / row.length, largestOf(row));
      paintTokens(text.spans, row, scale);
    },
    mark: text.mark,
  };
}

/* ---- The panel --------------------------------------------------------------------------------------------------- */

export function createWritePanel(store, writer, mapStores, data) {
  const kind = writeKinds[writer.live.kind], last = kind.chips.length - 1, sideOf = (n) => (n ? last : 0);
  const text = createTextBox(store, writer), next = writer.predicts ? createNext(store, writer) : null;
  const problem = element('p', {class: 'notice', id: 'write-problem', role: 'status', hidden: true}), contextNote = createContextNote(store, writer);
  const arcs = data.sets.map((set, n) => createArcs(mapStores[n], set, data.sets.length > 1 ? set.title : '', `write-${n}`));
  const groupsOf = (side) => arcs.filter((_, at) => sideOf(at) === side);
  const chips = kind.chips.map((label, side) => createChips(store, side, label, {
    choose(n) {
      store.set({pointed: null});
      mapStores.forEach((maps, at) => sideOf(at) === side && maps.set({token: n}));
      announce(groupsOf(side).map((group) => strongestInWords(group.attention, n)).join(' '));
    },
    tip: (n) => (n < groupsOf(side)[0].attention.queries ? wordTip(groupsOf(side), n) : null),
  }));
  const words = element('div', {class: 'chips-all'}, chips.map((line) => line.element)), drawWordArcs = createWordArcs(words, chips);
  /* What belongs to the last text that could be read. */
  const old = [...chips, ...arcs, ...(next ? [next] : [])].map((part) => part.element);
  const queryOf = (n) => {
    const {pointed} = store.get();
    return pointed && pointed.side === sideOf(n) ? pointed.n : mapStores[n].get().token;
  };

  function fill({tokens}) {
    tokens.forEach((side, n) => chips[n].fill(side, n === last && writer.live.kind !== 'encoder'));
  }

  function paint() {
    frame = 0;
    arcs.forEach((group, n) => group.update(queryOf(n)));
    if (!store.get().result) return;
    chips.forEach((line, side) => {
      const n = arcs.findIndex(({attention}, at) => sideOf(at) === side && attention.same), at = n < 0 ? 0 : n;
      line.shade(meanRow(arcs[at].attention, Math.min(queryOf(at), arcs[at].attention.queries - 1)));
      line.mark(Math.min(mapStores[at].get().token, store.get().tokens[side].ids.length - 1));
    });
    const {pointed} = store.get(), focused = chips.findIndex(({box}) => box.contains(document.activeElement)), from = pointed ? pointed.side : focused;
    const at = arcs.findIndex((_, n) => sideOf(n) === from), query = at < 0 ? null : pointed ? pointed.n : mapStores[at].get().token;
    drawWordArcs(query === null || query >= arcs[at].attention.queries ? null : query,
      groupsOf(from).map(({attention}) => ({attention, from, to: attention.same || last === 0 ? from : 0})));
  }
  let frame = 0;
  const later = () => {
    if (!frame) frame = requestAnimationFrame(paint);
  };

  store.on('tokens', (state) => {
    fill(state);
    later();
  });
  store.on('more', ({more, tokens}) => more.length && tokens && announce(tokens[last].words[tokens[last].words.length - 1]));
  store.on('pointed', later);
  const showProblem = ({problem: words}) => {
    problem.textContent = words || '';
    problem.hidden = !words;
    for (const part of old) part.inert = Boolean(words);
  };
  store.on('problem', showProblem);
  mapStores.forEach((maps) => maps.on(['set', 'token', 'block', 'head', 'theme'], later));
  showProblem(store.get());
  if (store.get().tokens) fill(store.get());
  paint();
  new ResizeObserver(later).observe(arcs[0].body);
  for (const {box} of chips) for (const type of ['scroll', 'focus', 'blur']) box.addEventListener(type, later);
  const body = [
    element('div', {class: `write ${writer.live.kind}${next ? '' : ' alone'}`},
      element('div', {class: 'write-side'}, text.element, problem, contextNote, createWriteButtons(store, writer, text), words),
      next && next.element),
    writer.live.kind !== 'encoder' && createSettings(store),
    ...arcs.map((group) => group.element),
    element('p', {class: 'hint'}, 'Each arc connects the token to a key: the stronger the arc, the larger the weight. The word below is the key with the largest ' +
      'weight. The tokens above are shaded by the mean weight over all heads, and the arcs between them show the largest. Names of heads, such as ' +
      '“induction”, are measured on this text and on random tokens that are repeated. Click a head to select it and see ', element('a', {href: '#attention'}, 'its whole map'), '.'),
    writeExplanation(),
  ];
  return createPanel({
    id: 'write',
    title: 'Write a text',
    text: kind.lead + (writer.maskWord ? maskLead : ''),
    body,
    toSvg: () => writeSvg(store.get(), arcs, queryOf, data),
  });
}

/* For those who have not met attention yet. */
function writeExplanation() {
  const terms = {
    token: 'A piece of text with a number in the vocabulary of the model: a word, part of a word, or a punctuation mark.',
    head: 'Every layer has several attention heads, which work in parallel, each with its own weights.',
    query: 'A row of numbers that a head computes for a token: what the token is looking for.',
    key: 'A row of numbers that a head computes for a token: what the token can be found by. The better it matches a query, the larger the weight.',
    weight: "A head distributes 100 % of a token's attention over the keys. Its output is the weighted average of the values of these tokens.",
  };
  return element('details', {class: 'explanation'}, element('summary', null, 'What are tokens, heads, queries and keys?'),
    element('dl', null, Object.entries(terms).flatMap(([term, words]) => [element('dt', null, term), element('dd', null, words)])));
}

/* "Layer 1, head 2: cat 80 %." for the heads that are sharpest on a token. */
function strongestInWords(attention, query) {
  const best = attention.facts.map((facts) => ({facts, ...strongestWord(attention, facts, query)})).sort((a, b) => b.share - a.share);
  return best.slice(0, 3).map(({facts, word, share}) => `${headName(attention, facts.layer, facts.head)}: ${word} ${percent(share || 0)}.`).join(' ');
}
