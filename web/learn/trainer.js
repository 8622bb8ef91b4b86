/* The training of the page: a small Vision Transformer on the digits inside it, step by step.
 *
 *     const trainer = createTrainer(engine, data, await unpackDigits(data), store);
 *     trainer.go();                  takes steps until pause(), one or more between two frames
 *     trainer.on((news) => ...);     news: {stepped, evaluated, model}, what is new
 *     trainer.kept()                 the model and its curves as JSON, for a copy of the page; null before the first step
 *     trainer.adopt(kept)            shows them again: the model can be looked at, and a new training can begin
 *
 * heads, width and rate of the store are those of the next training; restart() begins one. */

import {decodeBase64, encodeBase64, unpackGzip} from '../base/bytes.js';
import {showNotice} from '../base/notice.js';
import {bestOf, splitNumbers} from '../base/numbers.js';
import {TRAINING_DIVERGED} from '../engine/train.js';
import {outlinePath} from '../vit/picture.js';

export const LEARN_DIGITS = 30; /* test images whose predictions are shown */
const LEARN_FRAME = 12; /* milliseconds of steps between two frames */
const LEARN_LOOK = 4; /* steps between two looks at the heads */
const LEARN_EVALUATE = 31; /* steps between two evaluations */

/* What a training on the page has in common with all others. */
export const learnRecipe = {depth: 2, epochs: 30, batch: 32, warmup: 0.03, held_out: 0, average: 0, smoothing: 0};

/* A file of MNIST's format: big-endian numbers, then bytes. */
function digitFile(numbers, bytes) {
  const file = new Uint8Array(4 * numbers.length + bytes.length), view = new DataView(file.buffer);
  numbers.forEach((number, n) => view.setInt32(4 * n, number));
  file.set(bytes, 4 * numbers.length);
  return file;
}

/* The images and labels of the page: {train, test}, each with {count, images, labels}. */
export async function unpackDigits(data) {
  const unpack = async (text) => (data.packed ? unpackGzip(decodeBase64(text)) : decodeBase64(text));
  const part = async ({count, images, labels}) => ({count, images: await unpack(images), labels: await unpack(labels)});
  return {train: await part(data.train), test: await part(data.test)};
}

function digitFolder({rows, columns}, {train, test}) {
  const images = ({count, images: bytes}) => digitFile([2051, count, rows, columns], bytes);
  const labels = ({count, labels: bytes}) => digitFile([2049, count], bytes);
  return {'train-images-idx3-ubyte': images(train), 'train-labels-idx1-ubyte': labels(train),
    't10k-images-idx3-ubyte': images(test), 't10k-labels-idx1-ubyte': labels(test)};
}

/* The test images that are shown. */
function shownDigits(data, {test}) {
  const size = data.rows * data.columns;
  return Array.from({length: Math.min(LEARN_DIGITS, test.count)}, (_, n) => {
    const bytes = test.images.slice(n * size, (n + 1) * size);
    return {bytes, label: test.labels[n], outline: outlinePath(bytes, data.rows, data.columns)};
  });
}

