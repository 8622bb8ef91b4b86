/* The page of a model: its numbers are the library's, and each control does what it says. */
import {join} from 'node:path';
import {expect, expectNear, farthest, note, test} from './harness.mjs';
import * as browsing from './browser.mjs';
import {synthetic, writeWithoutHead} from './files.mjs';

const {frames, openPage, stateOf} = browsing;

const panels = ['look', 'grid', 'rollout', 'steps', 'gates', 'contribution'];

/* Each has a heading, and no canvas of it is of one colour. A model with norms behind has no contributions. */
async function everyPanelRenders(page) {
  const sums = await page.evaluate(() => window.mhaView.data.images.every((image) => image.contributions));
  for (const id of panels.filter((name) => sums || name !== 'contribution')) {
    const panel = page.locator(`section#${id}`);
    expect((await panel.count()) === 1, `no panel #${id}`);
    await panel.scrollIntoViewIfNeeded();
    await frames(page, 3);
    expect((await page.textContent(`#${id} h2`)).length > 5, `#${id} has no heading`);
    const blank = await page.evaluate((name) => [...document.querySelectorAll(`#${name} canvas`)].filter((canvas) => {
      if (!canvas.width || !canvas.height) return true;
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return pixels.every((x, i) => x === pixels[i % 4]);
    }).length, id);
    expect(blank === 0, `#${id}: ${blank} canvases are blank`);
  }
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------- */

/* For every image of the page, by choosing it: the largest differences to what the library left in the data; those of logits
 * in units of the largest logit, if that is above 1. */
async function differences(page) {
  return page.evaluate(() => {
    const {data, store, model} = window.mhaView, T = model.tokens, far = {logits: 0, rows: 0};
    const size = Math.max(1, ...data.images.flatMap((image) => image.logits.map(Math.abs)));
    data.images.forEach((image, n) => {
      store.set({image: n});
      const {result} = store.get();
      image.logits.forEach((x, c) => (far.logits = Math.max(far.logits, Math.abs(x - result.logits[c]) / size)));
      result.maps.flat().forEach((map, head) => {
        for (let j = 0; image.cls && j < T; j++) far.rows = Math.max(far.rows, Math.abs(map[j] - image.cls[head * T + j]));
      });
    });
    store.set({image: 0});
    return far;
  });
}

async function expectSameNumbers(browser, path) {
  const {page} = await openPage(browser, path);
  const far = await differences(page);
  expect(far.logits < 1e-6, `logits are off by ${far.logits}`);
  expect(far.rows < 1e-6, `weights are off by ${far.rows}`);
  await everyPanelRenders(page);
}

/* `mha classify` of the first images, each with its maps, beside the page. */
async function compareWithClassify(page, mha, count) {
  const {images} = JSON.parse(mha('classify', 'main.safetensors', '0', '1', '2', '3', '--data', synthetic, '--json',
    '--block', 'all'));
  for (let n = 0; n < count; n++) {
    await page.check(`#images input[value="${n}"]`, {force: true});
    const shown = await page.evaluate(() => {
      const {store, model} = window.mhaView, {probabilities, maps} = store.get().result;
      return {probabilities: Array.from(probabilities), rows: maps.flat().map((map) => Array.from(map.subarray(1, model.tokens)))};
    });
    expect(farthest(shown.probabilities, images[n].probabilities) < 1e-6, `image ${n}: other probabilities`);
    images[n].heads.forEach((head, h) => expect(farthest(shown.rows[h], head.map.flat()) < 1e-6,
      `image ${n}: another map of block ${head.block}, head ${head.head}`));
  }
}

/* What heads add: the parts of each image add up to its logits, and the panel shows them, for each choice. */
async function expectContributions(page) {
  const far = await page.evaluate(() => Math.max(...window.mhaView.data.images.flatMap((image) => image.logits
    .map((logit, c) => Math.abs(logit - image.contributions.reduce((sum, row) => sum + row[c], 0))))));
  expect(far < 1e-5, `the parts add up to logits that are off by ${far}`);
  for (const choice of ['predicted', '3', 'margin']) {
    await page.selectOption('#contribution select', choice);
    const {shown, real, sum, words} = await page.evaluate((name) => {
      const {data, store} = window.mhaView, image = data.images[store.get().image];
      const order = Array.from(image.logits.keys()).sort((a, b) => image.logits[b] - image.logits[a]);
      const of = (row) => (name === 'margin' ? row[order[0]] - row[order[1]] : row[name === '3' ? 3 : order[0]]);
      return {shown: [...document.querySelectorAll('#contribution button.add b')].map((b) => b.textContent),
        real: image.contributions.map(of), sum: of(image.logits), words: document.querySelector('#contribution-sum').textContent};
    }, choice);
    shown.forEach((text, n) => expectNear(parseFloat(text.replace('−', '-')), real[1 + n], 0.00501, `${choice}: head ${n}`));
    expectNear(parseFloat(words.match(/: (−?[\d.]+)/)[1].replace('−', '-')), sum, 0.0051, words);
  }
}

/* What the table says, in the digits that it shows. */
async function expectShownProbabilities(page) {
  const {shown, real} = await page.evaluate(() => ({
    shown: [...document.querySelectorAll('#bars tbody tr')].map((row) => row.querySelectorAll('td')[1].textContent),
    real: Array.from(window.mhaView.store.get().result.probabilities),
  }));
  expect(shown.length === real.length, `${shown.length} rows`);
  shown.forEach((text, c) => expectNear(parseFloat(text.replace('<', '')), real[c] * 100, 0.0501, `class ${c}: ${text}`));
}

export async function testNumbers(browser, mha, folder, others) {
  const main = join(folder, 'main.html');
  await test('numbers_are_those_of_the_library', async () => {
    await expectSameNumbers(browser, main);
    const {page} = await openPage(browser, join(folder, 'first.html'));
    await compareWithClassify(page, mha, 4);
    await expectShownProbabilities(page);
    await expectContributions(page);
  });
  for (const name of others) {
    await test(`numbers_of_a_model_with_${name}`, () => expectSameNumbers(browser, join(folder, `${name}.html`)));
  }
  await test('a_head_switched_off_is_a_head_removed', async () => {
    const {page} = await openPage(browser, join(folder, 'first.html'));
    for (const [block, head] of [[0, 1], [2, 3]]) {
      const width = await page.evaluate(() => window.mhaView.model.config.head_width);
      writeWithoutHead(join(folder, 'less.safetensors'), join(folder, 'main.safetensors'), block, head, width);
      const said = JSON.parse(mha('classify', 'less.safetensors', '0', '--data', synthetic, '--json'));
      await page.uncheck(`#gates input[data-block="${block}"][data-head="${head}"]`, {force: true});
      const shown = await page.evaluate(() => Array.from(window.mhaView.store.get().result.probabilities));
      expect(farthest(shown, said.images[0].probabilities) < 1e-6, `block ${block}, head ${head}: other probabilities`);
      expect(/^1 head off: /.test(await page.textContent('#verdict')), await page.textContent('#verdict'));
      await expectShownProbabilities(page);
      await page.click('#all-on');
    }
  });
}

/* ---- Controls ------------------------------------------------------------------------------------------------------ */

/* The text of all canvases in an element, by which a change of what they show can be seen. */
const drawn = (page, selector) => page.evaluate((where) => [...document.querySelectorAll(where + ' canvas')]
  .map((canvas) => canvas.toDataURL()).join(), selector);

async function choosesPatches(page) {
  await page.locator('#picture').scrollIntoViewIfNeeded();
  const box = await page.locator('#picture canvas').boundingBox(), {down, across, first} = await page.evaluate(() => {
    const {model} = window.mhaView;
    return {down: model.down, across: model.across, first: model.first};
  });
  const at = async () => {
    const {token} = await stateOf(page);
    return token < first ? 'class' : [Math.floor((token - first) / across), (token - first) % across].join();
  };
  const before = await drawn(page, '#wall');
  await page.mouse.click(box.x + box.width * (2.5 / across), box.y + box.height * (1.5 / down));
  expect((await at()) === '1,2', `a click chose ${await at()}`);
  expect(/row 2, column 3/.test(await page.textContent('#chosen-token')), await page.textContent('#chosen-token'));
  expect((await drawn(page, '#wall')) !== before, 'the maps did not change');
  await page.focus('#picture');
  for (const [key, want] of [['ArrowRight', '1,3'], ['ArrowDown', '2,3'], ['ArrowLeft', '2,2'], ['ArrowUp', '1,2'],
    ['ArrowUp', '0,2'], ['ArrowUp', '0,2'], ['c', 'class']]) {
    await page.keyboard.press(key);
    expect((await at()) === want, `${key} led to ${await at()}, not to ${want}`);
  }
  await page.keyboard.press('ArrowRight');
  await page.click('#class-token');
  expect((await at()) === 'class', 'no class token by its button');
  expect((await page.getAttribute('#class-token', 'aria-pressed')) === 'true', 'the button is not pressed');
}

async function choosesHeads(page) {
  for (const where of ['#wall', '#grid-body']) {
    for (const [block, head] of [[1, 2], [0, 0]]) {
      const cell = `${where} .cell[data-block="${block}"][data-head="${head}"]`;
      await page.click(cell);
      const state = await stateOf(page);
      expect(state.block === block && state.head === head, `${where}: block ${state.block}, head ${state.head}`);
      expect((await page.getAttribute(cell, 'aria-pressed')) === 'true', `${where}: not pressed`);
      const label = await page.getAttribute('#large-map', 'aria-label');
      expect(label.includes(`Block ${block}, head ${head}`), `the large map says ${label}`);
    }
  }
}

async function sortsHeads(page) {
  const heads = await page.evaluate(() => window.mhaView.data.survey.heads);
  const counts = await page.evaluate(() => window.mhaView.model.config.heads), placeOf = (b, h) => counts.slice(0, b).reduce((sum, count) => sum + count, h);
  const order = () => page.evaluate(() => [...document.querySelectorAll('#grid-body .cell')]
    .map((cell) => [Number(cell.dataset.block), Number(cell.dataset.head)]));
  const select = page.locator('#grid select').first();
  for (const [key, sign] of [['entropy', 1], ['distance', 1], ['importance', -1]]) {
    await select.selectOption(key);
    const shown = (await order()).map(([b, h]) => heads[placeOf(b, h)][key]);
    expect(shown.length === heads.length, `${key}: ${shown.length} heads`);
    expect(shown.every((x, i) => i === 0 || sign * (x - shown[i - 1]) >= 0), `${key}: ${shown.map((x) => x.toFixed(3))}`);
  }
  await select.selectOption('likeness');
  const [[b, h], [b2, other]] = await order(), pairs = await page.evaluate(() => window.mhaView.data.survey.pairs);
  const least = Math.min(...pairs.flatMap((table) => table.flatMap((row, i) => row.filter((_, j) => j !== i))));
  expect(b === b2 && pairs[b][h][other] === least, `likeness: ${b}.${h} and ${b2}.${other} come first`);
  await select.selectOption('place');
  expect((await order()).every(([block, head], i, all) => i === 0 || block * 100 + head > all[i - 1][0] * 100 + all[i - 1][1]),
    'not in their places');
}

async function scalesColours(page) {
  for (const [label, values] of [['Colour', ['log', 'linear']], ['Scale', ['per-head', 'fixed']]]) {
    for (const value of values) {
      const before = await Promise.all(['#wall', '#grid-body', '#rollout-row'].map((where) => drawn(page, where)));
      await page.locator('#look label.control', {hasText: label}).locator('select').selectOption(value);
      const after = await Promise.all(['#wall', '#grid-body', '#rollout-row'].map((where) => drawn(page, where)));
      after.forEach((picture, i) => expect(picture !== before[i], `${label} ${value}: picture ${i} did not change`));
      const others = await page.locator('label.control', {hasText: label}).locator('select')
        .evaluateAll((all) => all.map((select) => select.value));
      expect(others.every((other) => other === value), `${label} is ${others}`);
    }
  }
}

async function rollsOut(page) {
  const depth = await page.evaluate(() => window.mhaView.model.config.depth);
  expect((await page.locator('#rollout-row canvas').count()) === depth, 'not a picture a block');
  const before = await drawn(page, '#rollout-row');
  await page.focus('#picture');
  await page.keyboard.press('ArrowRight');
  await page.locator('#rollout select').first().selectOption('chosen');
  expect((await drawn(page, '#rollout-row')) !== before, 'another token looks the same');
  await page.locator('#rollout select').first().selectOption('read-out');
  await page.click('#class-token');
}

async function switchesHeads(page) {
  const off = async () => (await stateOf(page)).gates.flat().filter((gate) => !gate).length;
  const logits = () => page.evaluate(() => Array.from(window.mhaView.store.get().result.logits));
  const before = await logits(), heads = await page.evaluate(() => window.mhaView.model.config.heads);
  expect(await page.isDisabled('#all-on'), 'there is nothing to switch on yet');
  await page.click('#gates [data-block="1"][data-all="off"]');
  expect((await off()) === heads[1], `${await off()} heads are off`);
  expect(farthest(await logits(), before) > 1e-6, 'the answer does not depend on block 2');
  expect((await page.locator('#wall .cell.off').count()) === heads[1], 'the wall does not show it');
  await page.click('#gates [data-block="1"][data-all="on"]');
  expect((await off()) === 0 && farthest(await logits(), before) === 0, 'it is not as it was');
  await page.focus('#gates input[data-block="0"][data-head="0"]');
  await page.keyboard.press('Space');
  expect((await off()) === 1, 'the keyboard switches nothing');
  await page.click('#all-on');
  expect((await off()) === 0, 'not all are on');
}

async function changesImages(page) {
  await page.check('#images input[value="3"]', {force: true});
  expect((await stateOf(page)).image === 3, 'not the fourth image');
  const name = await page.evaluate(() => window.mhaView.data.images[3].name);
  expect((await page.textContent('#image-name')) === name, `${await page.textContent('#image-name')}, not ${name}`);
  const note = await page.textContent('#grid-note'), {images} = await page.evaluate(() => window.mhaView.data.survey);
  expect(note.includes(`${name}.`) && note.includes(`over ${images} images`), note);
  await page.focus('#images input[value="3"]');
  await page.keyboard.press('ArrowRight');
  expect((await stateOf(page)).image === 4, 'arrow keys do not choose images');
  await page.check('#images input[value="0"]', {force: true});
}

async function changesTheme(page) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const {theme} = await stateOf(page), before = await ground(), maps = await drawn(page, '#wall');
  await page.click('#theme');
  expect((await stateOf(page)).theme !== theme && (await ground()) !== before, 'the page looks the same');
  expect((await drawn(page, '#wall')) !== maps, 'the maps look the same');
  await page.click('#theme');
  expect((await ground()) === before, 'there is no way back');
}

