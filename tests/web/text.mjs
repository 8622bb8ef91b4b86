/* The pages of text models: a decoder, and an encoder with a decoder, both with random weights and a token per letter. */
import {join} from 'node:path';
import {expect, expectNear, test} from './harness.mjs';
import * as browsing from './browser.mjs';
import {heads, layers, writeTextModels} from './text_models.mjs';

const {openPage} = browsing;
const text = 'the cat saw the cat', source = 'a cat', target = 'eine katze';

export function makeTexts(mha, folder) {
  writeTextModels(folder);
  mha('view', 'letters', '--text', text, '-o', 'text.html');
  mha('view', 'letter-masks', '--text', 'the cat saw the cat', '-o', 'masks.html');
  mha('view', 'letter-pairs', '--text', source, '--target', target, '-o', 'pair.html');
}

/* ---- What a page has --------------------------------------------------------------------------------------------- */

async function showsTheText(page) {
  const shown = await page.evaluate(() => [...document.querySelectorAll('#token-keys [data-token]')].map((span) => span.textContent));
  expect(shown.length === text.length + 1 && shown[0] === '<i>', `${shown.length} tokens: ${shown.join('|')}`);
  expect(shown.slice(1).join('').replace(/\u2423/g, ' ') === text, shown.join(''));
  const facts = await page.evaluate(() => [...document.querySelectorAll('.facts li')].map((fact) => fact.textContent));
  expect(facts[0] === 'llama model' && facts.includes('2 layers') && facts.includes(`${text.length + 1} tokens`), facts.join());
}

/* Rows are weights of a causal model: they sum to one, and nothing is behind the query. */
async function weightsAreCausal(page) {
  const {sums, after} = await page.evaluate(() => {
    const set = window.mhaView.data.sets[0], bytes = Uint8Array.from(atob(set.weights.data), (c) => c.charCodeAt(0));
    const all = new Float32Array(bytes.buffer), T = set.keys, sums = [];
    let after = 0;
    for (let row = 0; row < all.length / T; row++) {
      sums.push(all.subarray(row * T, (row + 1) * T).reduce((sum, x) => sum + x, 0));
      for (let key = (row % T) + 1; key < T; key++) after = Math.max(after, all[row * T + key]);
    }
    return {sums, after};
  });
  expect(sums.length === layers * heads * (text.length + 1), `${sums.length} rows`);
  for (const sum of sums) expectNear(sum, 1, 1e-5, 'a row');
  expect(after === 0, `a weight of ${after} behind the query`);
}

async function headsHaveWords(page) {
  const words = await page.evaluate(() => window.mhaView.data.sets[0].words);
  expect(words.length === layers * heads && words.every((word) => word.length > 3), words.join('|'));
  for (let n = 0; n < words.length; n++) {
    const cell = `#heads .cell[data-layer="${Math.floor(n / heads)}"][data-head="${n % heads}"]`;
    await page.click(cell);
    const title = await page.textContent('#chosen-head'), about = words[n] === 'mixed' ? '' : words[n];
    expect((await page.locator(`${cell} .cell-words`).allTextContents()).join() === about, `${n}: not ${about}`);
    expect(title.startsWith(`Layer ${Math.floor(n / heads)}, head ${n % heads}: ${about && `${about}, `}entropy `), title);
  }
}

/* Three panels, each with its own selection; cross-attention has the decoder's tokens as queries and the source as keys. */
async function pairsHaveThreePanels(page) {
  const ids = await page.evaluate(() => window.mhaView.panels.map((panel) => panel.id));
  expect(ids.filter((id) => !['write', 'steps'].includes(id)).join() === 'attention,decoder,cross', ids.join());
  await page.click('#cross-token-queries [data-token="3"]');
  const [first, last] = await page.evaluate(() => window.mhaView.stores.map((store) => store.get().token).filter((_, n) => n !== 1));
  expect(last === 3 && first !== undefined, `queries ${first} and ${last}`);
  const count = (id) => page.locator(`#${id} [data-token]`).count();
  expect((await count('cross-token-keys')) === source.length + 1, `${await count('cross-token-keys')} keys`);
  expect((await count('cross-token-queries')) === target.length + 2, `${await count('cross-token-queries')} queries`);
  const twice = await page.evaluate(() => {
    const all = [...document.querySelectorAll('[id]')].map((node) => node.id);
    return all.filter((id, n) => all.indexOf(id) !== n);
  });
  expect(twice.length === 0, `ids that are there twice: ${twice}`);
  await page.click('#theme');
  const themes = await page.evaluate(() => window.mhaView.stores.map((store) => store.get().theme));
  expect(new Set(themes).size === 1, `themes ${themes}`);
}

export async function testTexts(browser, folder) {
  for (const [name, cases] of Object.entries({
    text: {a_text_is_shown_as_its_tokens: showsTheText, weights_of_a_text_are_causal: weightsAreCausal,
      heads_of_a_text_have_words: headsHaveWords,
      a_text_is_saved_as_a_picture: (page) => browsing.expectExports(page, 'attention')},
    pair: {pairs_have_three_panels: pairsHaveThreePanels,
      cross_attention_is_saved_as_a_picture: (page) => browsing.expectExports(page, 'cross')},
  })) {
    const {page, problems, requests, close} = await openPage(browser, join(folder, `${name}.html`));
    for (const [title, run] of Object.entries(cases)) await test(title, () => run(page));
    await test(`no_error_and_no_request_of_a_${name}`, async () => {
      expect(problems.length === 0, problems.join('; '));
      expect(requests.length === 0, requests.join(', '));
    });
    await close();
  }
}
