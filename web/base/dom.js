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

export function element(tag, attributes, ...children) {
  return fillElement(document.createElement(tag), attributes, children);
}

export function svgElement(tag, attributes, ...children) {
  return fillElement(document.createElementNS(SVG_NAMES, tag), attributes, children);
}

/* Where the pointer is on a node that shows something of that size. */
export function pointOn(node, event, width, height) {
  const box = node.getBoundingClientRect();
  return {x: ((event.clientX - box.left) / box.width) * width, y: ((event.clientY - box.top) / box.height) * height};
}

/* ---- Words for a screen reader ----------------------------------------------------------------------------------- */

/* Announces `text` through the page's live region, #announcer of page.html; of several in quick succession, only the
 * last. */
let announceTimer = 0;

export function announce(text) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    const region = document.getElementById('announcer');
    if (region) region.textContent = text;
  }, 150);
}

/* ---- Controls ---------------------------------------------------------------------------------------------------- */
