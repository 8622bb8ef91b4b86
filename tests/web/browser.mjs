/* A page in the browser, watched: what it writes to the console, what it asks the network for. */
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';
import {atEnd, expect} from './harness.mjs';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/* Chromium loads pages of its own into every window, for the list under its address bar: a second of processor time for each page of a
 * test. They are off, and what would ask other hosts. */
const disabled = ['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup', 'WebUIOmniboxFullPopup', 'Translate', 'OptimizationHints', 'MediaRouter'];

export async function startBrowser(executablePath) {
  return chromium.launch({executablePath, args: ['--no-sandbox', `--disable-features=${disabled.join()}`]});
}

/* {page, problems, requests, close()}: problems are errors and warnings of the console; requests those that left the
 * page. A page that a test opens is closed at the end of the test, and must have neither problems nor requests, unless it is `unchecked`.
 * `path`: a file or an address. options: width, height, dark, still (less motion), touch, before (a function that runs in the
 * page first), allow (permissions), unchecked. */
export async function openPage(browser, path, options = {}) {
  const {width = 1200, height = 900, dark = false, still = false, touch = false, before = null, allow = [], hash = '', unchecked = false} = options;
  const context = await browser.newContext({
    viewport: {width, height},
    colorScheme: dark ? 'dark' : 'light',
    reducedMotion: still ? 'reduce' : 'no-preference',
    hasTouch: touch,
    acceptDownloads: true,
    permissions: allow,
  });
  if (before) await context.addInitScript(before);
  const page = await context.newPage(), problems = [], requests = [], address = /^http/.test(path) ? path : pathToFileURL(path).href;
  page.setDefaultTimeout(60000); /* a busy machine is slow */
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('request', (request) => {
    if (request.url().split('#')[0] !== address.split('#')[0] && !/^(data|blob):/.test(request.url())) requests.push(request.url());
  });
  atEnd(async () => {
    expect(unchecked || problems.length === 0, problems.join('; '));
    expect(unchecked || requests.length === 0, requests.join(', '));
    await context.close();
  });
  await page.goto(address + hash);
  await page.waitForFunction(() => window.mhaView);
  return {page, problems, requests, close: () => context.close()};
}

/* The store's state, as far as it can be sent: numbers and words. */
export function stateOf(page) {
  return page.evaluate(() => {
    const {image, block, head, token, scale, range, sort, theme, gates} = window.mhaView.store.get();
    return {image, block, head, token, scale, range, sort, theme, gates: gates && gates.map((row) => Array.from(row))};
  });
}

export function frames(page, count = 2) {
  return page.evaluate(async (n) => {
    for (let i = 0; i < n; i++) await new Promise(requestAnimationFrame);
  }, count);
}

/* ---- What holds for every page ------------------------------------------------------------------------------------- */

/* axe-core's rules, those for WCAG A and AA and its best practices. */
export async function expectAccessible(page, what) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axeSource);
  const {violations} = await page.evaluate(() => window.axe.run(document, {resultTypes: ['violations']}));
  for (const {id, nodes} of violations) {
    expect(false, `${what}: ${id}: ${nodes.length} x ${nodes[0].html.slice(0, 120)}: ${nodes[0].failureSummary.split('\n')[1]}`);
  }
}

/* What stands under a small picture is there to the last letter. */
export async function expectWholeCaptions(page, what) {
  const cut = await page.evaluate(() => [...document.querySelectorAll('.cell-caption, .thumb span')]
    .filter((node) => node.scrollWidth > node.clientWidth).map((node) => node.textContent));
  expect(cut.length === 0, `${what}: ${cut.length} captions are cut, such as ${cut[0]}`);
}

export async function expectNoSidewaysScroll(page, what) {
  const {wide, room, worst} = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth;
    const inside = (node) => Boolean(node.parentElement && node.parentElement.closest('.scroll'));
    const over = [...document.querySelectorAll('body *')].find((node) => !inside(node) &&
      node.getBoundingClientRect().right > limit + 1 && getComputedStyle(node).position !== 'absolute');
    return {wide: document.documentElement.scrollWidth, room: limit,
      worst: over ? `${over.tagName} ${over.id || over.className}` : 'nothing'};
  });
  expect(wide <= room, `${what}: ${wide} pixels in ${room}; the first beyond is ${worst}`);
}

/* No level is skipped, and there is one h1. */
export async function expectHeadingsInOrder(page) {
  const levels = await page.evaluate(() => [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')]
    .map((heading) => Number(heading.tagName[1])));
  expect(levels[0] === 1 && levels.filter((level) => level === 1).length === 1, `headings ${levels.join(' ')}`);
  expect(levels.every((level, i) => i === 0 || level <= levels[i - 1] + 1), `headings ${levels.join(' ')}`);
}

/* Every control has a name, and is one that the keyboard reaches: in a group with a roving tabindex, by arrow keys. */
export async function expectNamedControls(page) {
  const odd = await page.evaluate(() => [...document.querySelectorAll('button, select, input, [role=button]')]
    .filter((node) => !(node.getAttribute('aria-label') || node.textContent.trim() || (node.labels && node.labels.length)) ||
      (node.tabIndex < 0 && !node.closest('[data-roving]'))).map((node) => node.outerHTML.slice(0, 100)));
  expect(odd.length === 0, `${odd.length} controls without a name, such as ${odd[0]}`);
  const clickable = await page.evaluate(() => [...document.querySelectorAll('[onclick]')].length);
  expect(clickable === 0, 'handlers in attributes');
}

/* The two files of a panel: an SVG that stands alone and parses, and a PNG that is that large. */
export async function expectExports(page, id) {
  const save = async (ending) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(`#${id} [data-export=${ending}]`)]);
    expect(download.suggestedFilename() === `mha-${id}.${ending}`, `it is called ${download.suggestedFilename()}`);
    return readFileSync(await download.path());
  };
  const svg = (await save('svg')).toString();
  const about = await page.evaluate((text) => {
    const root = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
    return {name: root.nodeName, width: Number(root.getAttribute('width')), height: Number(root.getAttribute('height')),
      parts: root.querySelectorAll('*').length,
      wrong: /NaN|undefined|Infinity/.test(text.replace(/"data:[^"]*"/g, ''))};
  }, svg);
  expect(about.name === 'svg' && about.parts > 5 && !about.wrong, `${id}: ${JSON.stringify(about)}`);
  expect(!/(href|src)="(?!data:|#)/.test(svg) && !/https?:\/\/(?!www\.w3\.org)/.test(svg), `${id}: it refers elsewhere`);
  const png = await save('png');
  expect(png.subarray(1, 4).toString() === 'PNG', `${id}: no PNG`);
  const near = (pixels, size) => Math.abs(pixels - 2 * size) <= 2; /* the browser rounds the size */
  expect(near(png.readUInt32BE(16), about.width) && near(png.readUInt32BE(20), about.height),
    `${id}: the PNG is ${png.readUInt32BE(16)} x ${png.readUInt32BE(20)}, the SVG ${about.width} x ${about.height}`);
}

/* Scrolls to each panel, which draws it; with MHA_PICTURES=1, leaves a picture of it for people to look at. */
export async function visitPanels(page, folder, name) {
  for (const id of await page.evaluate(() => window.mhaView.panels.map((panel) => panel.id))) {
    const panel = page.locator(`#${id}`);
    await panel.scrollIntoViewIfNeeded();
    await frames(page, 3);
    if (process.env.MHA_PICTURES === '1') await panel.screenshot({path: `${folder}/${name}-${id}.png`});
  }
}