/* ---- Steps --------------------------------------------------------------------------------------------------------- */

const stepShown = async (page) => parseInt(await page.textContent('#step-title'), 10);

async function stepsForwardAndBack(page) {
  await page.locator('#steps').scrollIntoViewIfNeeded();
  await page.waitForFunction(() => /^1 of /.test(document.getElementById('step-title').textContent));
  const count = Number(await page.getAttribute('#steps-slider', 'max'));
  expect(await page.isDisabled('#steps-back'), 'there is nothing before the first step');
  for (let step = 2; step <= count; step++) {
    const words = await page.textContent('#steps-words');
    await page.click('#steps-forward');
    expect((await stepShown(page)) === step, `step ${await stepShown(page)}, not ${step}`);
    expect((await page.textContent('#steps-words')) !== words, `step ${step} says what the one before says`);
    expect(!/NaN|undefined/.test(await page.textContent('#steps')), `step ${step}: a number that is none`);
  }
  expect(await page.isDisabled('#steps-forward'), 'there is nothing behind the last step');
  await page.click('#steps-back');
  expect((await stepShown(page)) === count - 1, 'no way back');
  await page.focus('#steps-slider');
  await page.keyboard.press('Home');
  expect((await stepShown(page)) === 1, 'the slider does not lead to the start');
  await page.focus('#steps-stage');
  await page.keyboard.press('ArrowRight');
  expect((await stepShown(page)) === 2, 'arrow keys do not step');
  await page.keyboard.press('ArrowLeft');
  expect((await stepShown(page)) === 1, 'arrow keys do not step back');
}

