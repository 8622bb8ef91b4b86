/* Panel: draw a digit for the model that is being trained. It is read again whenever the model changes. */

import {announce} from '../base/dom.js';
import {sharedMax, weightScale} from '../base/heatmap.js';
import {largestOf} from '../base/numbers.js';
import {createPanel} from '../base/panel.js';
import {svgPicture} from '../base/svg.js';
import {answerWords, createDrawParts} from '../draw/parts.js';
import {createSheet} from '../draw/sheet.js';
import {createLearnMaps} from './maps.js';
import {learnLayout} from './trainer.js';
import {mapSvg, outlinePath, pictureSvg} from '../vit/picture.js';

export function createLearnDraw(store, trainer, data) {
  const maps = createLearnMaps(store, data), sheet = createSheet(() => (frame = frame || requestAnimationFrame(show)));
  const parts = createDrawParts(sheet, data, {maps: maps.element, wanted: 'Draw a digit.',
    hint: 'Draw a digit to see the prediction of the model before, during and after training.'});
  let frame = 0, shown = null;

  function show() {
    frame = 0;
    const fitted = sheet.isEmpty() ? null : trainer.fit(sheet.pixels());
    shown = fitted && !fitted.blank ? {bytes: fitted.bytes, outline: outlinePath(fitted.bytes, data.rows, data.columns)} : null;
    parts.update();
    parts.notice(shown && fitted.doubt ? `This may not be a digit: ${fitted.doubt}.` : '');
    const probabilities = read();
    if (probabilities && !sheet.busy()) announce(`Predicted ${answerWords(probabilities)}`);
  }

  function read() {
    if (!shown) return parts.show(null);
    const result = trainer.read(shown.bytes);
    parts.show(shown.bytes, result.probabilities);
    maps.draw(result, shown.outline);
    return result.probabilities;
  }

  trainer.on(({model}) => model && read());
  store.on('theme', () => {
    sheet.redraw();
    read();
  });
  return createPanel({
    id: 'draw',
    title: 'Draw a digit',
    text: 'Draw with a mouse, a finger or a pen. The digit is centred and scaled like the digits of MNIST, ' +
      'and the model that you are training predicts what it is.',
    body: parts.element,
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
