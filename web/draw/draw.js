/* Panel: draw a digit, or bring a picture of one, and see what the model makes of it.
 *
 * The drawing is an image of the page like the others: fitted to the model as MNIST's digits are, it becomes the last of
 * data.images and the selected one, so every panel shows it. With each frame it is replaced by a new object, and `drawing`
 * in the store, which counts them, changes. With nothing drawn there is no such image, and the one that was selected
 * before comes back.
 *
 * While the pen moves, this panel follows with every frame. Other panels take longer: those in sight follow as often as
 * they take up a seventh of the time, the others (resting.js) when the pen rests.
 *
 *     panel.drawing.text()          a text for a link: the strokes, or the fitted picture; null if nothing is drawn
 *     panel.drawing.restore(text)   draws that and selects it; false if the text is not one of these */

import {announce, element} from '../base/dom.js';
import {bestOf, remember, splitNumbers} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {svgPicture, themeColours} from '../base/svg.js';
import {createLiveMaps} from './maps.js';
import {answerWords, createDrawParts} from './parts.js';
import {attachFiles, imageAmong, readPicture} from './pictures.js';
import {createSheet} from './sheet.js';
import {bytesToText, strokesFromBytes, strokesToBytes, textToBytes} from './strokes.js';
import {createDrawingThumb} from './thumb.js';
import {lookRow, lookScale} from '../heads/look.js';
import {runModel} from '../vit/model.js';
import {mapHeight, mapSvg, outlinePath, pictureSvg} from '../vit/picture.js';

const PEN_RESTS = 250; /* milliseconds without a change, after which all panels follow */

export function createDrawPanel(store, model, data) {
  const place = data.images.length, thumb = createDrawingThumb(store, model, place), live = createLiveMaps(model);
  const view = {before: store.get().image, version: 0, frame: 0, timer: 0, rest: 0, rested: 0, passing: false, shown: null};
  const sheet = createSheet(() => {
    if (!view.frame) view.frame = requestAnimationFrame(refresh);
    clearTimeout(view.rested);
    view.rested = setTimeout(() => store.set({penDown: sheet.busy()}), PEN_RESTS);
    if (sheet.busy() && !store.get().penDown) store.set({penDown: true});
  });
  const tools = createDrawTools(sheet, take), parts = createDrawParts(sheet, model.config, {tools, maps: live.element,
    hint: 'Draw a digit to see the prediction and what each head attends to while you draw.', wanted: 'Draw a digit or choose a picture.'});
  const isSelected = () => data.images.length > place && store.get().image === place;

  function refresh() {
    cancelAnimationFrame(view.frame);
    view.frame = 0;
    const {base} = sheet.shown(), kept = base && base.kind === 'image';
    const fitted = sheet.isEmpty() ? null : kept ? {bytes: base.bytes, doubt: ''} : fitDrawing(model, sheet.pixels());
    parts.update();
    if (!fitted || fitted.blank) {
      parts.notice(fitted && base ? `${base.name} is blank.` : '');
      return forget();
    }
    parts.notice(fitted.doubt ? `This may not be a digit: ${fitted.doubt}.` : '');
    const image = drawnImage(model, base ? base.name : 'your drawing', fitted.bytes);
    show(image, passOn(image) ? store.get().result : runModel(model, image.bytes, store.get().gates));
  }

  function show(image, result) {
    view.shown = {image, result};
    parts.show(image.bytes, result.probabilities);
    live.update({...store.get(), result}, image);
    thumb.update(image, bestOf(result.probabilities));
    if (!sheet.busy()) announce(`Predicted ${answerWords(result.probabilities)}`);
  }

  /* Makes it the image of the page: now, or when the other panels have had their rest. Returns whether it did. */
  function passOn(image) {
    const now = performance.now();
    clearTimeout(view.timer);
    if (sheet.busy() && now < view.rest) {
      view.timer = setTimeout(() => passOn(image), view.rest - now);
      return false;
    }
    data.images[place] = image;
    view.passing = true;
    store.set({image: place, drawing: ++view.version});
    view.passing = false;
    const end = performance.now();
    view.rest = end + 6 * (end - now);
    return true;
  }

  /* Nothing is drawn. */
  function forget() {
    clearTimeout(view.timer);
    view.shown = null;
    parts.show(null);
    thumb.update(null);
    if (data.images.length === place) return;
    if (isSelected()) store.set({image: view.before});
    data.images.length = place;
    store.set({drawing: ++view.version});
  }

  /* A frame that is still due would take the notice away. */
  function refuse(words) {
    if (view.frame) refresh();
    parts.notice(words);
  }

  async function take(files) {
    const file = imageAmong(files);
    if (!file) return refuse(`${files.length ? files[0].name : 'This'} is not an image.`);
    try {
      sheet.add({kind: 'picture', canvas: await readPicture(file), name: file.name});
    } catch {
      refuse(`${file.name} cannot be read as an image.`);
    }
  }

  const text = 'Draw with a mouse, a finger or a pen, or choose, drop or paste a picture. The digit is centred and scaled ' +
    'like the digits of MNIST. The prediction and all other panels follow as you draw.';
  const panel = createPanel({
    id: 'draw',
    title: 'Draw a digit',
    text,
    body: parts.element,
    toSvg: () => drawSvg({...store.get(), ...(view.shown && {result: view.shown.result})}, model, data, view.shown),
    pixels: () => sheet.pixels(), /* for tests */
    drawing: {
      text() {
        if (view.frame) refresh(); /* the sheet may be ahead of what is shown */
        return view.shown ? drawingText(sheet.shown(), view.shown.image) : null;
      },
      restore(words) {
        const items = drawingItems(words, model);
        if (!items) return false;
        sheet.restore(items);
        refresh();
        return true;
      },
    },
  });
  parts.clear.addEventListener('click', tools.pickPen);
  attachFiles((files) => {
    panel.element.scrollIntoView({block: 'nearest'});
    take(files);
  }, (over) => parts.frame.classList.toggle('over', over));
  store.on('theme', sheet.redraw);
  store.on('image', ({image}) => (view.before = image < place ? image : view.before));
  store.on(['result', 'token', 'scale', 'theme'], (state) => {
    if (!view.passing && view.shown && isSelected()) show(view.shown.image, state.result);
  });
  return panel;
}

