/* The sheet of the Draw panel: pointer events become strokes; a picture may take their place.
 *
 * What was done is a list of strokes, {kind: 'stroke'}, pictures, {kind: 'picture', canvas, name}, stored images, {kind:
 * 'image', bytes}, and {kind: 'clear'}; undo removes the last one. What is shown is the last picture, image or clearing,
 * with the strokes after it; a stroke on a picture begins a new drawing.
 *
 * Strokes are drawn on two canvases: the visible one, in the colours of the page, and a small one, white on black, which
 * is fitted to the model. */

import {colourTheme} from '../base/colour.js';
import {element} from '../base/dom.js';
import {addPoint, drawPoint, ERASER_WIDTH, PEN_WIDTH, SHEET_UNITS} from './strokes.js';
import {drawPicture} from '../vit/picture.js';

const SHEET_SIDE = 280; /* pixels of the small canvas */

export function createSheet(changed) {
  const canvas = element('canvas', {id: 'sheet', class: 'sheet', role: 'img'});
  const small = element('canvas', {width: SHEET_SIDE, height: SHEET_SIDE});
  const contexts = {shown: canvas.getContext('2d'), small: small.getContext('2d', {willReadFrequently: true})};
  const state = {done: [], tool: 'pen', pointer: null, stroke: null, side: 0};

  const inks = () => {
    const [paper, ink] = colourTheme() === 'dark' ? ['#1e1e1e', '#f5f5f5'] : ['#ffffff', '#181818'];
    return {shown: {paper, ink}, small: {paper: '#000000', ink: '#ffffff'}};
  };

  /* Calls draw(context, {paper, ink}, side) for both canvases. */
  function onBoth(draw) {
    const all = inks();
    draw(contexts.shown, all.shown, state.side);
    draw(contexts.small, all.small, SHEET_SIDE);
  }

  function paint(stroke, first) {
    onBoth((context, {paper, ink}, side) => {
      context.strokeStyle = stroke.erase ? paper : ink;
      for (let n = first; 3 * n < stroke.points.length; n++) drawPoint(context, stroke, n, side);
    });
  }

  /* The last item that is no stroke, and the strokes after it. */
  function shown() {
    let from = state.done.length;
    while (from > 0 && state.done[from - 1].kind === 'stroke') from--;
    const strokes = state.done.slice(from), base = from ? state.done[from - 1] : {kind: 'clear'};
    return strokes.length || base.kind === 'clear' ? {strokes, base: null} : {strokes, base};
  }

  function redraw() {
    const {strokes, base} = shown();
    onBoth((context, {paper}, side) => {
      context.fillStyle = paper;
      context.fillRect(0, 0, side, side);
    });
    if (base && base.kind === 'picture') placePicture(contexts.shown, base.canvas, state.side);
    if (base && base.kind === 'image') {
      const image = element('canvas');
      drawPicture(image, base.bytes, base.rows, base.columns);
      placePicture(contexts.shown, image, state.side);
    }
    for (const stroke of strokes) paint(stroke, 0);
  }

  /* As many pixels as the screen has. */
  function resize() {
    const side = Math.round(canvas.clientWidth * Math.min(3, window.devicePixelRatio || 1));
    if (!side || side === state.side) return;
    state.side = canvas.width = canvas.height = side;
    redraw();
  }

  function add(item) {
    state.done.push(item);
    redraw();
    changed();
  }

  attachPointer(canvas, {
    begin(point, erase) {
      state.stroke = {kind: 'stroke', erase: erase || state.tool === 'eraser', points: []};
      const fresh = shown().base !== null;
      state.done.push(state.stroke);
      if (fresh) redraw();
      this.move([point]);
    },
    move(points) {
      const {stroke} = state, first = stroke.points.length / 3;
      for (const {x, y, press} of points) {
        addPoint(stroke, x * SHEET_UNITS, y * SHEET_UNITS, stroke.erase ? ERASER_WIDTH : PEN_WIDTH * press);
      }
      if (stroke.points.length / 3 === first) return;
      paint(stroke, first);
      changed();
    },
    end() {
      state.stroke = null;
      changed();
    },
  });
  new ResizeObserver(resize).observe(canvas);

  return {
    canvas, redraw, add, shown,
    /* Whether a stroke is being drawn. */
    busy: () => state.stroke !== null,
    tool: (name) => (state.tool = name),
    canUndo: () => state.done.length > 0,
    isEmpty() {
      const {strokes, base} = shown();
      return !base && !strokes.length;
    },
    undo() {
      state.done.pop();
      redraw();
      changed();
    },
    clear() {
      if (!this.isEmpty()) add({kind: 'clear'});
    },
    restore(items) {
      state.done = items;
      redraw();
      changed();
    },
    /* What is fitted, RGBA: {pixels, width, height}. */
    pixels() {
      const {base} = shown(), from = base && base.kind === 'picture' ? base.canvas : small;
      const {data} = from.getContext('2d').getImageData(0, 0, from.width, from.height);
      return {pixels: data, width: from.width, height: from.height};
    },
  };
}

/* A picture as large as the sheet allows, in its middle. */
function placePicture(context, picture, side) {
  const by = side / Math.max(picture.width, picture.height), width = picture.width * by, height = picture.height * by;
  context.imageSmoothingEnabled = by < 4;
  context.drawImage(picture, (side - width) / 2, (side - height) / 2, width, height);
}

/* ---- Pointers ---------------------------------------------------------------------------------------------------- */

/* Mouse, finger and pen: calls begin(point, erase), move(points), end(). A point is {x, y, press}: x and y from 0 to 1,
 * press about 1, more or less for a pen that is pressed more or less. A second finger is ignored while one draws. */
function attachPointer(canvas, calls) {
  let pointer = null;
  const pointOf = (event, box) => ({
    x: (event.clientX - box.left) / box.width,
    y: (event.clientY - box.top) / box.height,
    press: event.pointerType === 'pen' && event.pressure > 0 ? 0.5 + event.pressure : 1,
  });
  const boxOf = () => canvas.getBoundingClientRect();
  const stop = (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    calls.end();
  };
  canvas.addEventListener('pointerdown', (event) => {
    const eraser = (event.buttons & 32) !== 0;
    if (pointer !== null || (event.button !== 0 && !eraser)) return;
    event.preventDefault();
    pointer = event.pointerId;
    canvas.setPointerCapture(pointer);
    calls.begin(pointOf(event, boxOf()), eraser);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (event.pointerId !== pointer) return;
    const between = event.getCoalescedEvents ? event.getCoalescedEvents() : [], box = boxOf();
    calls.move((between.length ? between : [event]).map((one) => pointOf(one, box)));
  });
  canvas.addEventListener('pointerup', stop);
  canvas.addEventListener('pointercancel', stop);
}
