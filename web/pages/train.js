/* The page of `mha view --train`: a model that learns while one looks at it. */

import {createStore} from '../base/store.js';
import {plural} from '../base/words.js';
import {openEngine} from '../engine/page.js';
import {createLearnDraw} from '../learn/draw.js';
import {createLearnPanel, learnChoices} from '../learn/learn.js';
import {createTrainer, learnRecipe, unpackDigits} from '../learn/trainer.js';
import {needed, showPage} from './frame.js';

export async function startTraining(data) {
  const values = Object.fromEntries(Object.entries(learnChoices).map(([key, {first}]) => [key, first]));
  const store = createStore({...values, digit: 0, running: false, theme: document.documentElement.dataset.theme});
  const engine = await needed('This page cannot run its model.', openEngine), trainer = createTrainer(engine, data, await unpackDigits(data), store);
  trainer.restart();
  const kept = document.getElementById('mha-kept');
  if (kept) trainer.adopt(JSON.parse(kept.textContent));
  store.on(Object.keys(learnChoices), () => {
    store.set({running: false});
    trainer.restart();
  });
  const panels = [createLearnPanel(store, trainer, data), createLearnDraw(store, trainer, data)];
  const view = {data, store, stores: [store], model: null, trainer, panels, kept: trainer.kept};
  const lead = 'A small transformer starts from random weights and learns to recognize digits in your browser. Press Train and watch its heads.';
  showPage(view, learnFacts(data), lead);
  return view;
}

function learnFacts({train, test, rows, columns, patch}) {
  return ['Vision Transformer', plural(learnRecipe.depth, 'block'), `patches of ${patch} × ${patch}`,
    `${train.count.toLocaleString('en')} training digits of ${rows} × ${columns}`, `${test.count.toLocaleString('en')} held out`];
}
