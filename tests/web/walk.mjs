/* The walk-through over a text: as over an image, for models that write, that fill masks, and with an encoder. The models are those of
 * text_models.mjs: a token per letter. */
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {expectExports, frames, openPage} from './browser.mjs';
import {expectStage, watchTexts} from './many_heads.mjs';
import {followsOne, withStage} from './steps.mjs';
import {type} from './write_page.mjs';

const textWalk = {
  choose: (page, choice) => page.evaluate((state) => window.mhaView.walk.store.set(state), choice),
  tokenOf: (name) => Number(name.match(/\(token (\d+)\)/)[1]) - 1,
  factsOf: (page) => page.evaluate(() => {
    const {T, H, t, key, readOut, lanes} = window.mhaView.walk.facts(), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    return {tokens: T, heads: H, token: t, key, readOut, weights: lanes.map(({weightRow}) => weightRow[key]),
      colours: {accent: colour('--accent'), key: colour('--key'), line: colour('--line')}};
  }),
};

const words = (page) => page.textContent('#steps-words');

async function goTo(page, step) {
  await page.fill('#steps-slider', String(step));
  await frames(page, 2);
}

const lastStep = async (page) => Number(await page.getAttribute('#steps-slider', 'max'));

/* Steps are of the text that is typed, the query of the maps, and a key of its own. */
async function followsTheText(page) {
  await type(page, 'a red ball');
  await goTo(page, 1);
  expect(/one of 11 tokens\.$/.test(await words(page)), await words(page));
  await page.evaluate(() => window.mhaView.store.set({token: 4}));
  await frames(page, 2);
  expect(/\u201ce\u201d \(token 5\)/.test(await words(page)), await words(page));
  await page.selectOption('#steps-token', '2');
  expect((await page.evaluate(() => window.mhaView.store.get().token)) === 2, 'the maps do not follow the query');
  expect((await page.locator('#steps-key option').count()) === 3, 'a causal model sees later keys');
  await type(page, 'b'.repeat(60));
  await frames(page, 2);
  expect(/first 48 of 61/.test(await words(page)), await words(page));
  expect((await page.locator('#steps-token option').count()) === 48, 'there are other tokens to choose from');
  await goTo(page, await lastStep(page));
  expect(/row of \u201cb\u201d \(token 61\) is used.*all steps are repeated/.test(await words(page)), await words(page));
  await goTo(page, (await lastStep(page)) - 1);
  await page.selectOption('#steps-block', {value: '1'});
  expect(/block 1; the blocks are numbered from 0 to 1\. It is the last one/.test(await words(page)), await words(page));
  await page.fill('#write-text', '');
  await page.waitForFunction(() => window.mhaView.writing.store.get().problem);
  await frames(page, 2);
  expect(await page.isHidden('#steps-stage'), 'the steps of an older text stay');
}

/* Every step has its text, and no number that is none. */
async function hasAllSteps(page) {
  const count = await lastStep(page), seen = new Set();
  for (let step = 1; step <= count; step++) {
    await goTo(page, step);
    const all = await page.textContent('#steps');
    expect(!/NaN|undefined|Infinity|null/.test(all), `step ${step}: ${all.match(/.{0,30}(NaN|undefined|Infinity|null).{0,30}/)}`);
    seen.add(await words(page));
  }
  expect(seen.size === count, `${seen.size} texts for ${count} steps`);
}

/* An encoder reads a text as a whole: one that is too long has no steps, and says so. */
async function masksAreWalked(page) {
  await type(page, 'the c[MASK]t');
  await hasAllSteps(page);
  expect(/predicts in place of the mask/.test(await words(page)), await words(page));
  await type(page, 'the cat');
  await frames(page, 2);
  expect(/If the text contains a mask/.test(await words(page)), await words(page));
  await type(page, 'a'.repeat(60));
  await frames(page, 2);
  expect(await page.isHidden('#steps-stage'), 'the steps of an older text stay');
  expect(/takes up to 48 tokens; this text has 61/.test(await page.textContent('#steps .notice')), await page.textContent('#steps .notice'));
  await type(page, 'the cat');
  await frames(page, 2);
  expect(await page.isVisible('#steps-stage'), 'the steps do not come back');
}

async function walksAreShared(browser, path) {
  const first = await openPage(browser, path);
  await type(first.page, 'a cat and a dog');
  await first.page.evaluate(() => {
    window.mhaView.store.set({token: 9});
    window.mhaView.walk.store.set({block: 1, head: 1});
    window.mhaView.walk.store.set({key: 3, step: 6});
  });
  await first.page.waitForFunction(() => /step-key=3/.test(location.hash) && /step=6/.test(location.hash) && /query=9/.test(location.hash));
  const hash = await first.page.evaluate(() => location.hash);
  const second = await openPage(browser, path, {hash});
  const got = await second.page.evaluate(() => {
    const {block, head, key, step, token} = window.mhaView.walk.store.get();
    return {block, head, key, step, token};
  });
  expect(JSON.stringify(got) === JSON.stringify({block: 1, head: 1, key: 3, step: 6, token: 9}), JSON.stringify(got));
  await second.page.locator('#steps').scrollIntoViewIfNeeded();
  await second.page.waitForFunction(() => /^7 of /.test(document.getElementById('step-title').textContent));
}

