/* What the model makes of a text: tokens, maps, what may come next, and a continuation. */

import {remember} from '../base/numbers.js';
import {engineSettings} from './settings.js';

const mapNumbersMost = 2 ** 24; /* weights of all heads: 64 MB */
const writeTokensMost = 1024;
const ownSettings = {temperature: 1, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1}; /* the model's own probabilities */

/* How many tokens the page can show: the model's positions, and room for the maps. */
function tokensThatFit(live, sets) {
  const heads = sets.reduce((sum, set) => sum + set.layers * set.heads, 0);
  const room = Math.min(writeTokensMost, Math.floor(Math.sqrt(mapNumbersMost / heads)));
  return live.positions ? Math.min(room, live.positions) : room;
}

/* The tokens that a decoder beside an encoder starts with. */
export function decoderStart(model, text) {
  const generation = model.generate(model.encode(text).ids);
  try {
    return Array.from(generation.ids());
  } finally {
    generation.close();
  }
}

/* `read` gives the tokens of each stack, {ids, words, prompt}, of which the last grows; `run` their maps; `lookAhead` what may stand at
 * rows of the last run. They throw what is wrong, in a sentence. */
export function createReader(model, {live, sets}) {
  const pair = live.kind === 'pair', masks = live.kind === 'encoder', most = tokensThatFit(live, sets);
  const words = [false, true].map((target) => remember((id) => model.word(id, target)));
  const side = (ids, n, prompt) => ({ids, words: ids.map(words[n]), prompt});
  let start = null, signs = null;

  /* As the model has it, and as it is drawn. */
  function likely(row, state) {
    const raw = model.next(row, ownSettings);
    if (masks) return raw.map((one) => ({...one, raw: one.p}));
    const drawn = new Map(state.temperature ? model.next(row, engineSettings(state)).map(({id, p}) => [id, p]) : [[raw[0].id, 1]]);
    return raw.map(({id, word, p}) => ({id, word, raw: p, p: drawn.get(id) || 0}));
  }

  /* How many tokens at the ends of a text the tokenizer has added: those of an empty text. */
  function signsAround(ids) {
    if (!signs) signs = Array.from(model.encode('').ids);
    const differs = signs.findIndex((id, n) => id !== ids[n]), before = differs < 0 ? signs.length : differs, after = signs.length - before;
    const ends = signs.slice(before).every((id, n) => id === ids[ids.length - after + n]);
    return [before, ends ? after : 0];
  }

  return {
    most, pair, masks, words,
    read({text, more}) {
      if (text === '') throw new Error('The text is empty. Type something.');
      const ids = Array.from(model.encode(text).ids);
      if (pair && !start) start = decoderStart(model, text);
      const sides = pair ? [ids, [...start, ...more]] : [[...ids, ...more]];
      for (const {length} of sides) {
        if (length > most) throw new Error(`The text has ${length.toLocaleString('en')} tokens; at most ${most.toLocaleString('en')} fit. Shorten it.`);
      }
      return sides.map((all, n) => side(all, n, all.length - (n === sides.length - 1 ? more.length : 0)));
    },
    /* What each head attends to in these tokens, in words, set by set; null if there is none, as with a single token. */
    names(all, repeats) {
      const [{ids}, target] = all, sides = signsAround(ids);
      try {
        return namesOfSets(sets, model.attentions, model.names(ids, sides, target ? target.ids : [], repeats));
      } catch {
        return sets.map(() => null);
      }
    },
    /* The same with one more token. */
    extend: (sides, id) => sides.map((one, n) => (n < sides.length - 1 ? one
      : {...one, ids: [...one.ids, id], words: [...one.words, words[n](id)]})),
    run(sides) {
      const ids = sides.map((one) => one.ids), maps = pair ? model.runPair(...ids, 2) : model.runTokens(...ids, 2);
      const statistics = statisticsOf(model, maps);
      if (!statistics.every(({entropy}) => Number.isFinite(entropy))) throw new Error('The attention weights of the model are not finite.');
      return {sides, sets: liveSets(sets, sides, maps, statistics)};
    },
    /* Behind the last token, or at each mask. */
    lookAhead(state, {sides}) {
      const {ids} = sides[sides.length - 1], rows = masks ? ids.flatMap((id, n) => (id === live.mask ? [n] : [])) : [ids.length - 1];
      return rows.map((row) => ({row, list: likely(row, state)}));
    },
  };
}

