/* What a page for writing shows between its words: arcs, names of heads that follow the text, texts of one token, longer than those of
 * the training, or from right to left; and what of a text is in the address. */
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {frames, openPage} from './browser.mjs';
import {writeChanged} from './write_bad.mjs';
import {chips, type, writing} from './write_page.mjs';

/* Arcs lead from the token under the pointer to those that some head attends to, beside the pointer, and a tip names them. */
async function arcsJoinWords(page) {
  await type(page, 'the cat saw the');
  const arcs = () => page.locator('.word-arc').count();
  expect((await arcs()) === 0, 'there are arcs before anything is pointed at');
  const chip = page.locator(chips(0)).nth(9);
  await chip.hover();
  await frames(page, 3);
  const {ends, wanted, own} = await page.evaluate((query) => {
    const {set} = window.mhaView.store.get(), T = set.keys, {numbers} = set.weights, place = document.querySelector('.word-arcs').getBoundingClientRect();
    const most = Array.from({length: T}, (_, key) => Math.max(...Array.from({length: set.layers * set.heads}, (__, n) => numbers[(n * T + query) * T + key])));
    const middle = (n) => {
      const box = document.querySelectorAll('#write-tokens-0 [data-token]')[n].getBoundingClientRect();
      return Math.round((box.left + box.right) / 2 - place.left);
    };
    const ends = [...document.querySelectorAll('.word-arc')].map((path) => {
      const numbersOf = path.getAttribute('d').match(/-?[\d.]+/g).map(Number);
      return [Math.round(numbersOf[0]), Math.round(numbersOf.at(-2))];
    });
    const keys = [...most.keys()].filter((key) => key !== query && most[key] >= 0.12).sort((a, b) => most[b] - most[a]).slice(0, 8);
    return {ends, wanted: keys.map(middle).sort((a, b) => a - b), own: middle(query)};
  }, 9);
  expect(ends.length > 0 && ends.every(([from]) => Math.abs(from - own) <= 1), `arcs from ${ends.map(([from]) => from)}, not ${own}`);
  expect(ends.map(([, to]) => to).sort((a, b) => a - b).every((to, n) => Math.abs(to - wanted[n]) <= 1), `arcs to ${ends.map(([, to]) => to)}, not ${wanted}`);
  expect(/^From “\u2068.+\u2069” \(10\) to.*% in \d\.\d/.test(await page.textContent('#tip')), await page.textContent('#tip'));
  await page.mouse.move(2, 2);
  await frames(page, 3);
  expect((await arcs()) === 0, 'the arcs stay');
}

/* The names of heads are those of the text on the page: the same that the command gives. */
async function namesFollow(page, mha, folder) {
  const text = 'abcabcabcabcabcabc abcabcabc abc';
  await type(page, text);
  await page.waitForFunction((count) => {
    const {set} = window.mhaView.store.get();
    window.named = window.named || [];
    if (set.words && set.queries === count && !window.named.includes(set.words)) window.named.push(set.words);
    return set.queries === count && window.named.length > 1;
  }, text.length + 1);
  const shown = await page.evaluate(() => window.mhaView.store.get().set.words), data = await page.evaluate(() => window.mhaView.data.sets[0].words);
  mha('view', 'letters', '--text', text, '-o', 'named.html');
  const [, json] = readFileSync(join(folder, 'named.html'), 'utf8').match(/id="mha-data">([^<]*)</), wanted = JSON.parse(json).sets[0].words;
  expect(shown.join() === wanted.join(), `the page names ${shown}, the command ${wanted}`);
  expect(shown.length === data.length && shown.every((word) => word.length > 3), `${shown}`);
  const cells = await page.locator('.arc-cell').evaluateAll((all) => all.map((cell) => cell.getAttribute('aria-label')));
  shown.forEach((word, n) => expect(word === 'mixed' || cells[n].includes(word), `head ${n}: ${cells[n]} does not say ${word}`));
}

/* A single token has weights, too: all of its attention is its own. */
async function oneTokenIsEnough(page) {
  await type(page, 'the cat');
  await page.evaluate(() => {
    const {writer, store} = window.mhaView.writing;
    const encode = writer.model.encode;
    writer.model.encode = (text) => (text === 'x' ? {ids: encode(text).ids.slice(1), words: ['x']} : encode(text));
    store.set({text: 'x', more: []});
  });
  const {problem, sides} = await writing(page);
  expect(problem === null && sides[0].ids.length === 1, `${problem}, ${sides[0].ids.length} tokens`);
  await frames(page, 3);
  await page.locator('#steps').scrollIntoViewIfNeeded();
  await frames(page, 3);
  expect(/1 key|1 token/.test(await page.textContent('#steps')) && !/NaN|undefined/.test(await page.textContent('#main')), 'the steps of one token');
}

