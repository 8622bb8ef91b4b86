/* Writing a text: typing, stepping, settings, pointing at tokens, sharing. The models are those of text_models.mjs: a token per
 * letter. */
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect, expectNear, farthest, test} from './harness.mjs';
import * as browsing from './browser.mjs';
import {badTextsGiveANotice, aModelWithANan, oddLinks, pagesThatCannotRun, writeChanged} from './write_bad.mjs';
import {chips, shownTokens, type, writing} from './write_page.mjs';

const {frames, openPage} = browsing;

async function startAgain(page, settings = {}) {
  await page.evaluate((values) => window.mhaView.writing.store.set({more: [], running: false, ...values}), settings);
}

async function steps(page, count) {
  for (let n = 0; n < count; n++) await page.click('#write-step');
  return (await writing(page)).more;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Tokens, maps and panels are those of the new text; rows are weights of a causal model. */
async function typingIsFollowed(page) {
  const text = 'a dog and a cat';
  await type(page, text);
  const shown = await shownTokens(page);
  expect(shown.slice(1).join('').replace(/\u2423/g, ' ') === text, shown.join('|'));
  const {sums, after, sizes} = await page.evaluate(() => {
    const {set} = window.mhaView.store.get(), {numbers} = set.weights, T = set.keys, sums = [];
    let after = 0;
    for (let row = 0; row < numbers.length / T; row++) {
      sums.push(numbers.subarray(row * T, (row + 1) * T).reduce((sum, x) => sum + x, 0));
      for (let key = (row % T) + 1; key < T; key++) after = Math.max(after, numbers[row * T + key]);
    }
    return {sums, after, sizes: [set.queries, set.keys, set.layers, set.heads]};
  });
  expect(sizes.join() === [text.length + 1, text.length + 1, 2, 2].join(), sizes.join());
  for (const sum of sums) expectNear(sum, 1, 1e-5, 'a row');
  expect(after === 0, `a weight of ${after} behind the query`);
  await page.locator('#attention').scrollIntoViewIfNeeded();
  await page.waitForFunction((count) => document.querySelectorAll('#token-keys [data-token]').length === count, text.length + 1);
  const facts = await page.locator('.facts li').allTextContents();
  expect(facts.includes(`${text.length + 1} tokens`), facts.join());
}

/* The page that was written with a text has the maps of the command. */
async function mapsAreThoseOfTheCommand(page) {
  const {live, still, words} = await page.evaluate(() => {
    const {data, store} = window.mhaView, bytes = Uint8Array.from(atob(data.sets[0].weights.data), (c) => c.charCodeAt(0));
    const {set} = store.get();
    return {live: Array.from(set.weights.numbers), still: Array.from(new Float32Array(bytes.buffer)),
      words: [set.tokens.queries.join('|'), data.sets[0].tokens.queries.join('|')]};
  });
  expect(farthest(live, still) < 1e-5, `the maps differ by ${farthest(live, still)}`);
  expect(words[0] === words[1], words.join(' is not '));
  for (const name of ['entropy', 'effective']) {
    const [now, then] = await page.evaluate((key) => [window.mhaView.store.get().set[key], window.mhaView.data.sets[0][key]], name);
    expect(farthest(now, then) < 1e-3, `${name}: ${now}, not ${then}`);
  }
}

/* Steps take what the command takes, with the same settings and seed. */
async function stepsAreThoseOfTheCommand(page, mha) {
  const text = 'the cat saw the', run = (...more) => JSON.parse(mha('generate', 'letters', '-p', text, '--tokens', '8', '--json', '--quiet', ...more));
  await type(page, text);
  for (const [settings, more] of [[{temperature: 0}, ['--greedy']],
    [{temperature: 0.8, topK: 12, topP: 0.9, seed: 3}, ['--temperature', '0.8', '--top-k', '12', '--top-p', '0.9', '--seed', '3']]]) {
    await startAgain(page, {temperature: 1, topK: 0, topP: 1, seed: 1, ...settings});
    const wanted = run(...more).sequences[0].tokens.slice(-8), got = await steps(page, 8);
    expect(got.join() === wanted.join(), `${JSON.stringify(settings)}: ${got}, not ${wanted}`);
  }
  expect((await page.locator(`${chips(0)}.written`).count()) === 8, 'generated tokens are not marked');
  const {sides} = await writing(page);
  expect(sides[0].prompt === text.length + 1 && sides[0].ids.length === text.length + 9, JSON.stringify(sides[0]));
}

/* At temperature 0, each step takes the first of the list that was shown, which a run without a cache has computed. */
async function stepsTakeTheLikeliest(page) {
  await type(page, 'we go');
  await startAgain(page, {temperature: 0, topK: 0, topP: 1});
  for (let n = 0; n < 4; n++) {
    const before = await writing(page), more = await steps(page, 1);
    expect(more[n] === before.next[0].list[0].id, `step ${n} took ${more[n]}, not ${before.next[0].list[0].id}`);
    const {token, set} = await page.evaluate(() => window.mhaView.store.get());
    expect(token === set.queries - 1, `the selected token is ${token} of ${set.queries}`);
  }
  await page.click('#write-back');
  expect((await writing(page)).more.length === 3, 'Back does not take a token away');
  await page.click('#write-again');
  expect((await writing(page)).more.length === 0 && (await page.isDisabled('#write-again')), 'Start over leaves tokens');
}

async function writesOnAndPauses(page) {
  await type(page, 'once');
  await startAgain(page, {temperature: 1});
  await page.click('#write-on');
  expect((await page.textContent('#write-on')) === 'Pause', await page.textContent('#write-on'));
  await page.waitForFunction(() => window.mhaView.writing.store.get().more.length >= 3);
  await page.click('#write-on');
  const {more, running} = await writing(page);
  expect(!running && (await page.textContent('#write-on')) === 'Continue', 'it goes on');
  await page.waitForTimeout(300);
  expect((await writing(page)).more.length === more.length, 'tokens come after the pause');
  await page.click('#write-on');
  await page.waitForFunction((count) => window.mhaView.writing.store.get().more.length > count, more.length);
  await page.locator('#write-text').press('End');
  await page.locator('#write-text').pressSequentially(' we');
  await page.waitForFunction(() => window.mhaView.writing.store.get().text === 'once we');
  const after = await writing(page);
  expect(!after.running && after.more.length === 0, 'typing does not stop the writing');
}

/* A model whose runs take long: tokens come faster than maps, which follow when the writing pauses. */
async function slowModelsWriteOn(browser, path) {
  const {page} = await openPage(browser, path);
  await page.evaluate(() => {
    const {model} = window.mhaView.writing.writer, run = model.runTokens;
    window.runs = 0;
    model.runTokens = (...all) => {
      const end = performance.now() + 600;
      while (performance.now() < end);
      window.runs++;
      return run(...all);
    };
  });
  await page.click('#write-on');
  await page.waitForFunction(() => window.mhaView.writing.store.get().more.length >= 6);
  await page.click('#write-on');
  const {more, sides} = await writing(page), runs = await page.evaluate(() => window.runs), chipCount = await page.locator(chips(0)).count();
  expect(runs < more.length, `${runs} runs for ${more.length} tokens`);
  expect(sides[0].ids.slice(-more.length).join() === more.join() && chipCount === sides[0].ids.length, `${sides[0].ids.length} tokens, ${chipCount} shown`);
  expect((await page.evaluate(() => window.mhaView.store.get().set.queries)) === sides[0].ids.length, 'the maps are of another text');
}

/* A model with few positions: it writes up to the last one, and says how many tokens fit. */
async function stopsWhereItIsFull(browser, folder) {
  const path = writeChanged(folder, 'text.html', 'short.html', (data) => ({...data, live: {...data.live, positions: 32}}));
  const {page} = await openPage(browser, path);
  await type(page, 'a'.repeat(25));
  await startAgain(page, {temperature: 1, topK: 26});
  await page.evaluate(() => {
    for (let n = 0; n < 12; n++) window.mhaView.writing.writer.step();
  });
  const {sides, ended} = await writing(page);
  expect(sides[0].ids.length === 32 && ended, `${sides[0].ids.length} tokens, ${ended}`);
  expect(/limit of 32 tokens/.test(await page.textContent('#next-hint')), await page.textContent('#next-hint'));
  expect((await page.isDisabled('#write-step')) && (await page.isDisabled('#write-on')), 'one can go on');
  await page.click('#write-back');
  expect(await page.isEnabled('#write-step'), 'one cannot go on from before the end');
  await type(page, 'b'.repeat(40));
  expect(/41 tokens; at most 32 fit/.test(await page.textContent('#write-problem')), await page.textContent('#write-problem'));
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

const slide = (page, key, value) => page.locator(`#write-${key}`).fill(String(value));

async function settingsShapeTheBars(page) {
  await type(page, 'the cat');
  await startAgain(page, {temperature: 1, topK: 0, topP: 1});
  const list = async () => (await writing(page)).next[0].list;
  const raw = await list();
  expect(raw.every(({p, raw: own}) => Math.abs(p - own) < 1e-6), 'settings that do nothing change the probabilities');
  await slide(page, 'topK', 3);
  const few = await list(), kept = few.filter(({p}) => p > 0);
  expect(kept.length === 3, `${kept.length} tokens are left of top-k 3`);
  expectNear(kept.reduce((sum, {p}) => sum + p, 0), 1, 1e-5, 'the sum of three');
  expect((await page.locator('.next-row.cut').count()) === 7, 'those cut off are not marked');
  await slide(page, 'topK', 0);
  await slide(page, 'topP', 0.05);
  expect((await list()).filter(({p}) => p > 0).length === 1, 'top-p 0.05 leaves more than one');
  await slide(page, 'topP', 1);
  await slide(page, 'temperature', 2);
  const warm = (await list())[0].p;
  await slide(page, 'temperature', 0.2);
  const cold = (await list())[0].p;
  expect(warm < raw[0].p && raw[0].p < cold, `${warm}, ${raw[0].p}, ${cold}`);
  await slide(page, 'temperature', 0);
  expect((await list())[0].p === 1 && (await page.textContent('#write-temperature ~ *, .setting-value')) !== '', 'temperature 0');
  const bars = await page.locator('.next-row').evaluateAll((all) => all.map((row) => [row.querySelector('.next-word').textContent, row.querySelector('.next-share').textContent]));
  expect(bars.length === 10 && bars[0][1].startsWith('100'), bars.join('; '));
}

async function seedsRepeat(page) {
  await type(page, 'the cat');
  const write = async (seed) => {
    await startAgain(page, {temperature: 2, topK: 0, topP: 1, seed});
    return (await steps(page, 8)).join();
  };
  const first = await write(5), second = await write(6), third = await write(5);
  expect(first === third && first !== second, `${first}; ${second}; ${third}`);
  const {more} = await writing(page);
  for (let n = 0; n < 3; n++) await page.click('#write-back');
  await steps(page, 3);
  expect((await writing(page)).more.join() === more.join(), `back and on: ${(await writing(page)).more}, not ${more}`);
  const [whole, words] = await page.evaluate(() => {
    const {writer, store} = window.mhaView.writing, {tokens} = store.get();
    return [writer.whole(store.get()), tokens[0].words.slice(-8).join('')];
  });
  expect(whole === 'the cat' + words, `the text to copy is ${whole}`);
  await page.fill('#write-seed', '123');
  await page.locator('#write-seed').blur();
  expect((await writing(page)).seed === 123, `the seed is ${(await writing(page)).seed}`);
  await page.fill('#write-seed', '-4');
  await page.locator('#write-seed').blur();
  expect((await page.inputValue('#write-seed')) === '123', 'a wrong seed stays');
}

async function aClickAppends(page) {
  await type(page, 'the cat');
  await startAgain(page);
  const {next} = await writing(page);
  await page.locator('.next-row').nth(4).click();
  const {more} = await writing(page), [last] = (await shownTokens(page)).slice(-1);
  expect(more.join() === String(next[0].list[4].id), `${more}, not ${next[0].list[4].id}`);
  expect(last === next[0].list[4].word.replace(/^ $/, '\u2423'), `${last}, not ${next[0].list[4].word}`);
}

/* ---- Every head -------------------------------------------------------------------------------------------------- */

/* What the cells of the panel say, and the strongest keys of a query in every head. */
async function expectArcs(page, query, what) {
  await frames(page, 3);
  const {said, wanted} = await page.evaluate((token) => {
    const {set} = window.mhaView.store.get(), {numbers} = set.weights, T = set.keys;
    const wanted = Array.from({length: set.layers * set.heads}, (_, n) => {
      const row = numbers.subarray((n * T + token) * T, (n * T + token + 1) * T), best = row.indexOf(Math.max(...row));
      const [from, to] = [set.tokens.queries[token], set.tokens.keys[best]].map((word) => word.replace(/^ $/, '\u2423') || '\u2205');
      return `from “\u2068${from}\u2069” (${token + 1}), to “\u2068${to}\u2069” (${best + 1})`;
    });
    return {said: [...document.querySelectorAll('.arc-cell')].map((cell) => cell.getAttribute('aria-label')), wanted};
  }, query);
  wanted.forEach((words, n) => expect(said[n].includes(words), `${what}: ${said[n]} does not say ${words}`));
}

async function pointingShowsEveryHead(page) {
  await type(page, 'the cat saw the');
  await page.hover(`${chips(0)} >> nth=3`);
  await expectArcs(page, 3, 'pointing');
  await page.hover(`${chips(0)} >> nth=9`);
  await expectArcs(page, 9, 'pointing at another');
  await page.mouse.move(2, 2);
  await expectArcs(page, 15, 'the last token, when nothing is pointed at');
  await page.click(`${chips(0)} >> nth=5`);
  await page.mouse.move(2, 2);
  await expectArcs(page, 5, 'a selected token');
  expect((await page.evaluate(() => window.mhaView.store.get().token)) === 5, 'the other panels have another query');
  await page.click('.arc-cell[data-layer="1"][data-head="1"]');
  const {block, head} = await page.evaluate(() => window.mhaView.store.get());
  expect(block === 1 && head === 1, `head ${block}.${head} is selected`);
}

/* The kinds of heads have marks, in the panel and at the maps, and a legend. */
async function headsHaveMarks(browser, path) {
  const {page} = await openPage(browser, path, {before: () => {
    window.mhaWords = ['induction', 'the previous token', 'mixed', 'induction, weakly'];
    const parse = JSON.parse;
    JSON.parse = (text) => {
      const data = parse(text);
      if (data.sets) data.sets[0].words = window.mhaWords;
      return data;
    };
  }});
  for (const where of ['.arc-cell', '#heads .cell']) {
    const marks = await page.locator(where).evaluateAll((all) => all.map((cell) => (cell.querySelector('.head-mark') || {className: ''}).className));
    expect(marks.join() === 'head-mark induction,head-mark previous,,', `${where}: ${marks}`);
  }
  expect((await page.locator('#write .marks-legend .head-mark').count()) === 2 && (await page.locator('#attention .marks-legend .head-mark').count()) === 2, 'no legend');
  await browsing.expectAccessible(page, 'marks');
}

/* ---- Sharing ----------------------------------------------------------------------------------------------------- */

async function change(page) {
  await type(page, 'a <b>cat</b> & dog');
  await slide(page, 'temperature', 1.5);
  await slide(page, 'topK', 20);
  await page.evaluate(() => window.mhaView.writing.store.set({seed: 77}));
  await steps(page, 3);
  await page.click(`${chips(0)} >> nth=2`);
  return writing(page);
}

async function expectSame(page, wanted, what) {
  const now = await writing(page);
  for (const key of ['text', 'temperature', 'topK', 'topP', 'seed', 'problem']) expect(now[key] === wanted[key], `${what}: ${key} is ${now[key]}, not ${wanted[key]}`);
  expect(now.more.join() === wanted.more.join(), `${what}: ${now.more}, not ${wanted.more}`);
  expect((await page.inputValue('#write-text')) === wanted.text, `${what}: the box has ${await page.inputValue('#write-text')}`);
  expect((await page.evaluate(() => window.mhaView.store.get().token)) === 2, `${what}: another token is selected`);
  expect((await page.locator('.page-notice').count()) === 0, `${what}: ${await page.locator('.page-notice').allTextContents()}`);
}

async function textsAreShared(browser, folder) {
  const {page} = await openPage(browser, join(folder, 'text.html'));
  const wanted = await change(page);
  await page.waitForFunction(() => /seed=77.*query=2/.test(location.hash));
  const address = page.url(), tab = await page.context().newPage();
  await tab.goto(address);
  await tab.waitForFunction(() => window.mhaView);
  await expectSame(tab, wanted, 'a link');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-page')]);
  writeFileSync(join(folder, 'written.html'), readFileSync(await download.path()));
  const saved = await openPage(browser, join(folder, 'written.html'));
  await expectSame(saved.page, wanted, 'a saved page');
}

/* ---- Phones, keys, and a page that keeps still -------------------------------------------------------------------- */

/* Nothing moves while the text grows, and nothing is wider than the window. */
async function keepsStill(browser, path, size) {
  const {page} = await openPage(browser, path, {...size, still: true}), what = `${size.width} pixels`;
  const places = () => page.evaluate(() => ['#write-on', '#write-tokens-0', '.next-list', '.settings', '.arcs', '#attention']
    .map((where) => Math.round(document.querySelector(where).getBoundingClientRect().top + window.scrollY)).join());
  await page.evaluate(() => window.mhaView.writing.store.set({text: 'a cat', more: [], temperature: 1, topK: 0, topP: 1}));
  await frames(page, 3);
  const before = await places();
  await page.evaluate(() => {
    for (let n = 0; n < 60; n++) window.mhaView.writing.writer.step();
  });
  await frames(page, 3);
  expect((await writing(page)).more.length > 5, 'too few tokens');
  expect((await places()) === before, `${what}: ${await places()}, before ${before}`);
  await browsing.expectNoSidewaysScroll(page, what);
  const last = await page.evaluate((where) => {
    const all = document.querySelectorAll(where), chip = all[all.length - 1].getBoundingClientRect(), box = all[0].parentNode.getBoundingClientRect();
    return chip.bottom <= box.bottom + 1 && chip.top >= box.top - 1;
  }, chips(0));
  expect(last, `${what}: the last token is not in sight`);
  if (size.touch) {
    await page.tap(`${chips(0)}.written >> nth=-2`);
    await expectArcs(page, await page.evaluate(() => window.mhaView.store.get().token), 'a tap');
  }
}

async function keysAreEnough(page) {
  await page.focus('#write-text');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('go on');
  await page.keyboard.press('Control+Enter');
  const {text, more} = await writing(page);
  expect(text === 'go on' && more.length === 1, `${text}: ${more.length} tokens`);
  const reached = new Set();
  for (let n = 0; n < 40; n++) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.className));
  }
  for (const id of ['write-on', 'write-step', 'write-back', 'write-again', 'write-tokens-0', 'write-temperature', 'write-topK', 'write-topP', 'write-seed', 'next-row']) {
    expect(reached.has(id), `Tab does not reach ${id}: ${[...reached].join()}`);
  }
  await page.hover(`${chips(0)} >> nth=4`); /* keys count more than where the mouse was left */
  await page.focus('#write-tokens-0');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  await expectArcs(page, 1, 'arrow keys');
  await page.evaluate(() => ['Home', 'ArrowRight', 'ArrowRight'].forEach((key) => /* faster than a frame */
    document.getElementById('write-tokens-0').dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}))));
  await expectArcs(page, 2, 'fast arrow keys');
  await page.focus('#write-temperature');
  await page.keyboard.press('Home');
  expect((await writing(page)).temperature === 0, 'Home does not set the temperature to 0');
}

