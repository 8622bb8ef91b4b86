/* The engine: the C library, compiled to WebAssembly (web/engine/*.c). It lies in the page as base64 of its gzipped bytes.
 *
 *     const model = engine.open('model.safetensors', bytes);
 *     const {logits, maps} = model.run(pixels, 1);
 *
 * Errors of the library become exceptions with its message. Results are copies: the memory of the engine moves when it
 * grows. */

/* A function that returns a vector: what a browser without SIMD refuses. */
const SIMD_PROBE = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10, 8, 1, 6, 0, 0x41, 0, 0xfd, 15, 11];

/* The kinds of results, in the order of page_kind in engine.h. */
const ENGINE_KINDS = ['logits', 'probabilities', 'hidden', 'maps', 'statistics', 'divergences', 'effective', 'rollout',
  'contributions', 'x', 'read', 'q', 'k', 'v', 'scores', 'weights', 'heads', 'attended', 'middle', 'mlpRead', 'mlpHidden', 'mlp', 'y',
  'fitted', 'next'];
/* Those of the inside of a block. */
const INSIDE_KINDS = ENGINE_KINDS.slice(ENGINE_KINDS.indexOf('x'), ENGINE_KINDS.indexOf('y') + 1);

/* Base64 to bytes. atob returns one character per byte. */
function decodeBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

function encodeBase64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 32768) parts.push(String.fromCharCode(...bytes.subarray(at, at + 32768)));
  return btoa(parts.join(''));
}

/* A safetensors file of float32 tensors, [{name, shape, numbers}], with notes as its metadata. */
function tensorFile(tensors, notes) {
  const header = {__metadata__: notes};
  let end = 0;
  for (const {name, shape, numbers} of tensors) header[name] = {dtype: 'F32', shape, data_offsets: [end, (end += 4 * numbers.length)]};
  const text = JSON.stringify(header), head = new TextEncoder().encode(text.padEnd(8 * Math.ceil(text.length / 8)));
  const file = new Uint8Array(8 + head.length + end), view = new DataView(file.buffer);
  view.setBigUint64(0, BigInt(head.length), true);
  file.set(head, 8);
  for (const {name, numbers} of tensors) {
    const from = 8 + head.length + header[name].data_offsets[0];
    numbers.forEach((x, n) => view.setFloat32(from + 4 * n, x, true));
  }
  return file;
}

async function unpackGzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* The engine of gzipped bytes. */
async function startEngine(packed) {
  if (!WebAssembly.validate(new Uint8Array(SIMD_PROBE))) throw new Error('This browser has no WebAssembly SIMD.');
  const system = createSystem(), module = await WebAssembly.compile(await unpackGzip(packed));
  const instance = await WebAssembly.instantiate(module, system.imports(module));
  system.start(instance);
  return createEngine(instance.exports, system.files);
}

