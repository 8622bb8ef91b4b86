/* The page that trains: it learns, stops and goes on when told, begins anew with other settings, and says when a training fails. */
import {join} from 'node:path';
import {expect, farthest, note, test} from './harness.mjs';
import * as browsing from './browser.mjs';

export function makeTraining(mha) {
  mha('view', '--train', '--data', 'synthetic:1200', '-o', 'train.html');
}

const scoreOf = async (page) => parseFloat(await page.textContent('#learn-score'));
const stepOf = (page) => page.evaluate(() => window.mhaView.trainer.curve.length);

export async function testTraining(browser, folder) {
  const open = () => browsing.openPage(browser, join(folder, 'train.html'));

  await test('a_model_learns_in_the_page', async () => {
    const {page} = await open(), begin = Date.now();
    const before = await scoreOf(page);
    await page.click('#train');
    await page.waitForFunction(() => parseFloat(document.getElementById('learn-score').textContent) >= 85, null, {timeout: 60000});
    note(`85 % of the held-out digits after ${((Date.now() - begin) / 1000).toFixed(1)} s, ${await stepOf(page)} steps; ${before} % before`);
    expect(before < 40, `random weights read ${before} %`);
    await page.click('#train');
    const stopped = await stepOf(page);
    await page.waitForTimeout(200);
    expect(await stepOf(page) === stopped, 'it goes on after Pause');
    const maps = await page.evaluate(() => window.mhaView.trainer.read(window.mhaView.trainer.shown[0].bytes).rows.flat().map((row) => row.reduce((sum, x) => sum + x, 0)));
    expect(maps.length === 8 && maps.every((sum) => Math.abs(sum - 1) < 1e-5), `weights of ${maps.length} heads sum to ${maps}`);
    await browsing.expectAccessible(page, 'the page that trains');
    await browsing.expectNoSidewaysScroll(page, 'the page that trains');
  });

  await test('settings_begin_another_training', async () => {
    const {page} = await open();
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.curve.length > 3);
    await page.selectOption('#learn select >> nth=0', '8');
    expect(/trained weights of this model will be lost/.test(await page.textContent('#learn-question')) && await stepOf(page) > 3, 'it does not ask first');
    expect(await page.inputValue('#learn select >> nth=0') === '4', 'the list has the new value before the answer');
    await page.click('#learn-question button >> nth=1');
    expect(await page.isHidden('#learn-question') && await stepOf(page) > 3, 'the model is lost in spite of the answer');
    await page.selectOption('#learn select >> nth=0', '8');
    await page.click('#learn-question button >> nth=0');
    expect(await stepOf(page) === 0, 'other heads keep the old steps');
    expect(await page.locator('#learn .learn-row canvas').count() === 16, 'not a map for each of 2 x 8 heads');
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
  });

  /* Drawings are read, and a saved page has the weights, the curves and the state. */
  await test('a_trained_model_reads_drawings_and_is_saved', async () => {
    const {page} = await open();
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.scores.length > 2);
    await page.click('#train');
    await page.locator('#sheet').scrollIntoViewIfNeeded();
    const {x, y, width, height} = await page.locator('#sheet').boundingBox();
    await page.mouse.move(x + 0.5 * width, y + 0.2 * height);
    await page.mouse.down();
    await page.mouse.move(x + 0.48 * width, y + 0.8 * height, {steps: 6});
    await page.mouse.up();
    await page.waitForFunction(() => !document.querySelector('#draw .draw-out').hidden);
    const read = () => page.evaluate(() => Array.from(window.mhaView.trainer.read(window.mhaView.trainer.shown[3].bytes).probabilities));
    const answer = await page.textContent('#draw-answer'), before = await read();
    expect(/^\d [\d.<>]+\u00a0%$/.test(answer) && (await page.locator('#draw .learn-row canvas').count()) === 8, answer);
    for (const id of ['learn', 'draw']) await browsing.expectExports(page, id);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-page')]), path = join(folder, 'trained.html');
    await download.saveAs(path);
    const other = await browsing.openPage(browser, path), steps = await stepOf(page);
    const after = await other.page.evaluate(() => Array.from(window.mhaView.trainer.read(window.mhaView.trainer.shown[3].bytes).probabilities));
    expect(farthest(before, after) === 0, `the saved model is another one: ${farthest(before, after)}`);
    expect(await stepOf(other.page) === steps && /saved model/.test(await other.page.textContent('#learn-status')), await other.page.textContent('#learn-status'));
    expect(await other.page.textContent('#train') === 'Train again', await other.page.textContent('#train'));
    await other.page.click('#train');
    await other.page.waitForFunction(() => window.mhaView.trainer.curve.length > 1);
  });

  await test('a_training_that_fails_says_so', async () => {
    const {page} = await open();
    await page.evaluate(() => window.mhaView.store.set({rate: '1e30'}));
    await page.click('#train');
    await page.waitForFunction(() => window.mhaView.trainer.ended, null, {timeout: 30000});
    expect(/no longer finite/.test(await page.textContent('#learn-status')), await page.textContent('#learn-status'));
  });
}
