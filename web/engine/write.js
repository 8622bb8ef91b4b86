/* Texts of the engine's models: tokens, maps of tokens, what comes next. In the module of pages for text alone. */

const FAILED = -1, FINISHED = -2; /* of page_generate_step */

/* Settings of the next token and of generation, {temperature, top_k, top_p, min_p, repetition_penalty, seed, max_new_tokens}:
 * a temperature of 0 is the most likely token alone. What is not given is as `mha generate --sample` has it. */
const settingLines = (settings) => Object.entries(settings).map(([key, value]) => `${key}=${value}`).join('\n');

/* Methods of a model; `page` is its address. Ids are Int32Array, or any list of numbers. */
export function createEngineWriter(calls, page, {take, takeInside}, {withCopies, check, bytesOf, textAt, lastError}) {
  const idsAt = (at, count) => new Int32Array(calls.memory.buffer, at, count).slice();
  const textOrError = (at) => {
    if (!at) throw lastError();
    return textAt(at, calls.page_text_length(page));
  };
  let hasWords = false; /* there are tokenizers */
  const word = (id, target = false) => textOrError(calls.page_word(page, id, target ? 1 : 0));
  const encodeWith = (call, text, target) => {
    const bytes = new TextEncoder().encode(text);
    const count = withCopies([bytes], (at) => call(page, at, bytes.length));
    if (count < 0) throw lastError();
    const ids = idsAt(calls.page_ids(page), count);
    return {ids, words: Array.from(ids, (id) => word(id, target))};
  };

  /* The attentions of the model, in the order of maps. */
  const attentions = Array.from({length: calls.page_attentions(page)}, (_, n) => {
    const kind = calls.page_attention_kind(page, n);
    return {heads: calls.page_attention_heads(page, n), decoder: kind > 0, cross: kind === 2};
  });
  /* The maps of the last run: with each attention its queries, keys and weights (heads,queries,keys). */
  const mapsOf = (lengths) => {
    let first = 0;
    return attentions.map((attention) => {
      const queries = lengths[attention.decoder ? 1 : 0], keys = attention.cross ? lengths[0] : queries;
      const count = attention.heads * queries * keys, weights = take('maps', count, first);
      first += count;
      return {...attention, queries, keys, weights};
    });
  };

  return {
    attentions,
    openTokenizers(path, target = null) {
      const paths = [path, ...(target ? [target] : [])].map((name) => bytesOf(`/${name}`));
      check(withCopies(paths, (first, second = 0) => calls.page_open_tokenizers(page, first, second)));
      hasWords = true;
    },
    /* {ids, words} of a text, special tokens included; of a target with what the decoder starts with. */
    encode: (text) => encodeWith(calls.page_encode, text, false),
    encodeTarget: (text) => encodeWith(calls.page_encode_target, text, true),
    word,
    /* The text of ids, without special tokens. */
    text: (ids, target = false) => textOrError(withCopies([Int32Array.from(ids)],
      (at) => calls.page_text(page, at, ids.length, target ? 1 : 0))),
    /* Runs the model over tokens. wanted: 0 for logits and hidden states, 1 for maps as well, which are returned. */
    runTokens(ids, wanted = 1) {
      check(withCopies([Int32Array.from(ids)], (at) => calls.page_run_tokens(page, at, ids.length, wanted)));
      return wanted ? mapsOf([ids.length, ids.length]) : [];
    },
    /* The same for a model with an encoder, which reads the ids, and a decoder, which reads the target. */
    runPair(ids, target, wanted = 1) {
      check(withCopies([Int32Array.from(ids), Int32Array.from(target)],
        (at, other) => calls.page_run_pair(page, at, ids.length, other, target.length, wanted)));
      return wanted ? mapsOf([ids.length, target.length]) : [];
    },
    /* What lies inside the block of an attention, or inside its cross-attention; a model with two stacks needs a target. */
    insideTokens(attention, ids, target = []) {
      check(withCopies([Int32Array.from(ids), Int32Array.from(target)],
        (at, other) => calls.page_inside_tokens(page, attention, at, ids.length, other, target.length)));
      return takeInside();
    },
    /* What every head attends to in a text, in words; `sides` are how many special tokens it begins and ends with. */
    names(ids, sides, target = [], repeats = 16) {
      const text = textOrError(withCopies([Int32Array.from(ids), Int32Array.from(target)],
        (at, other) => calls.page_names(page, at, ids.length, ...sides, other, target.length, repeats)));
      return text.split('\n').slice(0, -1);
    },
    /* The most likely tokens behind a row of the last run, or in its place if it is a mask: [{id, word, p}], best first, 20 at most. */
    next(row, settings = {}) {
      const count = withCopies([bytesOf(settingLines(settings))], (at) => calls.page_next(page, row, at));
      if (count < 0) throw lastError();
      const pairs = take('next', 2 * count), target = attentions.some((attention) => attention.cross);
      return Array.from({length: count}, (_, n) => ({id: pairs[2 * n], word: hasWords ? word(pairs[2 * n], target) : '', p: pairs[2 * n + 1]}));
    },
    /* A generation behind ids, with a cache; of a model with two stacks, behind the target. The model has one at a time. */
    generate(ids, settings = {}, target = []) {
      check(withCopies([Int32Array.from(ids), Int32Array.from(target), bytesOf(settingLines(settings))],
        (at, other, lines) => calls.page_generate(page, at, ids.length, other, target.length, lines)));
      return {
        /* The next id; null at the end. */
        step() {
          const id = calls.page_generate_step(page);
          if (id === FAILED) throw lastError();
          return id === FINISHED ? null : id;
        },
        /* All ids so far, of the decoder if there are two stacks, with those that it began with. */
        ids: () => idsAt(calls.page_generated(page), calls.page_generated_count(page)),
        close: () => calls.page_generate_end(page),
      };
    },
  };
}
