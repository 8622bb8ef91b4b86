/* The drawing among the images of the page, to select it again after another one; it is there while something is drawn. */

import {element} from '../base/dom.js';
import {drawPicture} from '../vit/picture.js';

export function createDrawingThumb(store, model, place) {
  const canvas = element('canvas', {class: 'map', 'aria-hidden': true});
  const input = element('input', {type: 'radio', name: 'image', value: place, onchange: () => store.set({image: place})});
  const node = element('label', {class: 'thumb'}, input, canvas, element('span', null, 'drawing'));
  let shown = null;
  const draw = () => shown && drawPicture(canvas, shown.bytes, model.config.rows, model.config.columns);
  store.on('theme', draw);
  store.on('image', ({image}) => (input.checked = image === place));
  return {
    /* `image` is null if nothing is drawn. */
    update(image, words) {
      shown = image;
      if (!image) return node.remove();
      draw();
      node.title = image.name;
      input.setAttribute('aria-label', `${image.name}: predicted ${words}`);
      const strip = document.querySelector('#images .thumbs');
      if (strip && node.parentNode !== strip) strip.prepend(node);
      input.checked = store.get().image === place;
      return undefined;
    },
  };
}