function createEngine(calls, files) {
  const bytesOf = (text) => new TextEncoder().encode(text + '\0');
  /* Calls `use(...addresses)` with copies of arrays in the engine's memory. */
  const withCopies = (arrays, use) => {
    const places = arrays.map((array) => calls.page_allocate(array.byteLength || 1));
    try {
      if (places.includes(0)) throw new Error('The engine is out of memory.');
      arrays.forEach((array, n) => new Uint8Array(calls.memory.buffer, places[n], array.byteLength)
        .set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength)));
      return use(...places);
    } finally {
      places.forEach((place) => place && calls.page_free(place));
    }
  };
  /* The text at an address, up to its NUL, or of so many bytes. */
  const textAt = (at, length = -1) => {
    const bytes = new Uint8Array(calls.memory.buffer);
    return new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes.slice(at, length < 0 ? bytes.indexOf(0, at) : at + length));
  };
  const lastError = () => new Error(textAt(calls.page_error()));
  const check = (status) => {
    if (status) throw lastError();
  };
  const floatsAt = (at, count) => new Float32Array(calls.memory.buffer, at, count).slice();
  const tools = {withCopies, check, floatsAt, bytesOf, textAt, lastError};
  return {
    /* A model of the bytes of its file; `heads` for files that do not say. */
    open(name, bytes, heads = 0) {
      files.set(name, bytes);
      const page = withCopies([bytesOf('/' + name)], (path) => calls.page_open(path, heads));
      if (!page) throw lastError();
      return createEngineModel(calls, page, tools);
    },
    /* A text model of a page: its files, {path: base64}, the paths of the model and of its tokenizers among them. */
    openText({files: packed, model, tokenizer = null, target_tokenizer: target = null}) {
      for (const [path, text] of Object.entries(packed)) files.set(path, decodeBase64(text));
      let page = 0;
      try {
        page = withCopies([bytesOf(`/${model}`)], (path) => calls.page_open(path, 0));
        if (!page) throw lastError();
        const opened = createEngineModel(calls, page, tools);
        if (tokenizer) opened.openTokenizers(tokenizer, target);
        return opened;
      } catch (error) {
        calls.page_close(page);
        throw error;
      } finally {
        Object.keys(packed).forEach((path) => files.delete(path)); /* the engine has read them */
      }
    },
    /* A training on files, {name: bytes}, in the format of MNIST; settings as for `mha train --config`. */
    train(folder, settings) {
      for (const [name, bytes] of Object.entries(folder)) files.set('digits/' + name, bytes);
      const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}`).join('\n');
      const training = withCopies([bytesOf('/digits'), bytesOf(lines)], (place, values) => calls.page_train(place, values));
      if (!training) throw lastError();
      return createEngineTraining(calls, training, tools);
    },
  };
}

/* A model of the engine; `page` is its address. Results have the sizes that engine.h gives. */
function createEngineModel(calls, page, tools) {
  const {withCopies, check, floatsAt, bytesOf, textAt} = tools;
  const take = (kind, count, first = 0) => floatsAt(calls.page_numbers(page, ENGINE_KINDS.indexOf(kind)) + 4 * first, count);
  /* {x, read, q, ...} of the last block that was looked into: as many numbers as there are, none of what it does not have. */
  const takeInside = () => Object.fromEntries(INSIDE_KINDS.map((kind) =>
    [kind, take(kind, calls.page_count(page, ENGINE_KINDS.indexOf(kind)))]));
  return {
    ...(calls.page_encode ? createEngineWriter(calls, page, {take, takeInside}, tools) : {}),
    take,
    close: () => calls.page_close(page),
    /* Heads counted through all blocks; nonzero for those that are off. */
    switchOff: (off) => check(withCopies([Uint8Array.from(off)], (at) => calls.page_switch_off(page, at, off.length))),
    parameter(name) {
      return withCopies([bytesOf(name)], (at) => {
        const count = calls.page_parameter_numbers(page, at);
        return count ? floatsAt(calls.page_parameter(page, at), count) : null;
      });
    },
    /* All parameters as a file of safetensors, with these notes beside the mean and deviation of pixels. */
    file(notes) {
      const sizes = (n) => Array.from({length: 4}, (_, axis) => calls.page_parameter_size(page, n, axis)).filter((size) => size > 0);
      const tensors = Array.from({length: calls.page_parameters(page)}, (_, n) => {
        const name = textAt(calls.page_parameter_name(page, n));
        return {name, shape: sizes(n), numbers: this.parameter(name)};
      });
      return tensorFile(tensors, {...notes, mean: String(calls.page_mean(page)), deviation: String(calls.page_deviation(page))});
    },
    /* wanted: 0 for logits and hidden states, 1 for maps as well, 2 for statistics as well. */
    run: (pixels, wanted) => check(withCopies([pixels], (at) => calls.page_run(page, at, wanted))),
    /* Pixels, RGBA, made to look like MNIST's digits: bytes of `count` pixels, whether there is no ink, and why it may not
     * be a digit. */
    fit(pixels, width, height, count) {
      const found = withCopies([pixels], (at) => calls.page_fit(page, at, height, width));
      if (found < 0) check(found);
      return {bytes: Uint8Array.from(take('fitted', count)), blank: found === 1, doubt: textAt(calls.page_doubt())};
    },
    contributions: (pixels) => check(withCopies([pixels], (at) => calls.page_contributions(page, at))),
    /* From maps of all heads, one after another, to one matrix for each block. */
    rollOut(maps, tokens, off) {
      const all = new Float32Array(maps.length * tokens * tokens);
      maps.forEach((map, n) => all.set(map, n * tokens * tokens));
      check(withCopies([all, Uint8Array.from(off)], (from, at) => calls.page_rollout(page, from, tokens, at)));
      return take('rollout', calls.page_blocks(page) * tokens * tokens);
    },
    /* What lies inside block b. */
    insideImage(b, pixels) {
      check(withCopies([pixels], (at) => calls.page_inside_image(page, b, at)));
      return takeInside();
    },
  };
}
