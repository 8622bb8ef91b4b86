/* The maps of the heads of a model that is being trained. */

import {element} from '../base/dom.js';
import {sharedMax, weightScale} from '../base/heatmap.js';
import {largestOf} from '../base/numbers.js';
import {learnLayout, learnRecipe} from './trainer.js';
import {drawMap} from '../vit/picture.js';

/* A map for each head; draw(result, outline) shows what trainer.read has found. */
export function createLearnMaps(store, data) {
  const layout = learnLayout(data), rows = element('div', {class: 'learn-rows'});
  const make = () => {
    const heads = Number(store.get().heads), cells = (b) => Array.from({length: heads}, (_, h) => element('figure', null,
      element('canvas', {class: 'map', role: 'img', 'aria-label': `Attention of block ${b}, head ${h}`}),
      element('figcaption', {class: 'hint'}, `${b}.${h}`)));
    rows.style.setProperty('--heads', Math.min(heads, 4));
    rows.replaceChildren(...Array.from({length: learnRecipe.depth}, (_, b) => element('div', {class: 'learn-row'}, cells(b))));
  };
  make();
  store.on(['heads'], make);
  return {
    element: rows,
    draw({rows: shares}, outline) {
      const max = sharedMax(shares.flat().map(largestOf)), scale = weightScale('linear', 1 / layout.tokens, max), all = rows.querySelectorAll('canvas');
      if (all.length === shares.flat().length) shares.flat().forEach((row, n) => drawMap(all[n], layout, row, {outline, scale}));
    },
  };
}
