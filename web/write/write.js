/* Panel: write a text, and see what the model makes of it: its tokens, what may come next, and every head on any token.
 *
 * The text has a store of its own (writer.js); the tokens and maps of each run go to the stores of the attention panels,
 * which follow. The token under the pointer is `pointed`, {side, n}; the selected one is `token` of those stores. */

/* What differs by the kind of model. */
const writeKinds = {
  decoder: {box: 'Your text', chips: ['Tokens'], lead: 'Type a beginning: the model splits it into tokens and predicts what comes next. ' +
    'Let it write on, token by token, and point at a token to see what every head attends to.'},
  encoder: {box: 'Your text', chips: ['Tokens'], lead: 'Type a sentence: the model splits it into tokens and reads them all at once. ' +
    'Point at a token to see what every head attends to.'},
  pair: {box: 'Source', chips: ['Source tokens', 'Written so far'], lead: 'Type a source: the encoder reads it, and the decoder writes ' +
    'token by token. Point at a token to see what every head attends to.'},
};

const maskLead = ' Put a mask in place of a word to see what the model expects there.';

/* ---- The text box and the buttons -------------------------------------------------------------------------------- */

/* The model reads when typing pauses. */
function createTextBox(store, writer) {
  const {box} = writeKinds[writer.live.kind];
  const area = element('textarea', {id: 'write-text', rows: 3, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', dir: 'auto',
    'aria-describedby': 'write-count'});
  const count = element('span', {id: 'write-count', class: 'hint', title: 'The page has room for the maps of so many tokens.'});
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
  store.on(['text', 'tokens', 'problem'], update);
  update(store.get());
  const flush = () => timer && read(); /* what was typed last */
  return {area, read, flush, element: element('div', {class: 'write-box'},
    element('div', {class: 'write-label'}, element('label', {for: 'write-text'}, box), count), area)};
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
  const step = button('write-step', 'Step', one), on = button('write-on', 'Write on', () => {
    text.flush();
    store.set({running: !store.get().running});
  });
  text.area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    one();
  });
  const back = button('write-back', 'Back', writer.back), again = button('write-again', 'Start again', writer.startAgain);
  const copy = button('write-copy', 'Copy text', async () => flash(copy, (await copyText(writer.whole(store.get()))) ? 'Copied' : 'Not copied'));
  const update = ({running, problem, ended, more}) => {
    on.textContent = running ? 'Pause' : 'Write on';
    on.classList.toggle('primary', !running);
    step.disabled = on.disabled = Boolean(problem || ended);
    copy.disabled = Boolean(problem);
    back.disabled = again.disabled = more.length === 0;
  };
  store.on(['running', 'problem', 'ended', 'more'], update);
  update(store.get());
  return element('div', {class: 'write-buttons', role: 'group', 'aria-label': 'Writing'}, on, step, back, again, copy,
    element('span', {class: 'hint key-hint'}, 'Ctrl + Enter in the text: step'));
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* The weights of a query, averaged over all heads. */
function meanRow(attention, query) {
  const mean = new Float32Array(attention.keys);
  for (const {layer, head} of attention.facts) attention.row(layer, head, query).forEach((x, n) => (mean[n] += x / attention.facts.length));
  return mean;
}

/* The tokens of one stack as chips; those behind the text are marked. */
function createChips(store, side, label, choose) {
  const text = createTokenText(`write-tokens-${side}`, label, choose), {element: box} = text;
  box.classList.add('chips');
  box.addEventListener('pointermove', (event) => { /* not pointerover: tokens that move under a pointer are not pointed at */
    const chip = event.target.closest('[data-token]'), {pointed} = store.get();
    if (!chip || event.pointerType !== 'mouse') return;
    const n = Number(chip.dataset.token);
    if (!pointed || pointed.side !== side || pointed.n !== n) store.set({pointed: {side, n}});
  });
  box.addEventListener('pointerleave', () => store.set({pointed: null}));
  return {
    element: element('div', {class: 'chips-place'}, element('p', {class: 'hint'}, label), box),
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

function createWritePanel(store, writer, mapStores, data) {
  const kind = writeKinds[writer.live.kind], last = kind.chips.length - 1, sideOf = (n) => (n ? last : 0);
  const text = createTextBox(store, writer), next = writer.predicts ? createNext(store, writer) : null;
  const problem = element('p', {class: 'notice', id: 'write-problem', role: 'status', hidden: true});
  const arcs = data.sets.map((set, n) => createArcs(mapStores[n], set, data.sets.length > 1 ? set.title : '', `write-${n}`));
  const chips = kind.chips.map((label, side) => createChips(store, side, label, (n) => {
    store.set({pointed: null});
    mapStores.forEach((maps, at) => sideOf(at) === side && maps.set({token: n}));
    announce(arcs.filter((_, at) => sideOf(at) === side).map((group) => strongestInWords(group.attention, n)).join(' '));
  }));
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
  const body = [
    element('div', {class: `write ${writer.live.kind}${next ? '' : ' alone'}`},
      element('div', {class: 'write-side'}, text.element, problem, createWriteButtons(store, writer, text), chips.map((line) => line.element)),
      next && next.element),
    writer.live.kind !== 'encoder' && createSettings(store),
    ...arcs.map((group) => group.element),
    element('p', {class: 'hint'}, 'An arc leads from the token to a key, as strong as its weight; below is the strongest. The shade of the ' +
      'tokens above is the mean of all heads. Click a head to choose it, and see ', element('a', {href: '#attention'}, 'its whole map'), '.'),
    writeExplanation(),
  ];
  return {
    id: 'write',
    title: 'Write a text',
    element: panelFrame('write', 'Write a text', kind.lead + (writer.maskWord ? maskLead : ''), null, ...body),
    toSvg: () => writeSvg(store.get(), arcs, queryOf, data),
  };
}

/* For those who have not met attention yet. */
function writeExplanation() {
  const terms = {
    token: 'A piece of text that the model knows by number: a word, a part of one, or a sign.',
    head: 'In every layer, several heads work side by side. Each asks its own question about the text.',
    query: 'What a token asks in a head: what it looks for among the others.',
    key: 'What a token offers to be found by. The better it fits the query, the larger the weight.',
    weight: 'A head spreads 100 % over the keys. A token takes what each of them has to say (its value) in proportion to its weight.',
  };
  return element('details', {class: 'explanation'}, element('summary', null, 'What are tokens, heads, queries and keys?'),
    element('dl', null, Object.entries(terms).flatMap(([term, words]) => [element('dt', null, term), element('dd', null, words)])));
}

/* "Layer 1, head 2: “cat” 80 %." for the heads that are sharpest on a token. */
function strongestInWords(attention, query) {
  const best = attention.facts.map((facts) => ({facts, ...strongestWord(attention, facts, query)})).sort((a, b) => b.share - a.share);
  return best.slice(0, 3).map(({facts, word, share}) => `${headName(attention, facts.layer, facts.head)}: ${word} ${percent(share || 0)}.`).join(' ');
}
