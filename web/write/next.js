/* What may come next, or stand at a mask: the ten likeliest tokens as bars. The outline is the model's own probability, the
 * filled part that with which it is drawn, after temperature, top-k and top-p. A click takes the token. */

import {element} from '../base/dom.js';
import {roveFocus} from '../base/roving.js';
import {svgNumber} from '../base/svg.js';
import {clipToken, visibleToken} from '../base/text.js';
import {percent} from '../base/words.js';

export const nextCount = 10;

function createNextRow(choose) {
  const word = element('bdi', {class: 'next-word'}), raw = element('i', {class: 'next-raw'}), fill = element('i', {class: 'next-fill'});
  const share = element('span', {class: 'next-share number'});
  const button = element('button', {type: 'button', class: 'next-row', onclick: () => choose()}, word, ' ',
    element('span', {class: 'next-bar', 'aria-hidden': true}, raw, fill), share);
  return {
    element: element('li', null, button),
    update(one, verb) {
      button.disabled = !one;
      word.textContent = one ? clipToken(visibleToken(one.word), 24) : '\u00a0';
      raw.style.width = one ? `${svgNumber(100 * one.raw)}%` : '0';
      fill.style.width = one ? `${svgNumber(100 * one.p)}%` : '0';
      share.textContent = one ? percent(one.p) : '';
      button.classList.toggle('cut', Boolean(one) && one.p === 0);
      if (one) button.setAttribute('aria-label', `${word.textContent} ${share.textContent}: ${verb}`);
      else button.setAttribute('aria-label', 'no token');
    },
  };
}

export function createNext(store, writer) {
  const masks = writer.live.kind === 'encoder', verb = masks ? 'replace the mask with it' : 'append it';
  const current = () => {
    const {next, mask} = store.get();
    return next && next[Math.min(mask, next.length - 1)];
  };
  const rows = Array.from({length: nextCount}, (_, n) => createNextRow(() => {
    const at = current();
    if (at && at.list[n]) writer.takeWord(at.list[n], at.row);
  }));
  const title = element('h3', {id: 'next-title'}), hint = element('p', {class: 'hint', id: 'next-hint'});
  const which = element('div', {class: 'mask-choice', role: 'group', 'aria-label': 'Mask'});
  const list = element('ol', {class: 'next-list', 'aria-labelledby': 'next-title'}, rows.map((row) => row.element));
  roveFocus(list, 'button');

  function update(state) {
    const at = current(), places = state.next || [];
    rows.forEach((row, n) => row.update(at ? at.list[n] : null, verb));
    title.textContent = !masks ? 'Next token' : at ? `Prediction for token ${at.row + 1}` : 'Prediction for a mask';
    hint.textContent = masks ? (at ? 'Click a word to replace the mask with it.' : 'Insert a mask into the text to see what the model predicts there.')
      : state.ended || (state.temperature ? "Outline: the model's own probability. Fill: after temperature, top-k and top-p. Click a word to append it."
        : 'At temperature 0, the most likely token is always chosen. Click a word to append that one instead.');
    which.replaceChildren(...(places.length > 1 ? places.map(({row}, n) => element('button', {type: 'button', class: 'small',
      'aria-pressed': row === at.row, onclick: () => store.set({mask: n})}, `Mask ${n + 1}`)) : []));
  }
  store.follow(['next', 'ended', 'mask', 'temperature'], update);
  return {element: element('div', {class: 'next'}, title, which, list, hint)};
}
