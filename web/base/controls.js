/* Controls bound to the store, and buttons that copy. */

import {announce, element} from './dom.js';

/* A labelled <select>: choices are [value, text]; `change` gets the value. */
export function selectControl(label, choices, value, change) {
  const select = element('select', {onchange: () => change(select.value)},
    choices.map(([name, text]) => element('option', {value: name, selected: name === value}, text)));
  return element('label', {class: 'control'}, element('span', null, label), select);
}

/* A <select> bound to one value of the store, a text or a number. */
export function storeControl(store, key, label, choices) {
  const control = selectControl(label, choices, store.get()[key], (value) => store.set({[key]: choices.find(([name]) => String(name) === value)[0]}));
  store.on(key, (state) => (control.querySelector('select').value = String(state[key])));
  return control;
}

/* The two controls of the colour scale, for any panel with maps. `one` names the object of a map. */
export function scaleControls(store, one = 'head') {
  const choices = {scale: [['linear', 'linear'], ['log', 'logarithmic']],
    range: [['fixed', `same for all ${one}s`], ['per-head', `separate for each ${one}`]]};
  return [storeControl(store, 'scale', 'Colour', choices.scale), storeControl(store, 'range', 'Scale', choices.range)];
}

/* The clipboard of the browser, or, where it is not allowed, that of a selected text. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = element('textarea', {class: 'hidden', 'aria-hidden': true}, text);
    document.body.append(box);
    box.select();
    const done = document.execCommand('copy');
    box.remove();
    return done;
  }
}

/* The words of a button for two seconds. */
export function flash(button, words) {
  const before = button.dataset.words || (button.dataset.words = button.textContent);
  button.textContent = words;
  announce(words);
  setTimeout(() => (button.textContent = before), 2000);
}