/* A text that is longer than those of the training is read, and the page says so. */
async function longTextsAreSaidToBe(browser, folder) {
  const path = writeChanged(folder, 'text.html', 'context.html', (data) => ({...data, live: {...data.live, positions: 0, context: 24}}));
  const {page} = await openPage(browser, path);
  expect(await page.isHidden('#write-context'), 'a short text is said to be long');
  await type(page, 'a'.repeat(30));
  expect(/31 tokens, but the model was made for at most 24/.test(await page.textContent('#write-context')), await page.textContent('#write-context'));
  expect((await writing(page)).problem === null, 'it is not read');
  await type(page, 'abc');
  expect(await page.isHidden('#write-context'), 'the note stays');
}

/* A text that cannot be read is not in the address, which keeps the last one that could. */
async function unreadTextsLeaveTheAddress(browser, path) {
  const {page} = await openPage(browser, path);
  await type(page, 'a dog');
  await page.waitForFunction(() => /text=a\+dog/.test(location.hash));
  await type(page, 'x'.repeat(5000));
  await page.evaluate(() => window.mhaView.store.set({scale: 'log'}));
  await page.waitForFunction(() => /colour=log/.test(location.hash));
  const hash = await page.evaluate(() => location.hash);
  expect(/text=a\+dog/.test(hash) && hash.length < 200, hash.slice(0, 200));
}

/* Tokens of a text from right to left stand, and are joined, from right to left. */
async function rightToLeft(browser, path) {
  const {page} = await openPage(browser, path);
  const direct = (texts) => page.evaluate((words) => {
    const {store, writing: own} = window.mhaView, {set} = store.get(), {tokens} = own.store.get();
    own.store.set({tokens: tokens.map((side) => ({...side, words: side.ids.map((_, n) => words[n % words.length])}))});
    store.set({set: {...set, tokens: {queries: set.tokens.queries.map((_, n) => words[n % words.length]), keys: set.tokens.keys.map((_, n) => words[n % words.length])}}});
  }, texts);
  const order = async () => {
    await frames(page, 3);
    const boxes = await page.locator(chips(0)).evaluateAll((all) => all.slice(0, 3).map((chip) => chip.getBoundingClientRect().left));
    return boxes[0] < boxes[1] && boxes[1] < boxes[2] ? 'ltr' : boxes[0] > boxes[1] && boxes[1] > boxes[2] ? 'rtl' : boxes.join();
  };
  expect((await order()) === 'ltr', `letters stand ${await order()}`);
  await direct(['مرحبا', 'يا', 'عالم']);
  expect((await order()) === 'rtl', `Arabic words stand ${await order()}`);
  await direct(['שלום', 'עולם', '12']);
  expect((await order()) === 'rtl', `Hebrew words stand ${await order()}`);
}

/* Paper is light, without buttons and without parts that scroll. */
async function printsLight(browser, path) {
  const {page} = await openPage(browser, path, {dark: true, still: true});
  await page.emulateMedia({media: 'print', colorScheme: 'dark'});
  await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
  await frames(page, 2);
  const {theme, shown, scrolls} = await page.evaluate(() => ({theme: document.documentElement.dataset.theme,
    shown: [...document.querySelectorAll('.exports, .step-player, .write-buttons, .settings, nav, .tools')].filter((node) => node.getClientRects().length).map((node) => node.className),
    scrolls: [...document.querySelectorAll('.chips, .token-text, .lines-scroll')].filter((node) => node.scrollHeight > node.clientHeight + 1).map((node) => node.className)}));
  expect(theme === 'light' && shown.length === 0 && scrolls.length === 0, `${theme}; ${shown}; ${scrolls}`);
  await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
  expect((await page.evaluate(() => document.documentElement.dataset.theme)) === 'dark', 'the page stays light');
}

export async function testWords(browser, mha, folder) {
  const path = join(folder, 'text.html'), {page, problems, close} = await openPage(browser, path);
  if (await page.evaluate(() => Boolean(window.mhaView.writing))) {
    await test('arcs_join_words', () => arcsJoinWords(page));
    await test('names_of_heads_follow_the_text', () => namesFollow(page, mha, folder));
    await test('a_single_token_is_a_text', () => oneTokenIsEnough(page));
    await test('no_error_of_words', () => expect(problems.length === 0, problems.join('; ')));
    await test('a_text_longer_than_those_of_the_training', () => longTextsAreSaidToBe(browser, folder));
    await test('a_text_that_cannot_be_read_leaves_the_address', () => unreadTextsLeaveTheAddress(browser, path));
    await test('a_text_from_right_to_left', () => rightToLeft(browser, path));
  }
  await close();
  for (const name of ['text', 'main']) await test(`${name}_is_printed_on_paper`, () => printsLight(browser, join(folder, `${name}.html`)));
}
