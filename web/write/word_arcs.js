/* Arcs between the words themselves: from the token under the pointer, or from the selected one while its text has the focus, to the
 * tokens that some head attends to, as strong as the largest weight of all heads. They lie over the tokens of both stacks. */

import {headNumber, strongestKeys} from '../attention/data.js';
import {tokenLabel} from '../attention/map.js';
import {svgElement} from '../base/dom.js';
import {svgNumber} from '../base/svg.js';
import {percent} from '../base/words.js';

const wordArcs = {least: 0.12, most: 8};

/* The largest weight of all heads on each key: {row, facts}, with the head that has it. */
function largestRow(attention, query) {
  const row = new Float32Array(attention.keys), facts = new Array(attention.keys).fill(null);
  for (const own of attention.facts) {
    attention.row(own.layer, own.head, query).forEach((x, n) => {
      if (x > row[n]) [row[n], facts[n]] = [x, own];
    });
  }
  return {row, facts};
}

/* The way from one word to another: above a line of text, or between two lines. */
function wordArcPath(from, to) {
  const [x0, x1] = [(from.left + from.right) / 2, (to.left + to.right) / 2], same = Math.abs(from.top - to.top) < 4, up = to.top < from.top;
  if (same) {
    const high = Math.min(24, 7 + 0.1 * Math.abs(x1 - x0));
    return `M${svgNumber(x0)} ${svgNumber(from.top)}C${svgNumber(x0)} ${svgNumber(from.top - high)} ${svgNumber(x1)} ${svgNumber(to.top - high)} ${svgNumber(x1)} ${svgNumber(to.top)}`;
  }
  const [y0, y1] = up ? [from.top, to.bottom] : [from.bottom, to.top], middle = (y0 + y1) / 2;
  return `M${svgNumber(x0)} ${svgNumber(y0)}C${svgNumber(x0)} ${svgNumber(middle)} ${svgNumber(x1)} ${svgNumber(middle)} ${svgNumber(x1)} ${svgNumber(y1)}`;
}

/* `lines` are the texts of chips, with their boxes and spans; `place` is around them. */
export function createWordArcs(place, lines) {
  const svg = svgElement('svg', {class: 'word-arcs', 'aria-hidden': true});
  place.append(svg);

  /* Where a token is, in the coordinates of the picture; null if it is scrolled out of its box. */
  function boxOf(side, n, origin) {
    const span = lines[side].spans[n], own = span && span.getBoundingClientRect(), around = lines[side].box.getBoundingClientRect();
    if (!own || own.bottom > around.bottom + 2 || own.top < around.top - 2) return null;
    return {left: own.left - origin.left, right: own.right - origin.left, top: own.top - origin.top, bottom: own.bottom - origin.top};
  }

  /* `links`: {attention, from, to} are the maps, and the sides of their queries and keys. */
  return (query, links) => {
    const paths = [], origin = place.getBoundingClientRect();
    for (const {attention, from, to} of query === null ? [] : links) {
      const start = boxOf(from, query, origin), {row} = largestRow(attention, query);
      for (const key of start ? strongestKeys(row, wordArcs.most).reverse() : []) {
        const end = from === to && key === query ? null : boxOf(to, key, origin), share = row[key];
        if (!end || share < wordArcs.least) continue;
        const d = wordArcPath(start, end);
        paths.push(svgElement('path', {class: 'word-arc-rim', d, 'stroke-width': svgNumber(3 + 2.5 * share)}),
          svgElement('path', {class: 'word-arc', d, 'stroke-width': svgNumber(1 + 2.5 * share), 'stroke-opacity': svgNumber(0.3 + 0.7 * share)}));
      }
    }
    svg.replaceChildren(...paths);
  };
}

/* What a tip says of a token: the three tokens that some head attends to most, with the head. */
export function wordTip(groups, query) {
  const {attention} = groups[0], lines = groups.flatMap(({attention: own}) => {
    const {row, facts} = largestRow(own, query);
    return strongestKeys(row, 3).map((key) => ({share: row[key],
      text: `${tokenLabel(own, own.keyTexts, key)}: ${percent(row[key])} in ${headNumber(own, facts[key].layer, facts[key].head)}${own.same ? '' : ' of cross-attention'}`}));
  }).sort((a, b) => b.share - a.share).slice(0, 3).map(({text}) => text);
  return [`From ${tokenLabel(attention, attention.queryTexts, query)} to`, ...lines];
}
