/* The tip: a small box of text next to the pointer or under the focused element. It never receives pointer events, and its text is also
 * in the label of the element. */

import {element} from './dom.js';
import {limit} from './numbers.js';

/* A small box of text next to the pointer or under the focused element. It never receives pointer events, and its text
 * is also in the element's label. */
function tipBox() {
  let box = document.getElementById('tip');
  if (!box) {
    box = element('div', {id: 'tip', 'aria-hidden': true, hidden: true});
    document.body.append(box);
  }
  return box;
}

/* Shows `lines`, the first one in bold, below or above `place` (left, right, top, bottom in the window), never on it or
 * beside it: there are its neighbours, with which a reader compares it. */
function showTip(lines, place) {
  const box = tipBox();
  box.replaceChildren(...lines.map((line, n) => element(n ? 'div' : 'b', null, line)));
  box.hidden = false;
  const wide = document.documentElement.clientWidth, high = window.innerHeight, middle = (place.left + place.right) / 2;
  const left = limit(middle - box.offsetWidth / 2, 4, wide - box.offsetWidth - 4);
  const below = place.bottom + 6 + box.offsetHeight <= high;
  box.style.left = left + 'px';
  box.style.top = Math.max(4, below ? place.bottom + 6 : place.top - box.offsetHeight - 6) + 'px';
}

const tipSpan = 240; /* of an element that is small enough for its tip to stand below it, in pixels */

/* Where the tip of `node` stands: at the node, or, if it is large, at the pointer. */
function tipPlace(node, event) {
  const box = node.getBoundingClientRect();
  if (!event || (box.width <= tipSpan && box.height <= tipSpan)) return box;
  return {left: event.clientX, right: event.clientX, top: event.clientY - 8, bottom: event.clientY + 14};
}

function hideTip() {
  tipBox().hidden = true;
}

/* Shows `linesAt(event)` for the pointer over `node`, `linesAt(null)` for its focus; null shows nothing. */
export function attachTip(node, linesAt) {
  const point = (event) => {
    const lines = linesAt(event);
    if (lines) showTip(lines, tipPlace(node, event));
    else hideTip();
  };
  node.addEventListener('pointermove', point);
  node.addEventListener('pointerdown', point);
  node.addEventListener('pointerleave', hideTip);
  node.addEventListener('blur', hideTip);
  node.addEventListener('focus', () => {
    const lines = linesAt(null);
    if (lines && node.matches(':focus-visible')) showTip(lines, tipPlace(node, null));
  });
}

/* The accessible name of a selectable map, from the lines of its tip. It includes the visible caption, for users of
 * speech input. */
export function cellLabel(caption, lines) {
  return [lines[0], caption.textContent, ...lines.slice(1)].join(', ');
}
