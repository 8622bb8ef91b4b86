/* Statistics of heads over many images: entropy, distance, importance, similarity.
 *
 * The data may contain these numbers, computed by the library from many images. Otherwise the page computes them from
 * its own images and notes it. An image takes about 25 ms and is a separate task, so that the page stays responsive;
 * importance, which needs one pass per head, is computed on demand.
 *
 *     entropy     of a row of weights, in nats, mean over rows
 *     effective   number of keys: 1 / sum of p^2 of a row, mean over rows
 *     distance    mean distance from a patch to the patches it attends to, in patches, with weights normalized
 *     largest     weight of a row, mean over rows
 *     divergence  of two heads of a block: Jensen-Shannon, in nats, mean over rows; 0 identical, ln 2 = 0.69 disjoint
 *     importance  from the file, as `mha heads` measures it with a backward pass. The page has none: it measures how
 *                 much the loss of the right answer (without a label: the model's own) changes when the head is
 *                 switched off, and calls that the effect on the loss. */

const SURVEY_IMAGES = 16; /* maximum number of images surveyed by the page */
const IMPORTANCE_IMAGES = 8;

/* The numbers of one head, or null if not available yet. */
function surveyOf(state, block, head) {
  const survey = state.survey;
  return (survey && survey.heads.find((item) => item.block === block + 1 && item.head === head + 1)) || null;
}

/* ---- Of one image ------------------------------------------------------------------------------------------------ */

function measureHead(model, weights) {
  const {tokens: T, first, across} = model, sums = {entropy: 0, effective: 0, largest: 0, distance: 0};
  for (let i = 0; i < T; i++) {
    let entropy = 0, squares = 0, largest = 0, far = 0, shares = 0;
    for (let j = 0; j < T; j++) {
      const w = weights[i * T + j];
      if (w > 0) entropy -= w * Math.log(w);
      squares += w * w;
      if (w > largest) largest = w;
      if (i < first || j < first) continue;
      const down = Math.floor((i - first) / across) - Math.floor((j - first) / across);
      const aside = ((i - first) % across) - ((j - first) % across);
      far += w * Math.sqrt(down * down + aside * aside);
      shares += w;
    }
    sums.entropy += entropy / T;
    sums.effective += 1 / squares / T;
    sums.largest += largest / T;
    if (shares > 0) sums.distance += far / shares / model.patches;
  }
  return sums;
}

/* Jensen-Shannon divergence of the rows of two maps (T,T), mean over rows. */
function measureDivergence(a, b, T) {
  let sum = 0;
  for (let i = 0; i < T * T; i++) {
    const middle = (a[i] + b[i]) / 2;
    if (a[i] > 0) sum += 0.5 * a[i] * Math.log(a[i] / middle);
    if (b[i] > 0) sum += 0.5 * b[i] * Math.log(b[i] / middle);
  }
  return Math.max(0, sum / T);
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
      heads.push({block: b + 1, head: h + 1, entropy: 0, effective: 0, largest: 0, distance: 0, importance: null,
        twin: null, divergence: null});
    }
  });
  const pairs = model.blocks.map(({heads: H}) => Array.from({length: H}, () => new Array(H).fill(0)));
  return {images, importance_images: 0, byPage: true, heads, pairs};
}

function addImage(survey, model, maps, share) {
  for (const item of survey.heads) {
    const measured = measureHead(model, maps[item.block - 1][item.head - 1]);
    for (const key of Object.keys(measured)) item[key] += measured[key] * share;
  }
  survey.pairs.forEach((table, b) => table.forEach((row, h) => {
    for (let other = 0; other < h; other++) {
      const divergence = measureDivergence(maps[b][h], maps[b][other], model.tokens) * share;
      table[h][other] += divergence;
      table[other][h] += divergence;
    }
  }));
}

/* Each head's twin: the most similar head of its block. */
function findTwins(survey) {
  for (const item of survey.heads) {
    survey.pairs[item.block - 1][item.head - 1].forEach((divergence, other) => {
      if (other === item.head - 1 || (item.twin !== null && divergence >= item.divergence)) return;
      item.twin = other + 1;
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

/* Sets `survey` in the store: the file's at once, or the page's when it is complete. */
function startSurvey(store, model, data) {
  if (data.survey) return store.set({survey: data.survey});
  const images = data.images.slice(0, SURVEY_IMAGES), gates = openGates(model);
  const survey = emptySurvey(model, images.length);
  inSlices(images.length,
    (n) => addImage(survey, model, runModel(model, images[n].bytes, gates).maps, 1 / images.length),
    () => {
      findTwins(survey);
      store.set({survey});
    });
}

/* Adds importance to the page's survey; calls `progress(share)` with the fraction done. */
function surveyImportance(store, model, data, progress) {
  const survey = store.get().survey, images = data.images.slice(0, IMPORTANCE_IMAGES), open = openGates(model);
  const sums = survey.heads.map(() => 0);
  let whole = null, answer = 0;
  const step = (n) => {
    const image = Math.floor(n / survey.heads.length), which = n % survey.heads.length, item = survey.heads[which];
    if (which === 0) {
      whole = runModel(model, images[image].bytes, open);
      answer = images[image].label === null ? bestOf(whole.logits) : images[image].label;
    }
    const block = item.block - 1;
    const gates = changeGates(open, (gate, b, h) => (b === block && h === item.head - 1 ? 0 : gate));
    const without = runModel(model, images[image].bytes, gates, {start: {block, x: whole.inputs[block]}});
    const change = lossOf(without.probabilities, answer) - lossOf(whole.probabilities, answer);
    sums[which] += Math.abs(change) / images.length;
    progress((n + 1) / (images.length * survey.heads.length));
  };
  inSlices(images.length * survey.heads.length, step, () => {
    const heads = survey.heads.map((item, n) => ({...item, importance: sums[n]}));
    store.set({survey: {...survey, heads, importance_images: images.length}});
  });
}
