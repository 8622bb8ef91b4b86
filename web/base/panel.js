/* The panels of a page.
 *
 *     createPanel({id: 'grid', title: 'All heads', text, controls: [sort], body: [note, cells], toSvg: () => gridSvg(store.get())})
 *
 * is {id, title, element, toSvg} and whatever else is given: a heading with buttons that export what toSvg() returns, an explanation, a row
 * of controls, and the body. */

import {element} from './dom.js';
import {exportButtons} from './export.js';

export function createPanel({id, title, text = null, controls = [], body, ...more}) {
  const panel = {id, title, ...more};
  panel.element = element('section', {id, class: 'panel', 'aria-labelledby': id + '-title'},
    element('div', {class: 'panel-head'}, element('h2', {id: id + '-title'}, title), exportButtons(panel)),
    text && element('p', {class: 'lead'}, text),
    controls.length ? element('div', {class: 'controls'}, controls) : null,
    body);
  return panel;
}
