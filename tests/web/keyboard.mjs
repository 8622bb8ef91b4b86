/* The page with the keyboard only: Tab reaches everything and gets stuck nowhere, what has the focus is visible, and keys do
 * what the mouse does. */
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {openPage, stateOf} from './browser.mjs';

const wanted = ['.skip', '#save-page', '#theme', 'nav a', '#images input', '#steps-stage', '#steps-play', '#steps-forward', '#steps-slider',
  '#steps-block', '#steps-head', '#steps-token', '#steps-key', '[data-export=svg]', '#picture', '#class-token', '#wall .cell', '#grid-body .cell',
  '#gates .switches :is(button, input)', '#contribution button'];

/* What has the focus: which of `wanted`, and whether it is in the window and not under the bar. */
const focused = (page) => page.evaluate((selectors) => {
  const node = document.activeElement;
  if (node === document.body) return null;
  const {top, bottom, left, right} = node.getBoundingClientRect(), x = (left + right) / 2, y = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
  const over = document.elementFromPoint(x, y), own = over && (node.contains(over) || over.contains(node) || over.closest('label') === node.closest('label'));
  return {found: selectors.filter((selector) => node.matches(selector)), visible: Boolean(own), what: node.outerHTML.slice(0, 90)};
}, wanted);

async function tabReachesAll(page) {
  const seen = new Set();
  let stops = 0, at = null;
  do {
    await page.keyboard.press('Tab');
    at = await focused(page);
    if (at) at.found.forEach((selector) => seen.add(selector));
    if (at) expect(at.visible, `the focus is covered: ${at.what}`);
  } while (at && ++stops < 400);
  expect(stops > 30 && stops < 80, `${stops} stops`);
  for (const selector of wanted) expect(seen.has(selector), `Tab does not reach ${selector}`);
}

/* A group of heads is one stop: arrow keys move in it, Enter selects, and Tab comes back to the selected one. */
async function groupsAreOneStop(page) {
  const at = () => page.evaluate(() => [document.activeElement.dataset.block, document.activeElement.dataset.head].join('.'));
  for (const where of ['#wall', '#grid-body', '#gates .switches', '#contribution .adds']) {
    const stops = await page.locator(`${where} :is(button, input):not([tabindex="-1"]):enabled`).count();
    expect(stops === 1, `${where}: ${stops} stops`);
  }
  await page.click('#wall .cell[data-block="0"][data-head="0"]');
  const seen = [];
  for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowLeft', 'ArrowUp', 'Home']) {
    await page.keyboard.press(key);
    seen.push(await at());
  }
  expect(seen.join(' ') === '0.1 0.2 1.2 1.1 0.1 0.0', seen.join(' '));
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  const {block, head} = await stateOf(page);
  expect(`${block}.${head}` === (await at()) && block > 0, `${block}.${head} is selected, the focus is on ${await at()}`);
  await page.evaluate(() => window.mhaView.store.set({block: 0, head: 0}));
}

/* From the image to a switch, without the mouse. */
async function keysDoAll(page) {
  const press = async (selector, ...keys) => {
    await page.focus(selector);
    for (const key of keys) await page.keyboard.press(key);
  };
  await press('#images input[value="0"]', 'ArrowRight');
  await press('#steps-forward', 'Enter', 'Space');
  await press('#steps-head', 'ArrowDown');
  await press('#picture', 'ArrowDown');
  await press('#gates input[data-block="1"][data-head="0"]', 'Space');
  const state = await stateOf(page), step = await page.evaluate(() => window.mhaView.store.get().step);
  expect(state.image === 1 && step === 2 && state.head === 1 && state.gates[1][0] === 0, JSON.stringify({...state, step}));
  await page.focus('.skip');
  await page.keyboard.press('Enter');
  expect((await page.evaluate(() => document.activeElement.id)) === 'main', 'the first link does not skip to the panels');
  expect((await page.locator('.page-notice').count()) === 0, 'the link to the panels is taken for a state');
}

export async function testKeyboard(browser, folder) {
  await test('tab_reaches_everything_and_keys_do_all', async () => {
    const {page} = await openPage(browser, join(folder, 'main.html'), {still: true});
    await tabReachesAll(page);
    await groupsAreOneStop(page);
    await keysDoAll(page);
  });
}
