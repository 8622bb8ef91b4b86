/* Small maps that follow the pen: every head from the selected token, and the rollout of the prediction.
 *
 * A map is drawn from two small canvases that are reused, one pixel per patch and the outline of the drawing, which takes
 * a fraction of a millisecond per map; those of the other panels are larger and drawn when the pen rests. */

import {element} from '../base/dom.js';
import {drawHeatmap, weightScale} from '../base/heatmap.js';
import {lookRow, lookScale} from '../heads/look.js';
import {rollOut, rolloutMax, rolloutRow} from '../heads/rollout.js';
import {tokenName} from '../vit/model.js';
import {strokeOutline} from '../vit/picture.js';

const LIVE_SIDE = 84; /* pixels of a map */

/* The outline of an image at the size of the maps. */
function drawOutlineStamp(canvas, model, image) {
  const by = LIVE_SIDE / model.config.columns;
  canvas.width = LIVE_SIDE;
  canvas.height = Math.round(by * model.config.rows);
  strokeOutline(canvas.getContext('2d'), image.outline, by, 1.6);
}

/* weights (tokens), of which the patches are shown. */
function drawLiveMap(canvas, model, weights, {scale, cells, stamp}) {
  drawHeatmap(cells, weights.subarray(model.first), model.down, model.across, scale);
  canvas.width = stamp.width;
  canvas.height = stamp.height;
  const context = canvas.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, 0, 0, canvas.width, canvas.height);
  context.drawImage(stamp, 0, 0);
}

export function createLiveMaps(model) {
  const most = Math.max(...model.config.heads), cells = element('canvas'), stamp = element('canvas');
  const canvas = () => element('canvas', {'aria-hidden': true});
  const heads = model.blocks.map((block) => Array.from({length: block.heads}, canvas)), rollout = canvas();
  const words = element('p', {class: 'hint', id: 'live-words'});
  const rows = heads.map((row, b) => element('div', {class: 'live-row', style: `--heads:${most}`},
    element('span', {class: 'live-name', 'aria-hidden': true}, `block ${b}`),
    element('div', {class: 'cells'}, row)));
  return {
    element: element('div', {class: 'live', role: 'group', 'aria-label': 'Attention of every head to the drawing'},
      element('div', {class: 'live-heads'}, element('h3', null, 'Every head'), rows),
      element('div', {class: 'live-rollout'}, element('h3', null, 'Rollout'), rollout), words),
    update(state, image) {
      const last = model.blocks.length - 1, scale = lookScale(state, model, null);
      drawOutlineStamp(stamp, model, image);
      heads.forEach((row, b) => row.forEach((map, h) => {
        drawLiveMap(map, model, lookRow(state, model, b, h), {scale, cells, stamp});
      }));
      const row = rolloutRow(model, rollOut(model, state.result.maps, state.gates)[last], 'read-out', 0);
      const own = model.first ? 0 : -1, high = rolloutMax([row], own);
      drawLiveMap(rollout, model, row, {scale: weightScale(state.scale, 1 / model.tokens, high), cells, stamp});
      words.textContent = `Heads: attention from ${tokenName(model, state.token)}. Rollout: an estimate, over all blocks, of ` +
        'how much each patch contributes to the prediction.';
    },
  };
}