export function createTrainer(engine, data, digits, store) {
  const folder = digitFolder(data, digits), shown = shownDigits(data, digits), listeners = [];
  let training = null, model = null, timer = 0;
  const trainer = {shown, curve: [], scores: [], predictions: [], numbers: null, ended: null}; /* ended: 'done', 'diverged' or 'kept' */
  const tell = (news) => listeners.forEach((call) => call(news));

  const look = () => {
    const now = training.model();
    if (model) model.close();
    model = now;
  };
  const predict = () => {
    trainer.predictions = shown.map(({bytes}) => {
      model.run(bytes, 0);
      return bestOf(model.take('logits', data.classes));
    });
  };
  const evaluate = () => {
    trainer.numbers = training.evaluate();
    trainer.scores.push({step: trainer.numbers.step, value: trainer.numbers.testCorrect});
    predict();
  };
  /* One step, and what is due after it. Returns what is new. */
  const step = () => {
    const numbers = training.step(), {state} = numbers;
    if (state) {
      trainer.ended = state === TRAINING_DIVERGED ? 'diverged' : 'done';
      store.set({running: false});
      if (trainer.ended === 'diverged') return {}; /* there is nothing to look at: its numbers are not finite */
      look();
      evaluate();
      return {evaluated: true, model: true};
    }
    trainer.numbers = numbers;
    trainer.curve.push({step: numbers.step, value: numbers.loss});
    const due = numbers.step % LEARN_EVALUATE === 0, changed = due || numbers.step % LEARN_LOOK === 0;
    if (changed) look();
    if (due) evaluate();
    return {stepped: true, evaluated: due, model: changed};
  };
  const work = () => {
    const begin = performance.now(), news = {};
    try {
      while (store.get().running && performance.now() - begin < LEARN_FRAME) {
        for (const [key, value] of Object.entries(step())) news[key] = news[key] || value;
      }
      tell(news);
    } catch (error) {
      store.set({running: false});
      showNotice(`Training has stopped: ${error.message}`);
    }
    timer = store.get().running ? requestAnimationFrame(work) : 0;
  };

  return Object.assign(trainer, {
    on: (call) => listeners.push(call),
    go() {
      if (trainer.ended) trainer.restart();
      store.set({running: true});
      if (!timer) timer = requestAnimationFrame(work);
    },
    pause: () => store.set({running: false}),
    /* A new model with random weights, for the settings of the store. */
    restart() {
      const {heads, width, rate} = store.get();
      if (training) training.close();
      training = engine.train(folder, {...learnRecipe, patch: data.patch, heads, width, mlp: 2 * Number(width), lr: rate});
      Object.assign(trainer, {curve: [], scores: [], ended: null, numbers: null});
      look();
      evaluate();
      tell({stepped: true, evaluated: true, model: true});
    },
    /* Whether there is something to lose. */
    hasLearned: () => trainer.curve.length > 0,
    kept() {
      const {heads, width, rate} = store.get(), {curve, scores, numbers} = trainer;
      if (!curve.length || trainer.ended === 'diverged') return null;
      const notes = {format: 'mha.vit', version: '1', heads, pool: 'cls', pre_norm: 'true', activation: 'gelu_erf', rows: String(data.rows), columns: String(data.columns)};
      return {heads, width, rate, model: encodeBase64(model.file(notes)), curve, scores, epoch: numbers.epoch};
    },
    adopt({heads, width, rate, model: file, curve, scores, epoch}) {
      const now = engine.open('kept.safetensors', decodeBase64(file));
      store.set({heads, width, rate, running: false});
      if (training) training.close();
      training = null;
      if (model) model.close();
      model = now;
      Object.assign(trainer, {curve, scores, ended: 'kept', numbers: {step: curve.at(-1).step, epoch}});
      predict();
      tell({stepped: true, evaluated: true, model: true});
    },
    /* A drawing as digits look: {bytes, blank, doubt}. */
    fit: ({pixels, width, height}) => model.fit(pixels, width, height, data.rows * data.columns),
    /* The class token's attention to each token of an image, by block and head, and the probabilities of the classes. */
    read(bytes) {
      const {tokens} = learnLayout(data), {heads} = store.get(), count = learnRecipe.depth * Number(heads);
      model.run(bytes, 1);
      const maps = splitNumbers(model.take('maps', count * tokens * tokens), count, tokens * tokens);
      const rows = maps.map((map) => map.subarray(0, tokens));
      return {rows: Array.from({length: learnRecipe.depth}, (_, b) => rows.slice(b * Number(heads), (b + 1) * Number(heads))),
        probabilities: model.take('probabilities', data.classes)};
    },
  });
}

/* The tokens of the model, as the functions that draw maps know them. */
export function learnLayout({rows, columns, patch}) {
  const across = columns / patch, down = rows / patch;
  return {across, down, first: 1, patches: across * down, tokens: across * down + 1, config: {rows, columns, patch}};
}
