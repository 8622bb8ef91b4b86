/* The text that is written, and what the model makes of it.
 *
 * In the store, `text` is what was typed and `more` the ids of the tokens behind it: generated, or chosen among the likeliest.
 * A model with two stacks reads `text` and writes `more`. A change of these runs the model; `result` then has the tokens of
 * each stack and their maps, which also go to the stores of the attention panels, `next` what may follow. What cannot be run
 * leaves the last result and says why in `problem`. While somebody types, only `tokens` follow, which takes no time; the model
 * reads when typing pauses, for as long as it took the last time and more. */

const mapNumbersMost = 2 ** 24; /* weights of all heads: 64 MB */
const writeTokensMost = 1024;

/* How many tokens the page can show: the model's positions, and room for the maps. */
function tokensThatFit(live, sets) {
  const heads = sets.reduce((sum, set) => sum + set.layers * set.heads, 0);
  const room = Math.min(writeTokensMost, Math.floor(Math.sqrt(mapNumbersMost / heads)));
  return live.positions ? Math.min(room, live.positions) : room;
}

/* The tokens that a decoder beside an encoder starts with. */
function decoderStart(model, text) {
  const generation = model.generate(model.encode(text).ids);
  try {
    return Array.from(generation.ids());
  } finally {
    generation.close();
  }
}