/* Who asked for less motion sees the end of a step at once. */
async function standsStill(browser, path) {
  const {page} = await openPage(browser, path, {still: true});
  await page.locator('#steps').scrollIntoViewIfNeeded();
  await page.waitForFunction(() => /^1 of /.test(document.getElementById('step-title').textContent));
  const stage = () => page.evaluate(() => document.getElementById('steps-stage').toDataURL());
  await page.click('#steps-forward');
  await frames(page, 2);
  const first = await stage();
  await page.waitForTimeout(400);
  expect((await stage()) === first, 'it moves');
}

/* The chosen head and token are the same everywhere. */
async function stepsFollow(page) {
  await page.locator('#steps').scrollIntoViewIfNeeded();
  await page.selectOption('#steps-block', {value: '1'});
  await page.selectOption('#steps-head', {value: '2'});
  await page.selectOption('#steps-token', {value: '5'});
  const {block, head, token} = await stateOf(page);
  expect(block === 1 && head === 2 && token === 5, `block ${block}, head ${head}, token ${token}`);
  expect((await page.getAttribute('#wall .cell[data-block="1"][data-head="2"]', 'aria-pressed')) === 'true', 'the wall');
  await page.click('#class-token');
}

/* ---- The page as a whole ------------------------------------------------------------------------------------------- */

