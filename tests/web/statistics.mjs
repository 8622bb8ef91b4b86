/* Statistics of heads: under one name the page shows what the library computes (mha_stats in mha.h), whoever measured. */
import {mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect, expectNear, test} from './harness.mjs';
import {openPage} from './browser.mjs';
import {synthetic} from './files.mjs';

/* The data in a page. */
function pageData(path) {
  const text = readFileSync(path, 'utf8'), mark = 'id="mha-data">', start = text.indexOf(mark) + mark.length;
  return JSON.parse(text.slice(start, text.indexOf('</script>', start)));
}

function idxFile(path, sizes, bytes) {
  const head = Buffer.alloc(4 + 4 * sizes.length);
  head.writeUInt32BE(0x800 + sizes.length);
  sizes.forEach((size, n) => head.writeUInt32BE(size, 4 + 4 * n));
  writeFileSync(path, Buffer.concat([head, bytes]));
}

/* The first eight images of main.html as a data set, for the library to survey, and as pictures, which leave the survey
 * to the page. */
export function makeStatistics(mha, folder) {
  const images = pageData(join(folder, 'main.html')).images.slice(0, 8), set = join(folder, 'eight');
  const pixels = images.map(({pixels: text}) => Buffer.from(text, 'base64'));
  mkdirSync(set, {recursive: true});
  for (const part of ['train', 't10k']) {
    idxFile(join(set, `${part}-images-idx3-ubyte`), [8, 28, 28], Buffer.concat(pixels));
    idxFile(join(set, `${part}-labels-idx1-ubyte`), [8], Buffer.from(images.map(({label}) => label)));
  }
  const names = pixels.map((bytes, n) => {
    writeFileSync(join(folder, `eight${n}.pgm`), Buffer.concat([Buffer.from('P5\n28 28\n255\n'), bytes]));
    return `eight${n}.pgm`;
  });
  mha('view', 'main.safetensors', ...names, '--fit', 'no', '--invert', 'no', '-o', 'surveyed.html');
}

async function expectSurvey(page, mha) {
  const {survey: library} = JSON.parse(mha('heads', 'main.safetensors', '--data', 'eight', '--json'));
  await page.waitForFunction(() => window.mhaView.store.get().survey);
  const survey = await page.evaluate(() => window.mhaView.store.get().survey);
  expect(survey.byPage && library.images === 8 && library.close_images === 8 && survey.images === 8, 'other images');
  expect(survey.heads.length === library.heads.length, `${survey.heads.length} heads`);
  survey.heads.forEach((head, n) => {
    for (const key of ['entropy', 'effective', 'largest', 'distance', 'divergence']) {
      const wanted = library.heads[n][key];
      expectNear(head[key], wanted, 1e-4 * Math.max(1, Math.abs(wanted)), `head ${n + 1}: ${key}`);
    }
    expectNear(library.pairs[head.block][head.head][head.twin], head.divergence, 1e-4, `head ${n}: twin`);
  });
  survey.pairs.flat(2).forEach((x, n) => expectNear(x, library.pairs.flat(2)[n], 1e-4, `pair ${n}`));
}

/* A number as the page writes it, at its own precision. */
function expectShown(text, name, wanted, what) {
  const found = text.match(new RegExp(`${name} (-?[\\d.e-]+)`));
  if (expect(found, `${what}: no ${name} in "${text}"`)) {
    expectNear(Number(found[1]), wanted, 0.006 * Math.max(0.02, Math.abs(wanted)), `${what}: ${name}`);
  }
}

async function expectLabels(page, mha) {
  const {survey} = JSON.parse(mha('heads', 'main.safetensors', '--data', synthetic, '--json'));
  const places = await page.evaluate(() => window.mhaView.model.config.heads.flatMap((count, block) => Array.from({length: count}, (_, head) => [block, head])));
  for (const [n, numbers] of survey.heads.entries()) {
    const [block, head] = places[n], cell = `.cell[data-block="${block}"][data-head="${head}"]`, what = `head ${block}.${head}`;
    const label = await page.getAttribute(`#grid-body ${cell}`, 'aria-label');
    expectShown(label, 'entropy', numbers.entropy, what);
    expectShown(label, 'effective number of keys', numbers.effective, what);
    expectShown(label, 'distance', numbers.distance, what);
    const row = await page.evaluate(([b, h]) => {
      const {model: {tokens}, store} = window.mhaView, {result, token} = store.get();
      return Array.from(result.maps[b][h].subarray(token * tokens, (token + 1) * tokens));
    }, [block, head]);
    const effective = 1 / row.reduce((sum, p) => sum + p * p, 0);
    expectShown(await page.getAttribute(`#wall ${cell}`, 'aria-label'), 'effective number of keys', effective, what);
  }
}

export async function testStatistics(browser, mha, folder) {
  await test('the_survey_of_the_page_is_that_of_the_library', async () => {
    const {page} = await openPage(browser, join(folder, 'surveyed.html'));
    await expectSurvey(page, mha);
    const orders = await page.textContent('#grid select');
    expect(!/importance/i.test(orders) && /effect on the loss/.test(orders), `another number is called importance: ${orders}`);
  });
  await test('labels_have_the_numbers_of_the_library', async () => {
    const {page} = await openPage(browser, join(folder, 'main.html'));
    await expectLabels(page, mha);
  });
}
