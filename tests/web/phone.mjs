/* The first screen of a phone, and what stays on it: the answer, the stage with its buttons, and the images in one line; no
 * hints about keys where there are none, no tips over neighbours. */
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {frames, openPage} from './browser.mjs';

const boxOf = (page, selector) => page.evaluate((where) => {
  const {left, right, top, bottom} = document.querySelector(where).getBoundingClientRect();
  return {left, right, top, bottom};
}, selector);

async function firstScreen(browser, path, {width, height, whole}) {
  const {page} = await openPage(browser, path, {width, height, touch: true, still: true});
  const what = `${width} x ${height}`, see = async (selector) => (await boxOf(page, selector)).bottom <= height;
  for (const selector of ['h1', '#answer', '#answer-share', '#images', '#step-title']) expect(await see(selector), `${what}: ${selector} is below the fold`);
  if (whole) for (const selector of ['#steps-stage', '#steps-forward']) expect(await see(selector), `${what}: ${selector} is below the fold`);
  const stage = await boxOf(page, '#steps-stage');
  expect(stage.top < 0.6 * height, `${what}: the stage begins at ${stage.top}`);
  const strip = await boxOf(page, '#images');
  expect(strip.bottom - strip.top < 80, `${what}: the images are ${strip.bottom - strip.top} pixels high`);
  const hints = await page.locator('.key-hint').evaluateAll((all) => all.filter((node) => node.getClientRects().length).length);
  expect(hints === 0, `${what}: ${hints} hints about keys`);
  await page.evaluate(() => window.scrollTo({top: 3000, behavior: 'instant'}));
  await frames(page, 2);
  expect((await boxOf(page, '#images')).top >= 0 && (await see('#images')), `${what}: the images scroll away`);
  await page.evaluate(() => window.mhaView.store.set({image: window.mhaView.data.images.length - 1}));
  const last = await boxOf(page, '#images label:last-child');
  expect(last.left >= 0 && last.right <= width + 1, `${what}: the selected image is at ${last.left} to ${last.right}`);
}

/* The answer is that of the model, and changes with the image and the heads that are on. */
async function saysTheAnswer(page) {
  for (const state of [{image: 1}, {image: 3}]) {
    await page.evaluate((patch) => window.mhaView.store.set(patch), state);
    const {best, share, shown} = await page.evaluate(() => {
      const {probabilities} = window.mhaView.store.get().result, best = probabilities.indexOf(Math.max(...probabilities));
      return {best, share: probabilities[best], shown: document.querySelector('.reading-line').textContent};
    });
    const [, digit, number] = shown.match(/^Prediction: (\d+) \((?:more than )?([\d.]+)\u00a0%\)$/) || [];
    expect(Number(digit) === best && Math.abs(Number(number) - 100 * share) < 0.06, `"${shown}", not ${best} with ${share}`);
  }
}

/* A tip is below or above its cell, so that the cells beside it stay visible. */
async function tipsLeaveNeighbours(page) {
  for (const where of ['#wall', '#grid-body']) {
    const cell = page.locator(`${where} .cell`).nth(1);
    await cell.scrollIntoViewIfNeeded();
    await cell.hover();
    const tip = await boxOf(page, '#tip'), own = await cell.boundingBox();
    expect(tip.bottom <= own.y + 1 || tip.top >= own.y + own.height - 1, `${where}: the tip covers ${tip.top} to ${tip.bottom}, the row is ${own.y}`);
  }
}

/* No head is hidden in a part that scrolls. */
async function headsAreNotHidden(page, selector) {
  const hidden = await page.evaluate((where) => {
    const wall = document.querySelector(where);
    return wall.scrollHeight - wall.clientHeight;
  }, selector);
  expect(hidden <= 1, `${selector} hides ${hidden} pixels`);
}

export async function testPhone(browser, folder) {
  const main = join(folder, 'main.html');
  await Promise.all([
    test('the_first_screen_of_a_phone', () => firstScreen(browser, main, {width: 390, height: 844, whole: true})),
    test('the_first_screen_of_a_small_phone', () => firstScreen(browser, main, {width: 360, height: 640, whole: false})),
    test('the_page_says_the_answer', async () => {
      const {page} = await openPage(browser, main);
      await saysTheAnswer(page);
      await tipsLeaveNeighbours(page);
    }),
    test('no_head_is_hidden', async () => {
      const {page} = await openPage(browser, join(folder, 'text.html'));
      await headsAreNotHidden(page, '#heads');
    }),
  ]);
}