/* Lines for all heads, attention by attention, as lists for sets, which have as many heads in each layer. */
function namesOfSets(sets, attentions, lines) {
  let layer = 0, first = 0;
  return sets.map((set) => Array.from({length: set.layers}, () => {
    const {heads} = attentions[layer++], own = lines.slice(first, (first += heads));
    return Array.from({length: set.heads}, (_, h) => (h < heads ? own[h] : 'removed'));
  }).flat());
}

/* ---- Maps of a run ----------------------------------------------------------------------------------------------- */

/* {entropy, effective} of each head, as the engine has them. */
function statisticsOf(model, maps) {
  const heads = maps.reduce((sum, map) => sum + map.heads, 0), numbers = model.take('statistics', 4 * heads);
  return Array.from({length: heads}, (_, n) => ({entropy: numbers[4 * n], effective: numbers[4 * n + 1]}));
}

/* Sets as the page has them, with the maps of a run; their attentions lie in the same order. Layers with fewer heads than others
 * have empty maps. */
function liveSets(sets, sides, maps, statistics) {
  let layer = 0, first = 0;
  return sets.map((set) => {
    const {decoder, cross, queries, keys} = maps[layer], size = queries * keys, count = set.layers * set.heads;
    const numbers = new Float32Array(count * size), facts = new Array(count).fill({entropy: 0, effective: 0});
    for (let l = 0; l < set.layers; l++) {
      const {heads, weights} = maps[layer++];
      numbers.set(weights, l * set.heads * size);
      for (let h = 0; h < heads; h++) facts[l * set.heads + h] = statistics[first++];
    }
    const own = sides[decoder && sides.length > 1 ? 1 : 0], other = cross ? sides[0] : own;
    return {...set, pooled: null, queries, keys, weights: {numbers}, tokens: {queries: own.words, keys: other.words},
      entropy: facts.map(({entropy}) => entropy), effective: facts.map(({effective}) => effective)};
  });
}

/* ---- A continuation ---------------------------------------------------------------------------------------------- */

/* Tokens that follow a text, with the cache of a generation. The generation goes on as long as nothing else is written or set. What was
 * drawn once behind some tokens is drawn there again: whoever goes back and on has the same text. */
export function createContinuation(model, {most, pair}) {
  let current = null;
  const drawn = new Map(); /* ids by what they stand behind */
  const keyOf = (state, more) => JSON.stringify([state.text, more, engineSettings(state)]);

  function forget() {
    if (current) current.handle.close();
    current = null;
  }

  /* Seeds differ by place, so that a text that is continued later does not repeat its random numbers. */
  function begin(state) {
    const {tokens} = state, settings = {...engineSettings(state), seed: state.seed + state.more.length,
      max_new_tokens: most - tokens[tokens.length - 1].ids.length};
    forget();
    current = {handle: model.generate(tokens[0].ids, settings, pair ? tokens[1].ids : []), key: keyOf(state, state.more)};
  }

  return {
    /* The next token; null at the end. */
    next(state) {
      const here = keyOf(state, state.more);
      if (current && current.key !== here && drawn.has(here)) return drawn.get(here);
      if (!current || current.key !== here) begin(state);
      try {
        const id = current.handle.step();
        if (id !== null) current.key = keyOf(state, [...state.more, id]);
        drawn.set(here, id);
        return id;
      } catch (error) {
        forget();
        throw error;
      }
    },
  };
}
