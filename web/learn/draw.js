/* Panel: draw a digit for the model that is being trained. It is read again whenever the model changes. */

import {element} from '../base/dom.js';
import {sharedMax, weightScale} from '../base/heatmap.js';
import {bestOf, largestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {svgPicture} from '../base/svg.js';
import {percent} from '../base/words.js';
import {answerWords, createColumns} from '../draw/maps.js';
import {createSheet} from '../draw/sheet.js';
import {createLearnMaps} from './maps.js';
import {learnLayout} from './trainer.js';
import {drawPicture, mapSvg, outlinePath, pictureSvg} from '../vit/picture.js';

export function createLearnDraw(store, trainer, data) {
  const button = (id, words, press) => element('button', {type: 'button', id, onclick: press}, words);
  const here = element('span', {class: 'sheet-hint', 'aria-hidden': true}, 'Draw a digit here'), hint = element('p', {class: 'hint', id: 'draw-hint'},
    'Draw a digit to see the prediction of the model before, during and after training.');
  const seen = element('canvas', {class: 'map seen', 'aria-hidden': true}), answer = element('p', {class: 'answer', id: 'draw-answer', role: 'status'});
  const columns = createColumns({config: {classes: data.classes}}), maps = createLearnMaps(store, data), notice = element('p', {class: 'notice', id: 'draw-notice', role: 'status', hidden: true});
  const out = element('div', {class: 'draw-out', hidden: true}, element('div', {class: 'draw-answer'},
    element('figure', {class: 'seen-figure'}, seen, element('figcaption', null, 'What the model sees')), answer, columns.element), maps.element);
  const undo = button('draw-undo', 'Undo', () => sheet.undo()), clear = button('draw-clear', 'Clear', () => sheet.clear());
  let frame = 0, shown = null;

  function show() {
    frame = 0;
    const empty = sheet.isEmpty(), fitted = empty ? null : trainer.fit(sheet.pixels());
    shown = fitted && !fitted.blank ? {bytes: fitted.bytes, outline: outlinePath(fitted.bytes, data.rows, data.columns)} : null;
    here.hidden = !empty;
    undo.disabled = !sheet.canUndo();
    clear.disabled = empty;
    notice.textContent = shown && fitted.doubt ? `This may not be a digit: ${fitted.doubt}.` : '';
    notice.hidden = !notice.textContent;
    read();
  }

  function read() {
    hint.hidden = Boolean(shown);
    out.hidden = !shown;
    sheet.canvas.setAttribute('aria-label', shown ? 'The drawing' : 'The drawing area is empty. Draw a digit.');
    if (!shown) return;
    const result = trainer.read(shown.bytes), best = bestOf(result.probabilities);
    drawPicture(seen, shown.bytes, data.rows, data.columns);
    answer.replaceChildren(element('b', null, String(best)), ` ${percent(result.probabilities[best])}`);
    columns.update(result.probabilities);
    maps.draw(result, shown.outline);
  }

  const later = () => {
    if (!frame) frame = requestAnimationFrame(show);
  };
  const sheet = createSheet(later);
  trainer.on(({model}) => model && read());
  store.on('theme', () => {
    sheet.redraw();
    read();
  });
  show();
  const side = element('div', {class: 'draw-side'}, element('div', {class: 'sheet-frame'}, sheet.canvas, here),
    element('div', {class: 'draw-tools', role: 'group', 'aria-label': 'Drawing'}, undo, clear), notice);
  return createPanel({
    id: 'draw',
    title: 'Draw a digit',
    text: 'Draw with a mouse, a finger or a pen. The digit is centred and scaled like the digits of MNIST, ' +
      'and the model that you are training predicts what it is.',
    body: element('div', {class: 'draw'}, side, hint, out),
    toSvg: () => learnDrawSvg(trainer, data, shown),
  });
}

function learnDrawSvg(trainer, data, shown) {
  if (!shown) return svgPicture(420, 90, 'Draw a digit', 'Nothing has been drawn.', []);
  const layout = learnLayout(data), parts = [pictureSvg(shown.bytes, data.rows, data.columns, {x: 24, y: 84, width: 150})];
  const {rows, probabilities} = trainer.read(shown.bytes), scale = weightScale('linear', 1 / layout.tokens, sharedMax(rows.flat().map(largestOf)));
  rows.forEach((block, b) => block.forEach((row, h) => parts.push(mapSvg(layout, row, {outline: shown.outline, scale, x: 210 + 78 * h, y: 84 + 96 * b, width: 64}))));
  return svgPicture(Math.max(460, 230 + 78 * rows[0].length), 290, 'Draw a digit', `Prediction: ${answerWords(probabilities)}`, parts);
}
