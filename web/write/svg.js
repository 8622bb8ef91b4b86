/* The panel as a picture: the tokens, what may come next, and every head on the selected token. */

import {svgPen, textWidth} from '../base/pen.js';
import {svgPicture, themeColours} from '../base/svg.js';
import {clipToken, fitToken, isRightToLeft, visibleToken} from '../base/text.js';
import {percent} from '../base/words.js';
import {arcSizes, drawHeadArcs, strongestWord} from './arcs.js';
import {nextCount} from './next.js';

const writeSvgSizes = {edge: 24, text: 560, line: 26, size: 14, bars: 250, cell: 112, row: 62};

/* Tokens in lines of a width: {text, x, y, width, n} from (0, 0). */
function tokenLines(words, width) {
  const {size, line} = writeSvgSizes, places = [];
  let x = 0, y = 0;
  words.forEach((word, n) => {
    const text = clipToken(visibleToken(word), 40), wide = textWidth(text, size, 400) + 8;
    if (x && x + wide > width) x = 0, y += line;
    places.push({text, x, y, width: wide, n});
    x += wide + 3;
  });
  const mirrored = isRightToLeft(words.join(' '));
  return {places: mirrored ? places.map((place) => ({...place, x: width - place.x - place.width})) : places, height: y + line};
}

function drawTokenLines(pen, {places}, side, {x, y, grows, query}, colours) {
  for (const {text, n, ...at} of places) {
    const written = grows && n >= side.prompt;
    pen.box({x: x + at.x, y: y + at.y, width: at.width, height: 21},
      {stroke: n === query ? colours.accent : colours.line, line: n === query ? 2 : 1, radius: 4});
    if (written) pen.stroke([[x + at.x + 3, y + at.y + 18.5], [x + at.x + at.width - 3, y + at.y + 18.5]], {stroke: colours.accent, line: 2});
    pen.label(x + at.x + 4, y + at.y + 15, text, {size: writeSvgSizes.size, fill: colours.ink});
  }
}

function drawNextBars(pen, list, x, y, colours) {
  list.slice(0, nextCount).forEach((one, n) => {
    const top = y + 22 * n;
    pen.label(x, top + 12, fitToken(visibleToken(one.word), 80, 13, 400), {size: 13, fill: colours.ink});
    pen.box({x: x + 88, y: top + 1, width: Math.max(0.5, 90 * one.p), height: 12}, {fill: colours.accent});
    pen.box({x: x + 88, y: top + 1, width: Math.max(0.5, 90 * one.raw), height: 12}, {stroke: colours.ink});
    pen.label(x + writeSvgSizes.bars, top + 12, percent(one.p), {size: 13, anchor: 'end', fill: colours.soft});
  });
}

/* The heads of one set, from y on; returns where they end. */
function drawArcGrid(pen, {attention, title}, query, y, colours) {
  const {edge, cell, row} = writeSvgSizes, columns = Math.min(attention.heads, 8);
  let top = y;
  if (title) pen.label(edge, (top += 18), title, {size: 14, weight: 600, fill: colours.ink});
  attention.facts.forEach((facts, n) => {
    const line = Math.floor(n / attention.heads) * Math.ceil(attention.heads / columns) + Math.floor(facts.head / columns);
    const x = edge + (facts.head % columns) * cell, at = top + 8 + line * row, best = strongestWord(attention, facts, query);
    drawHeadArcs(pen, attention, facts, query, {x, y: at, width: arcSizes.cell, height: arcSizes.high}, colours);
    const words = `${facts.layer}.${facts.head} ${best ? `${best.word} ${Math.round(100 * best.share)} %` : ''}`;
    pen.label(x + 4, at + arcSizes.high + 12, fitToken(words, cell - 12, 11, 400), {size: 11, fill: colours.soft});
  });
  return top + 8 + attention.layers * Math.ceil(attention.heads / columns) * row;
}

export function writeSvg({result, next, mask}, arcs, queryOf, data) {
  const colours = themeColours(), pen = svgPen(), {edge, text, bars} = writeSvgSizes, sides = result ? result.sides : [];
  let y = 76;
  const top = y;
  sides.forEach((side, n) => {
    const lines = tokenLines(side.words, text), grows = n === sides.length - 1, at = grows ? arcs.length - 1 : 0;
    drawTokenLines(pen, lines, side, {x: edge, y, grows, query: queryOf(at)}, colours);
    y += lines.height + 10;
  });
  const shown = next && next[Math.min(mask, next.length - 1)];
  if (shown) drawNextBars(pen, shown.list, edge + text + 30, top, colours);
  y = Math.max(y, top + 22 * nextCount + 10);
  arcs.forEach((group, n) => (y = drawArcGrid(pen, group, Math.min(queryOf(n), group.attention.queries - 1), y, colours)));
  const columns = Math.min(8, Math.max(...arcs.map(({attention}) => attention.heads)));
  const width = Math.max(text + bars + 30, columns * writeSvgSizes.cell) + 2 * edge;
  return svgPicture(width, y + edge, 'Write a text', data.title, [pen.text()]);
}