function createWriter(model, data, store, mapStores) {
  const {live, sets} = data, pair = live.kind === 'pair', most = tokensThatFit(live, sets);
  const words = [false, true].map((target) => remember((id) => model.word(id, target)));
  const side = (ids, n, prompt) => ({ids, words: ids.map(words[n]), prompt});
  let generation = null, timer = 0, cost = 0, start = null;

  /* The tokens of each stack; the last is the one that grows. */
  function readSides({text, more}) {
    if (text === '') throw new Error('The text is empty. Type something.');
    const ids = Array.from(model.encode(text).ids);
    if (pair && !start) start = decoderStart(model, text);
    const sides = pair ? [ids, [...start, ...more]] : [[...ids, ...more]];
    for (const {length} of sides) {
      if (length > most) throw new Error(`This has ${length.toLocaleString('en')} tokens; at most ${most.toLocaleString('en')} fit. Shorten the text.`);
    }
    if (sides[0].length < 2) throw new Error('This is a single token; attention needs two.');
    return sides.map((all, n) => side(all, n, all.length - (n === sides.length - 1 ? more.length : 0)));
  }

  function run(state) {
    const begin = performance.now(), sides = readSides(state), all = sides.map(({ids}) => ids);
    const maps = pair ? model.runPair(...all, 2) : model.runTokens(...all, 2);
    const statistics = statisticsOf(model, maps);
    cost = performance.now() - begin;
    if (!statistics.every(({entropy}) => Number.isFinite(entropy))) throw new Error('The model has weights of attention that are not numbers.');
    return {sides, sets: liveSets(sets, sides, maps, statistics)};
  }

  /* What may stand at a row of the last run: as the model has it, and as it is drawn. */
  function likely(row, state) {
    const raw = model.next(row, {temperature: 1, top_k: 0, top_p: 1});
    const drawn = new Map(state.temperature ? model.next(row, engineSettings(state)).map(({id, p}) => [id, p]) : [[raw[0].id, 1]]);
    return raw.map(({id, word, p}) => ({id, word, raw: p, p: live.kind === 'encoder' ? p : drawn.get(id) || 0}));
  }

  /* Behind the last token, or at each mask. */
  function lookAhead(state, {sides}) {
    const {ids} = sides[sides.length - 1];
    const rows = live.kind === 'encoder' ? ids.flatMap((id, n) => (id === live.mask ? [n] : [])) : [ids.length - 1];
    return rows.map((row) => ({row, list: likely(row, state)}));
  }

  /* The maps of the panels, and the query that they show: the last token where the text grows. */
  function feed({sides, sets: fresh}, follow) {
    fresh.forEach((set, n) => {
      const {token, key} = mapStores[n].get(), grows = follow && live.kind !== 'encoder' && (!pair || n > 0);
      mapStores[n].set({set, token: grows ? set.queries - 1 : Math.min(token, set.queries - 1), key: key !== null && key < set.keys ? key : null});
    });
  }

  function refresh(state, follow = true) {
    try {
      const result = run(state), next = lookAhead(state, result);
      store.set({result, next, tokens: result.sides, problem: null, ended: false, pointed: null});
      feed(result, follow);
    } catch (error) {
      store.set({problem: error.message, running: false});
    }
  }

  /* The tokens of a text that is being typed, before the model reads it. */
  function preview(text) {
    try {
      store.set({tokens: readSides({text, more: []}), running: false, pointed: null});
    } catch {
      store.set({running: false}); /* what is wrong is said when the model reads it */
    }
  }

  /* ---- Generation ---- */

  function forget() {
    if (generation) generation.handle.close();
    generation = null;
  }

  /* The generation of this text with its cache; a new one if something else was written or set. */
  function generationOf(state) {
    const written = state.more.join(), settings = JSON.stringify(engineSettings(state));
    if (generation && generation.text === state.text && generation.written === written && generation.settings === settings) return generation;
    forget();
    const {sides} = state.result, room = most - sides[sides.length - 1].ids.length;
    const given = {...engineSettings(state), seed: state.seed + state.more.length, max_new_tokens: room};
    const handle = model.generate(sides[0].ids, given, pair ? sides[1].ids : []);
    return (generation = {handle, text: state.text, written, settings});
  }

  function take(state, id) {
    const more = [...state.more, id];
    generation.written = more.join();
    store.set({more});
  }

  function step() {
    const state = store.get();
    if (state.problem || state.ended) return;
    try {
      const sides = state.result.sides, full = sides[sides.length - 1].ids.length >= most;
      const id = full ? null : generationOf(state).handle.step();
      if (id === null) store.set({ended: full ? `${most.toLocaleString('en')} tokens are all that fit.` : 'The text has ended.', running: false});
      else take(state, id);
    } catch (error) {
      forget();
      store.set({problem: error.message, running: false});
    }
  }

  function writeOn() {
    clearTimeout(timer);
    if (!store.get().running) return;
    step();
    timer = setTimeout(writeOn, Math.max(writePace, 1.5 * cost));
  }

  store.on(['text', 'more'], (state) => refresh(state));
  store.on(['temperature', 'topK', 'topP', 'seed'], (state) => {
    if (state.result && !state.problem) store.set({next: lookAhead(state, state.result), ended: false});
  });
  store.on('running', writeOn);
  refresh(store.get(), false);

  return {
    model, live, pair, most, step, preview,
    predicts: live.kind !== 'encoder' || live.mask >= 0,
    isToken: (id) => Number.isInteger(id) && id < live.vocabulary,
    maskWord: live.mask >= 0 ? words[0](live.mask) : null,
    /* Appends a token, or puts it in place of the mask at `row`. */
    takeWord({id, word}, row) {
      if (live.kind === 'encoder') return store.set({text: withoutMask(store.get(), row, live.mask, words[0](live.mask), word), mask: 0});
      return store.set({running: false, more: [...store.get().more, id]});
    },
    back: () => store.set({running: false, more: store.get().more.slice(0, -1)}),
    startAgain: () => store.set({running: false, more: []}),
    /* How long to wait for a pause in typing, in milliseconds. */
    patience: () => Math.min(1000, Math.max(60, 3 * cost)),
  };
}

/* The text with a word in place of the mask at `row`. */
function withoutMask({text, result}, row, mask, maskWord, word) {
  const before = result.sides[0].ids.slice(0, row).filter((id) => id === mask).length, parts = text.split(maskWord);
  const plain = word.replace(/^##/, '').trim();
  return parts.slice(0, before + 1).join(maskWord) + plain + parts.slice(before + 1).join(maskWord);
}

const writePace = 120; /* milliseconds from one generated token to the next, at least */

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
