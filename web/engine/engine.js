/* The engine: the C library, compiled to WebAssembly (web/engine/*.c). It lies in the page as base64 of its gzipped bytes.
 *
 *     const model = engine.open('model.safetensors', bytes);
 *     const {logits, maps} = model.run(pixels, 1);
 *
 * Errors of the library become exceptions with its message. Results are copies: the memory of the engine moves when it
 * grows. */

import {decodeBase64, unpackGzip} from '../base/bytes.js';
import {createEngineModel} from './model.js';
import {createSystem} from './system.js';
import {createEngineTraining} from './train.js';

/* A function that returns a vector: what a browser without SIMD refuses. */
const SIMD_PROBE = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10, 8, 1, 6, 0, 0x41, 0, 0xfd, 15, 11];

/* The engine of gzipped bytes. */
export async function startEngine(packed) {
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
