/* Sharing: the address follows the state, a link opens in that state in a new tab, a saved page too; and whatever else stands
 * in an address gives a notice and a page. */
import {readFileSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:http';
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import * as browsing from './browser.mjs';

const {openPage} = browsing;

/* Serves the pages of the folder at http://127.0.0.1:PORT/NAME. */
async function servePages(folder) {
  const server = createServer((request, answer) => {
    answer.setHeader('Content-Type', 'text/html');
    answer.end(readFileSync(join(folder, new URL(request.url, 'http://x').pathname.slice(1))));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return {address: `http://127.0.0.1:${server.address().port}`, close: () => server.close()};
}

/* A head switched off, another image, head, query, key, step and order, and a panel further down. */
const chosen = {image: 2, block: 1, head: 2, token: 5, key: 11, step: 6, scale: 'log', sort: 'entropy'};

async function change(page) {
  await page.evaluate((state) => window.mhaView.store.set(state), {image: 2, block: 1, head: 2, token: 5});
  await page.evaluate((state) => window.mhaView.store.set(state), {key: 11, step: 6, scale: 'log', sort: 'entropy'});
  await page.uncheck('#gates input[data-block="0"][data-head="3"]', {force: true});
  await page.evaluate(() => document.getElementById('gates').scrollIntoView({behavior: 'instant'}));
}

/* The page is in that state, and shows it. */
async function expectChanged(page, what) {
  const state = await page.evaluate(() => {
    const {image, block, head, token, key, step, scale, sort, gates} = window.mhaView.store.get();
    return {image, block, head, token, key, step, scale, sort, off: gates.map((row) => Array.from(row).indexOf(0)).join()};
  });
  for (const [name, value] of Object.entries(chosen)) expect(state[name] === value, `${what}: ${name} is ${state[name]}, not ${value}`);
  expect(/^3(,-1)+$/.test(state.off), `${what}: other heads are off: ${state.off}`);
  expect(/^1 head off/.test(await page.textContent('#verdict')), `${what}: ${await page.textContent('#verdict')}`);
  expect(await page.isChecked('#images input[value="2"]'), `${what}: another image is marked`);
  const top = await page.evaluate(() => document.getElementById('gates').getBoundingClientRect().top);
  expect(top > -40 && top < 500, `${what}: the panel is at ${top}`);
  expect((await page.locator('.page-notice').count()) === 0, `${what}: a notice`);
}

async function linksOpen(browser, folder, address) {
  const {page} = await openPage(browser, `${address}/main.html`, {allow: ['clipboard-read', 'clipboard-write']});
  await change(page);
  await page.waitForFunction(() => /off=0\.3/.test(location.hash) && /panel=gates/.test(location.hash)); /* each follows by itself */
  const shown = await page.evaluate(() => location.href);
  await page.click('#copy-link');
  await page.waitForFunction(() => document.getElementById('copy-link').textContent === 'Link copied');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  expect(link.replace(/&panel=\w+/, '') === shown.replace(/&panel=\w+/, ''), `copied ${link}, the address is ${shown}`);
  const tab = await page.context().newPage();
  await tab.goto(shown);
  await tab.waitForFunction(() => window.mhaView);
  await expectChanged(tab, 'a link');
  await tab.evaluate(() => (location.hash = '#v=2&image=1'));
  await tab.waitForFunction(() => window.mhaView.store.get().image === 1);
  await tab.click('nav a[href="#look"]');
  await tab.waitForFunction(() => Math.abs(document.getElementById('look').getBoundingClientRect().top) < 200);
  expect((await tab.locator('.page-notice').count()) === 0, 'the link to a panel is taken for a state');
}

/* A copy of a local file: it has the state inside, can be saved again, and is otherwise the same page. */
async function copiesOpen(browser, folder) {
  let path = join(folder, 'main.html');
  for (const round of ['saved', 'saved again']) {
    const {page} = await openPage(browser, path);
    if (round === 'saved') await change(page);
    else await expectChanged(page, 'a saved page');
    expect((await page.locator('#copy-link').count()) === 0, 'a local file offers a link to itself');
    await page.evaluate(() => document.getElementById('gates').scrollIntoView({behavior: 'instant'}));
    const [download] = await Promise.all([page.waitForEvent('download'),
      page.evaluate(() => document.getElementById('save-page').click())]);
    expect(download.suggestedFilename() === (round === 'saved' ? 'main-view.html' : 'saved-view.html'), download.suggestedFilename());
    path = join(folder, `${round.replace(' ', '-')}.html`);
    writeFileSync(path, readFileSync(await download.path()));
  }
  const copy = readFileSync(path, 'utf8'), states = copy.match(/id="mha-state"/g).length;
  expect(states === 1, `${states} states in a page that was saved twice`);
  expect(!/<section id|id="tip"/.test(copy), 'the copy contains what scripts have made');
  const {page} = await openPage(browser, path);
  await expectChanged(page, 'a page that was saved twice');
  await browsing.expectExports(page, 'gates');
}

/* A drawing travels in the address and in a copy of the page. */
async function drawingsOpen(browser, folder, address) {
  const {page} = await openPage(browser, `${address}/main.html`), sheet = page.locator('#sheet');
  const drawn = (where) => where.evaluate(() => {
    const {data, store} = window.mhaView, {image, result} = store.get();
    return {bytes: Array.from(data.images[image].bytes).join(), own: image === data.images.length - 1, shown: !document.querySelector('.draw-out').hidden,
      best: Array.from(result.probabilities, (p) => p.toFixed(5)).join()};
  });
  await sheet.scrollIntoViewIfNeeded();
  const {x, y, width, height} = await sheet.boundingBox();
  await page.mouse.move(x + 0.3 * width, y + 0.25 * height);
  await page.mouse.down();
  for (const [across, down] of [[0.7, 0.25], [0.45, 0.8]]) await page.mouse.move(x + across * width, y + down * height, {steps: 10});
  await page.mouse.up();
  await page.waitForFunction(() => { /* the address, too: on a slow machine it had the first half of the stroke */
    const {store, drawing} = window.mhaView, words = new URLSearchParams(location.hash.slice(1));
    return !store.get().penDown && words.get('drawing') === drawing.text();
  });
  const wanted = await drawn(page);
  expect(wanted.own && wanted.shown, 'nothing is drawn');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-page')]), copy = join(folder, 'drawing-saved.html');
  writeFileSync(copy, readFileSync(await download.path()));
  for (const [what, place] of [['a link', page.url()], ['a copy', copy]]) {
    const other = await openPage(browser, place), got = await drawn(other.page);
    for (const key of Object.keys(wanted)) expect(got[key] === wanted[key], `${what}: ${key} is another`);
    expect((await other.page.locator('.page-notice').count()) === 0, `${what}: a notice`);
  }
}

/* What may stand behind the #, and what the notice says; the page is there in any case. */
const odd = {
  '#v=1&image=1': /version 1 .* this is version 2/,
  '#v=%3Cscript%3Ealert(1)%3C/script%3E': /version <script>alert/,
  '#%%%ff': /does not describe a state of this page/,
  '#nonsense': /does not describe a state of this page/,
  '#v=2&image=999&head=1': /left out: image/,
  '#v=2&head=-1&block=7e9&query=1.5': /left out: block, head, query/,
  '#v=2&off=1.1_9.9': /left out: off/,
  '#v=2&drawing=AAAA': /left out: drawing/,
  '#v=2&colour=pink&fashion=3': /left out: colour, fashion/,
  '#v=2&panel=cellar': /names a panel/,
};

async function oddAddresses(browser, folder, name) {
  const {page} = await openPage(browser, join(folder, `${name}.html`));
  const own = page.url().split('#')[0];
  for (const [hash, wanted] of Object.entries(odd)) {
    if (name !== 'main' && /image|off|drawing|block/.test(hash)) continue;
    await page.goto('about:blank');
    await page.goto(own + hash);
    await page.waitForFunction(() => window.mhaView);
    const words = await page.locator('.page-notice p').allTextContents();
    expect(words.length === 1 && wanted.test(words[0]), `${hash}: ${words}`);
    expect((await page.locator('.panel').count()) >= 1 && (await page.locator('.panel canvas').count()) > 3, `${hash}: an empty page`);
  }
  await browsing.expectAccessible(page, `${name} with a notice`);
  await page.click('.page-notice button');
  expect((await page.locator('.page-notice').count()) === 0, 'the notice stays');
}

/* The state of maps from a file and of text models. */
async function mapsOpen(browser, address, name, last) {
  const {page} = await openPage(browser, `${address}/${name}.html`);
  await page.evaluate(() => window.mhaView.stores.forEach((store, n) => store.set({head: 1, token: 2 + n, key: 1, range: 'per-head'})));
  await page.waitForFunction(() => /per-head/.test(location.hash));
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  await tab.waitForFunction(() => window.mhaView);
  const states = await tab.evaluate(() => window.mhaView.stores.map((store) => store.get()).map(({head, token, key, range}) => [head, token, key, range].join()));
  states.forEach((state, n) => expect(state === [1, 2 + n, 1, 'per-head'].join(), `${name}: store ${n} is ${state}`));
  expect(states.length === last, `${states.length} stores`);
}

/* The controls of a page of weights say what a link has set. */
async function controlsFollow(browser, folder) {
  const {page} = await openPage(browser, join(folder, 'weights.html'), {hash: '#v=2&layer=1&head=2&colour=log&scale=per-head&sort=entropy'});
  const shown = await page.$$eval('#attention select', (all) => all.map(({value}) => value).join());
  expect(shown === 'log,per-head,entropy,1,2', `the controls say ${shown}`);
}

export async function testSharing(browser, folder) {
  const {address, close} = await servePages(folder);
  await Promise.all([
    test('a_link_opens_in_its_state', () => linksOpen(browser, folder, address)),
    test('a_drawing_opens_from_a_link_and_from_a_copy', () => drawingsOpen(browser, folder, address)),
    test('a_saved_page_opens_in_its_state', () => copiesOpen(browser, folder)),
    test('an_odd_address_gives_a_notice', () => oddAddresses(browser, folder, 'main')),
    test('controls_of_weights_follow_a_link', () => controlsFollow(browser, folder)),
    test('an_odd_address_of_weights_gives_a_notice', () => oddAddresses(browser, folder, 'weights')),
    test('a_link_to_texts_opens_in_its_state', async () => {
      await mapsOpen(browser, address, 'text', 1);
      await mapsOpen(browser, address, 'pair', 3);
    }),
  ]);
  close();
}
