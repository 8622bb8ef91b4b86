/* The Vision Transformer of the page. The engine (web/engine), which is the library in WebAssembly, computes all of its
 * numbers; here they get the shapes that panels draw.
 *
 * A head that is switched off has gate 0: its part of concat(heads) is zero, as in the library and in pruning. */

import {decodeBase64} from '../base/bytes.js';
import {remember, splitNumbers} from '../base/numbers.js';

/* ---- The model --------------------------------------------------------------------------------------------------- */

const MODEL_FILE = 'model.safetensors';

/* The model of a page, opened by the engine. */
export function loadModel(engine, data) {
  const post = data.config.order === 'post', config = {...data.config, post, normed: !post, parallel: false};
  const across = config.columns / config.patch, down = config.rows / config.patch;
  const first = config.pool === 'cls' ? 1 : 0, bytes = decodeBase64(data.model);
  const open = () => engine.open(MODEL_FILE, bytes, config.block_heads);
  const whole = open(), part = remember((name) => whole.parameter(name));
  return {
    config, part, across, down, first, open,
    patches: across * down,
    tokens: across * down + first,
    input: data.input || {mean: 0, deviation: 1},
    blocks: Array.from({length: config.depth}, (_, b) => blockParts(config, part, b)),
    whole,
    gated: {key: '', made: null}, /* the model without the heads that are off, for one set of them */
  };
}

/* The parameters are read when a panel asks for them. */
function blockParts(config, part, b) {
  const lazy = (name, keys) => Object.defineProperties({}, Object.fromEntries(Object.entries(keys).map(([key, end]) =>
    [key, {enumerable: true, get: () => part(`blocks.${b}.${name}.${end}`)}])));
  const norm = (name) => lazy(name, {gain: 'weight', bias: 'bias'}), linear = (name) => lazy(name, {weight: 'weight', bias: 'bias'});
  return {
    index: b,
    heads: config.heads[b],
    groups: config.kv_heads[b],
    norm1: norm('norm1'),
    norm2: norm('norm2'),
    qkv: linear('attn.qkv'),
    proj: linear('attn.proj'),
    fc1: linear('mlp.fc1'),
    fc2: linear('mlp.fc2'),
  };
}

/* All heads on. */
export function openGates(model) {
  return model.blocks.map((block) => new Float32Array(block.heads).fill(1));
}

/* A copy of gates with the results of `change(gate, block, head)`. */
export function changeGates(gates, change) {
  return gates.map((row, b) => row.map((gate, h) => change(gate, b, h)));
}

/* 1 for the heads that are off, counted through all blocks. */
export function headsOff(gates) {
  return gates.flatMap((row) => Array.from(row, (gate) => (gate ? 0 : 1)));
}

/* The row and column of token t among the patches; null for the class token. */
export function tokenPlace(model, t) {
  const n = t - model.first;
  return n < 0 ? null : {row: Math.floor(n / model.across), column: n % model.across};
}

/* The patch at the centre of the image. */
export function middleToken(model) {
  return model.first + Math.floor(model.down / 2) * model.across + Math.floor(model.across / 2);
}

/* Rows and columns count from 1. */
export function tokenName(model, t) {
  const place = tokenPlace(model, t);
  return place ? `row ${place.row + 1}, column ${place.column + 1}` : 'the class token';
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* Numbers of all heads, `size` for each, as lists by block and head. */
function splitHeads(model, numbers, size) {
  let first = 0;
  return model.blocks.map(({heads}) => {
    first += heads;
    return splitNumbers(numbers.subarray((first - heads) * size, first * size), heads, size);
  });
}

/* The engine's model with the heads that gates leave on. Switching heads off changes its parameters, so that it is opened
 * again for other gates. */
export function modelWithGates(model, gates) {
  const off = headsOff(gates), key = off.join('');
  if (!off.includes(1)) return model.whole;
  if (model.gated.key !== key) {
    if (model.gated.made) model.gated.made.close();
    const made = model.open();
    made.switchOff(off);
    model.gated = {key, made};
  }
  return model.gated.made;
}

/* Runs the model on an image (bytes, rows * columns): logits, probabilities, maps by block and head. With wanted.statistics also, for each head, {entropy, effective, largest, distance}, and the divergences of
 * all pairs of a block, as mha_stats in mha.h has them. */
export function runModel(model, pixels, gates, wanted) {
  const {config, tokens: T} = model, run = modelWithGates(model, gates), {statistics = false} = wanted || {};
  const heads = config.heads.reduce((sum, count) => sum + count, 0);
  run.run(pixels, statistics ? 2 : 1);
  if (!performance.getEntriesByName('numbers').length) performance.mark('numbers'); /* the first ones, for tests */
  const result = {
    logits: run.take('logits', config.classes),
    probabilities: run.take('probabilities', config.classes),
    maps: splitHeads(model, run.take('maps', heads * T * T), T * T),
  };
  return statistics ? {...result, ...takeStatistics(model, run, heads)} : result;
}

function takeStatistics(model, run, heads) {
  const of = ([entropy, effective, largest, distance]) => ({entropy, effective, largest, distance});
  let first = 0;
  const pairs = model.blocks.map(({heads: H}) => {
    first += H * H;
    return splitNumbers(run.take('divergences', H * H, first - H * H), H, H);
  });
  return {pairs, statistics: splitHeads(model, run.take('statistics', heads * 4), 4).map((block) => block.map(of))};
}

export function countOff(gates) {
  return gates.reduce((sum, row) => sum + row.filter((gate) => !gate).length, 0);
}
