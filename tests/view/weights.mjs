/* The page of attention weights of any model: as they are, with queries that are no keys, and pooled. */
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect, expectNear, farthest, test} from './harness.mjs';
import * as browsing from './browser.mjs';
import {paintedWeights, writeTensors} from './files.mjs';

const {openPage, stateOf} = browsing;

/* Tokens that a page has to be careful with: markup, spaces, another direction, none at all. */
const words = ['The', ' cat', '</script><b>', '', 'שלום', '\n', 'ran'];
const self = {layers: 2, heads: 3, queries: words.length, keys: words.length};
const cross = {layers: 1, heads: 2, queries: 4, keys: 9};
const long = {layers: 1, heads: 2, queries: 600, keys: 600};

const shapeOf = ({layers, heads, queries, keys}) => [layers, heads, queries, keys];

export function makeWeights(mha, folder) {
  const write = (name, shape, metadata) => writeTensors(join(folder, `${name}.safetensors`),
    {attention: {shape: shapeOf(shape), numbers: paintedWeights(...shapeOf(shape))}}, metadata);
  write('weights', self, {tokens: JSON.stringify(words)});
  write('cross', cross);
  write('pooled', long);
  writeFileSync(join(folder, 'keys.txt'), Array.from({length: cross.keys}, (_, j) => `key${j}\n`).join(''));
  mha('view', '--attention', 'weights.safetensors', '-o', 'weights.html');
  mha('view', '--attention', 'cross.safetensors', '--tokens', 'keys.txt', '-o', 'cross.html');
  mha('view', '--attention', 'pooled.safetensors', '-o', 'pooled.html');
}

/* A page whose data say what entropy its heads had before they were pooled. */
function writeWithEntropy(folder, from, to, entropy) {
  const text = readFileSync(join(folder, from), 'utf8'), mark = 'id="mha-data">', start = text.indexOf(mark) + mark.length;
  const end = text.indexOf('</script>', start), data = {...JSON.parse(text.slice(start, end)), entropy};
  const written = JSON.stringify(data).replaceAll('<', '\\u003c');
  writeFileSync(join(folder, to), text.slice(0, start) + written + text.slice(end));
}

const rowOf = ({heads, queries, keys}, numbers, layer, head, query) => {
  const first = ((layer * heads + head) * queries + query) * keys;
  return Array.from(numbers.subarray(first, first + keys));
};

/* The list of the strongest keys is that of the row, in its order, with its percentages. */
async function expectStrongest(page, row, what) {
  const shown = await page.evaluate(() => [...document.querySelectorAll('#strongest li')].map((item) => ({
    key: Number(item.dataset.key), percent: parseFloat(item.querySelector('.number').textContent.replace('<', ''))})));
  const order = row.map((x, j) => j).sort((a, b) => row[b] - row[a]).slice(0, shown.length);
  expect(shown.length > 0 && shown.every(({key}, n) => row[key] === row[order[n]]),
    `${what}: ${shown.map(({key}) => key)}, not ${order}`);
  for (const {key, percent} of shown) expectNear(percent, row[key] * 100, 0.0501, `${what}: key ${key}`);
}

async function choosesHeadsAndTokens(page, numbers) {
  for (const [layer, head] of [[1, 2], [0, 1]]) {
    const cell = `#heads .cell[data-layer="${layer}"][data-head="${head}"]`;
    await page.click(cell);
    const state = await stateOf(page);
    expect(state.block === layer && state.head === head, `layer ${state.block}, head ${state.head}`);
    expect((await page.getAttribute(cell, 'aria-pressed')) === 'true', 'the head is not pressed');
    for (const query of [0, 2, 6]) {
      await page.click(`#token-keys [data-token="${query}"]`);
      expect((await stateOf(page)).token === query, `a click chose ${(await stateOf(page)).token}`);
      await expectStrongest(page, rowOf(self, numbers, layer, head, query), `layer ${layer}, head ${head}, query ${query}`);
    }
  }
  await page.focus('#token-keys');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  expect((await stateOf(page)).token === 1, 'arrow keys do not move in the text');
  await page.focus('#attention-map');
  await page.keyboard.press('ArrowDown');
  expect((await stateOf(page)).token === 2, 'arrow keys do not move on the map');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  expect((await page.evaluate(() => window.mhaView.store.get().key)) === 1, 'arrow keys choose no key');
}

async function sortsAndScales(page) {
  const order = () => page.evaluate(() => [...document.querySelectorAll('#heads .cell')]
    .map((cell) => `${cell.dataset.layer}.${cell.dataset.head}`).join(' '));
  const select = (label) => page.locator('#attention label.control', {hasText: label}).locator('select');
  const places = await order();
  await select('Order').selectOption('entropy');
  const widths = await page.evaluate(() => [...document.querySelectorAll('#heads .cell .cell-caption')]
    .map((caption) => parseFloat(caption.textContent.split('·')[1])));
  expect(widths.every((x, i) => i === 0 || x >= widths[i - 1]), `most pointed first: ${widths}`);
  await select('Order').selectOption('number');
  expect((await order()) === places, 'no way back to the order of layers');
  const map = () => page.evaluate(() => document.getElementById('attention-map').toDataURL());
  for (const [label, value] of [['Colour', 'log'], ['Scale', 'per-head'], ['Colour', 'linear']]) {
    const before = await map();
    await select(label).selectOption(value);
    expect((await map()) !== before, `${label} ${value}: the map did not change`);
  }
}