/* ---- Two stacks --------------------------------------------------------------------------------------------------- */

async function pairsAreWritten(page) {
  const first = await writing(page);
  expect(first.sides.length === 2 && first.sides[0].words.length === 6 && first.sides[1].words.length === 12, JSON.stringify(first.sides));
  await type(page, 'two cats');
  await startAgain(page, {temperature: 1});
  const more = await steps(page, 4), {sides} = await writing(page);
  expect(more.length >= 1 && sides[1].ids.slice(-more.length).join() === more.join(), `${more}: ${sides[1].ids}`);
  const sizes = await page.evaluate(() => window.mhaView.stores.map((store) => [store.get().set.queries, store.get().set.keys].join()));
  const [S, T] = sides.map(({ids}) => ids.length);
  expect(sizes.join(' ') === `${S},${S} ${T},${T} ${T},${S}`, sizes.join(' '));
  await page.hover(`${chips(1)} >> nth=1`);
  await frames(page, 3);
  const titles = await page.locator('.arcs-about').allTextContents();
  expect(/^Encoder, from /.test(titles[0]) && /^Decoder, from .*\(2\)/.test(titles[1]) && /^Cross-attention, from .*\(2\)/.test(titles[2]), titles.join('; '));
  await page.locator('#cross').scrollIntoViewIfNeeded();
  await page.waitForFunction((count) => document.querySelectorAll('#cross-token-queries [data-token]').length === count, T);
}

