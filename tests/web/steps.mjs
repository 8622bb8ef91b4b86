/* The walk through one head: what is marked on the stage is what the numbers below it are of, in every frame. */
import {join} from 'node:path';
import {expect, expectNear, test} from './harness.mjs';
import {openPage} from './browser.mjs';

/* Runs in the page before its scripts. Notes the boxes of each frame of the stage, and makes time run ten times as fast
 * for animations. */
function watchStage() {
  const kind = CanvasRenderingContext2D.prototype, frames = (window.stageFrames = []);
  const watch = (name, note) => {
    const real = kind[name];
    kind[name] = function (...args) {
      if (this.canvas.id === 'steps-stage') note(this, ...args);
      return real.apply(this, args);
    };
  };
  let box = null;
  watch('clearRect', () => frames.push([]));
  watch('beginPath', () => (box = null));
  watch('rect', (_, x, y, width, height) => (box = {x, y, width, height}));
  watch('stroke', ({strokeStyle, lineWidth}) => box && frames.at(-1).push({...box, stroke: strokeStyle, line: lineWidth}));
  watch('fill', ({fillStyle}) => box && frames.at(-1).push({...box, fill: fillStyle}));
  const request = window.requestAnimationFrame.bind(window);
  let ahead = 0;
  window.requestAnimationFrame = (call) => request((now) => call(now + (ahead += 150)));
}

const near = (a, b) => Math.abs(a - b) < 0.6;

/* What a frame marks: {rows: [..] of matrices with T rows, columns: [..] of matrices with T columns, bars: [..]}. A
 * matrix is a box with a thin line, which the frames of its rows and columns follow. */
function marksOf(boxes, T, {accent, line, soft}, firstBar) {
  const marks = {rows: [], columns: [], bars: []};
  let cells = null;
  for (const box of boxes) {
    if (box.stroke === line && box.line === 1) cells = box;
    const wide = box.width - 3, high = box.height - 3;
    if (cells && box.stroke === accent && box.line === 2 && near(wide, cells.width) && near(high, cells.height / T)) {
      marks.rows.push(Math.round((box.y + 1.5 - cells.y) / high));
    }
    if (cells && box.stroke === accent && box.line === 2 && near(high, cells.height) && near(wide, cells.width / T)) {
      marks.columns.push(Math.round((box.x + 1.5 - cells.x) / wide));
    }
    if (box.fill === accent && firstBar) marks.bars.push(Math.round((box.x - firstBar.x) / (firstBar.width / 0.8)));
  }
  marks.hasBars = boxes.some((box) => box.fill === soft);
  return marks;
}

/* A token by the name that the page gives it. */
function tokenOf(name, {first, across}) {
  if (/the class token/.test(name)) return 0;
  const [, row, column] = name.match(/row (\d+), column (\d+)/).map(Number);
  return first + (row - 1) * across + column - 1;
}

/* Steps that show the numbers of a key, and where they name it. */
const namesKey = {Scores: '.step-numbers .hint', Scaling: '.step-keys tbody th', Softmax: '.step-keys tbody th',
  'Weighted sum': '.step-vector b'};

/* The step that is shown, all its frames, and the name of the key that its numbers are of (null: of none). */
async function playStep(page, number) {
  await page.evaluate(() => (window.stageFrames.length = 0));
  await page.fill('#steps-slider', String(number));
  await page.waitForFunction(() => window.stageFrames.length > 3);
  let count = -1;
  for (let now = 0; now !== count; now = await page.evaluate(() => window.stageFrames.length)) {
    count = now;
    await page.waitForTimeout(120);
  }
  const title = (await page.textContent('#step-title')).replace(/^.*: /, '');
  const name = namesKey[title] ? await page.locator(namesKey[title]).first().textContent() : null;
  return {title, name, frames: await page.evaluate(() => window.stageFrames.slice())};
}

async function followsOne(page, {block, head, token}) {
  const {model, best, colours} = await page.evaluate((choice) => {
    window.mhaView.store.set(choice);
    const {model: {tokens, first, across}, store} = window.mhaView, style = getComputedStyle(document.documentElement);
    const row = Array.from(store.get().result.maps[choice.block][choice.head].subarray(choice.token * tokens, (choice.token + 1) * tokens));
    const colour = (name) => style.getPropertyValue(name).trim();
    return {model: {tokens, first, across}, best: row.indexOf(Math.max(...row)),
      colours: {accent: colour('--accent'), line: colour('--line'), soft: colour('--soft')}};
  }, {block, head, token});
  let seen = 0;
  for (let number = 2; number <= 12; number++) {
    const {title, name, frames} = await playStep(page, number), what = `head ${block}.${head}, token ${token}, ${title}`;
    const said = name ? tokenOf(name, model) : null;
    if (name) expect(said === best, `${what}: the numbers are of key ${said}, the largest weight is of ${best}`);
    const firstBar = frames.at(-1).find((box) => box.fill === colours.soft || box.fill === colours.accent);
    const wanted = title === 'Weighted sum' ? [token, best] : [token];
    frames.forEach((boxes, n) => {
      const {rows, columns, bars} = marksOf(boxes, model.tokens, colours, firstBar);
      seen += rows.length + columns.length + bars.length;
      expect(rows.every((row) => wanted.includes(row)), `${what}, frame ${n} of ${frames.length}: rows ${rows}, not ${wanted}`);
      expect([...columns, ...bars].every((key) => key === said),
        `${what}, frame ${n} of ${frames.length}: key ${columns} ${bars} is marked, the numbers are of ${said}`);
    });
    const last = marksOf(frames.at(-1), model.tokens, colours, firstBar);
    expect(last.rows.length > 0, `${what}: no row is marked at the end`);
    if (title === 'Scores') expect(last.columns.length === 2 && last.bars.length === 1, `${what}: the key is not marked`);
    if (title === 'Scores') await expectProducts(page, what);
  }
  expect(seen > 100, `only ${seen} marks were seen`);
}

/* The numbers of q times those of k are the products, which add up to the score. */
async function expectProducts(page, what) {
  const {vectors, sum} = await page.evaluate(() => ({
    vectors: [...document.querySelectorAll('.step-vector')].map((vector) => [...vector.querySelectorAll('.step-cells span')]
      .map((cell) => Number(cell.textContent.replace('−', '-')))),
    sum: Number(document.querySelector('.step-numbers .hint').textContent.match(/add up to (\S+)\.$/)[1].replace('−', '-')),
  }));
  const [q, k, products] = vectors, digits = 0.006 * (1 + Math.max(...q.map(Math.abs), ...k.map(Math.abs)));
  products.forEach((x, d) => expectNear(x, q[d] * k[d], 2 * digits, `${what}: product ${d}`));
  expectNear(products.reduce((a, b) => a + b, 0), sum, 0.006 * products.length + 0.06, `${what}: the sum`);
}

export async function testSteps(browser, folder) {
  await test('steps_mark_what_their_numbers_are_of', async () => {
    const {page, problems, close} = await openPage(browser, join(folder, 'main.html'), {before: watchStage});
    await page.locator('#steps').scrollIntoViewIfNeeded();
    await page.waitForFunction(() => /^1 of /.test(document.getElementById('step-title').textContent));
    for (const choice of [{block: 0, head: 1, token: 0}, {block: 5, head: 3, token: 49}]) {
      await page.fill('#steps-slider', '1');
      await followsOne(page, choice);
    }
    expect(problems.length === 0, problems.join('; '));
    await close();
  });
}