async function loadsQuickly(browser, path) {
  const times = [];
  for (let i = 0; i < 3; i++) {
    const {page} = await openPage(browser, path);
    times.push(await page.evaluate(() => performance.getEntriesByType('navigation')[0].loadEventEnd));
  }
  note(`loaded in ${Math.round(Math.min(...times))} ms, the best of three`);
  expect(Math.min(...times) < 1000, `${times.map(Math.round)} ms`);
}

export async function testControls(browser, folder) {
  const path = join(folder, 'main.html');
  const {page, problems, requests, close} = await openPage(browser, path);
  await test('every_panel_renders', () => everyPanelRenders(page));
  await test('patches_are_chosen_by_mouse_and_keys', () => choosesPatches(page));
  await test('heads_are_chosen', () => choosesHeads(page));
  await test('heads_are_sorted', () => sortsHeads(page));
  await test('colours_are_scaled', () => scalesColours(page));
  await test('attention_is_rolled_out', () => rollsOut(page));
  await test('heads_are_switched_off', () => switchesHeads(page));
  await test('images_are_chosen', () => changesImages(page));
  await test('steps_go_forward_and_back', () => stepsForwardAndBack(page));
  await test('steps_follow_what_is_chosen', () => stepsFollow(page));
  await test('light_becomes_dark_and_light_again', () => changesTheme(page));
  for (const id of panels) {
    await test(`${id}_is_saved_as_a_picture`, () => browsing.expectExports(page, id));
  }
  await test('no_error_and_no_request', async () => {
    expect(problems.length === 0, problems.join('; '));
    expect(requests.length === 0, requests.join(', '));
  });
  await close();
  await test('less_motion_is_no_motion', () => standsStill(browser, path));
  await test('it_loads_in_a_second', () => loadsQuickly(browser, path));
}
