/* The texts of tokens, as they are shown. */

import {textWidth} from './pen.js';

/* Invisible characters are replaced by symbols, so that blank and empty tokens are visible. */
export function visibleToken(text) {
  if (text === '') return '∅';
  const shown = text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/\r/g, '␍');
  return /^ +$/.test(shown) ? shown.replace(/ /g, '␣') : shown.replace(/[\u0000-\u001f\u007f]/g, '\ufffd');
}

/* Whether a text reads from right to left: whether its first letter does. */
export function isRightToLeft(text) {
  const [first] = text.match(/\p{L}/u) || [''];
  return /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(first);
}

/* A line of text in its own direction, for canvases and SVG, which know no other than that of the page. */
export const inOwnDirection = (text) => (isRightToLeft(text) ? `\u2067${text}\u2069` : text);

const graphemes = typeof Intl === 'object' && Intl.Segmenter ? new Intl.Segmenter() : null;

/* Splits a text into grapheme clusters: a flag or family emoji is one, though it has several code points. */
export function lettersOf(text) {
  return graphemes ? Array.from(graphemes.segment(text), (part) => part.segment) : Array.from(text);
}

export function clipToken(text, most) {
  if (text.length <= most) return text;
  const letters = lettersOf(text.slice(0, 40 * most));
  return letters.length <= most ? text : letters.slice(0, most - 1).join('') + '…';
}

/* As much of a text as fits `width`. */
export function fitToken(text, width, size, weight) {
  let shown = clipToken(text, 60);
  if (textWidth(shown, size, weight) <= width) return shown;
  const letters = lettersOf(shown);
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(letters.slice(0, middle).join('') + '…', size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  shown = letters.slice(0, low).join('') + '…';
  return shown;
}
