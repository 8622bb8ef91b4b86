/* How the next token is drawn: what can be set, and the controls for it. At first it is as `mha generate --sample` draws. */

import {element} from '../base/dom.js';

const writeSettings = {
  temperature: {label: 'Temperature', least: 0, most: 2, step: 0.05,
    words: (x) => (x ? x.toFixed(2) : 'always the most likely'),
    about: 'Divides the logits: values below 1 favour likely tokens, values above 1 favour unlikely ones.'},
  topK: {label: 'Top-k', least: 0, most: 100, step: 1,
    words: (x) => (x ? `the ${x} most likely` : 'all'),
    about: 'The next token is drawn from this many of the most likely tokens.'},
  topP: {label: 'Top-p', least: 0.05, most: 1, step: 0.05,
    words: (x) => (x < 1 ? `the top ${Math.round(100 * x)} %` : 'all'),
    about: 'The next token is drawn from the most likely tokens whose probabilities add up to this.'},
};

const seedMost = 999999;

/* The settings of the command, as it wrote them into the page. */
export const settingsOfCommand = ({temperature, top_k: topK, top_p: topP, seed}) => ({temperature, topK, topP, seed});

/* As the engine reads them. */
export function engineSettings({temperature, topK, topP, seed}) {
  return {temperature, top_k: topK, top_p: topP, seed};
}

/* Whether a number is one that a slider can have. */
export function isSetting(key, x) {
  const {least, most} = key === 'seed' ? {least: 0, most: seedMost} : writeSettings[key];
  return Number.isFinite(x) && x >= least && x <= most && (key === 'temperature' || key === 'topP' || Number.isInteger(x));
}

function settingSlider(store, key) {
  const {label, least, most, step, words, about} = writeSettings[key], id = `write-${key}`;
  const shown = element('output', {for: id, class: 'setting-value'});
  const input = element('input', {type: 'range', id, min: least, max: most, step, title: about,
    oninput: () => store.set({[key]: Number(input.value)})});
  const update = (state) => {
    input.value = state[key];
    shown.textContent = words(state[key]);
    input.setAttribute('aria-valuetext', shown.textContent);
  };
  store.follow(key, update);
  return element('div', {class: 'setting'}, element('label', {for: id}, label), shown, input);
}

/* A number, and a button for another one. */
function seedControl(store) {
  const input = element('input', {type: 'number', id: 'write-seed', min: 0, max: seedMost, step: 1, inputmode: 'numeric',
    onchange: () => {
      const x = Number(input.value);
      if (input.value !== '' && isSetting('seed', x)) store.set({seed: x});
      else input.value = store.get().seed;
    }});
  const other = element('button', {type: 'button', class: 'small', id: 'write-other-seed',
    onclick: () => store.set({seed: Math.floor(Math.random() * (seedMost + 1))})}, 'New seed');
  const update = (state) => (input.value = state.seed);
  store.follow('seed', update);
  return element('div', {class: 'setting'}, element('label', {for: 'write-seed'}, 'Seed'),
    element('span', {class: 'setting-value'}, 'same seed, same text'), element('span', {class: 'seed'}, input, other));
}

export function createSettings(store) {
  return element('div', {class: 'settings', role: 'group', 'aria-label': 'Sampling'},
    Object.keys(writeSettings).map((key) => settingSlider(store, key)), seedControl(store));
}
