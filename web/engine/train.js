/* A training of the engine; `training` is its address. */

import {createEngineModel} from './model.js';

/* The numbers of a training, in the order of page_training_number in engine.h. */
const TRAINING_NUMBERS = ['state', 'step', 'epoch', 'loss', 'correct', 'testLoss', 'testCorrect'];

export const TRAINING_DIVERGED = 2; /* the state; 0: not finished, 1: done */

export function createEngineTraining(calls, training, tools) {
  const numbers = () => {
    const all = new Float64Array(calls.memory.buffer, calls.page_train_numbers(training), TRAINING_NUMBERS.length);
    return Object.fromEntries(TRAINING_NUMBERS.map((name, n) => [name, all[n]]));
  };
  return {
    close: () => calls.page_train_close(training),
    /* Takes a step. */
    step() {
      tools.check(calls.page_train_step(training));
      return numbers();
    },
    /* Evaluates the model on the test images. */
    evaluate() {
      tools.check(calls.page_train_evaluate(training));
      return numbers();
    },
    /* The model as it is now, to be closed. */
    model() {
      const page = calls.page_trained(training);
      if (!page) throw tools.lastError();
      return createEngineModel(calls, page, tools);
    },
  };
}
