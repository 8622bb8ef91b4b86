/* The page of `mha view --train`: a model that learns while one looks at it. Controls and curves on the left, every head on
 * the selected digit on the right, the digits with their predictions below. */

/* What can be changed, with the values to choose from. */
const learnChoices = {
  heads: {label: 'Heads', first: '4', values: ['1', '2', '4', '8']},
  width: {label: 'Width', first: '48', values: ['32', '48', '64']},
  rate: {label: 'Learning rate', first: '0.004', values: ['0.001', '0.002', '0.004', '0.008', '0.1']},
};

async function startTraining(data) {
  const values = Object.fromEntries(Object.entries(learnChoices).map(([key, {first}]) => [key, first]));
  const store = createStore({...values, digit: 0, running: false, theme: document.documentElement.dataset.theme});
  const trainer = createTrainer(data, await unpackDigits(data), store);
  trainer.restart();
  store.on(Object.keys(learnChoices), () => {
    store.set({running: false});
    trainer.restart();
  });
  const panels = [createLearnPanel(store, trainer, data)];
  const view = {data, store, stores: [store], model: null, trainer, panels};
  const lead = 'A small transformer starts from random numbers and learns to read digits, in this page. Press Train and watch its heads.';
  pageHead(data, learnFacts(data), panels, lead, [...shareButtons(view), themeButton(store)]);
  placePanels(panels);
  return view;
}

function learnFacts({train, test, rows, columns, patch}) {
  return ['Vision Transformer', plural(learnRecipe.depth, 'block'), `patches of ${patch} × ${patch}`,
    `${train.count.toLocaleString('en')} digits of ${rows} × ${columns} to learn from`, `${test.count.toLocaleString('en')} held out`];
}

function createLearnPanel(store, trainer, data) {
  const loss = createCurve('Loss of each batch', 2.5, shortNumber);
  const score = createCurve('Correct on held-out digits', 1, percent);
  const draw = (news) => {
    if (news.stepped) loss.draw(trainer.curve);
    if (news.evaluated) score.draw(trainer.scores);
  };
  trainer.on(draw);
  draw({stepped: true, evaluated: true});
  const controls = [trainButton(store, trainer), restartButton(store, trainer),
    ...Object.entries(learnChoices).map(([key, {label, values}]) => storeControl(store, key, label, values.map((value) => [value, value])))];
  const frame = panelFrame('learn', 'Watch it learn', null, controls,
    learnStatus(store, trainer),
    element('div', {class: 'learn'},
      element('div', {class: 'learn-curves'}, loss.element, score.element),
      createLearnHeads(store, trainer, data)),
    createLearnDigits(store, trainer, data));
  const svg = () => svgDocument(640, 420, loss.svg(0) + score.svg(210), 'Watch it learn');
  return {id: 'learn', title: 'Watch it learn', element: frame, svg};
}

function trainButton(store, trainer) {
  const words = () => (store.get().running ? 'Pause' : trainer.ended ? 'Train again' : trainer.curve.length ? 'Go on' : 'Train');
  const button = element('button', {type: 'button', id: 'train', class: 'primary',
    onclick: () => (store.get().running ? trainer.pause() : trainer.go())}, words());
  const update = () => (button.textContent = words());
  store.on('running', update);
  trainer.on(update);
  return button;
}

function restartButton(store, trainer) {
  return element('button', {type: 'button', id: 'restart', onclick: () => {
    store.set({running: false});
    trainer.restart();
  }}, 'Start over');
}

/* "step 310, epoch 5: 77 % of 500 held-out digits are read correctly" */
function learnStatus(store, trainer) {
  const line = element('p', {id: 'learn-status', class: 'lead'});
  const update = () => {
    const {numbers, scores, ended} = trainer, last = scores[scores.length - 1];
    const step = numbers && numbers.step ? `Step ${numbers.step}, epoch ${numbers.epoch}` : 'Random weights';
    const end = {diverged: ' The loss is not finite any more: try a lower learning rate.', done: ' The training is finished.'}[ended] || '';
    line.replaceChildren(`${step}: `, element('b', {id: 'learn-score'}, percent(last.value)), ' of the held-out digits are read correctly.' + end);
    if (ended) announce(line.textContent);
  };
  trainer.on(update);
  update();
  return line;
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

/* One row of maps per block, redrawn as the model changes. */
function createLearnHeads(store, trainer, data) {
  const layout = learnLayout(data), answer = element('p', {id: 'learn-answer'}), rows = element('div', {class: 'learn-rows'});
  const make = () => {
    const heads = Number(store.get().heads), cells = (b) => Array.from({length: heads}, (_, h) => element('figure', null,
      element('canvas', {class: 'map', role: 'img', 'aria-label': `Attention of block ${b + 1}, head ${h + 1}`}),
      element('figcaption', {class: 'hint'}, `${b + 1}.${h + 1}`)));
    rows.style.setProperty('--heads', Math.min(heads, 4));
    rows.replaceChildren(...Array.from({length: learnRecipe.depth}, (_, b) => element('div', {class: 'learn-row'}, cells(b))));
  };
  const draw = () => {
    const {digit, heads} = store.get(), {rows: shares, probabilities} = trainer.heads(digit), {label, outline} = trainer.shown[digit];
    const best = bestOf(probabilities), max = sharedMax(shares.flat().map(largestOf));
    const scale = weightScale('linear', 1 / layout.tokens, max), all = rows.querySelectorAll('canvas');
    if (all.length !== learnRecipe.depth * Number(heads)) return;
    shares.flat().forEach((row, n) => drawMap(all[n], layout, row, {outline, scale}));
    answer.replaceChildren('This ', element('b', null, String(label)), ' is read as ',
      element('b', {class: best === label ? 'right' : 'wrong'}, String(best)), ` with ${percent(probabilities[best])}`);
  };
  make();
  store.on(['heads'], make);
  store.on(['digit', 'theme'], draw);
  trainer.on(({model}) => model && draw());
  draw();
  return element('div', {class: 'learn-heads'}, element('h3', null, 'What each head looks at'), answer, rows,
    element('p', {class: 'hint'}, 'Attention of the class token, from which the answer is read, to the patches of the digit and (below left) to itself. ' +
      'Each row is a block.'));
}

/* ---- Digits ------------------------------------------------------------------------------------------------------ */

/* Held-out digits with their predictions; one is selected. */
function createLearnDigits(store, trainer, data) {
  const buttons = trainer.shown.map(({bytes}, n) => {
    const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
    drawPicture(canvas, bytes, data.rows, data.columns);
    return element('button', {type: 'button', class: 'learn-digit', onclick: () => store.set({digit: n})}, canvas, element('span'));
  });
  const update = () => buttons.forEach((button, n) => {
    const {label} = trainer.shown[n], read = trainer.predictions[n];
    button.classList.toggle('wrong', read !== label);
    button.lastChild.textContent = read === label ? String(read) : `${read} ≠ ${label}`;
    button.setAttribute('aria-label', `${button.lastChild.textContent}: a held-out ${label}, read as ${read}`);
    button.setAttribute('aria-pressed', String(n === store.get().digit));
  });
  const repaint = () => buttons.forEach((button, n) => drawPicture(button.firstChild, trainer.shown[n].bytes, data.rows, data.columns));
  store.on('digit', update);
  store.on('theme', repaint);
  trainer.on(({evaluated}) => evaluated && update());
  update();
  return element('div', {class: 'learn-digits', role: 'group', 'aria-label': 'Held-out digits'}, buttons);
}
