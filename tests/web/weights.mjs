/* The page of attention weights of any model: as they are, with queries that are no keys, and pooled. */
import {writeFileSync} from 'node:fs';
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

/* A layer of two heads over a batch of three sequences, by `mha layer`: weights per head, and their mean. */
export function makeBatch(mha, folder) {
  const wave = (count, by) => Array.from({length: count}, (_, i) => Math.sin(by * i)), width = 4;
  writeTensors(join(folder, 'layer.safetensors'), {
    in_proj_weight: {shape: [3 * width, width], numbers: wave(3 * width * width, 1.3)},
    in_proj_bias: {shape: [3 * width], numbers: wave(3 * width, 0.7)},
    'out_proj.weight': {shape: [width, width], numbers: wave(width * width, 2.1)},
    'out_proj.bias': {shape: [width], numbers: wave(width, 0.9)},
  }, {heads: '2'});
  writeTensors(join(folder, 'input.safetensors'), {query: {shape: [3, 5, width], numbers: wave(60, 1.7)}});
  for (const which of ['per-head', 'average']) {
    mha('layer', 'layer.safetensors', 'input.safetensors', '--weights', which, '-o', `${which}.safetensors`);
    mha('view', '--attention', `${which}.safetensors`, '-o', `${which}.html`);
  }
  mha('view', '--attention', 'per-head.safetensors', '--first-axis', 'layers', '-o', 'as-layers.html');
}

/* What pages of a batch say: how many there are, and which map is the last. */
const batches = {
  'per-head': {facts: ['3 sequences', '2 heads each'], chosen: 'Sequence 2, head 1', maps: 6},
  average: {facts: ['3 sequences'], chosen: 'Sequence 2', maps: 3},
  'as-layers': {facts: ['3 layers', '2 heads each'], chosen: 'Layer 2, head 1', maps: 6},
};

/* Means over the rows of a map: the entropy, and the effective number of keys, 1 / sum of p^2. */
function statisticsOf({queries, keys, ...shape}, numbers, layer, head) {
  let entropy = 0, effective = 0;
  for (let query = 0; query < queries; query++) {
    const row = rowOf({queries, keys, ...shape}, numbers, layer, head, query);
    entropy -= row.reduce((sum, p) => sum + p * Math.log(p), 0) / queries;
    effective += 1 / row.reduce((sum, p) => sum + p * p, 0) / queries;
  }
  return {entropy, effective};
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
  await linesChoose(page);
}

/* A click on a token of the lines chooses it: a query at the left, a key at the right; and the picture changes. */
async function linesChoose(page) {
  const box = await page.locator('#attention-lines').boundingBox(), row = (box.height - 8) / words.length;
  const shown = () => page.evaluate(() => document.getElementById('attention-lines').toDataURL());
  const before = await shown();
  await page.mouse.click(box.x + 20, box.y + 4 + 4.5 * row);
  expect((await stateOf(page)).token === 4, `a click on the lines chose query ${(await stateOf(page)).token}`);
  expect((await shown()) !== before, 'the lines do not change');
  await page.mouse.click(box.x + box.width - 20, box.y + 4 + 2.5 * row);
  const key = await page.evaluate(() => window.mhaView.store.get().key);
  expect(key === 2, `a click on the lines chose key ${key}`);
  await page.focus('#attention-lines');
  await page.keyboard.press('ArrowUp');
  expect((await stateOf(page)).token === 3, 'arrow keys do not move on the lines');
  expect(/Lines from queries to keys/.test(await page.getAttribute('#attention-lines', 'aria-label')), 'no label');
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
    expect((await page.textContent('#token-title')) === 'What token 3 attends to', await page.textContent('#token-title'));
    const map = await page.locator('#attention-map').boundingBox(), lines = await page.locator('#attention-lines').boundingBox();
    const between = lines.x - (map.x + map.width);
    expect(between > 0 && between < 60 && Math.abs(lines.y - map.y) < 2, `the lines are ${between} px from the map`);
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
    expect(/head 1/.test(await page.getAttribute('#attention-map', 'aria-label')), 'no second head');
    await browsing.expectExports(page, 'attention');
    expect(problems.length === 0, problems.join('; '));
  });
  await opened.close();

  for (const [name, shape] of Object.entries({weights: self, pooled: long})) {
    opened = await openPage(browser, join(folder, `${name}.html`));
    await test(`${name}_have_the_statistics_of_the_file`, async () => {
      const {page} = opened, painted = paintedWeights(...shapeOf(shape));
      for (let n = 0; n < shape.layers * shape.heads; n++) {
        const [layer, head] = [Math.floor(n / shape.heads), n % shape.heads];
        const cell = `#heads .cell[data-layer="${layer}"][data-head="${head}"]`;
        const {entropy, effective} = statisticsOf(shape, painted, layer, head);
        await page.click(cell);
        const caption = await page.textContent(`${cell} .cell-caption`), title = await page.textContent('#chosen-head');
        expectNear(parseFloat(caption.split('·')[1]), effective, 0.0501, `${name}, ${layer}.${head}: effective keys`);
        expectNear(parseFloat(title.split('entropy')[1]), entropy, 0.006, `${name}, ${layer}.${head}: entropy`);
      }
    });
    await opened.close();
  }

  for (const [name, {facts, chosen, maps}] of Object.entries(batches)) {
    await test(`${name}_names_its_first_axis`, async () => {
      const {page} = await openPage(browser, join(folder, `${name}.html`));
      const said = await page.evaluate(() => [...document.querySelectorAll('.facts li')].map((fact) => fact.textContent));
      expect(said.slice(1, -1).join() === facts.join(), `${name}: ${said}, not ${facts}`);
      expect((await page.locator('#heads .cell').count()) === maps, `${name}: not ${maps} maps`);
      await page.locator('#heads .cell').last().click();
      const title = (await page.textContent('#chosen-head')).replace(/:.*/, '');
      expect(title === chosen, `${name}: ${title}, not ${chosen}`);
      expect((await page.getAttribute('#attention-map', 'aria-label')).startsWith(chosen), `${name}: the map's label`);
      const text = await page.textContent('body > main');
      expect(/layer/i.test(text) === /Layer/.test(chosen), `${name}: layers in its words: ${text.match(/.{20}layer.{20}/i)}`);
      await browsing.expectExports(page, 'attention');
    });
  }
}
