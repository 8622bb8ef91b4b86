/* What a page for writing says to texts, links, models and browsers that it cannot use. */
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect} from './harness.mjs';
import * as browsing from './browser.mjs';
import {shownTokens, type, writing} from './write_page.mjs';

const {openPage} = browsing;

export async function badTextsGiveANotice(page) {
  await type(page, 'the cat');
  const before = await shownTokens(page), notice = () => page.textContent('#write-problem');
  for (const [text, wanted] of [['', /empty/], ['x'.repeat(100000), /100,?001 tokens.* at most 1,?024/]]) {
    await type(page, text);
    expect(wanted.test(await notice()) && (await page.isVisible('#write-problem')), `${text.slice(0, 10)}: ${await notice()}`);
    expect((await shownTokens(page)).join() === before.join(), 'the last text is gone');
    expect(await page.isDisabled('#write-step'), 'one can step');
    expect(await page.evaluate(() => [...document.querySelectorAll('#write .next, #write .chips-place')].every((part) => part.inert)), 'the last text can be used');
    expect((await page.textContent('#write-count')) === '', `it has ${await page.textContent('#write-count')}`);
  }
  for (const text of ['<img src=x onerror="window.hit=1">', '\ud800 lone', '👩‍👩‍👧 مرحبا', 'a\u0000b', '\n\n\t']) {
    await page.evaluate((value) => window.mhaView.writing.store.set({text: value, more: []}), text);
    const {problem} = await writing(page);
    expect(problem === null || problem.length > 10, `${JSON.stringify(text)}: ${problem}`);
  }
  expect(!(await page.evaluate(() => window.hit)) && (await page.locator('#main img').count()) === 0, 'a text became markup');
  await type(page, 'the cat');
  expect(await page.isHidden('#write-problem') && (await page.locator('#write [inert]').count()) === 0, 'the notice stays');
}

/* The page with another object of data; `change` is called in the test. */
export function writeChanged(folder, name, to, change) {
  const page = readFileSync(join(folder, name), 'utf8'), [, text] = page.match(/id="mha-data">([^<]*)</);
  writeFileSync(join(folder, to), page.replace(text, () => JSON.stringify(change(JSON.parse(text))).replace(/</g, '\\u003c')));
  return join(folder, to);
}

/* A weight of the model that is not a number. */
function withNan(data) {
  const name = Object.keys(data.live.files).find((file) => file.endsWith('.safetensors')), bytes = Buffer.from(data.live.files[name], 'base64');
  const size = Number(bytes.readBigUInt64LE(0)), header = JSON.parse(bytes.subarray(8, 8 + size).toString());
  bytes.writeFloatLE(NaN, 8 + size + header['model.layers.0.self_attn.q_proj.weight'].data_offsets[0]);
  data.live.files[name] = bytes.toString('base64');
  return data;
}

async function expectStill(browser, path, options, wanted) {
  const {page} = await openPage(browser, path, options);
  expect(wanted.test(await page.textContent('#still')), await page.textContent('#still'));
  expect((await page.locator('#write').count()) === 0 && (await page.locator('#heads .cell').count()) === 4, 'the maps of the file are not shown');
}

export async function pagesThatCannotRun(browser, folder) {
  const path = join(folder, 'text.html');
  await expectStill(browser, path, {before: () => (WebAssembly.validate = () => false)}, /no WebAssembly SIMD/);
  writeFileSync(join(folder, 'no-engine.html'), readFileSync(path, 'utf8').replace('id="mha-engine"', 'id="gone"'));
  await expectStill(browser, join(folder, 'no-engine.html'), {}, /built without its WebAssembly engine/);
  await expectStill(browser, writeChanged(folder, 'text.html', 'why.html', (data) => ({...data, live: {why: 'It is <b>too</b> large.'}})), {}, /It is <b>too<\/b> large\./);
  await expectStill(browser, writeChanged(folder, 'text.html', 'torn.html', (data) => {
    for (const name of Object.keys(data.live.files)) data.live.files[name] = data.live.files[name].slice(0, 40);
    return data;
  }), {}, /cannot run its model/);
}

export async function aModelWithANan(browser, folder) {
  const {page} = await openPage(browser, writeChanged(folder, 'text.html', 'nan.html', withNan));
  expect(/not (finite|numbers?)/.test(await page.textContent('#write-problem')), await page.textContent('#write-problem'));
  expect((await page.locator('#heads .cell').count()) === 4, 'no maps');
  await browsing.expectExports(page, 'write');
  await type(page, 'abc');
}

export async function oddLinks(browser, folder) {
  const {page} = await openPage(browser, join(folder, 'text.html')), own = page.url().split('#')[0];
  for (const [hash, wanted] of Object.entries({'more=1_x': /left out: more/, 'more=1_999999': /left out: more/, 'temperature=9': /left out: temperature/,
    'top-k=1.5&seed=-1': /left out: top-k, seed/, 'text=ab&query=40': /left out: query/})) {
    await page.goto('about:blank');
    await page.goto(`${own}#v=2&${hash}`);
    await page.waitForFunction(() => window.mhaView);
    const words = (await page.locator('.page-notice p').allTextContents()).join();
    expect(wanted.test(words), `${hash}: ${words}`);
  }
}
