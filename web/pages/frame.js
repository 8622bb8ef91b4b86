/* What every page has: its head, its panels and their buttons. */

import {element} from '../base/dom.js';
import {showNotice} from '../base/notice.js';
import {themeButton} from './theme.js';
import {shareButtons} from '../share/share.js';

/* What a page is, by the kind of its data. */
const headlines = {
  vit: 'Look inside a Vision Transformer',
  train: 'Watch a transformer learn',
  attention: 'Attention weights, head by head',
  text: 'What the heads of a language model attend to',
};

/* Shows a page: `view` has its data, store and panels, `lead` explains in a sentence what can be done here, and `between` stands above the
 * panels. Returns a function that shows other facts. */
export function showPage(view, facts, lead, ...between) {
  const {data, store, panels} = view, main = document.getElementById('main');
  const links = panels.map((panel) => element('a', {href: '#' + panel.id}, panel.title));
  const list = element('ul', {class: 'facts'}), show = (all) => list.replaceChildren(...all.map((fact) => element('li', null, fact)));
  show(facts);
  document.getElementById('top').append(
    element('h1', null, headlines[data.kind]), element('p', {class: 'headline'}, lead),
    element('div', {class: 'tools'}, shareButtons(view), themeButton(store)),
    element('div', {class: 'about'}, element('b', null, data.title), list),
    panels.length > 1 ? element('nav', {'aria-label': 'Panels'}, links) : '');
  main.append(...between, ...panels.map((panel) => panel.element));
  return show;
}

/* What `make` makes. An error ends the page, which says why. */
export async function needed(about, make) {
  try {
    return await make();
  } catch (error) {
    showNotice(`${about} ${error.message}`);
    throw error;
  }
}