/* ---- Masks -------------------------------------------------------------------------------------------------------- */

/* Each mask has the candidates of the command; a click puts one in its place. */
async function masksAreFilled(page, mha) {
  expect((await page.locator('#write-step').count()) === 0 && (await page.locator('.settings').count()) === 0, 'an encoder can be stepped');
  expect(/Insert a mask/.test(await page.textContent('#next-hint')), await page.textContent('#next-hint'));
  await type(page, 'the c');
  await page.evaluate(() => {
    const box = document.getElementById('write-text');
    box.setSelectionRange(5, 5);
  });
  await page.click('#write-mask');
  expect((await writing(page)).text === 'the c[MASK]', (await writing(page)).text);
  await type(page, 'the c[MASK]t [MASK]aw');
  const wanted = JSON.parse(mha('fill', 'letter-masks', 'the c[MASK]t [MASK]aw', '--top', '10', '--json')).masks, {next} = await writing(page);
  expect(next.length === 2, `${next.length} masks`);
  next.forEach(({row, list}, n) => {
    expect(row === wanted[n].position, `mask ${n} is at ${row}`);
    wanted[n].tokens.forEach(({id, probability}, k) => {
      expect(list[k].id === id, `mask ${n}, candidate ${k}: ${list[k].id}, not ${id}`);
      expectNear(list[k].p, probability, 1e-5, `mask ${n}, candidate ${k}`);
    });
  });
  await page.click('.mask-choice button >> nth=1');
  const at = wanted[1].tokens.findIndex(({piece}) => /^[a-z]$/.test(piece));
  await page.locator('.next-row').nth(at).click();
  expect((await page.inputValue('#write-text')) === `the c[MASK]t ${wanted[1].tokens[at].piece}aw`, await page.inputValue('#write-text'));
  expect((await page.locator('.mask-choice button').count()) === 0, 'one mask has a choice');
}