/* A causal mask is a step of its own: hidden scores were there before, are hatched behind it, and get no weight. */
async function masksAreAStep(page) {
  await type(page, 'a red ball');
  const titles = await page.evaluate(() => {
    const {walk, store} = window.mhaView, {T, S, matrices, lanes, hidden} = walk.facts();
    const after = (values) => Array.from({length: T * S}, (_, n) => n).filter((n) => n % S > Math.floor(n / S)).map((n) => values[n]);
    return {raw: after(lanes[0].raw).every(Number.isFinite), masked: after(matrices.S0.values).every((x) => x === -Infinity), weights: after(lanes[0].weights).every((x) => x === 0),
      hidden: hidden.reduce((sum, x) => sum + x, 0), T, store: Boolean(store)};
  });
  expect(titles.raw && titles.masked && titles.weights && titles.hidden === (titles.T * (titles.T - 1)) / 2, JSON.stringify(titles));
  await goTo(page, 7);
  expect(/Hide the keys after the query/.test(await page.textContent('#step-title')), await page.textContent('#step-title'));
  await page.selectOption('#steps-token', '2');
  await frames(page, 2);
  expect(/3 of 11 keys are visible/.test(await words(page)), await words(page));
}

/* The steps of the decoder and of cross-attention: their rows, keys and weights are those of their maps. */
async function stacksAreWalked(page) {
  for (const [stack, count, wanted] of [['1', 16, /e.* \(token \d+\)/], ['2', 11, /cross-attention follows self-attention/]]) {
    await goTo(page, 1);
    await page.selectOption('#steps-stack', stack);
    await frames(page, 2);
    expect((await lastStep(page)) === count && wanted.test(await words(page)), `stack ${stack}: ${await lastStep(page)} steps, ${await words(page)}`);
    await hasAllSteps(page);
    const far = await page.evaluate((n) => {
      const {walk, stores} = window.mhaView, {set} = stores[n].get(), {lanes, T, S, D, run, M} = walk.facts(), most = {maps: 0, heads: 0, sums: 0};
      lanes.forEach(({h, weights, v, out}) => {
        for (let i = 0; i < T * S; i++) most.maps = Math.max(most.maps, Math.abs(weights[i] - set.weights.numbers[h * T * S + i]));
        for (let i = 0; i < T * D; i++) {
          const sum = Array.from({length: S}, (_, j) => weights[Math.floor(i / D) * S + j] * v[j * D + (i % D)]).reduce((a, b) => a + b, 0);
          most.heads = Math.max(most.heads, Math.abs(sum - out[i]));
        }
      });
      for (let i = 0; i < T * M; i++) most.sums = Math.max(most.sums, Math.abs(run.x[i] + run.out[i] - run.mid[i]));
      return {...most, T, S, queries: set.queries, keys: set.keys};
    }, Number(stack));
    expect(far.T === far.queries && far.S === far.keys && far.maps < 1e-5 && far.heads < 1e-4 && far.sums < 1e-5, `stack ${stack}: ${JSON.stringify(far)}`);
    await expectExports(page, 'steps');
  }
  await goTo(page, 5);
  await page.selectOption('#steps-key', '2');
  await page.waitForFunction(() => /step-stack=2/.test(location.hash) && /step-key=2/.test(location.hash));
  const hash = await page.evaluate(() => location.hash);
  await page.goto('about:blank');
  await page.goBack();
  await page.waitForFunction(() => window.mhaView);
  const {stack, key} = await page.evaluate(() => window.mhaView.walk.store.get());
  expect(stack === 2 && key === 2, `${hash}: stack ${stack}, key ${key}`);
}

/* Short and long texts, short and long words, on wide and narrow screens. */
async function wordsHaveRoom(browser, path) {
  const {page} = await openPage(browser, path, {still: true, before: watchTexts});
  await page.locator('#steps').scrollIntoViewIfNeeded();
  for (const text of ['ab', 'the cat saw a dog and the dog saw a cat', 'a'.repeat(60)]) {
    await type(page, text);
    for (const width of [1440, 768, 390, 320]) {
      await page.setViewportSize({width, height: 900});
      await page.locator('#steps').scrollIntoViewIfNeeded();
      await frames(page, 4);
      await expectStage(page, `${text.length} letters, ${width} pixels wide`, 105); /* two blocks of two heads fill no more */
    }
  }
}

export async function testTextWalk(browser, folder) {
  const path = (name) => join(folder, `${name}.html`);
  const {page, close} = await openPage(browser, path('text')), runs = await page.evaluate(() => Boolean(window.mhaView.walk));
  await close();
  if (!runs) return; /* the engine has no tokenizers: the page shows the texts that it was written with */
  await test('steps_of_a_text_mark_what_their_numbers_are_of', () => withStage(browser, path('text'), async (stage) => {
    await followsOne(stage, {block: 1, head: 1, token: 5, key: 2}, textWalk);
  }));
  await test('steps_follow_a_typed_text', () => withStage(browser, path('text'), async (stage) => {
    await hasAllSteps(stage);
    await expectExports(stage, 'steps');
    await followsTheText(stage);
  }));
  await test('a_causal_mask_is_a_step', () => withStage(browser, path('text'), masksAreAStep));
  await test('steps_of_a_decoder_and_of_cross_attention', () => withStage(browser, path('pair'), stacksAreWalked));
  await test('steps_of_masks', () => withStage(browser, path('masks'), masksAreWalked));
  await test('steps_of_an_encoder_beside_a_decoder', () => withStage(browser, path('pair'), async (stage) => {
    await hasAllSteps(stage);
    expect(/The decoder reads these rows/.test(await words(stage)), await words(stage));
  }));
  await test('room_for_words', () => wordsHaveRoom(browser, path('text')));
  await test('steps_of_a_text_are_shared', () => walksAreShared(browser, path('text')));
}
