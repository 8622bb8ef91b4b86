/* Assembles the page (header, image selection, panels) and runs the model.
 *
 * A change of the image or of a gate sets the store; the model then runs once, and panels draw the new result. The
 * result with all heads on is kept for each image, for comparison.
 *
 * window.mhaView = {data, store, model, panels} is for tests and debugging. ?theme=dark or ?theme=light in the address
 * sets the theme; the default is the system's. */

function preferredTheme() {
  const asked = new URLSearchParams(location.search).get('theme');
  if (asked === 'dark' || asked === 'light') return asked;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setColourTheme(theme);
}

function themeButton(store) {
  const label = () => (store.get().theme === 'dark' ? 'Light page' : 'Dark page');
  const button = element('button', {type: 'button', id: 'theme', onclick: () => {
    const theme = store.get().theme === 'dark' ? 'light' : 'dark';
    applyTheme(theme);
    store.set({theme});
  }}, label());
  store.on('theme', () => (button.textContent = label()));
  return button;
}

/* ---- The head of the page ---------------------------------------------------------------------------------------- */

/* [3, 3] gives "3 heads each", [3] gives "3 heads", [4, 2] (a pruned model) gives "heads by block: 4, 2". */
function countsInWords(counts, name) {
  const same = counts.every((count) => count === counts[0]);
  if (counts.length === 1) return plural(counts[0], name);
  return same ? `${plural(counts[0], name)} each` : `${name}s by block: ${counts.join(', ')}`;
}

function modelFacts(data, model) {
  const c = model.config, parameters = data.parameters.parts
    .reduce((sum, part) => sum + part.shape.reduce((product, size) => product * size, 1), 0);
  const facts = ['Vision Transformer', plural(c.depth, 'block'), countsInWords(c.heads, 'head'),
    `width ${c.width}`, `${plural(model.patches, 'patch', 'patches')} of ${c.patch} × ${c.patch}`,
    model.first ? 'class token' : 'mean of the patches', `${parameters.toLocaleString('en')} parameters`];
  if (c.kv_heads.some((count, b) => count !== c.heads[b])) {
    facts.splice(3, 0, countsInWords(c.kv_heads, 'key/value head'));
  }
  return facts;
}

function pageHead(data, store, facts, panels) {
  const links = panels.map((panel) => element('a', {href: '#' + panel.id}, panel.title));
  document.getElementById('top').append(
    element('div', {class: 'title-row'}, element('h1', null, data.title), themeButton(store)),
    element('ul', {class: 'facts'}, facts.map((fact) => element('li', null, fact))),
    panels.length > 1 ? element('nav', {'aria-label': 'Panels'}, links) : '');
}

/* ---- Choice of image --------------------------------------------------------------------------------------------- */

function createImagePicker(store, model, data) {
  const {rows, columns} = model.config;
  const items = data.images.map((image, n) => {
    const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
    const answer = bestOf(image.logits), labelled = image.label !== null && image.label !== undefined;
    const wrong = labelled && answer !== image.label;
    const input = element('input', {type: 'radio', name: 'image', value: n, checked: n === store.get().image,
      onchange: () => store.set({image: n}),
      'aria-label': `${image.name}: ${labelled ? `label ${image.label}, ` : ''}predicted ${answer}`});
    const words = wrong ? `${answer} ≠ ${image.label}` : `reads ${answer}`;
    return {input, canvas, bytes: image.bytes, node: element('label', {class: 'thumb' + (wrong ? ' wrong' : ''),
      title: image.name}, input, canvas, element('span', null, words),
    element('span', {class: 'thumb-name'}, image.name.replace(/^test image/, 'image')))};
  });
  const draw = () => items.forEach(({canvas, bytes}) => drawPicture(canvas, bytes, rows, columns));
  store.on('theme', draw);
  const chosen = element('b', {id: 'image-name'}, data.images[store.get().image].name);
  store.on('image', (state) => {
    items[state.image].input.checked = true;
    chosen.textContent = data.images[state.image].name;
  });
  draw();
  return element('fieldset', {class: 'images', id: 'images'}, element('legend', null, 'Image: ', chosen),
    element('div', {class: 'thumbs'}, items.map((item) => item.node)));
}

/* ---- A Vision Transformer ---------------------------------------------------------------------------------------- */