/* ---- All of it ---------------------------------------------------------------------------------------------------- */

export async function testWriting(browser, mha, folder) {
  const path = join(folder, 'text.html');
  const able = await openPage(browser, path), runs = await able.page.evaluate(() => Boolean(window.mhaView.writing));
  const why = runs ? '' : await able.page.textContent('#still');
  await able.close();
  if (!runs) {
    await test('a_page_says_why_it_cannot_run_its_model', async () => expect(/cannot run its model/.test(why), why));
    return;
  }
  const {page, problems, requests, close} = await openPage(browser, path);
  for (const [name, run] of Object.entries({
    a_text_has_the_maps_of_the_command: () => mapsAreThoseOfTheCommand(page), a_typed_text_is_followed: () => typingIsFollowed(page),
    a_text_is_continued_as_by_the_command: () => stepsAreThoseOfTheCommand(page, mha), steps_of_a_text_take_the_likeliest: () => stepsTakeTheLikeliest(page),
    a_text_is_written_on_and_paused: () => writesOnAndPauses(page), a_text_stops_where_it_is_full: () => stopsWhereItIsFull(browser, folder),
    settings_of_a_text_shape_the_bars: () => settingsShapeTheBars(page), seeds_of_a_text_repeat: () => seedsRepeat(page),
    a_click_appends_to_a_text: () => aClickAppends(page), pointing_at_a_text_shows_every_head: () => pointingShowsEveryHead(page),
    bad_texts_give_a_notice: () => badTextsGiveANotice(page), a_text_is_written_with_keys: () => keysAreEnough(page),
    a_written_text_is_saved_as_a_picture: () => browsing.expectExports(page, 'write'),
  })) await test(name, run);
  await test('no_error_and_no_request_of_writing', async () => {
    expect(problems.length === 0, problems.join('; '));
    expect(requests.length === 0, requests.join(', '));
  });
  await close();
  const pair = await openPage(browser, join(folder, 'pair.html'));
  await test('a_pair_is_written', () => pairsAreWritten(pair.page));
  await test('a_written_pair_is_saved_as_a_picture', () => browsing.expectExports(pair.page, 'write'));
  await pair.close();
  const masks = await openPage(browser, join(folder, 'masks.html'));
  await test('masks_of_a_text_are_filled', () => masksAreFilled(masks.page, mha));
  await test('masks_of_a_text_look_well', async () => {
    await browsing.expectAccessible(masks.page, 'masks');
    await browsing.expectExports(masks.page, 'write');
    expect(masks.problems.length === 0, masks.problems.join('; '));
  });
  await masks.close();
  await Promise.all([
    test('a_slow_model_writes_on', () => slowModelsWriteOn(browser, path)),
    test('heads_of_a_text_have_marks', () => headsHaveMarks(browser, path)),
    test('a_written_text_is_shared', () => textsAreShared(browser, folder)),
    test('pages_of_a_text_that_cannot_run', () => pagesThatCannotRun(browser, folder)),
    test('a_text_model_with_a_nan', () => aModelWithANan(browser, folder)),
    test('an_odd_link_to_a_text_gives_a_notice', () => oddLinks(browser, folder)),
    test('a_text_keeps_still', async () => {
      for (const size of [{width: 1440}, {width: 1024}, {width: 768}, {width: 390, height: 844, touch: true}, {width: 320, height: 640, touch: true}]) {
        await keepsStill(browser, path, size);
      }
    }),
  ]);
}
