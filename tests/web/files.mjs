/* The files that pages are made of: models that the command trains, weights that are written here, and the pages. */
import {execFileSync} from 'node:child_process';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

/* The images that pages show. Each command draws the whole set, so it is a small one. */
export const synthetic = 'synthetic:500';

/* `mha ARGS...`, run in the folder; what it said on standard output. A cache that is empty has no MNIST in it. */
export function createCommand(program, folder) {
  return (...args) => execFileSync(program, args, {
    cwd: folder,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {...process.env, XDG_CACHE_HOME: join(folder, 'cache')},
  });
}

/* A safetensors file of float32 tensors: {name: {shape, numbers}}. */
export function writeTensors(path, tensors, metadata = {}) {
  const header = {__metadata__: metadata}, parts = [];
  let at = 0;
  for (const [name, {shape, numbers}] of Object.entries(tensors)) {
    const bytes = Buffer.from(Float32Array.from(numbers).buffer);
    header[name] = {dtype: 'F32', shape, data_offsets: [at, at + bytes.length]};
    parts.push(bytes);
    at += bytes.length;
  }
  const text = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

/* {tensors, metadata} of such a file. */
export function readTensors(path) {
  const bytes = readFileSync(path), size = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + size).toString()), tensors = {};
  for (const [name, about] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const [begin, end] = about.data_offsets.map((offset) => 8 + size + offset);
    const numbers = new Float32Array(bytes.buffer.slice(bytes.byteOffset + begin, bytes.byteOffset + end));
    tensors[name] = {shape: about.shape, numbers};
  }
  return {tensors, metadata: header.__metadata__ || {}};
}

/* A model in which a head adds nothing: its columns of the projection are zero. Block and head from 0. */
export function writeWithoutHead(to, from, block, head, headWidth) {
  const {tensors, metadata} = readTensors(from), weight = tensors[`blocks.${block}.attn.proj.weight`];
  const [rows, columns] = weight.shape;
  for (let i = 0; i < rows; i++) weight.numbers.fill(0, i * columns + head * headWidth, i * columns + (head + 1) * headWidth);
  writeTensors(to, tensors, metadata);
}

/* Rows of weights that can be told apart: softmax of a wave that depends on layer, head and row. */
export function paintedWeights(layers, heads, queries, keys) {
  const numbers = new Float32Array(layers * heads * queries * keys);
  for (let row = 0; row < layers * heads * queries; row++) {
    const place = row * keys, scores = Array.from({length: keys}, (_, j) => Math.exp(3 * Math.sin(row * 0.7 + j * 0.9)));
    const sum = scores.reduce((a, b) => a + b, 0);
    scores.forEach((score, j) => (numbers[place + j] = score / sum));
  }
  return numbers;
}