/* The weights in the page are those of the file. */
async function expectWeights(page, numbers) {
  const shown = await page.evaluate(() => {
    const {data} = window.mhaView, bytes = Uint8Array.from(atob(data.weights.data), (c) => c.charCodeAt(0));
    return data.weights.type === 'f32' ? Array.from(new Float32Array(bytes.buffer))
      : Array.from(new Uint16Array(bytes.buffer), (x) => x / 65535);
  });
  expect(farthest(shown, Array.from(numbers)) < 1e-4, `off by ${farthest(shown, Array.from(numbers))}`);
}

export async function testWeights(browser, folder) {
  const numbers = paintedWeights(...shapeOf(self));
  let opened = await openPage(browser, join(folder, 'weights.html'));
  await test('weights_are_those_of_the_file', () => expectWeights(opened.page, numbers));
  await test('tokens_are_text_and_nothing_else', async () => {
    const texts = await opened.page.evaluate(() => [...document.querySelectorAll('#token-keys [data-token]')]
      .map((span) => [span.textContent, span.children.length]));
    expect(texts.length === words.length, `${texts.length} tokens`);
    expect(texts[2][0] === words[2] && texts[2][1] === 0, `markup: ${texts[2]}`);
    expect(texts.every(([text]) => text.length > 0), 'a token that cannot be seen');
  });
  await test('heads_and_tokens_are_chosen', () => choosesHeadsAndTokens(opened.page, numbers));
  await test('heads_of_weights_are_sorted_and_scaled', () => sortsAndScales(opened.page));
  await test('weights_are_saved_as_a_picture', () => browsing.expectExports(opened.page, 'attention'));
  await test('no_error_and_no_request_of_weights', async () => {
    expect(opened.problems.length === 0, opened.problems.join('; '));
    expect(opened.requests.length === 0, opened.requests.join(', '));
  });
  await opened.close();

  opened = await openPage(browser, join(folder, 'cross.html'));
  await test('queries_need_not_be_keys', async () => {
    const {page, problems} = opened, crossed = paintedWeights(...shapeOf(cross));
    await page.click('#token-queries [data-token="3"]');
    await expectStrongest(page, rowOf(cross, crossed, 0, 0, 3), 'query 3');
    expect((await page.textContent('#token-keys [data-token="8"]')) === 'key8', 'the last key has no name');
    expect((await page.textContent('#token-queries [data-token="3"]')) === '3', 'the last query has no number');
    expect((await page.textContent('#token-title')) === 'What token 3 looks at', await page.textContent('#token-title'));
    const map = await page.locator('#attention-map').boundingBox(), list = await page.locator('#strongest').boundingBox();
    const between = list.x - (map.x + map.width);
    expect(between > 0 && between < 60, `the list is ${between} px from the map`);
    const bar = await page.evaluate(() => parseFloat(document.querySelector('.strong-bar span').style.width));
    expectNear(bar, 100 * Math.max(...rowOf(cross, crossed, 0, 0, 3)), 0.1, 'the bar of the strongest');
    expect(problems.length === 0, problems.join('; '));
  });
  await opened.close();

  opened = await openPage(browser, join(folder, 'pooled.html'));
  await test('a_pooled_map_says_so', async () => {
    const {page, problems} = opened;
    expect(/600 queries × 600 keys/.test(await page.textContent('.facts')), await page.textContent('.facts'));
    expect(/600 x 600 weights, pooled to 200 x 200/.test(await page.textContent('#pooled')), await page.textContent('#pooled'));
    await page.click('#heads .cell[data-head="1"]');
    expect(/head 2/.test(await page.getAttribute('#attention-map', 'aria-label')), 'no second head');
    await browsing.expectExports(page, 'attention');
    expect(problems.length === 0, problems.join('; '));
  });
  await opened.close();

  writeWithEntropy(folder, 'pooled.html', 'entropy.html', [5.5, 4.25]);
  opened = await openPage(browser, join(folder, 'entropy.html'));
  await test('a_pooled_map_has_the_entropy_from_before', async () => {
    const {page} = opened, cell = (head) => page.textContent(`#heads .cell[data-head="${head}"] .cell-caption`);
    expect(/entropy 5\.50/.test(await page.textContent('#chosen-head')), await page.textContent('#chosen-head'));
    for (const [head, entropy] of [5.5, 4.25].entries()) {
      expectNear(parseFloat((await cell(head)).split('·')[1]), Math.exp(entropy), 0.0501, `keys of head ${head + 1}`);
    }
  });
  await opened.close();
}
