/* Attention weights of any model, from a file: maps (queries,keys) of heads, of layers or of the sequences of a batch,
 * with a text for each token. data.axes lists the axes of the file; `layers` is the number of layers or sequences.
 *
 * Weights are float32, or 16-bit multiples of 1/65535 at half the size, which are converted to floats when a head is
 * shown. data.entropy and data.effective have one number per map, computed before pooling. */

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

/* `id` is that of the panel; the first panel of a page is "attention". */
function loadAttention(data, id = 'attention') {
  const {layers, heads, queries, keys} = data, size = queries * keys, short = data.weights.type === 'u16';
  const all = short ? decodeShorts(data.weights.data) : decodeFloats(data.weights.data);
  const numbers = (layer, head) => all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
  const cache = new Map();
  const same = queries === keys && data.tokens.queries.every((text, n) => text === data.tokens.keys[n]);
  const attention = {
    layers, heads, queries, keys, same,
    axes: data.axes,
    words: data.words || null, /* what each head attends to */
    idOf: (part) => (id === 'attention' ? part : `${id}-${part}`),
    pooled: Boolean(data.pooled),
    equal: data.pooled ? data.pooled.by_keys / data.pooled.keys : 1 / keys, /* the uniform weight */
    queryTexts: data.tokens.queries.map(String),
    keyTexts: data.tokens.keys.map(String),
    /* The map (queries,keys) of a head. The most recent ones are cached. */
    map(layer, head) {
      if (!short) return numbers(layer, head);
      const id = layer * heads + head;
      if (!cache.has(id)) {
        if (cache.size > 8) cache.delete(cache.keys().next().value);
        cache.set(id, sharesOf(numbers(layer, head)));
      }
      return cache.get(id);
    },
    row(layer, head, query) {
      return attention.map(layer, head).subarray(query * keys, (query + 1) * keys);
    },
  };
  attention.facts = Array.from({length: layers * heads}, (_, n) => {
    const [layer, head] = [Math.floor(n / heads), n % heads];
    const values = short ? sharesOf(numbers(layer, head)) : numbers(layer, head);
    return {layer, head, entropy: data.entropy[n], effective: data.effective[n], largest: largestOf(values),
      small: poolMap(values, queries, keys, smallSide, smallSide)};
  });
  attention.max = attention.facts.reduce((max, {largest}) => Math.max(max, largest), 0);
  return attention;
}

/* "Layer 2, head 3", or "Sequence 2, head 3" for a batch; absent axes are omitted. */
function headName({axes}, layer, head) {
  const names = {layers: `layer ${layer + 1}`, batch: `sequence ${layer + 1}`, heads: `head ${head + 1}`};
  const text = axes.filter((axis) => names[axis]).map((axis) => names[axis]).join(', ') || 'the weights';
  return text[0].toUpperCase() + text.slice(1);
}

/* The same in numbers: "2.3". */
function headNumber({axes}, layer, head) {
  const numbers = {layers: layer + 1, batch: layer + 1, heads: head + 1};
  return axes.filter((axis) => numbers[axis]).map((axis) => numbers[axis]).join('.');
}

/* The counts: "3 layers", "4 heads each"; "3 sequences" for a batch. */
function countsOf({axes, layers, heads}) {
  const outer = axes.includes('layers') ? 'layer' : axes.includes('batch') ? 'sequence' : null;
  return [outer && plural(layers, outer),
    axes.includes('heads') && plural(heads, 'head') + (outer && layers > 1 ? ' each' : '')].filter(Boolean);
}

const smallSide = 64;

/* Downscales a map to a maximum number of rows and columns; each cell is the maximum of those it covers, so that a thin
 * line of large weights stays visible. */
function poolMap(values, rows, columns, mostRows, mostColumns) {
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
function sizesInWords({pooled, queries, keys}) {
  const size = pooled || {queries, keys};
  return `${plural(size.queries, 'query', 'queries')} × ${plural(size.keys, 'key')}`;
}

/* The order of heads: by number, or by entropy, lowest first. */
function sortHeads(facts, sort) {
  return sort === 'entropy' ? facts.slice().sort((a, b) => a.entropy - b.entropy) : facts;
}

/* The visible keys of a row, largest weights first. */
function strongestKeys(row, count) {
  return Array.from(row.keys()).filter((n) => row[n] > 0).sort((a, b) => row[b] - row[a]).slice(0, count);
}

/* ---- Texts of tokens --------------------------------------------------------------------------------------------- */

/* Invisible characters are replaced by symbols, so that blank and empty tokens are visible. */
function visibleToken(text) {
  if (text === '') return '∅';
  const shown = text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/\r/g, '␍');
  return /^ +$/.test(shown) ? shown.replace(/ /g, '␣') : shown.replace(/[\u0000-\u001f\u007f]/g, '\ufffd');
}

const graphemes = typeof Intl === 'object' && Intl.Segmenter ? new Intl.Segmenter() : null;

/* Splits a text into grapheme clusters: a flag or family emoji is one, though it has several code points. */
function lettersOf(text) {
  return graphemes ? Array.from(graphemes.segment(text), (part) => part.segment) : Array.from(text);
}

function clipToken(text, most) {
  if (text.length <= most) return text;
  const letters = lettersOf(text.slice(0, 40 * most));
  return letters.length <= most ? text : letters.slice(0, most - 1).join('') + '…';
}

/* As much of a text as fits `width`. */
function fitToken(text, width, size, weight) {
  let shown = clipToken(text, 60);
  if (textWidth(shown, size, weight) <= width) return shown;
  const letters = lettersOf(shown);
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(letters.slice(0, middle).join('') + '…', size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  shown = letters.slice(0, low).join('') + '…';
  return shown;
}
