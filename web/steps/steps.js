/* Panel: multi-head attention, step by step, with its numbers: all heads of one block for one query and one key, from
 * the image or the text to the answer.
 *
 * After a new selection the panel is computed only when it is visible, so that a key held down in another panel stays
 * fast. */

import {selectControl} from '../base/controls.js';
import {announce, element} from '../base/dom.js';
import {createLegend} from '../base/heatmap.js';
import {createPanel} from '../base/panel.js';
import {createStepClock} from './clock.js';
import {createSignedLegend} from './draw.js';
import {formulaElement, stepNumbers, stepSummary, stepSvg, wordsElement} from './numbers.js';
import {createStage} from './stage.js';
import {stepKeys, stepOrder, stepText, wordsText} from './words.js';

/* ---- Controls ---------------------------------------------------------------------------------------------------- */

function createStepPlayer(clock, countOf) {
  const button = (id, text, label, press) =>
    element('button', {type: 'button', id: 'steps-' + id, 'aria-label': label, onclick: press}, text);
  const back = button('back', '◀', 'Back one step', () => clock.go(clock.index - 1));
  const play = button('play', 'Play', 'Play the steps', () => clock.play(!clock.playing));
  const next = button('forward', 'Next ▶', 'Next step', () => clock.go(clock.index + 1));
  const slider = element('input', {type: 'range', id: 'steps-slider', min: 1, max: countOf(), step: 1, value: 1, 'aria-label': 'Step',
    oninput: () => clock.go(Number(slider.value) - 1)});
  const rest = element('i');
  const speed = selectControl('Speed', [['0.5', 'half'], ['1', 'normal'], ['2', 'double']], '1',
    (value) => (clock.speed = Number(value)));
  return {
    element: element('div', {class: 'step-player'},
      element('div', {class: 'step-buttons', role: 'group', 'aria-label': 'Steps'}, back, play, next),
      element('div', {class: 'step-slider'}, slider, element('span', {class: 'step-rest', 'aria-hidden': true}, rest)), speed),
    draw: () => (rest.style.transform = `scaleX(${clock.rested})`),
    update(title) {
      const count = countOf();
      slider.max = count;
      back.disabled = clock.index === 0;
      next.disabled = clock.index === count - 1;
      play.textContent = clock.playing ? 'Pause' : 'Play';
      play.setAttribute('aria-label', clock.playing ? 'Pause' : 'Play the steps');
      slider.value = String(clock.index + 1);
      slider.setAttribute('aria-valuetext', `${clock.index + 1} of ${count}: ${title}`);
    },
  };
}

/* Controls for the stack of a model with two, block, head, query and key. */
function createStepChoice(store, source) {
  const {choices, keyChoices = choices, stacks} = source;
  const pick = (id, label, key) => {
    const select = element('select', {id: 'steps-' + id, onchange: () => store.set({[key]: Number(select.value)})});
    return {select, element: element('label', {class: 'control'}, element('span', null, label), select)};
  };
  const block = pick('block', 'Block', 'block'), head = pick('head', 'Head', 'head');
  const token = pick('token', 'Query', 'token'), key = pick('key', 'Key', 'key');
  const filled = new Map(), count = (n) => Array.from({length: n}, (_, i) => i); /* filled: the names in a list */
  const fill = (select, values, name, chosen) => {
    const names = values.map(name), all = names.join('\n');
    if (filled.get(select) !== all) {
      filled.set(select, all);
      select.replaceChildren(...names.map((text, n) => element('option', {value: values[n]}, text)));
    }
    select.value = String(chosen);
  };
  const stack = stacks && pick('stack', 'Attention', 'stack');
  block.select.addEventListener('change', () => {
    const {block: b, head: h} = store.get(), {heads} = source.model.blocks[b];
    if (h >= heads) store.set({head: heads - 1});
  });
  return {
    elements: [stack && stack.element, block.element, head.element, token.element, key.element],
    update(facts) {
      const tokens = choices(), others = keyChoices(), {model} = source, {block: b, head: h, t, key: j} = facts;
      if (stack) fill(stack.select, count(stacks.length), (n) => stacks[n], store.get().stack);
      fill(block.select, count(model.blocks.length), (n) => String(n), b);
      fill(head.select, count(model.blocks[b].heads), (n) => String(n), h);
      fill(token.select, count(tokens.length), (n) => tokens[n], t);
      fill(key.select, facts.keys, (n) => others[n], j);
    },
  };
}

/* ---- The panel --------------------------------------------------------------------------------------------------- */

