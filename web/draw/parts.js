/* The elements of a panel for drawing: the sheet and its tools on the left, the prediction and the heads on the right.
 *
 * `sizes` has rows, columns and classes of the model, `maps` shows its heads. `hint` stands where the prediction will be; `wanted` is said of an empty
 * sheet. `tools` are further ones, {before, behind} the buttons that undo. */

import {element} from '../base/dom.js';
import {bestOf} from '../base/numbers.js';
import {percent, probabilityWords} from '../base/words.js';
import {topTwo} from '../heads/contribution.js';
import {drawPicture} from '../vit/picture.js';

export function createDrawParts(sheet, sizes, {maps, hint, wanted, tools = {}}) {
  const button = (id, words, press) => element('button', {type: 'button', id, onclick: press}, words);
  const undo = button('draw-undo', 'Undo', () => sheet.undo()), clear = button('draw-clear', 'Clear', () => sheet.clear());
  const here = element('span', {class: 'sheet-hint', 'aria-hidden': true}, 'Draw a digit here');
  const frame = element('div', {class: 'sheet-frame'}, sheet.canvas, here);
  const notice = element('p', {class: 'notice', id: 'draw-notice', role: 'status', hidden: true});
  const hintLine = element('p', {class: 'hint', id: 'draw-hint'}, hint);
  const seen = element('canvas', {class: 'map seen', 'aria-hidden': true}), answer = element('p', {class: 'answer', id: 'draw-answer'});
  const columns = createColumns(sizes.classes), out = element('div', {class: 'draw-out'},
    element('div', {class: 'draw-answer'},
      element('figure', {class: 'seen-figure'}, seen, element('figcaption', null, 'What the model sees')), answer, columns.element), maps);
  const side = element('div', {class: 'draw-side'}, frame,
    element('div', {class: 'draw-tools', role: 'group', 'aria-label': 'Drawing'}, tools.before, undo, clear, tools.behind), notice);
  const parts = {
    element: element('div', {class: 'draw'}, side, hintLine, out), frame, clear,
    notice(words) {
      notice.textContent = words;
      notice.hidden = !words;
    },
    /* Follows the sheet. */
    update() {
      const empty = sheet.isEmpty();
      here.hidden = !empty;
      undo.disabled = !sheet.canUndo();
      clear.disabled = empty;
    },
    /* What the model sees, and the probabilities of its classes; null: the hint. */
    show(bytes, probabilities) {
      hintLine.hidden = Boolean(bytes);
      out.hidden = !bytes;
      sheet.canvas.setAttribute('aria-label', bytes ? `The drawing: ${answerWords(probabilities)}` : `The drawing area is empty. ${wanted}`);
      if (!bytes) return;
      const best = bestOf(probabilities);
      drawPicture(seen, bytes, sizes.rows, sizes.columns);
      answer.replaceChildren(element('b', null, String(best)), ` ${percent(probabilities[best])}`);
      columns.update(probabilities);
    },
  };
  parts.update();
  parts.show(null);
  return parts;
}

/* ---- Probabilities ----------------------------------------------------------------------------------------------- */

/* A column per class. */
function createColumns(classes) {
  const columns = Array.from({length: classes}, (_, c) => {
    const bar = element('i'), share = element('span', {class: 'column-share'});
    return {bar, share, node: element('div', {class: 'column', 'data-class': c},
      element('span', {class: 'column-bar'}, bar), element('b', null, String(c)), share)};
  });
  return {
    element: element('div', {class: 'columns', 'aria-hidden': true}, columns.map(({node}) => node)),
    update(probabilities) {
      const best = bestOf(probabilities);
      columns.forEach(({bar, share, node}, c) => {
        const part = Number.isFinite(probabilities[c]) ? probabilities[c] : 0;
        bar.style.height = 100 * part + '%';
        share.textContent = `${Math.round(100 * part)}`;
        node.classList.toggle('best', c === best);
      });
    },
  };
}

/* "7 (98.2 %), then 1 (1.20 %)". */
export function answerWords(probabilities) {
  const [best, second] = topTwo(probabilities);
  return `${best} (${probabilityWords(probabilities[best])}), then ${second} (${probabilityWords(probabilities[second])})`;
}
