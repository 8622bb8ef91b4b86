/* Notices above the panels. */

import {element} from './dom.js';

export function showNotice(text) {
  const close = element('button', {type: 'button', class: 'small', 'aria-label': 'Close this notice', onclick: () => box.remove()}, '×');
  const box = element('div', {class: 'notice page-notice', role: 'alert'}, element('p', null, text), close);
  document.querySelectorAll('.page-notice').forEach((old) => old.remove());
  document.getElementById('main').prepend(box);
}
