/* The engine of the page: the numbers of the library in WebAssembly beside those of the command, its speed, and what a page
 * says that cannot run it. */
import {readFileSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';
import {expect, note, test} from './harness.mjs';
import {openPage} from './browser.mjs';

/* The inside of each block: the weights are those of the run, attention and MLP are added to the rows, the output is the input of the next block, rows of weights times
 * values are heads, and heads that are off leave the bias of Wo alone. */
async function expectSteps(page) {
  const far = await page.evaluate(() => {
    const {model, store, data} = window.mhaView, {result, image} = store.get(), {config, tokens: T, whole} = model;
    const D = config.head_width, most = {weights: 0, sums: 0, y: 0, heads: 0, gated: 0}, {bytes} = data.images[image];
    const differ = (a, b) => a.reduce((sum, x, i) => Math.max(sum, Math.abs(x - b[i])), 0);
    const blocks = model.blocks.map((_, b) => whole.insideImage(b, bytes)), gated = model.open();
    gated.switchOff(config.heads.flatMap((count) => new Array(count).fill(1)));
    model.blocks.forEach(({heads: H, groups: G, proj}, b) => {
      const {x, weights, heads: own, v, attended, middle, mlp, y} = blocks[b];
      result.maps[b].forEach((map, h) => (most.weights = Math.max(most.weights,
        differ(map, weights.subarray(h * T * T, (h + 1) * T * T)))));
      if (config.order === 'pre') most.sums = Math.max(most.sums, differ(middle, x.map((value, i) => value + attended[i])), differ(y, middle.map((value, i) => value + mlp[i])));
      if (b + 1 < blocks.length) most.y = Math.max(most.y, differ(y, blocks[b + 1].x));
      for (let h = 0; h < H; h++) {
        const group = Math.floor(h / (H / G));
        for (let d = 0; d < D; d++) {
          let sum = 0;
          for (let j = 0; j < T; j++) sum += weights[h * T * T + j] * v[(group * T + j) * D + d];
          most.heads = Math.max(most.heads, Math.abs(sum - own[h * T * D + d]));
        }
      }
      const {attended: bias, heads} = gated.insideImage(b, bytes);
      most.gated = Math.max(most.gated, bias.reduce((sum, value, i) => Math.max(sum, Math.abs(value - proj.bias[i % config.width])), 0));
      if (!b) most.own = differ(heads, own);
    });
    gated.close();
    return most;
  });
  for (const [key, value] of Object.entries(far)) expect(value <= (key === 'heads' ? 5e-6 : 0), `${key} are off by ${value}`);
}

/* R_b = A_b R_(b-1), from the maps of the page. */
async function expectRollout(page) {
  const far = await page.evaluate(() => {
    const {model, store} = window.mhaView, {result} = store.get(), T = model.tokens, off = [];
    model.blocks.forEach(({heads: H}, b) => off.push(...Array.from({length: H}, (_, h) => (b === 1 || h === 0 ? 1 : 0))));
    const rolled = model.whole.rollOut(result.maps.flat(), T, off);
    let before = null, most = 0;
    result.maps.forEach((maps, b) => {
      const on = b === 1 ? [] : maps.slice(1), step = new Float64Array(T * T), now = new Float64Array(T * T);
      for (let i = 0; i < T * T; i++) {
        const same = i % (T + 1) === 0 ? 1 : 0;
        step[i] = on.length ? on.reduce((sum, map) => sum + map[i], 0) / on.length / 2 + same / 2 : same;
      }
      for (let i = 0; i < T; i++) {
        for (let n = 0; n < T; n++) {
          for (let j = 0; j < T; j++) now[i * T + j] += before ? step[i * T + n] * before[n * T + j] : n === j ? step[i * T + j] : 0;
        }
      }
      now.forEach((x, i) => (most = Math.max(most, Math.abs(x - rolled[b * T * T + i]))));
      before = now;
    });
    return most;
  });
  expect(far < 2e-6, `the rollout is off by ${far}`);
}

/* Whole passes, as the page makes them: the best of many, since other programs may share the processor. */
async function expectQuick(page) {
  const {first, pass, maps} = await page.evaluate(() => {
    const {model, data} = window.mhaView, {bytes} = data.images[0];
    const best = (wanted) => Math.min(...Array.from({length: 100}, () => {
      const start = performance.now();
      model.whole.run(bytes, wanted);
      return performance.now() - start;
    }));
    return {first: performance.getEntriesByName('numbers')[0].startTime, pass: best(0), maps: best(1)};
  });
  note(`a forward pass takes ${pass.toFixed(1)} ms, with all maps ${maps.toFixed(1)} ms; first numbers after ${Math.round(first)} ms`);
  expect(pass <= 4, `a forward pass takes ${pass} ms`);
  expect(first <= 1000, `first numbers after ${first} ms`);
}

/* What the page says that was changed, or that is opened in a browser that was. */
async function noticeOf(browser, path, change, before = null) {
  const changed = path.replace('.html', '-changed.html'), context = await browser.newContext();
  writeFileSync(changed, change(readFileSync(path, 'utf8')));
  if (before) await context.addInitScript(before);
  const page = await context.newPage();
  await page.goto(pathToFileURL(changed).href);
  const text = await page.textContent('[role=alert]', {timeout: 60000});
  await context.close();
  return text;
}

export async function testEngine(browser, folder) {
  const path = join(folder, 'main.html'), same = (text) => text;
  await test('a_page_of_the_default_model_is_small', async () => {
    const size = statSync(path).size;
    note(`the page has ${(size / 1e6).toFixed(2)} MB`);
    expect(size <= 3e6, `${size} bytes`);
  });
  for (const name of ['main', 'mean_pool_and_rms', 'the_norm_behind']) {
    await test(`steps_and_rollout_of_${name}`, async () => {
      const {page} = await openPage(browser, join(folder, `${name}.html`));
      await expectSteps(page);
      await expectRollout(page);
    });
  }
  await test('a_pass_takes_at_most_four_milliseconds', async () => {
    const {page} = await openPage(browser, path);
    await expectQuick(page);
  });
  await test('a_page_that_cannot_run_says_why', async () => {
    const blind = await noticeOf(browser, path, same, () => { WebAssembly.validate = () => false; });
    expect(/no WebAssembly SIMD/.test(blind), `without SIMD: ${blind}`);
    const without = await noticeOf(browser, path, (text) => text.replace('id="mha-engine"', 'id="nothing"'));
    expect(/without its WebAssembly engine/.test(without), `without an engine: ${without}`);
    const damaged = await noticeOf(browser, path, (text) => text.replace(/"model":"[^"]{40}/, '"model":"'));
    expect(/cannot open its model.*safetensors/.test(damaged), `a damaged model: ${damaged}`);
  });
}
