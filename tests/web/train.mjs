/* The page that trains: it learns, stops and goes on when told, begins anew with other settings, and says when a training fails. */
import {join} from 'node:path';
import {expect, note, test} from './harness.mjs';
import * as browsing from './browser.mjs';

export function makeTraining(mha) {
  mha('view', '--train', '--data', 'synthetic:1200', '-o', 'train.html');
}

const scoreOf = async (page) => parseFloat(await page.textContent('#learn-score'));
const stepOf = (page) => page.evaluate(() => window.mhaView.trainer.curve.length);

export async function testTraining(browser, folder) {
  const open = () => browsing.openPage(browser, join(folder, 'train.html'));

  await test('a_model_learns_in_the_page', async () => {
    const {page, problems} = await open(), begin = Date.now();
    const before = await scoreOf(page);
    await page.click('#train');
    await page.waitForFunction(() => parseFloat(document.getElementById('learn-score').textContent) >= 85, null, {timeout: 60000});
    note(`85 % of the held-out digits after ${((Date.now() - begin) / 1000).toFixed(1)} s, ${await stepOf(page)} steps; ${before} % before`);
    expect(before < 40, `random weights read ${before} %`);
    await page.click('#train');
    const stopped = await stepOf(page);
    await page.waitForTimeout(200);
    expect(await stepOf(page) === stopped, 'it goes on after Pause');
    const maps = await page.evaluate(() => window.mhaView.trainer.heads(0).rows.flat().map((row) => row.reduce((sum, x) => sum + x, 0)));
    expect(maps.length === 8 && maps.every((sum) => Math.abs(sum - 1) < 1e-5), `weights of ${maps.length} heads sum to ${maps}`);
    await browsing.expectAccessible(page, 'the page that trains');
    await browsing.expectNoSidewaysScroll(page, 'the page that trains');
    expect(problems.length === 0, problems.join('; '));
    await page.close();
  });

  await test('settings_begin_another_training', async () => {
    const {page, problems} = await open();
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.curve.length > 3);
    await page.selectOption('#learn select >> nth=0', '8');
    expect(await stepOf(page) === 0, 'other heads keep the old steps');
    expect(await page.locator('.learn-row canvas').count() === 16, 'not a map for each of 2 x 8 heads');
    await page.selectOption('#learn select >> nth=1', '32');
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.curve.length > 3);
    await page.click('#restart');
    expect(await stepOf(page) === 0 && await page.textContent('#train') === 'Train', 'it did not start over');
    await page.click('.learn-digit >> nth=4');
    expect(await page.getAttribute('.learn-digit >> nth=4', 'aria-pressed') === 'true', 'the digit is not selected');
    for (const width of [320, 390, 768, 1024, 1440]) {
      await page.setViewportSize({width, height: 900});
      await browsing.expectNoSidewaysScroll(page, `${width} pixels`);
    }
    expect(problems.length === 0, problems.join('; '));
    await page.close();
  });

  await test('a_training_that_fails_says_so', async () => {
    const {page} = await open();
    await page.evaluate(() => window.mhaView.store.set({rate: '1e30'}));
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.ended, null, {timeout: 30000});
    expect(/not finite/.test(await page.textContent('#learn-status')), await page.textContent('#learn-status'));
    await page.close();
  });
}
