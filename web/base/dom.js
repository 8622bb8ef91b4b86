/* Elements, screen reader announcements, and the tooltip of the page.
 *
 *     element('button', {type: 'button', class: 'plain', onclick: go, 'aria-pressed': true}, 'Go', icon)
 *
 * A function attribute is an event listener ("onclick" for "click"); null, undefined and false omit an attribute, true
 * makes it empty, except for aria-*, whose values are words. Children are nodes or text; null and false are omitted.
 * Text is never interpreted as markup, so a file name cannot inject elements. */

const SVG_NAMES = 'http://www.w3.org/2000/svg';

function fillElement(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    const spoken = name.startsWith('aria-') && typeof value === 'boolean';
    if (typeof value === 'function') node.addEventListener(name.slice(2), value);
    else if (spoken) node.setAttribute(name, String(value));
    else if (value === true) node.setAttribute(name, '');
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

function element(tag, attributes, ...children) {
  return fillElement(document.createElement(tag), attributes, children);
}

function svgElement(tag, attributes, ...children) {
  return fillElement(document.createElementNS(SVG_NAMES, tag), attributes, children);
}

/* Escapes text for SVG or HTML that is written as a string. */
function escapeText(text) {
  const names = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'};
  return String(text).replace(/[&<>"]/g, (letter) => names[letter]);
}

/* ---- Numbers as a person reads them ------------------------------------------------------------------------------ */

/* A number from 0 to 1 as "43.2 %", "4.32 %", "<0.01 %" or ">99.99 %", with a non-breaking space: only what is exactly 0 or
 * 1 is written as such. */
function percent(share) {
  const x = share * 100;
  if (!Number.isFinite(x)) return 'not a number';
  if (x === 0 || x === 100) return x.toFixed(0) + '\u00a0%';
  if (x < 0.01) return '<0.01\u00a0%';
  if (x > 99.99 && x < 100) return '>99.99\u00a0%';
  return x.toFixed(x >= 10 && x < 99.95 ? 1 : 2) + '\u00a0%';
}

/* A probability of a softmax in a sentence: "43.2 %", "less than 0.01 %" or "more than 99.99 %". It is never 0 or 1, though
 * float32 may round it to these. */
function probabilityWords(share) {
  if (share > 0.9999) return 'more than 99.99\u00a0%';
  return share < 0.0001 ? 'less than 0.01\u00a0%' : percent(share);
}

/* Three significant digits, without an exponent if that is short. */
function shortNumber(x) {
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return x.toExponential(1);
  if (size >= 1000) return String(Math.round(x));
  return x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
}

function plural(count, one, many) {
  return count + ' ' + (count === 1 ? one : many || one + 's');
}

/* ---- Words for a screen reader ----------------------------------------------------------------------------------- */

/* Announces `text` through the page's live region, #announcer of page.html; of several in quick succession, only the
 * last. */
let announceTimer = 0;

function announce(text) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    const region = document.getElementById('announcer');
    if (region) region.textContent = text;
  }, 150);
}

/* ---- The tip ----------------------------------------------------------------------------------------------------- */

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
  const left = Math.max(4, Math.min(middle - box.offsetWidth / 2, wide - box.offsetWidth - 4));
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
function attachTip(node, linesAt) {
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
function cellLabel(caption, lines) {
  return [lines[0], caption.textContent, ...lines.slice(1)].join(', ');
}

/* ---- Controls ---------------------------------------------------------------------------------------------------- */

/* A labelled <select>: choices are [value, text]; `change` gets the value. */
function selectControl(label, choices, value, change) {
  const select = element('select', {onchange: () => change(select.value)},
    choices.map(([name, text]) => element('option', {value: name, selected: name === value}, text)));
  return element('label', {class: 'control'}, element('span', null, label), select);
}

/* A <select> bound to one value of the store. */
function storeControl(store, key, label, choices) {
  const control = selectControl(label, choices, store.get()[key], (value) => store.set({[key]: value}));
  store.on(key, (state) => (control.querySelector('select').value = state[key]));
  return control;
}

/* The two controls of the colour scale, for any panel with maps; all follow the store. `one` names the object of a
 * map. */
function scaleControls(store, one = 'head') {
  const choices = {scale: [['linear', 'linear'], ['log', 'logarithmic']],
    range: [['fixed', `same for all ${one}s`], ['per-head', `separate for each ${one}`]]};
  return [storeControl(store, 'scale', 'Colour', choices.scale), storeControl(store, 'range', 'Scale', choices.range)];
}

/* The frame of a panel: heading, an explanation, a row of controls, and the content. */
function panelFrame(id, title, text, controls, ...body) {
  return element('section', {id, class: 'panel', 'aria-labelledby': id + '-title'},
    element('div', {class: 'panel-head'}, element('h2', {id: id + '-title'}, title)),
    text && element('p', {class: 'lead'}, text),
    controls && controls.length ? element('div', {class: 'controls'}, controls) : null,
    body);
}
