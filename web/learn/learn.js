/* The page of `mha view --train`: a model that learns while one looks at it. Controls and curves on the left, every head on
 * the selected digit on the right, the digits with their predictions below. */

import {selectControl} from '../base/controls.js';
import {announce, element} from '../base/dom.js';
import {bestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {roveFocus} from '../base/roving.js';
import {svgDocument} from '../base/svg.js';
import {percent, probabilityWords, shortNumber} from '../base/words.js';
import {createCurve} from './curve.js';
import {createLearnMaps} from './maps.js';
import {drawPicture} from '../vit/picture.js';

/* What can be changed, with the values to choose from. */
export const learnChoices = {
  heads: {label: 'Heads', first: '4', values: ['1', '2', '4', '8']},
  width: {label: 'Width', first: '48', values: ['32', '48', '64']},
  rate: {label: 'Learning rate', first: '0.004', values: ['0.001', '0.002', '0.004', '0.008', '0.1']},
};

export function createLearnPanel(store, trainer, data) {
  const loss = createCurve('Training loss of each batch', 2.5, shortNumber);
  const score = createCurve('Accuracy on held-out digits', 1, percent);
  const draw = (news) => {
    if (news.stepped) loss.draw(trainer.curve);
    if (news.evaluated) score.draw(trainer.scores);
  };
  trainer.on(draw);
  draw({stepped: true, evaluated: true});
  const question = element('div', {class: 'notice question', id: 'learn-question', role: 'alert', hidden: true});
  const controls = [trainButton(store, trainer), restartButton(store, trainer),
    ...Object.keys(learnChoices).map((key) => learnControl(store, trainer, key, question))];
  return createPanel({
    id: 'learn',
    title: 'Watch it learn',
    controls,
    body: [question, learnStatus(store, trainer),
      element('div', {class: 'learn'},
        element('div', {class: 'learn-curves'}, loss.element, score.element), createLearnHeads(store, trainer, data)),
      createLearnDigits(store, trainer, data)],
    toSvg: () => svgDocument(640, 420, loss.svg(0) + score.svg(210), 'Watch it learn'),
  });
}

/* A setting of the training. Another value begins a new one: if there is something to lose, the page asks first. */
function learnControl(store, trainer, key, question) {
  const {label, values} = learnChoices[key];
  const control = selectControl(label, values.map((value) => [value, value]), store.get()[key], (value) => {
    if (!trainer.hasLearned()) return store.set({[key]: value});
    select.value = store.get()[key];
    return askToRestart(question, `${label} ${value}`, () => store.set({[key]: value}));
  });
  const select = control.querySelector('select');
  store.on(key, (state) => (select.value = state[key]));
  return control;
}

function askToRestart(question, words, go) {
  const answer = (text, then) => element('button', {type: 'button', class: 'small', onclick: () => {
    question.hidden = true;
    then();
  }}, text);
  question.replaceChildren(element('p', null, `“${words}” needs a new training. The trained weights of this model will be lost.`),
    element('span', {class: 'answers'}, answer('Start a new training', go), answer('Keep this model', () => {})));
  question.hidden = false;
}

function trainButton(store, trainer) {
  const words = () => (store.get().running ? 'Pause' : trainer.ended ? 'Train again' : trainer.curve.length ? 'Continue' : 'Train');
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

/* "Step 310, epoch 5: 77 % of the held-out digits are classified correctly." */
function learnStatus(store, trainer) {
  const line = element('p', {id: 'learn-status', class: 'lead'});
  const update = () => {
    const {numbers, scores, ended} = trainer, last = scores[scores.length - 1];
    const step = numbers && numbers.step ? `Step ${numbers.step}, epoch ${numbers.epoch}` : 'Random weights';
    const end = {diverged: ' The loss is no longer finite: try a lower learning rate.', done: ' Training is finished.', kept: ' This is a saved model.'}[ended] || '';
    line.replaceChildren(`${step}: `, element('b', {id: 'learn-score'}, percent(last.value)), ' of the held-out digits are classified correctly.' + end);
    if (ended) announce(line.textContent);
  };
  trainer.on(update);
  update();
  return line;
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

/* One row of maps per block, redrawn as the model changes. */
function createLearnHeads(store, trainer, data) {
  const answer = element('p', {id: 'learn-answer'}), maps = createLearnMaps(store, data);
  const draw = () => {
    const {digit} = store.get(), result = trainer.read(trainer.shown[digit].bytes), {probabilities} = result, {label, outline} = trainer.shown[digit], best = bestOf(probabilities);
    maps.draw(result, outline);
    answer.replaceChildren(`Label: ${label}. Prediction: `, element('b', {class: best === label ? 'right' : 'wrong'}, String(best)), ` (${probabilityWords(probabilities[best])})`);
  };
  store.on(['digit', 'theme'], draw);
  trainer.on(({model}) => model && draw());
  draw();
  return element('div', null, element('h3', null, 'What each head attends to'), answer, maps.element,
    element('p', {class: 'hint'}, 'Attention from the class token, from which the prediction is computed, to the patches of the digit and, below them on the left, ' +
      'to itself. Each row is a block.'));
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
    button.setAttribute('aria-label', `${button.lastChild.textContent}: held-out digit ${label}, predicted ${read}`);
    button.setAttribute('aria-pressed', String(n === store.get().digit));
  });
  const repaint = () => buttons.forEach((button, n) => drawPicture(button.firstChild, trainer.shown[n].bytes, data.rows, data.columns));
  store.on('digit', update);
  store.on('theme', repaint);
  trainer.on(({evaluated}) => evaluated && update());
  update();
  return roveFocus(element('div', {class: 'learn-digits', role: 'group', 'aria-label': 'Held-out digits'}, buttons), 'button');
}
