/* The text that is written, and what follows from it.
 *
 * In the store, `text` is what was typed and `more` the ids of the tokens behind it: generated, or chosen among the likeliest.
 * A model with two stacks reads `text` and writes `more`. A change of these runs the model; `result` then has the tokens of
 * each stack and their maps, which also go to the stores of the attention panels, `next` what may follow, and `read` the text and the
 * tokens that they belong to. What cannot be run leaves the last result and says why in `problem`.
 *
 * `tokens` are those to show. While somebody types, only these follow, which takes no time; the model reads when typing pauses, for
 * as long as it took the last time and more. While a large model writes, the cache gives tokens faster than maps of the whole text
 * can be computed; these then follow every few tokens, and when the writing pauses. */

import {limit} from '../base/numbers.js';
import {createContinuation, createReader} from './reader.js';

const writePace = 120; /* milliseconds from one generated token to the next, at least */
const namePause = 300, nameCost = 1000; /* milliseconds without a change before heads are named, and how long that may take, about */

export function createWriter(model, data, store, mapStores) {
  const {live} = data, reader = createReader(model, data), continuation = createContinuation(model, reader);
  const {most, pair, masks, words} = reader, times = {cost: 0, rest: 0, timer: 0};
  let behind = false; /* tokens were written that the maps do not have yet */
  let names = data.sets.map(({words: own}) => own || null), naming = 0; /* what heads attend to, set by set */
  const lengthOf = ({tokens}) => tokens[tokens.length - 1].ids.length;

  /* The maps of the panels, and the query that they show: the last token where the text grows. */
  function feed({sets}, follow) {
    sets.forEach((set, n) => {
      const {token, key} = mapStores[n].get(), grows = follow && !masks && (!pair || n > 0);
      mapStores[n].set({set, token: grows ? set.queries - 1 : Math.min(token, set.queries - 1), key: key !== null && key < set.keys ? key : null});
    });
  }

  /* Measures what heads attend to in the text, once it rests: also over repeated random tokens, fewer of them if the model is slow. */
  function nameHeads() {
    clearTimeout(naming);
    naming = setTimeout(() => {
      const {result, problem, running} = store.get();
      if (problem || running || !result) return;
      const tokens = result.sides.reduce((sum, {ids}) => sum + ids.length, 0), repeats = Math.round(nameCost / ((64 * times.cost) / tokens));
      names = reader.names(result.sides, limit(repeats, 4, 16));
      mapStores.forEach((maps, n) => maps.set({set: {...maps.get().set, words: names[n]}}));
    }, Math.max(namePause, 2 * times.cost));
  }

  function refresh(state, follow = true) {
    const begin = performance.now();
    behind = false;
    try {
      const result = reader.run(reader.read(state)), next = reader.lookAhead(state, result);
      times.cost = performance.now() - begin;
      store.set({result, next, tokens: result.sides, problem: null, ended: false, pointed: null, read: {text: state.text, more: state.more}});
      feed({sets: result.sets.map((set, n) => ({...set, words: names[n]}))}, follow);
      if (follow) nameHeads();
    } catch (error) {
      store.set({problem: error.message, running: false});
    }
    times.rest = performance.now() + 1.5 * times.cost;
  }

  /* The tokens of a text that is being typed. */
  function preview(text) {
    behind = false;
    try {
      store.set({tokens: reader.read({text, more: []}), running: false, pointed: null});
    } catch {
      store.set({running: false}); /* what is wrong is said when the model reads it */
    }
  }

  function step() {
    const state = store.get();
    if (state.problem || state.ended) return;
    try {
      const full = lengthOf(state) >= most, id = full ? null : continuation.next(state);
      if (id !== null) return void store.set({more: [...state.more, id], tokens: reader.extend(state.tokens, id)});
      store.set({running: false}); /* shows the maps of all tokens */
      store.set({ended: full ? `The limit of ${most.toLocaleString('en')} tokens is reached.` : 'The model has ended the text.'});
    } catch (error) {
      store.set({problem: error.message, running: false});
    }
  }

  function writeOn() {
    clearTimeout(times.timer);
    if (!store.get().running) return;
    step();
    times.timer = setTimeout(writeOn, writePace);
  }

  store.on(['text', 'more'], (state) => {
    if (!state.running || performance.now() >= times.rest) refresh(state);
    else behind = true;
  });
  store.on('running', (state) => {
    if (!state.running && behind) refresh(state);
    else if (!state.running) nameHeads();
    writeOn();
  });
  store.on(['temperature', 'topK', 'topP', 'seed'], (state) => {
    if (state.result && !state.problem) store.set({next: reader.lookAhead(state, state.result), ended: false});
  });
  refresh(store.get(), false);

  return {
    model, live, most, step, preview,
    predicts: !masks || live.mask >= 0,
    isToken: (id) => Number.isInteger(id) && id < live.vocabulary,
    maskWord: live.mask >= 0 ? words[0](live.mask) : null,
    /* Appends a token, or puts it in place of the mask at `row`. */
    takeWord({id, word}, row) {
      const state = store.get();
      if (state.problem) return;
      if (masks) store.set({text: withoutMask(state, row, live.mask, words[0](live.mask), word), mask: 0});
      else store.set({running: false, more: [...state.more, id]});
    },
    back: () => store.set({running: false, more: store.get().more.slice(0, -1)}),
    startAgain: () => store.set({running: false, more: []}),
    /* The text and what was written behind it; of two stacks, what was written. */
    whole({text, tokens, more}) {
      const {ids} = tokens[tokens.length - 1], written = (from) => model.text(ids.slice(from), pair), prompt = ids.length - more.length;
      return pair ? written(0) : text + written(0).slice(model.text(ids.slice(0, prompt)).length);
    },
    /* How long to wait for a pause in typing, in milliseconds. */
    patience: () => limit(3 * times.cost, 60, 1000),
  };
}

/* The text with a word in place of the mask at `row`. */
function withoutMask({text, result}, row, mask, maskWord, word) {
  const before = result.sides[0].ids.slice(0, row).filter((id) => id === mask).length, parts = text.split(maskWord);
  const plain = word.replace(/^##/, '').trim();
  return parts.slice(0, before + 1).join(maskWord) + plain + parts.slice(before + 1).join(maskWord);
}