/* `source` gives the facts: imageSource or textSource. */
export function createStepsPanel(source) {
  const {store} = source;
  const stage = createStage(store);
  let keys = stepKeys(source.model);
  const heading = element('h3', {id: 'step-title'}, `1 of ${keys.length}`), formula = element('div');
  const words = element('p', {class: 'step-words', id: 'steps-words'});
  const numbers = element('div', {class: 'step-numbers'}), legend = createLegend(), scoreLegend = createSignedLegend(), absent = element('p', {class: 'notice', hidden: true});
  const texts = new Map();
  let facts = null, stale = true, inSight = false;

  /* The text of a step; there is one as soon as there are facts. */
  const textOf = (key) => {
    if (!texts.has(key)) texts.set(key, stepText(key, facts));
    return texts.get(key);
  };
  const draw = () => {
    stage.draw(clock.time);
    player.draw();
  };
  const clock = createStepClock(() => keys.length, {draw, changed: () => changeStep(true),
    words: (index) => wordsText(textOf(keys[index]).words).split(' ').length});
  const player = createStepPlayer(clock, () => keys.length), choice = createStepChoice(store, source);

  /* Another stack has other steps: the step that is shown stays, or else the last one before it. */
  function followModel() {
    const next = stepKeys(source.model);
    if (next.join() === keys.join()) return;
    const place = stepOrder.indexOf(keys[clock.index]), index = Math.max(0, next.findLastIndex((key) => stepOrder.indexOf(key) <= place));
    keys = next;
    clock.index = index;
    store.set({step: index});
  }

  function refresh() {
    const why = source.why();
    absent.textContent = why || '';
    absent.hidden = !why;
    body.hidden = Boolean(why);
    if (why) {
      facts = null;
      if (clock.playing) clock.play(false);
      return;
    }
    if (!stale && facts) return;
    stale = false;
    followModel();
    facts = source.facts();
    texts.clear();
    stage.show(facts);
    clock.time = 1;
    choice.update(facts);
    legend.update(facts.matrices.P0.scale, true);
    scoreLegend.update(facts.matrices.R0.most);
    changeStep(false);
  }

  /* `said`: the change was made in this panel, not in another one. */
  function changeStep(said) {
    if (!facts) refresh();
    if (!facts) return;
    const key = keys[clock.index], text = textOf(key);
    stage.enter(key);
    weights.hidden = stepOrder.indexOf(key) < stepOrder.indexOf('softmax');
    scores.hidden = key !== 'scores' && key !== 'mask';
    player.update(text.title);
    heading.textContent = `${clock.index + 1} of ${keys.length}: ${text.title}`;
    formula.replaceChildren(formulaElement(text.formula));
    words.replaceChildren(...wordsElement(text.words));
    numbers.replaceChildren(...stepNumbers(facts, key));
    stage.canvas.setAttribute('aria-label', stepSummary(facts, text));
    if (clock.time >= 1) draw();
    if (said && !clock.playing) announce(`${heading.textContent}. ${words.textContent}`);
    if (said && store.get().step !== clock.index) store.set({step: clock.index});
  }

  const weights = element('div', {class: 'step-weights', hidden: true}, element('p', {class: 'hint'}, 'Weights:'), legend.element);
  const scores = element('div', {class: 'step-weights', hidden: true}, element('p', {class: 'hint'}, 'Scores:'), scoreLegend.element);
  const onKey = (event) => stepKey(event, clock, stage.canvas, keys.length);
  const body = element('div', {class: 'steps', onkeydown: onKey},
    heading, player.element, element('div', {class: 'stage-place'}, stage.canvas),
    element('div', {class: 'step-text'}, words, formula),
    element('div', {class: 'controls'}, choice.elements), numbers,
    element('div', {class: 'step-key'}, element('p', {class: 'hint'}, 'Numbers: purple is negative, orange is positive.'), weights, scores,
      element('p', {class: 'hint'}, source.hint,
        element('span', {class: 'key-hint'}, ' The arrow keys change the step; the space bar starts and pauses.'))));
  const panel = createPanel({
    id: 'steps',
    title: 'Attention, step by step',
    body: [absent, body],
    toSvg() {
      refresh();
      if (!facts) throw new Error(source.why());
      return stepSvg(facts, keys[clock.index], clock.index + 1, source.about());
    },
  });

  const wake = () => inSight && refresh();
  store.on(source.changes, () => {
    stale = true;
    wake();
  });
  store.on('step', ({step}) => step !== clock.index && clock.go(step));
  /* A key that was marked belongs to its query. */
  store.on(source.forgetKey, (state, changed) => {
    if (state.key !== null && !changed.has('key')) store.set({key: null});
  });
  new IntersectionObserver((entries) => {
    inSight = entries[entries.length - 1].isIntersecting;
    if (!inSight && clock.playing) clock.play(false);
    wake();
  }, {rootMargin: '200px'}).observe(panel.element);
  window.addEventListener('beforeprint', refresh); /* all panels are visible in print */
  document.addEventListener('keydown', (event) => event.target === document.body && stageIsInView(stage.canvas) && onKey(event));
  new ResizeObserver(() => {
    if (!facts || stage.room === stage.width) return;
    stale = true;
    wake();
  }).observe(panel.element);
  return panel;
}

function stageIsInView(canvas) {
  const {top, bottom} = canvas.getBoundingClientRect();
  return top > -0.4 * (bottom - top) && bottom < window.innerHeight + 0.4 * (bottom - top);
}

function stepKey(event, clock, canvas, count) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const moves = {ArrowLeft: clock.index - 1, ArrowRight: clock.index + 1, Home: 0, End: count - 1};
  const onStage = event.target === canvas || event.target === document.body;
  if (event.key === ' ' && onStage) clock.play(!clock.playing);
  else if (event.key.startsWith('Arrow') ? event.key in moves : onStage && event.key in moves && event.target === canvas) clock.go(moves[event.key]);
  else return;
  event.preventDefault();
}
