/* A group of controls that is one stop of the Tab key: arrow keys, Home and End move the focus among them (a roving tabindex).
 *
 *     roveFocus(wall, '.cell');       the controls of the group, now and later, are those that match
 *
 * The stop is the control that had the focus last, or else the pressed one, or else the first. */

import {limit} from './numbers.js';

export function roveFocus(group, selector) {
  let last = null;
  const usable = () => Array.from(group.querySelectorAll(selector)).filter((node) => !node.disabled);

  function mark() {
    const all = usable(), stop = all.includes(last) ? last : all.find((node) => node.getAttribute('aria-pressed') === 'true') || all[0];
    for (const node of all) {
      const index = node === stop ? 0 : -1;
      if (node.tabIndex !== index) node.tabIndex = index;
    }
  }

  group.dataset.roving = '';
  group.addEventListener('focusin', ({target}) => {
    if (!target.matches(selector)) return;
    last = target;
    mark();
  });
  group.addEventListener('focusout', ({relatedTarget}) => {
    if (group.contains(relatedTarget) || !last || last.getAttribute('aria-pressed') !== 'false') return;
    last = null; /* the way back leads to the pressed one */
    mark();
  });
  group.addEventListener('keydown', (event) => {
    if (!event.target.matches(selector) || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = neighbourOf(event.target, usable().filter((node) => node.getClientRects().length), event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  new MutationObserver(mark).observe(group, {childList: true, subtree: true, attributes: true, attributeFilter: ['aria-pressed', 'disabled']});
  mark();
  return group;
}

/* The control that a key leads to: in reading order, or the nearest one of the line above or below; null for another key. */
function neighbourOf(node, all, key) {
  const at = all.indexOf(node), ends = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1};
  if (key in ends) return all[limit(ends[key], 0, all.length - 1)];
  if (key !== 'ArrowUp' && key !== 'ArrowDown') return null;
  const sign = key === 'ArrowUp' ? -1 : 1, own = node.getBoundingClientRect();
  const middle = ({left, right}) => (left + right) / 2, height = ({top, bottom}) => (top + bottom) / 2;
  const away = all.map((other) => ({other, box: other.getBoundingClientRect()})).map(({other, box}) =>
    ({other, down: sign * (height(box) - height(own)), across: Math.abs(middle(box) - middle(own))})).filter(({down}) => down > own.height / 2);
  if (!away.length) return node;
  const line = Math.min(...away.map(({down}) => down));
  return away.filter(({down}) => down < line + own.height / 2).sort((a, b) => a.across - b.across)[0].other;
}
