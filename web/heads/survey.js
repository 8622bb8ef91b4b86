/* Statistics of heads over many images: entropy, distance, importance, similarity.
 *
 * The data may contain these numbers, computed by the library from many images. Otherwise the page's engine computes them
 * from its own images, and the page notes it. An image is a separate task, so that the page stays responsive; importance,
 * which needs one pass per head, is computed on demand.
 *
 *     entropy     of a row of weights, in nats, mean over rows
 *     effective   number of keys: 1 / sum of p^2 of a row, mean over rows
 *     distance    mean distance from a patch to the patches it attends to, in patches, with weights normalized
 *     largest     weight of a row, mean over rows
 *     divergence  of two heads of a block: Jensen-Shannon, in nats, mean over rows; 0 identical, ln 2 = 0.69 disjoint
 *     importance  from the file, as `mha heads` measures it with a backward pass. The page has none: it measures how
 *                 much the loss of the right answer (without a label: the model's own) changes when the head is
 *                 switched off, and calls that the effect on the loss. */

import {bestOf} from '../base/numbers.js';
import {changeGates, openGates, runModel} from '../vit/model.js';
import {hasLabel} from '../vit/picture.js';

const SURVEY_IMAGES = 16; /* maximum number of images surveyed by the page */
const IMPORTANCE_IMAGES = 8;

/* The numbers of one head, or null if not available yet. */
export function surveyOf(state, block, head) {
  const survey = state.survey;
  return (survey && survey.heads.find((item) => item.block === block && item.head === head)) || null;
}

/* The survey of a file, with blocks, heads and twins counted from 0: its heads lie in the order of the model. */
export function surveyOfFile(model, survey) {
  if (!survey) return null;
  const places = model.blocks.flatMap(({heads}, block) => Array.from({length: heads}, (_, head) => ({block, head})));
  const own = {...survey, heads: survey.heads.map((item, n) => ({...item, ...places[n], twin: null, divergence: null}))};
  findTwins(own);
  return own;
}

/* The loss of a class. */
function lossOf(probabilities, answer) {
  return -Math.log(Math.max(probabilities[answer], 1e-30));
}

/* ---- Of the page's images ---------------------------------------------------------------------------------------- */

function emptySurvey(model, images) {
  const heads = [];
  model.blocks.forEach((block, b) => {
    for (let h = 0; h < block.heads; h++) {
      heads.push({block: b, head: h, entropy: 0, effective: 0, largest: 0, distance: 0, importance: null,
        twin: null, divergence: null});
    }
  });
  const pairs = model.blocks.map(({heads: H}) => Array.from({length: H}, () => new Array(H).fill(0)));
  return {images, importance_images: 0, byPage: true, heads, pairs};
}

/* Adds the statistics of a run, with this weight. */
function addImage(survey, {statistics, pairs}, share) {
  for (const item of survey.heads) {
    const measured = statistics[item.block][item.head];
    for (const key of Object.keys(measured)) item[key] += measured[key] * share;
  }
  survey.pairs.forEach((table, b) => table.forEach((row, h) => row.forEach((_, other) => {
    if (other !== h) row[other] += pairs[b][h][other] * share;
  })));
}

/* Each head's twin: the most similar head of its block. */
function findTwins(survey) {
  for (const item of survey.heads) {
    survey.pairs[item.block][item.head].forEach((divergence, other) => {
      if (other === item.head || (item.twin !== null && divergence >= item.divergence)) return;
      item.twin = other;
      item.divergence = divergence;
    });
  }
}

/* Calls `step(n)` for n from 0 to count - 1, each in a separate task, then `done()`. */
function inSlices(count, step, done) {
  let n = 0;
  const next = () => {
    if (n >= count) return done();
    step(n++);
    setTimeout(next, 0);
  };
  setTimeout(next, 0);
}

/* Measures the heads over the images of the page, and sets `survey` in the store when that is complete. */
export function startSurvey(store, model, data) {
  const images = data.images.slice(0, SURVEY_IMAGES), gates = openGates(model);
  const survey = emptySurvey(model, images.length);
  inSlices(images.length,
    (n) => addImage(survey, runModel(model, images[n].bytes, gates, {statistics: true}), 1 / images.length),
    () => {
      findTwins(survey);
      store.set({survey});
    });
}

/* Adds importance to the page's survey; calls `progress(share)` with the fraction done. One head after another, each over all
 * images, so that the model is opened once for each. */
export function surveyImportance(store, model, data, progress) {
  const survey = store.get().survey, images = data.images.slice(0, IMPORTANCE_IMAGES), open = openGates(model);
  const sums = survey.heads.map(() => 0), whole = [];
  const count = images.length * (1 + survey.heads.length);
  const answerOf = (n) => (hasLabel(images[n]) ? images[n].label : bestOf(whole[n].logits));
  const step = (n) => {
    const image = n % images.length, which = Math.floor(n / images.length) - 1, item = survey.heads[which];
    if (which < 0) {
      whole.push(runModel(model, images[image].bytes, open));
    } else {
      const gates = changeGates(open, (gate, b, h) => (b === item.block && h === item.head ? 0 : gate));
      const without = runModel(model, images[image].bytes, gates);
      const change = lossOf(without.probabilities, answerOf(image)) - lossOf(whole[image].probabilities, answerOf(image));
      sums[which] += Math.abs(change) / images.length;
    }
    progress((n + 1) / count);
  };
  inSlices(count, step, () => {
    const heads = survey.heads.map((item, n) => ({...item, importance: sums[n]}));
    store.set({survey: {...survey, heads, importance_images: images.length}});
  });
}
