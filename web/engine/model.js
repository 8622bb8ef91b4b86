/* A model of the engine, and what it computes. */

import {createEngineWriter} from './write.js';

/* The kinds of results, in the order of page_kind in engine.h. */
const ENGINE_KINDS = ['logits', 'probabilities', 'hidden', 'maps', 'statistics', 'divergences', 'effective', 'rollout',
  'contributions', 'x', 'read', 'q', 'k', 'v', 'scores', 'weights', 'heads', 'attended', 'middle', 'mlpRead', 'mlpHidden', 'mlp', 'y',
  'fitted', 'next'];

/* Those of the inside of a block. */
const INSIDE_KINDS = ENGINE_KINDS.slice(ENGINE_KINDS.indexOf('x'), ENGINE_KINDS.indexOf('y') + 1);

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

/* A model of the engine; `page` is its address. Results have the sizes that engine.h gives. */
export function createEngineModel(calls, page, tools) {
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
