/* A head as a small map, which selects it.
 *
 * `words(state)` are the lines of its tip; `under(canvas, event, state)` is a line before them, of what is under the pointer, or null. Whoever draws
 * the canvas and writes the caption calls update(state) then. */

import {element} from '../base/dom.js';
import {attachTip, cellLabel} from '../base/tip.js';

export function createMapCell(store, b, h, {words, under, canvas = element('canvas', {class: 'map', 'aria-hidden': true})}) {
  const caption = element('span', {class: 'cell-caption'});
  const button = element('button', {type: 'button', class: 'cell', 'data-block': b, 'data-head': h,
    onclick: () => store.set({block: b, head: h})}, canvas, caption);
  attachTip(button, (event) => {
    const state = store.get(), line = event && under(canvas, event, state);
    return line ? [line, ...words(state)] : words(state);
  });
  return {
    block: b, head: h, element: button, canvas, caption,
    update(state) {
      button.classList.toggle('off', !state.gates[b][h]);
      button.setAttribute('aria-pressed', String(state.block === b && state.head === h));
      button.setAttribute('aria-label', cellLabel(caption, words(state)));
    },
  };
}
