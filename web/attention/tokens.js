/* Tokens as text: each key with the colour of its weight from the selected query, and a list of the strongest keys.
 *
 * Each token is isolated, so that a right-to-left token does not affect its neighbours. */

import {strongestKeys} from './data.js';
import {attentionScale, attentionWords, chosenFacts, isNumbered, tokenLabel} from './map.js';
import {colourOf, inkOn} from '../base/colour.js';
import {announce, element} from '../base/dom.js';
import {scaleValue, weightWords} from '../base/heatmap.js';
import {limit} from '../base/numbers.js';
import {svgNumber} from '../base/svg.js';
import {clipToken, isRightToLeft, visibleToken} from '../base/text.js';
import {attachTip} from '../base/tip.js';
import {percent} from '../base/words.js';

function tokenSpan(texts, n, id) {
  const text = visibleToken(texts[n]);
  return element('bdi', {class: 'token', id: `${id}-${n}`, role: 'option', 'data-token': n, 'aria-selected': false},
    clipToken(text, 40));
}

/* A text whose tokens are selected by click or arrow keys; calls `choose(n)`. */
export function createTokenText(id, label, choose) {
  const box = element('div', {id, class: 'token-text', role: 'listbox', tabindex: 0, 'aria-label': label});
  let at = 0, marked = 0, spans = [], shown = []; /* keys may be faster than the mark, which waits for a frame */
  box.addEventListener('click', (event) => {
    const span = event.target.closest('[data-token]');
    if (span) choose(Number(span.dataset.token));
  });
  box.addEventListener('keydown', (event) => {
    const last = spans.length - 1;
    const moves = {ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: last};
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    at = limit(moves[event.key], 0, last);
    choose(at);
  });
  return {
    element: box,
    get spans() {
      return spans;
    },
    /* Shows other tokens; those at the beginning that are the same stay. */
    fill(texts) {
      const differs = texts.findIndex((text, n) => n >= shown.length || text !== shown[n]), same = differs < 0 ? texts.length : differs;
      spans.slice(same).forEach((span) => span.remove());
      spans = [...spans.slice(0, same), ...texts.slice(same).map((_, n) => tokenSpan(texts, same + n, id))];
      shown = texts;
      box.dir = isRightToLeft(texts.join(' ')) ? 'rtl' : 'ltr'; /* `auto` does not look into <bdi> */
      box.append(...spans.slice(same));
      at = marked = Math.min(marked, texts.length - 1);
      box.removeAttribute('aria-activedescendant');
    },
    mark(n) {
      spans[marked].setAttribute('aria-selected', 'false');
      if (n === null) return;
      at = marked = n;
      spans[n].setAttribute('aria-selected', 'true');
      box.setAttribute('aria-activedescendant', spans[n].id);
      const top = spans[n].offsetTop - box.offsetTop, bottom = top + spans[n].offsetHeight;
      if (top < box.scrollTop) box.scrollTop = top - 4;
      else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight + 4;
    },
  };
}

/* Colours of the keys' text from a row of weights. */
export function paintTokens(spans, row, scale) {
  spans.forEach((span, n) => {
    const x = scaleValue(row[n], scale);
    span.style.background = colourOf(x);
    span.style.color = inkOn(x);
  });
}

/* One text if queries and keys are the same tokens, otherwise two. */
export function createTokenView(store, attention) {
  const choose = (key) => (n) => {
    store.set({[key]: n});
    announce(attentionWords(attention, store.get()));
  };
  const label = attention.same ? 'Tokens, shaded by weight; select a query' : 'Keys, shaded by weight';
  const keys = createTokenText(attention.idOf('token-keys'), label, choose(attention.same ? 'token' : 'key'));
  const queries = attention.same ? null
    : createTokenText(attention.idOf('token-queries'), 'Queries; select one', choose('token'));
  attachTip(keys.element, (event) => {
    const span = event && event.target.closest('[data-token]');
    if (!span) return null;
    const {block, head, token} = store.get(), n = Number(span.dataset.token);
    return [weightWords(attention.row(block, head, token)[n], attention.equal), `to ${tokenLabel(attention, attention.keyTexts, n)}`];
  });
  const title = element('h3', {id: attention.idOf('token-title')});
  const fill = () => {
    keys.fill(attention.keyTexts);
    if (queries) queries.fill(attention.queryTexts);
  };
  fill();
  const hint = attention.same ? 'Click a token, or use the arrow keys, to see what it attends to.'
    : 'Select a query in the first text; the second text shows its keys.';
  return {
    fill,
    element: element('div', {class: 'tokens'}, title,
      queries && [element('p', {class: 'hint'}, 'Queries'), queries.element, element('p', {class: 'hint'}, 'Keys')],
      keys.element, element('p', {class: 'hint'}, hint)),
    update(state) {
      const row = attention.row(state.block, state.head, state.token);
      title.textContent = `What ${tokenLabel(attention, attention.queryTexts, state.token)} attends to`;
      paintTokens(keys.spans, row, attentionScale(attention, state, chosenFacts(attention, state)));
      keys.mark(attention.same ? state.token : state.key);
      if (queries) queries.mark(state.token);
    },
  };
}

const strongestCount = 8;

export function createStrongest(store, attention) {
  const list = element('ol', {id: attention.idOf('strongest'), class: 'strongest'}), rest = element('p', {class: 'hint'});
  const placed = attention.keyTexts.some((_, n) => !isNumbered(attention, attention.keyTexts, n));
  const titles = element('div', {class: 'strongest-titles', 'aria-hidden': true},
    ['token', placed ? 'place' : '', '', 'weight'].map((title) => element('span', null, title)));
  return {
    element: element('div', {class: 'strongest-place'}, element('h3', null, 'Strongest keys'), titles, list, rest),
    update({block, head, token}) {
      const row = attention.row(block, head, token), best = strongestKeys(row, strongestCount);
      list.replaceChildren(...best.map((n) => element('li', {'data-key': n},
        element('bdi', {title: attention.keyTexts[n]}, clipToken(visibleToken(attention.keyTexts[n]), 24)),
        element('span', {class: 'strong-place', title: 'place'},
          isNumbered(attention, attention.keyTexts, n) ? '' : String(n + 1)),
        element('span', {class: 'strong-bar', 'aria-hidden': true},
          element('span', {style: `width:${svgNumber(100 * Math.min(1, row[n]))}%`})),
        element('span', {class: 'number'}, percent(row[n])))));
      const left = attention.keys - best.length;
      const share = row.reduce((sum, x) => sum + x, 0) - best.reduce((sum, n) => sum + row[n], 0);
      const name = attention.pooled ? 'group' : 'key', sum = percent(Math.max(0, share));
      const others = left > 1 ? `The other ${left} ${name}s: ${sum} in total.` : `The other ${name}: ${sum}.`;
      rest.textContent = best.length ? (left ? others : '') : 'No key is visible to this query.';
    },
  };
}