/* What the model sees of RGBA pixels: {bytes, blank, doubt}, fitted by the library. */
function fitDrawing(model, {pixels, width, height}) {
  return model.whole.fit(pixels, width, height, model.config.rows * model.config.columns);
}

/* An image of the page. Its logits, and what heads add to them, are computed when a panel asks for them. */
function drawnImage(model, name, bytes) {
  const {rows, columns, classes, heads, depth} = model.config, {whole} = model;
  const parts = heads.reduce((sum, count) => sum + count, 0) + depth + 2;
  const make = {
    logits() {
      whole.run(bytes, 0);
      return whole.take('logits', classes);
    },
    contributions() {
      whole.contributions(bytes);
      return splitNumbers(whole.take('contributions', parts * classes), parts, classes);
    },
  };
  const made = remember((key) => make[key]());
  return {name, bytes, label: null, outline: outlinePath(bytes, rows, columns),
    get logits() {
      return made('logits');
    },
    get contributions() {
      return made('contributions');
    }};
}

/* ---- Links ------------------------------------------------------------------------------------------------------- */

/* 's' and strokes, or 'i' and the pixels that the model sees, whichever is shorter; a picture has only the latter. */
function drawingText({strokes}, image) {
  const pixels = 'i' + bytesToText(image.bytes), drawn = strokes.length ? 's' + bytesToText(strokesToBytes(strokes)) : null;
  return drawn && drawn.length <= 2 * pixels.length ? drawn : pixels;
}

/* What such a text puts on the sheet; null if the text is of another kind. */
function drawingItems(text, model) {
  const bytes = typeof text === 'string' ? textToBytes(text.slice(1)) : null, {rows, columns} = model.config;
  if (!bytes) return null;
  if (text[0] === 's') {
    const strokes = strokesFromBytes(bytes);
    return strokes && strokes.map((stroke) => ({kind: 'stroke', ...stroke}));
  }
  if (text[0] !== 'i' || bytes.length !== rows * columns) return null;
  return [{kind: 'image', name: 'your drawing', bytes, rows, columns}];
}

/* ---- Tools ------------------------------------------------------------------------------------------------------- */

/* Pen and eraser, and pictures: {before, behind} the buttons that undo; pickPen() takes the pen again. */
function createDrawTools(sheet, take) {
  const tools = ['Pen', 'Eraser'].map((word) => element('button', {type: 'button', id: `draw-${word.toLowerCase()}`, 'aria-pressed': word === 'Pen',
    onclick: () => pick(word)}, word));
  const pick = (word) => {
    sheet.tool(word.toLowerCase());
    for (const tool of tools) tool.setAttribute('aria-pressed', String(tool.textContent === word));
  };
  const file = element('input', {type: 'file', id: 'draw-file', accept: 'image/*', 'aria-label': 'Choose a picture of a digit', onchange: () => {
    if (file.files.length) take(file.files);
    file.value = ''; /* so that the same file can be chosen again */
  }});
  return {before: tools, behind: element('label', {class: 'file-button'}, file, element('span', null, 'Choose a picture')), pickPen: () => pick('Pen')};
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

function drawSvg(state, model, data, shown) {
  const colours = themeColours(), most = Math.max(...model.config.heads), size = 64, gap = 10, left = 210;
  const high = mapHeight(model, size);
  if (!shown) return svgPicture(420, 90, 'Draw a digit', 'Nothing has been drawn.', []);
  const {image, result} = shown, parts = [pictureSvg(image.bytes, model.config.rows, model.config.columns, {x: 24, y: 84, width: 150})];
  model.blocks.forEach((block, b) => {
    for (let h = 0; h < block.heads; h++) {
      parts.push(mapSvg(model, lookRow(state, model, b, h), {outline: image.outline, scale: lookScale(state, model, null),
        mark: state.token, accent: colours.accent, x: left + h * (size + gap), y: 84 + b * (high + gap), width: size}));
    }
  });
  const width = Math.max(460, left + most * (size + gap) + 14);
  return svgPicture(width, Math.max(270, 94 + model.blocks.length * (high + gap)), 'Draw a digit',
    `${data.title}, ${image.name}: ${answerWords(result.probabilities)}`, parts);
}
