/* The colours of maps: uniform attention has the first colour of the scale, and every other weight its place on it. */
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {openPage} from './browser.mjs';
import {readTensors, synthetic, writeTensors} from './files.mjs';

const uniform = {layers: 2, heads: 2, queries: 6, keys: 9};

/* A model whose queries and keys are all zero, and weights that are all the same. */
export function makeUniform(mha, folder) {
  const {tensors, metadata} = readTensors(join(folder, 'main.safetensors'));
  for (const [name, tensor] of Object.entries(tensors)) if (/attn\.qkv/.test(name)) tensor.numbers.fill(0);
  writeTensors(join(folder, 'uniform.safetensors'), tensors, metadata);
  mha('view', 'uniform.safetensors', '0', '1', '--data', synthetic, '-o', 'uniform.html');
  const {layers, heads, queries, keys} = uniform, count = layers * heads * queries * keys;
  writeTensors(join(folder, 'same.safetensors'), {attention: {shape: [layers, heads, queries, keys],
    numbers: new Float32Array(count).fill(1 / keys)}});
  mha('view', '--attention', 'same.safetensors', '-o', 'same.html');
}

/* In the page: for each canvas, which place of the legend's bar, 0 to 255, each of its pixels has; -1: none. Numbers stay
 * there, as sending them takes most of the time. */
function watchPlaces() {
  const pixels = (canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colour = (data, i) => (data[4 * i] << 16) | (data[4 * i + 1] << 8) | data[4 * i + 2];
  window.placesOf = (selector) => {
    const bar = pixels(document.querySelector('.legend-bar')), places = new Map();
    for (let i = 255; i >= 0; i--) places.set(colour(bar, i), i);
    return [...document.querySelectorAll(selector)].map((canvas) => {
      const data = pixels(canvas);
      return new Int16Array(data.length / 4).map((_, i) => places.get(colour(data, i)) ?? -1);
    });
  };
}

/* How many pixels each canvas has, how many at the first place, and how many beyond the third. */
const countPlaces = (page, selector) => page.evaluate((where) => window.placesOf(where).map((found) => {
  const number = (test) => found.reduce((sum, place) => sum + (test(place) ? 1 : 0), 0);
  return {all: found.length, first: number((p) => p === 0), strong: number((p) => p > 2)};
}), selector);

const ways = [['linear', 'fixed'], ['linear', 'per-head'], ['log', 'fixed'], ['log', 'per-head']];

async function uniformIsPale(page, selectors, chosen) {
  for (const [scale, range] of ways) {
    await page.evaluate((state) => window.mhaView.store.set(state), {scale, range});
    for (const [selector, least] of Object.entries(selectors)) {
      const maps = await countPlaces(page, selector);
      expect(maps.length > 0, `no ${selector}`);
      const odd = maps.find(({all, first, strong}) => first < least * all || strong);
      expect(!odd, `${selector}, ${scale}, ${range}: a map is ${JSON.stringify(odd)}`);
    }
    const legend = await page.textContent('.legend-marks');
    expect(legend.startsWith(`≤ ${chosen}`), `the legend begins with ${legend}`);
  }
}

/* Of main.html's grid: each weight at its place. */
async function weightsHaveTheirPlaces(page) {
  for (const [scale, range] of ways) {
    await page.evaluate((state) => window.mhaView.store.set(state), {scale, range});
    const off = await page.evaluate(([ruler, which]) => {
      const maps = window.placesOf('#grid-body canvas'), weights = window.mhaView.store.get().result.maps.flat();
      const low = 1 / Math.sqrt(weights[0].length), largest = weights.map((map) => Math.max(...map));
      const shared = largest.slice().sort((a, b) => a - b)[largest.length >> 1];
      return weights.map((map, n) => {
        const high = Math.max(which === 'fixed' ? shared : largest[n], 2 * low);
        const place = (w) => (w <= low ? 0 : Math.min(1, ruler === 'log' ? Math.log(w / low) / Math.log(high / low) : (w - low) / (high - low)));
        return map.filter((w, i) => Math.abs(maps[n][i] - 255 * place(w)) > 1.5).length;
      });
    }, [scale, range]);
    off.forEach((count, n) => expect(count === 0, `${scale}, ${range}, map ${n}: ${count} weights have another colour`));
    expect(off.length > 1, `${off.length} maps`);
  }
}

export async function testColours(browser, folder) {
  await test('uniform_heads_are_pale', async () => {
    const {page} = await openPage(browser, join(folder, 'uniform.html'), {before: watchPlaces, unchecked: true});
    await uniformIsPale(page, {'#grid-body canvas': 1, '#wall canvas': 0.4, '#large-map': 0.4}, '1/50');
  });
  await test('uniform_weights_are_pale', async () => {
    const {page} = await openPage(browser, join(folder, 'same.html'), {before: watchPlaces, unchecked: true});
    await uniformIsPale(page, {'#heads canvas': 1, '#attention-map': 0.1}, '1/9');
    const grounds = await page.evaluate(() => [...document.querySelectorAll('#token-keys .token')].map((token) => token.style.background));
    const [first] = await page.evaluate(() => {
      const [r, g, b] = document.querySelector('.legend-bar').getContext('2d').getImageData(0, 0, 1, 1).data;
      return [`rgb(${r}, ${g}, ${b})`];
    });
    expect(grounds.length === uniform.keys && grounds.every((ground) => ground === first), `tokens on ${grounds}`);
  });
  await test('weights_have_their_places_on_the_scale', async () => {
    const {page} = await openPage(browser, join(folder, 'main.html'), {before: watchPlaces, unchecked: true});
    await weightsHaveTheirPlaces(page);
  });
}
