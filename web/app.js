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

/* ---- A Vision Transformer ---------------------------------------------------------------------------------------- */

/* The panels, in the order of the page: create(store, model, data), and the condition for those that need more data. */
const vitPanels = [
  {create: (store, model, data, walk) => createStepsPanel({...walk, store})},
  {create: createDrawPanel},
  {create: createLookPanel},
  {create: createGridPanel},
  {create: createRolloutPanel},
  {create: createGatesPanel},
  {create: createContributionPanel, needs: (data) => data.images.every((image) => image.contributions)},
];

/* The first state of the page: block 1, whose tokens are still patches, and a patch with ink as the query. */
function firstVitState(data, model) {
  return {image: 0, drawing: 0, penDown: false, gates: openGates(model), block: 0, head: 0, token: inkToken(model, data.images[0].bytes), key: null, step: 0,
    scale: 'linear', range: 'fixed', sort: 'place', contribution: 'predicted', survey: surveyOfFile(model, data.survey), theme: document.documentElement.dataset.theme};
}

function startVit(data) {
  const model = loadModel(data), baselines = new WeakMap();
  for (const image of data.images) {
    image.bytes = decodeBase64(image.pixels);
    image.outline = outlinePath(image.bytes, model.config.rows, model.config.columns);
  }
  const baselineOf = (image) => {
    if (!baselines.has(image)) baselines.set(image, runModel(model, image.bytes, openGates(model)));
    return baselines.get(image);
  };
  const compute = ({image, gates}) => {
    const baseline = baselineOf(data.images[image]);
    return {baseline, result: countOff(gates) ? runModel(model, data.images[image].bytes, gates) : {...baseline}};
  };
  const first = firstVitState(data, model), store = createStore({...first, ...compute(first)});
  store.on(['image', 'drawing', 'gates'], (state) => store.set(compute(state)));
  document.addEventListener('keydown', (event) => {
    const busy = event.ctrlKey || event.metaKey || event.altKey || event.target.closest('select, input[type=text], textarea');
    if (event.key.toLowerCase() === 'c' && model.first && !busy) chooseToken(store, model, 0);
  });

  const walk = imageSource(store, model, data);
  const panels = vitPanels.filter(({needs}) => !needs || needs(data)).map(({create}) => createResting((...all) => create(...all, walk), store, model, data));
  const view = {data, store, stores: [store], model, panels, walk};
  const lead = 'The whole model runs in your browser. Step through its attention, draw a digit, see what each head attends to, and switch heads off.';
  pageHead(data, modelFacts(data, model), panels, lead, [...shareButtons(view), themeButton(store)]);
  document.getElementById('main').append(createImageBar(store, model, data));
  placePanels(panels);
  if (!data.survey) startSurvey(store, model, data);
  return view;
}

/* ---- Weights from a file ----------------------------------------------------------------------------------------- */

function startAttention(data) {
  const store = createStore({block: 0, head: 0, token: 0, scale: 'linear', range: 'fixed',
    theme: document.documentElement.dataset.theme});
  const panels = [createAttentionPanel(store, data)];
  const view = {data, store, stores: [store], model: null, panels};
  const lead = 'Each head as a map of its weights: how much each token (query) attends to each token (key).';
  pageHead(data, ['Attention weights', ...countsOf(data), sizesInWords(data)], panels, lead, [...shareButtons(view), themeButton(store)]);
  placePanels(panels);
  return view;
}

/* ---- A text model ------------------------------------------------------------------------------------------------ */

/* The head and query that a panel starts with: an induction head if there is one, else one with a name; and the last token
 * whose strongest key is neither the first token nor itself, a word rather than a sign of the model such as <s> or [SEP]. */
function firstChoice(set, attention) {
  const named = (word) => (set.words || []).findIndex((words) => words.startsWith(word) && !words.endsWith('weakly'));
  const found = ['induction', 'the previous token', 'the same token', 'aligned', 'single'].map(named).find((n) => n >= 0);
  const n = found === undefined ? 0 : found;
  const block = Math.floor(n / set.heads), head = n % set.heads;
  const queries = Array.from({length: set.queries}, (_, i) => set.queries - 1 - i);
  const telling = queries.filter((i) => ![0, i, undefined].includes(strongestKeys(attention.row(block, head, i), 1)[0]));
  const token = [telling.find((i) => !isSign(attention.queryTexts[i].trim())), telling[0]].find((i) => i !== undefined);
  return {block, head, token: token === undefined ? set.queries - 1 : token};
}

