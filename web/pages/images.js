/* The head of the page: what it is, what it contains, the answer for the selected image, and the images to choose from.
 * The bar with the answer and the images stays at the top of the window. */

import {element} from '../base/dom.js';
import {bestOf} from '../base/numbers.js';
import {plural, probabilityWords} from '../base/words.js';
import {countOff} from '../vit/model.js';
import {drawPicture, hasLabel} from '../vit/picture.js';

/* ---- The answer -------------------------------------------------------------------------------------------------- */

/* "Prediction: 7 (95.8 %)", beside the image. */
function createAnswer(store, model, data) {
  const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
  const answer = element('b', {id: 'answer'}), share = element('span', {id: 'answer-share'});
  const name = element('span', {id: 'image-name', class: 'answer-name'});
  const update = () => {
    const {result, image, gates} = store.get(), off = countOff(gates), best = bestOf(result.logits), shown = data.images[image], known = hasLabel(shown);
    drawPicture(canvas, shown.bytes, model.config.rows, model.config.columns);
    answer.textContent = String(best);
    share.textContent = `(${probabilityWords(result.probabilities[best])})`;
    name.textContent = shown.name + (off ? ` · ${plural(off, 'head')} off` : '');
    answer.classList.toggle('wrong', known && shown.label !== best);
    answer.title = known ? `label ${shown.label}` : '';
  };
  store.follow(['result', 'theme'], update);
  return element('div', {class: 'reading'}, canvas, element('p', null,
    element('span', {class: 'reading-line'}, 'Prediction: ', answer, ' ', share), name));
}

/* ---- Choice of image --------------------------------------------------------------------------------------------- */

function createThumb(store, image, n) {
  const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
  const answer = bestOf(image.logits), wrong = hasLabel(image) && answer !== image.label;
  const input = element('input', {type: 'radio', name: 'image', value: n, checked: n === store.get().image,
    onchange: () => store.set({image: n}),
    'aria-label': `${image.name}: ${hasLabel(image) ? `label ${image.label}, ` : ''}predicted ${answer}`});
  return {input, canvas, image, node: element('label', {class: 'thumb' + (wrong ? ' wrong' : ''),
    title: image.name}, input, canvas, element('span', null, wrong ? `${answer} ≠ ${image.label}` : String(answer)))};
}

/* The bar: the answer, and a strip of images in one line, which is moved so that the selected one is visible. */
export function createImageBar(store, model, data) {
  const {rows, columns} = model.config, items = data.images.map((image, n) => createThumb(store, image, n));
  const strip = element('div', {class: 'thumbs'}, items.map((item) => item.node));
  const draw = () => items.forEach(({canvas, image}) => drawPicture(canvas, image.bytes, rows, columns));
  store.on('theme', draw);
  store.on('image', ({image}) => items.forEach(({input, node}, n) => {
    input.checked = n === image;
    if (n === image) strip.scrollLeft = node.offsetLeft - strip.clientWidth / 2 + node.offsetWidth / 2;
  }));
  draw();
  return element('div', {class: 'image-bar'}, createAnswer(store, model, data),
    element('fieldset', {class: 'images', id: 'images'}, element('legend', {class: 'hidden'}, 'Image'), strip));
}
