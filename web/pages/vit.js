/* The page of a Vision Transformer. A change of the image or of a gate sets the store; the model then runs once, and panels draw the new
 * result. The result with all heads on is kept for each image, for comparison. */

import {decodeBase64} from '../base/bytes.js';
import {createStore} from '../base/store.js';
import {plural} from '../base/words.js';
import {createDrawPanel} from '../draw/draw.js';
import {createResting} from '../draw/resting.js';
import {openEngine} from '../engine/page.js';
import {createContributionPanel} from '../heads/contribution.js';
import {createGatesPanel} from '../heads/gates.js';
import {createGridPanel} from '../heads/grid.js';
import {chooseToken, createLookPanel} from '../heads/look.js';
import {createRolloutPanel} from '../heads/rollout.js';
import {startSurvey, surveyOfFile} from '../heads/survey.js';
import {needed, showPage} from './frame.js';
import {createImageBar} from './images.js';
import {imageSource, inkToken} from '../steps/image.js';
import {createStepsPanel} from '../steps/steps.js';
import {countOff, loadModel, openGates, runModel} from '../vit/model.js';
import {outlinePath} from '../vit/picture.js';

/* [3, 3] gives "3 heads each", [3] gives "3 heads", [4, 2] (a pruned model) gives "heads by block: 4, 2". */
function countsInWords(counts, name) {
  const same = counts.every((count) => count === counts[0]);
  if (counts.length === 1) return plural(counts[0], name);
  return same ? `${plural(counts[0], name)} each` : `${name}s by block: ${counts.join(', ')}`;
}

function modelFacts(data, model) {
  const c = model.config, parameters = data.parameters.parts
    .reduce((sum, part) => sum + part.shape.reduce((product, size) => product * size, 1), 0);
  const facts = ['Vision Transformer', plural(c.depth, 'block'), countsInWords(c.heads, 'head'),
    `width ${c.width}`, `${plural(model.patches, 'patch', 'patches')} of ${c.patch} × ${c.patch}`,
    model.first ? 'class token' : 'mean pooling', `${parameters.toLocaleString('en')} parameters`];
  if (c.kv_heads.some((count, b) => count !== c.heads[b])) {
    facts.splice(3, 0, countsInWords(c.kv_heads, 'key/value head'));
  }
  return facts;
}

/* The panels, in the order of the page: create(store, model, data), and the condition for those that need more data. */
const vitPanels = [
  {create: (store, model, data, walk) => createStepsPanel({...walk, store})},
  {create: createDrawPanel},
  {create: createLookPanel},
  {create: createGridPanel},
  {create: createRolloutPanel},
  {create: createGatesPanel},
  {create: createContributionPanel, needs: (data) => data.images.every((image) => image.contributions)},
];

/* The first state of the page: block 1, whose tokens are still patches, and a patch with ink as the query. */
function firstVitState(data, model) {
  return {image: 0, drawing: 0, penDown: false, gates: openGates(model), block: 0, head: 0, token: inkToken(model, data.images[0].bytes), key: null, step: 0,
    scale: 'linear', range: 'fixed', sort: 'place', contribution: 'predicted', survey: surveyOfFile(model, data.survey), theme: document.documentElement.dataset.theme};
}

export async function startVit(data) {
  const engine = await needed('This page cannot run its model.', openEngine);
  const model = await needed('This page cannot open its model.', () => loadModel(engine, data)), baselines = new WeakMap();
  for (const image of data.images) {
    image.bytes = decodeBase64(image.pixels);
    image.outline = outlinePath(image.bytes, model.config.rows, model.config.columns);
  }
  const baselineOf = (image) => {
    if (!baselines.has(image)) baselines.set(image, runModel(model, image.bytes, openGates(model)));
    return baselines.get(image);
  };
  const compute = ({image, gates}) => {
    const baseline = baselineOf(data.images[image]);
    return {baseline, result: countOff(gates) ? runModel(model, data.images[image].bytes, gates) : {...baseline}};
  };
  const first = firstVitState(data, model), store = createStore({...first, ...compute(first)});
  store.on(['image', 'drawing', 'gates'], (state) => store.set(compute(state)));
  document.addEventListener('keydown', (event) => {
    const busy = event.ctrlKey || event.metaKey || event.altKey || event.target.closest('select, input[type=text], textarea');
    if (event.key.toLowerCase() === 'c' && model.first && !busy) chooseToken(store, model, 0);
  });

  const walk = imageSource(store, model, data);
  const panels = vitPanels.filter(({needs}) => !needs || needs(data)).map(({create}) => createResting((...all) => create(...all, walk), store, model, data));
  const view = {data, store, stores: [store], model, panels, walk, pictures: data.images.length, drawing: panels.find(({id}) => id === 'draw').drawing};
  const lead = 'The whole model runs in your browser. Step through its attention, draw a digit, see what each head attends to, and switch heads off.';
  showPage(view, modelFacts(data, model), lead, createImageBar(store, model, data));
  if (!data.survey) startSurvey(store, model, data);
  return view;
}