function startVit(data) {
  const model = loadModel(data), baselines = new Map();
  for (const image of data.images) {
    image.bytes = decodeBase64(image.pixels);
    image.outline = outlinePath(image.bytes, model.config.rows, model.config.columns);
  }
  const baselineOf = (n) => {
    if (!baselines.has(n)) baselines.set(n, runModel(model, data.images[n].bytes, openGates(model)));
    return baselines.get(n);
  };
  const compute = ({image, gates}) => ({
    baseline: baselineOf(image),
    result: countOff(gates) ? runModel(model, data.images[image].bytes, gates) : {...baselineOf(image)},
  });
  const first = {image: 0, gates: openGates(model)};
  const store = createStore({...first, ...compute(first), block: model.blocks.length - 1, head: 0,
    token: model.first ? 0 : middleToken(model), scale: 'linear', range: 'fixed', sort: 'place',
    contribution: 'predicted', survey: data.survey, theme: document.documentElement.dataset.theme});
  store.on(['image', 'gates'], (state) => store.set(compute(state)));
  document.addEventListener('keydown', (event) => {
    const busy = event.ctrlKey || event.metaKey || event.altKey || event.target.closest('select, input[type=text]');
    if (event.key.toLowerCase() === 'c' && model.first && !busy) chooseToken(store, model, 0);
  });

  const panels = [createLookPanel, createGridPanel, createRolloutPanel, createStepsPanel, createGatesPanel,
    ...(data.images.every((image) => image.contributions) ? [createContributionPanel] : [])]
    .map((create) => create(store, model, data));
  pageHead(data, store, modelFacts(data, model), panels);
  document.getElementById('main').append(createImagePicker(store, model, data));
  placePanels(panels);
  if (!data.survey) startSurvey(store, model, data);
  return {data, store, model, panels};
}

/* ---- Weights from a file ----------------------------------------------------------------------------------------- */

function startAttention(data) {
  const store = createStore({block: 0, head: 0, token: 0, scale: 'linear', range: 'fixed',
    theme: document.documentElement.dataset.theme});
  const panels = [createAttentionPanel(store, data)];
  const facts = ['Attention weights', ...countsOf(data), sizesInWords(data)];
  pageHead(data, store, facts, panels);
  placePanels(panels);
  return {data, store, model: null, panels};
}

/* ---- A text model ------------------------------------------------------------------------------------------------ */

/* The head and query that a panel starts with: an induction head if there is one, else one with a name; and the last token
 * whose strongest key is neither the first token nor itself. */
function firstChoice(set, attention) {
  const named = (word) => set.words.findIndex((words) => words.startsWith(word));
  const found = ['induction', 'the previous token', 'the same token', 'aligned', 'single'].map(named).find((n) => n >= 0);
  const n = found === undefined ? 0 : found;
  const block = Math.floor(n / set.heads), head = n % set.heads;
  const queries = Array.from({length: set.queries}, (_, i) => set.queries - 1 - i);
  const token = queries.find((i) => ![0, i, undefined].includes(strongestKeys(attention.row(block, head, i), 1)[0]));
  return {block, head, token: token === undefined ? set.queries - 1 : token};
}

/* One panel for each kind of attention: encoder, decoder, cross-attention. Each has its own selection. */
function startText(data) {
  const theme = document.documentElement.dataset.theme;
  const stores = data.sets.map((set) => createStore({...firstChoice(set, loadAttention(set)), scale: 'linear', range: 'fixed', theme}));
  const pair = data.sets.length > 1, countTokens = (set) => plural(set.pooled ? set.pooled.queries : set.queries, 'token');
  const ids = {Decoder: 'decoder', 'Cross-attention': 'cross', Encoder: 'encoder'};
  const panels = data.sets.map((set, n) => createAttentionPanel(stores[n], set, n ? ids[set.title] : 'attention',
    pair ? set.title : 'Attention maps'));
  stores[0].on('theme', (state) => stores.slice(1).forEach((store) => store.set({theme: state.theme})));
  const facts = [`${data.family} model`, `${data.parameters.toLocaleString('en')} parameters`,
    ...data.sets.filter((set) => set.title !== 'Cross-attention').flatMap((set) => (pair
      ? [`${set.title.toLowerCase()}: ${[...countsOf(set), countTokens(set)].join(', ')}`]
      : [...countsOf(set), countTokens(set)]))];
  pageHead(data, stores[0], facts, panels);
  placePanels(panels);
  return {data, store: stores[0], stores, model: null, panels};
}

function placePanels(panels) {
  for (const panel of panels) {
    const head = panel.element.querySelector('.panel-head');
    if (head) head.append(exportButtons(panel));
    document.getElementById('main').append(panel.element);
  }
}

function startPage() {
  applyTheme(preferredTheme());
  const data = JSON.parse(document.getElementById('mha-data').textContent);
  const kinds = {vit: startVit, attention: startAttention, text: startText};
  window.mhaView = kinds[data.kind](data);
  const {store} = window.mhaView;
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    applyTheme(preferredTheme());
    store.set({theme: preferredTheme()});
  });
  const how = data.kind === 'vit' ? 'This page contains the model and runs it in the browser.'
    : 'The attention weights are part of this page.';
  const words = `Written by ${data.version}. ${how}`;
  document.getElementById('foot').append(words);
}

startPage();
