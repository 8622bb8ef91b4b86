/* The colour scale, from the background of the page to the largest value.
 *
 * A path through Oklab, which is perceptually uniform: lightness is linear from end to end, the hue runs from indigo
 * through red to yellow. So the scale also works in greyscale and for colour-blind readers: values further from the
 * background are larger. On a light page the path runs from light to dark, on a dark page from dark to light. Chroma is
 * reduced where sRGB lacks a colour; lightness is not changed.
 *
 *     setColourTheme('dark');  colourOf(0.5)  ->  "rgb(203,81,96)";  colourTable[3 * 128 + 0..2]  the same in bytes */

import {limit} from './numbers.js';

export const colourTable = new Uint8Array(256 * 3);
let theme = 'light';

/* Linear light from Oklab, by the published matrices of that space. */
export function oklabToLinear(lightness, a, b) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

export function linearToByte(x) {
  const curved = x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055;
  return limit(Math.round(255 * curved), 0, 255);
}

/* The colour at a lightness on the path, as three bytes, with chroma limited to the sRGB gamut. */
function pathColour(lightness) {
  const turn = ((280 + 170 * lightness) * Math.PI) / 180;
  const wanted = 0.2 * Math.sin(Math.PI * lightness) ** 0.8;
  const at = (chroma) => oklabToLinear(lightness, chroma * Math.cos(turn), chroma * Math.sin(turn));
  const shown = (chroma) => at(chroma).every((x) => x >= 0 && x <= 1);
  let low = 0, high = wanted;
  if (shown(wanted)) low = wanted;
  else {
    for (let step = 0; step < 16; step++) {
      const middle = (low + high) / 2;
      if (shown(middle)) low = middle;
      else high = middle;
    }
  }
  return at(low).map(linearToByte);
}

/* The theme whose colours the table has. */
export const colourTheme = () => theme;

/* Fills the table for a theme, 'light' or 'dark'. */
export function setColourTheme(next) {
  const [from, to] = next === 'dark' ? [0.22, 0.97] : [0.98, 0.24];
  theme = next;
  for (let i = 0; i < 256; i++) colourTable.set(pathColour(from + ((to - from) * i) / 255), 3 * i);
}

/* The index in the table of a value from 0 to 1; NaN counts as 0. */
export function colourIndex(x) {
  return x > 0 ? Math.min(255, Math.round(255 * x)) : 0;
}

export function colourOf(x) {
  const at = 3 * colourIndex(x);
  return `rgb(${colourTable[at]},${colourTable[at + 1]},${colourTable[at + 2]})`;
}

/* The relative luminance of a colour: red, green and blue from 0 to 255. */
function luminance(red, green, blue) {
  const [r, g, b] = [red, green, blue].map((x) => (x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/* Black or white, whichever has more contrast; at a luminance of 0.179 both have 4.58 to 1. */
export function inkFor(red, green, blue) {
  return luminance(red, green, blue) > 0.179 ? '#000' : '#fff';
}

/* The same for the colour of x. */
export function inkOn(x) {
  const at = 3 * colourIndex(x);
  return inkFor(colourTable[at], colourTable[at + 1], colourTable[at + 2]);
}

setColourTheme('light');
