/* Attention weights of any model, from a file: maps (queries,keys) of heads, of layers or of the sequences of a batch,
 * with a text for each token. data.axes lists the axes of the file; `layers` is the number of layers or sequences.
 *
 * Weights are float32, or 16-bit multiples of 1/65535 at half the size, which are converted to floats when a head is
 * shown; a page that runs its model has them as numbers. data.entropy and data.effective have one number per map, computed
 * before pooling. */

import {decodeBase64, decodeFloats} from '../base/bytes.js';
import {largestOf} from '../base/numbers.js';
import {isRightToLeft} from '../base/text.js';
import {plural} from '../base/words.js';

/* 16-bit numbers, little-endian. */
function decodeShorts(text) {
  const bytes = decodeBase64(text), shorts = new Uint16Array(bytes.length >> 1);
  for (let i = 0; i < shorts.length; i++) shorts[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
  return shorts;
}

/* A loop, because Float32Array.from with a function takes ten times as long. */
function sharesOf(shorts) {
  const shares = new Float32Array(shorts.length);
  for (let i = 0; i < shorts.length; i++) shares[i] = shorts[i] / 65535;
  return shares;
}

/* What panels read of a set of maps. `id` is that of the panel; the first panel of a page is "attention". `take(set)`
 * replaces the maps and tokens; the layers and heads stay. */
export function loadAttention(data, id = 'attention') {
  const attention = {
    axes: data.axes,
    idOf: (part) => (id === 'attention' ? part : `${id}-${part}`),
    row: (layer, head, query) => attention.map(layer, head).subarray(query * attention.keys, (query + 1) * attention.keys),
    take(set) {
      Object.assign(attention, tokensOf(set), mapsOf(set), {set, words: set.words || null}); /* words: what each head attends to */
      attention.max = attention.facts.reduce((max, {largest}) => Math.max(max, largest), 0);
    },
  };
  attention.take(data);
  return attention;
}

function tokensOf(set) {
  const {layers, heads, queries, keys, tokens} = set;
  return {
    layers, heads, queries, keys,
    same: set.title !== 'Cross-attention' && queries === keys && tokens.queries.every((text, n) => text === tokens.keys[n]),
    pooled: Boolean(set.pooled),
    equal: set.pooled ? set.pooled.by_keys / set.pooled.keys : 1 / keys, /* the uniform weight */
    rightToLeft: isRightToLeft(tokens.queries.join(' ')),
    queryTexts: tokens.queries.map(String),
    keyTexts: tokens.keys.map(String),
  };
}

/* map(layer, head) is a map (queries,keys); the most recent ones are cached. facts has an object for each head. */
function mapsOf({layers, heads, queries, keys, weights, entropy, effective}) {
  const size = queries * keys, short = weights.type === 'u16', cache = new Map();
  const all = weights.numbers || (short ? decodeShorts(weights.data) : decodeFloats(weights.data));
  const numbers = (n) => all.subarray(n * size, (n + 1) * size), values = (n) => (short ? sharesOf(numbers(n)) : numbers(n));
  const map = (layer, head) => {
    const n = layer * heads + head;
    if (!short) return numbers(n);
    if (!cache.has(n)) {
      if (cache.size > 8) cache.delete(cache.keys().next().value);
      cache.set(n, values(n));
    }
    return cache.get(n);
  };
  const facts = Array.from({length: layers * heads}, (_, n) => {
    let small = null; /* made when it is drawn */
    return {layer: Math.floor(n / heads), head: n % heads, entropy: entropy[n], effective: effective[n], largest: largestOf(values(n)),
      get small() {
        return (small = small || poolMap(values(n), queries, keys, smallSide, smallSide));
      }};
  });
  return {map, facts};
}

/* "Layer 2, head 3", or "Sequence 2, head 3" for a batch, counted from 0 as in files; absent axes are omitted. */
export function headName({axes}, layer, head) {
  const names = {layers: `layer ${layer}`, batch: `sequence ${layer}`, heads: `head ${head}`};
  const text = axes.filter((axis) => names[axis]).map((axis) => names[axis]).join(', ') || 'the weights';
  return text[0].toUpperCase() + text.slice(1);
}

/* The same in numbers: "2.3". */
export function headNumber({axes}, layer, head) {
  const numbers = {layers: layer, batch: layer, heads: head};
  return axes.filter((axis) => axis in numbers).map((axis) => numbers[axis]).join('.');
}

/* The counts: "3 layers", "4 heads each"; "3 sequences" for a batch. */
export function countsOf({axes, layers, heads}) {
  const outer = axes.includes('layers') ? 'layer' : axes.includes('batch') ? 'sequence' : null;
  return [outer && plural(layers, outer),
    axes.includes('heads') && plural(heads, 'head') + (outer && layers > 1 ? ' each' : '')].filter(Boolean);
}

const smallSide = 64;

/* Downscales a map to a maximum number of rows and columns; each cell is the maximum of those it covers, so that a thin
 * line of large weights stays visible. */
export function poolMap(values, rows, columns, mostRows, mostColumns) {
  const high = Math.min(rows, mostRows), wide = Math.min(columns, mostColumns);
  const pooled = new Float32Array(high * wide);
  for (let r = 0; r < rows; r++) {
    const to = Math.floor((r * high) / rows) * wide;
    for (let c = 0; c < columns; c++) {
      const at = to + Math.floor((c * wide) / columns), x = values[r * columns + c];
      if (x > pooled[at]) pooled[at] = x;
    }
  }
  return {values: pooled, rows: high, columns: wide};
}

/* "10 queries × 9 keys", before pooling. */
export function sizesInWords({pooled, queries, keys}) {
  const size = pooled || {queries, keys};
  return `${plural(size.queries, 'query', 'queries')} × ${plural(size.keys, 'key')}`;
}

/* The order of heads: by number, or by entropy, lowest first. */
export function sortHeads(facts, sort) {
  return sort === 'entropy' ? facts.slice().sort((a, b) => a.entropy - b.entropy) : facts;
}

/* The visible keys of a row, largest weights first. */
export function strongestKeys(row, count) {
  return Array.from(row.keys()).filter((n) => row[n] > 0).sort((a, b) => row[b] - row[a]).slice(0, count);
}

/* ---- Texts of tokens --------------------------------------------------------------------------------------------- */