/* How many tokens and heads there are, of each stack. */
function textFacts(data, sets) {
  const countTokens = (set) => plural(set.pooled ? set.pooled.queries : set.queries, 'token');
  return [`${data.family} model`, `${data.parameters.toLocaleString('en')} parameters`,
    ...sets.filter((set) => set.title !== 'Cross-attention').flatMap((set) => (sets.length > 1
      ? [`${set.title.toLowerCase()}: ${[...countsOf(set), countTokens(set)].join(', ')}`]
      : [...countsOf(set), countTokens(set)]))];
}

const textLeads = {
  predicts: 'The whole model runs in your browser. Type a text, step through its attention, and see what the model predicts and what each head attends to.',
  reads: 'The whole model runs in your browser. Type a text, step through its attention, and see what each head attends to.',
  still: 'Select a token to see which tokens each head attends to, as a map, as lines and as shaded text.',
};

/* One panel for each kind of attention: encoder, decoder, cross-attention. Each has its own selection. Above them, if the page
 * has its model, the panel for writing. */
async function startText(data) {
  const theme = document.documentElement.dataset.theme;
  const stores = data.sets.map((set) => createStore({...firstChoice(set, loadAttention(set)), key: null, set, scale: 'linear', range: 'fixed', theme}));
  const ids = {Decoder: 'decoder', 'Cross-attention': 'cross', Encoder: 'encoder'};
  const writing = await startWriting(data, stores);
  const maps = data.sets.map((set, n) => createAttentionPanel(stores[n], set, n ? ids[set.title] : 'attention',
    data.sets.length > 1 ? set.title : 'Attention maps'));
  const walk = writing && textSource(stores, writing, data);
  const panels = writing ? [writing.panel, createStepsPanel(walk), ...maps] : maps;
  stores[0].on('theme', (state) => stores.slice(1).forEach((store) => store.set({theme: state.theme})));
  const view = {data, store: stores[0], stores, model: null, panels, writing, walk};
  const facts = () => textFacts(data, stores.map((store) => store.get().set));
  const showFacts = pageHead(data, facts(), panels, textLeads[!writing ? 'still' : writing.writer.predicts ? 'predicts' : 'reads'], [...shareButtons(view), themeButton(stores[0])]);
  stores.forEach((store) => store.on('set', () => showFacts(facts())));
  if (data.still) document.getElementById('main').append(element('p', {class: 'notice', id: 'still', role: 'note'}, data.still));
  placePanels(panels);
  return view;
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

function placePanels(panels) {
  for (const panel of panels) {
    const head = panel.element.querySelector('.panel-head');
    if (head) head.append(exportButtons(panel));
    document.getElementById('main').append(panel.element);
  }
}

/* Pages are printed in the light colours. It comes before what panels do then. */
function printLight(storeOf) {
  let before = null;
  const show = (theme) => {
    applyTheme(theme);
    storeOf().set({theme});
  };
  window.addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme;
    if (before !== 'light') show('light');
  });
  window.addEventListener('afterprint', () => before !== 'light' && show(before));
}

async function startPage() {
  let opened = null;
  rememberPage();
  applyTheme(preferredTheme());
  printLight(() => opened);
  const data = JSON.parse(document.getElementById('mha-data').textContent);
  const kinds = {vit: startVit, train: startTraining, attention: startAttention, text: startText};
  const view = await kinds[data.kind](data), {store} = view;
  opened = store;
  startSharing(view);
  window.mhaView = view;
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    applyTheme(preferredTheme());
    store.set({theme: preferredTheme()});
  });
  const how = {vit: 'This page contains the model and runs it in your browser.',
    train: 'This page contains the digits and trains the model in your browser.',
    text: view.writing && 'This page contains the model and runs it in your browser.'}[data.kind] || 'This page contains the attention weights.';
  const words = `Written by ${data.version}. ${how}`;
  document.getElementById('foot').append(words);
}

await startPage();
