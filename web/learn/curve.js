/* A curve over the steps of a training.
 *
 *     const curve = createCurve('Loss of each batch', 2.5, shortNumber);
 *     curve.draw([{step, value}, ...]);
 *
 * The vertical axis runs from 0 to `top`; `words` writes a value. */

import {svgElement} from '../base/dom.js';
import {svgLabel, themeColours} from '../base/svg.js';

const CURVE_WIDTH = 640, CURVE_HEIGHT = 200, CURVE_LEFT = 46, CURVE_RIGHT = 12, CURVE_TOP = 30, CURVE_BOTTOM = 26;

/* The smallest of 100, 200, 500, 1000, ... that is at least `most`. */
function curveSteps(most) {
  let size = 100;
  while (true) {
    for (const by of [1, 2, 5]) if (by * size >= most) return by * size;
    size *= 10;
  }
}

/* Where values lie: functions of a step and of a value. */
function curvePlaces(points, top) {
  const last = curveSteps(points.length ? points[points.length - 1].step : 0);
  const wide = CURVE_WIDTH - CURVE_LEFT - CURVE_RIGHT, high = CURVE_HEIGHT - CURVE_TOP - CURVE_BOTTOM;
  return {last, x: (step) => CURVE_LEFT + (wide * step) / last, y: (value) => CURVE_TOP + high * (1 - Math.min(1, value / top))};
}

function curvePath(points, {x, y}) {
  return points.map(({step, value}, n) => `${n ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
}

export function createCurve(title, top, words) {
  const line = svgElement('path', {class: 'curve-line'}), dot = svgElement('circle', {class: 'curve-dot', r: 4});
  const value = svgElement('text', {class: 'curve-value', x: CURVE_WIDTH - CURVE_RIGHT, y: 16, 'text-anchor': 'end'});
  const axis = svgElement('g', {class: 'curve-axis'});
  const svg = svgElement('svg', {viewBox: `0 0 ${CURVE_WIDTH} ${CURVE_HEIGHT}`, role: 'img', 'aria-label': title},
    svgElement('text', {class: 'curve-title', x: 0, y: 16}, title), value, axis, line, dot);
  let shown = [], ticks = 0;
  const drawAxis = ({last, x, y}) => {
    const lines = [0, top / 2, top].flatMap((tick) => [
      svgElement('line', {x1: CURVE_LEFT, x2: CURVE_WIDTH - CURVE_RIGHT, y1: y(tick), y2: y(tick)}),
      svgElement('text', {x: CURVE_LEFT - 6, y: y(tick) + 4, 'text-anchor': 'end'}, top === 1 ? `${100 * tick}\u00a0%` : String(tick))]);
    const steps = [0, last / 2, last].map((tick) => svgElement('text', {x: x(tick), y: CURVE_HEIGHT - 8,
      'text-anchor': tick === last ? 'end' : tick ? 'middle' : 'start'}, tick === last ? `${tick} steps` : String(tick)));
    axis.replaceChildren(...lines, ...steps);
    ticks = last;
  };
  const draw = (points) => {
    const places = curvePlaces(points, top), end = points[points.length - 1];
    shown = points;
    if (places.last !== ticks) drawAxis(places);
    line.setAttribute('d', curvePath(points, places));
    dot.setAttribute('visibility', end ? 'visible' : 'hidden');
    if (end) {
      dot.setAttribute('cx', places.x(end.step));
      dot.setAttribute('cy', places.y(end.value));
    }
    value.textContent = end ? words(end.value) : '';
    svg.setAttribute('aria-label', end ? `${title}: ${words(end.value)} after ${end.step} steps` : title);
  };
  draw([]);
  return {
    element: svg, draw,
    /* The curve as SVG text, `down` pixels below the top. */
    svg: (down) => {
      const places = curvePlaces(shown, top), {ink, accent} = themeColours();
      return `<g transform="translate(0,${down})">${svgLabel(0, 16, `${title}: ${shown.length ? words(shown[shown.length - 1].value) : ''}`, {fill: ink})}` +
        `<path d="${curvePath(shown, places)}" fill="none" stroke="${accent}" stroke-width="2"/></g>`;
    },
  };
}
