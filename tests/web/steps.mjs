/* The walk-through: what is marked on the stage is what the numbers below it are of, in every frame and for every head; it
 * waits for its reader, follows the keyboard, and a frame takes less than a sixtieth of a second. */
import {join} from 'node:path';
import {expect, expectNear, note, test} from './harness.mjs';
import {openPage, stateOf} from './browser.mjs';

/* Runs in the page before its scripts. Notes the boxes and texts of each frame of the stage and how long its script took,
 * and makes time run ten times as fast for animations. */
function watchStage() {
  const kind = CanvasRenderingContext2D.prototype, frames = (window.stageFrames = []), times = (window.stageTimes = []);
  const watch = (name, note) => {
    const real = kind[name];
    kind[name] = function (...args) {
      if (this.canvas.id === 'steps-stage') note(this, ...args);
      return real.apply(this, args);
    };
  };
  /* What a frame marks in matrices with T rows or T columns: {query: [rows], key: [rows and columns]}. A matrix is a box with a thin line, which the
   * frames of its rows and columns follow. It is computed here: to send all boxes takes longer than to draw them. */
  window.marksOf = ({boxes}, T, {accent, key, line}) => {
    const marks = {query: [], key: []}, near = (a, b) => Math.abs(a - b) < 0.6;
    let cells = null;
    for (const box of boxes) {
      if (box.stroke === line && box.line === 1) cells = box;
      const role = {[accent]: 'query', [key]: 'key'}[box.stroke], wide = box.width - 2, high = box.height - 2;
      if (!cells || !role || box.line !== 2) continue;
      if (near(wide, cells.width) && near(high, cells.height / T)) marks[role].push(Math.round((box.y + 1 - cells.y) / high));
      if (near(high, cells.height) && near(wide, cells.width / T)) marks[role].push(Math.round((box.x + 1 - cells.x) / wide));
    }
    return marks;
  };
  let box = null;
  watch('clearRect', () => frames.push({boxes: [], texts: []}));
  watch('beginPath', () => (box = null));
  watch('rect', (_, x, y, width, height) => (box = {x, y, width, height}));
  watch('stroke', ({strokeStyle, lineWidth}) => box && frames.at(-1).boxes.push({...box, stroke: strokeStyle, line: lineWidth}));
  watch('fillText', ({fillStyle}, text) => frames.at(-1).texts.push({text, fill: fillStyle}));
  const request = window.requestAnimationFrame.bind(window);
  let ahead = 0;
  window.requestAnimationFrame = (call) => request((now) => {
    const before = frames.length, begun = performance.now();
    call(now + (ahead += window.stageHaste === undefined ? 150 : window.stageHaste));
    if (frames.length > before) times.push(performance.now() - begun);
  });
}

/* A token by the name that the page gives it. */
function tokenOf(name, {first, across}) {
  if (/class token/.test(name)) return 0;
  const [, row, column] = name.match(/row (\d+), column (\d+)/).map(Number);
  return first + (row - 1) * across + column - 1;
}

/* Steps that show the numbers of a key, and where they name it. */
const namesKey = {'Compare the query with every key': '.step-numbers .hint', 'Turn scores into weights': '.step-keys caption',
  'What each head attends to': '.step-keys caption', 'Average the values': '.step-numbers .hint'};

/* Of steps that show a number of the marked key in every lane: which one. */
const laneNumbers = {'Compare the query with every key': 'score', 'Turn scores into weights': 'weight',
  'What each head attends to': 'weight', 'Average the values': 'weight'};

/* Until some frames of the browser have drawn nothing. */
const stillSince = (page) => page.waitForFunction(() => {
  const count = window.stageFrames.length, same = count && count === window.stageCount;
  window.stageStill = same ? window.stageStill + 1 : 0;
  window.stageCount = count;
  return window.stageStill >= 4;
}, null, {polling: 'raf'});

/* The step that is shown, the marks of all its frames, the texts of the last one, and the name of the key that its numbers are of (null: of none). */
async function playStep(page, number, {tokens, colours}) {
  await page.evaluate(() => (window.stageFrames.length = 0));
  await page.fill('#steps-slider', String(number));
  await page.waitForFunction(() => window.stageFrames.length > 3);
  await stillSince(page);
  const title = (await page.textContent('#step-title')).replace(/^.*?: /, '');
  const name = namesKey[title] ? await page.locator(namesKey[title]).first().textContent() : null;
  const seen = await page.evaluate(([T, all]) => ({marks: window.stageFrames.map((frame) => window.marksOf(frame, T, all)), texts: window.stageFrames.at(-1).texts}), [tokens, colours]);
  return {title, name, ...seen};
}

const factsOf = (page) => page.evaluate(() => {
  const {model: {tokens, first, across, config}, store} = window.mhaView, style = getComputedStyle(document.documentElement);
  const {block, head, token, key, result} = store.get();
  const rows = result.maps[block].map((map) => Array.from(map.subarray(token * tokens, (token + 1) * tokens)));
  const colour = (name) => style.getPropertyValue(name).trim();
  const best = rows[head].indexOf(Math.max(...rows[head])), marked = key === null ? best : key;
  return {tokens, first, across, heads: config.heads[block], token, key: marked, readOut: 0, weights: rows.map((row) => row[marked]),
    colours: {accent: colour('--accent'), key: colour('--key'), line: colour('--line')}};
});

const imageWalk = {tokenOf, factsOf, choose: (page, choice) => page.evaluate((state) => window.mhaView.store.set(state), choice)};

/* The last frame has one number of the key in each lane: its weight. */
function expectLaneNumbers({texts}, title, facts, what) {
  const shown = texts.filter(({fill, text}) => fill === facts.colours.key && /^[−<\d.]+(\u00a0%)?$/.test(text) && /[.%]/.test(text));
  expect(shown.length === facts.heads, `${what}: ${shown.length} numbers of the key in ${facts.heads} lanes`);
  if (laneNumbers[title] === 'weight') {
    shown.forEach(({text}, h) => expectNear(parseFloat(text.replace('<', '')), 100 * facts.weights[h], 0.06, `${what}: head ${h}, ${text}`));
  }
}

/* Every step for a query, a head and a key. `walk` says how they are chosen, and what the page should then show. */
export async function followsOne(page, choice, walk = imageWalk) {
  await walk.choose(page, choice);
  const facts = await walk.factsOf(page), count = Number(await page.getAttribute('#steps-slider', 'max'));
  let seen = 0;
  for (let number = 2; number <= count; number++) {
    const {title, name, marks, texts} = await playStep(page, number, facts), what = `${JSON.stringify(choice)}, ${title}`;
    if (name) expect(walk.tokenOf(name, facts) === facts.key, `${what}: the numbers are of "${name}", the key is ${facts.key}`);
    marks.forEach(({query, key}, n) => {
      const own = title === 'The prediction' ? facts.readOut : facts.token;
      seen += query.length + key.length;
      expect(query.every((row) => row === own), `${what}, frame ${n} of ${marks.length}: queries ${query}, not ${own}`);
      expect(key.every((row) => row === facts.key), `${what}, frame ${n} of ${marks.length}: keys ${key}, not ${facts.key}`);
    });
    const last = marks.at(-1);
    if (laneNumbers[title] && title !== 'What each head attends to') expect(last.key.length >= facts.heads, `${what}: the key is not marked in every lane`);
    if (laneNumbers[title]) expectLaneNumbers({texts}, title, facts, what);
    if (laneNumbers[title] === 'score') await expectProducts(page, what);
  }
  expect(seen > 100, `only ${seen} marks were seen`);
}

/* The numbers of q times those of k are the products, which add up to the score times the root of the width. */
async function expectProducts(page, what) {
  const {vectors, sum} = await page.evaluate(() => ({
    vectors: [...document.querySelectorAll('.step-vector')].map((vector) => [...vector.querySelectorAll('.step-cells span')]
      .map((cell) => Number(cell.textContent.replace('−', '-')))),
    sum: Number(document.querySelector('.step-numbers .hint').textContent.match(/add up to (\S+?)\. /)[1].replace('−', '-')),
  }));
  const [q, k, products] = vectors, digits = 0.006 * (1 + Math.max(...q.map(Math.abs), ...k.map(Math.abs)));
  products.forEach((x, d) => expectNear(x, q[d] * k[d], 2 * digits, `${what}: product ${d}`));
  expectNear(products.reduce((a, b) => a + b, 0), sum, 0.006 * products.length + 0.06, `${what}: the sum`);
}

/* Clicks on the stage select a query in X, a key and a head in a lane. */
async function clicksSelect(page) {
  await page.fill('#steps-slider', '7');
  await stillSince(page);
  const stage = await page.locator('#steps-stage').boundingBox(), before = await stateOf(page);
  await page.mouse.click(stage.x + stage.width * 0.2, stage.y + 120);
  const after = await stateOf(page), key = await page.evaluate(() => window.mhaView.store.get().key);
  expect(after.head !== before.head && key !== null, `head ${before.head} to ${after.head}, key ${key}`);
  expect((await page.inputValue('#steps-key')) === String(key), 'the list of keys does not follow');
  await page.evaluate(() => window.mhaView.store.set({token: 9}));
  expect((await page.evaluate(() => window.mhaView.store.get().key)) === null, 'a key of another query stays marked');
}

/* Keys on the stage, and without focus while the stage is in view; no other panel is disturbed. */
async function followsKeys(page) {
  const step = async () => parseInt(await page.textContent('#step-title'), 10);
  await page.evaluate(() => {
    document.activeElement.blur();
    document.getElementById('steps-stage').scrollIntoView({block: 'center', behavior: 'instant'});
    window.mhaView.store.set({step: 0});
  });
  for (const [key, want] of [['ArrowRight', 2], ['ArrowRight', 3], ['ArrowLeft', 2]]) {
    await page.keyboard.press(key);
    expect((await step()) === want, `${key} led to step ${await step()}, not to ${want}`);
  }
  await page.focus('#steps-stage');
  await page.keyboard.press('End');
  const last = Number(await page.getAttribute('#steps-slider', 'max'));
  expect((await step()) === last, `End led to step ${await step()}`);
  await page.keyboard.press('Home');
  expect((await step()) === 1, `Home led to step ${await step()}`);
}

/* While it plays, a step stays as long as its words take to read: 214 words a minute, 3.5 s at least; half as long at double speed. */
async function leavesTime(page) {
  await page.evaluate(() => {
    window.mhaView.store.set({step: 2});
    window.stageHaste = 0;
  });
  await stillSince(page);
  await page.locator('#steps label.control', {hasText: 'Speed'}).locator('select').selectOption('2');
  await page.click('#steps-play');
  const stay = await page.evaluate(() => new Promise((done) => {
    const title = document.getElementById('step-title'), begun = {};
    new MutationObserver(() => {
      const words = document.getElementById('steps-words').textContent.split(' ').length;
      if (begun.at) done({lasted: performance.now() - begun.at, words: begun.words});
      Object.assign(begun, {at: performance.now(), words});
    }).observe(title, {childList: true, characterData: true, subtree: true});
  }));
  const wanted = (2400 + Math.max(3500, 280 * stay.words)) / 2;
  expect(stay.lasted > 0.9 * wanted && stay.lasted < 1.6 * wanted + 1000, `${stay.words} words stay for ${stay.lasted} ms, not ${wanted}`);
  expect((await page.textContent('#steps-play')) === 'Pause', 'it does not offer a pause');
  await page.click('#steps-play');
  const paused = await page.textContent('#step-title');
  await page.evaluate(() => (window.stageHaste = 150));
  await page.waitForTimeout(600);
  expect((await page.textContent('#step-title')) === paused, 'a pause does not hold');
}

/* The script of a frame, with 16 heads, in every step. */
async function framesAreShort(page) {
  await page.evaluate(() => {
    window.stageTimes.length = 0;
    window.stageHaste = 60;
  });
  const count = Number(await page.getAttribute('#steps-slider', 'max'));
  const facts = await factsOf(page);
  for (let number = 2; number <= count; number++) await playStep(page, number, facts);
  const times = (await page.evaluate(() => window.stageTimes)).sort((a, b) => a - b), at = (share) => times[Math.floor(share * (times.length - 1))];
  note(`${times.length} frames with 16 heads: ${at(0.5).toFixed(1)} ms (median), ${at(0.95).toFixed(1)} ms (95 %)`);
  expect(times.length > 60 && at(0.5) < 1000 / 60, `a frame takes ${at(0.5)} ms`);
}

/* The formulas of the first and the last step give the numbers that are shown: rows from pixels, probabilities from the row that is read. */
async function formulasHold(browser, path) {
  const {page} = await openPage(browser, path);
  const far = await page.evaluate(() => {
    const {model, store, walk} = window.mhaView, {config, tokens: T, first, part} = model, M = config.width, {matrices, run, finalRow} = walk.facts();
    const product = (row, weight, columns) => Array.from({length: columns}, (_, c) => row.reduce((sum, x, i) => sum + x * weight[i * columns + c], 0));
    const size = config.patch ** 2, pixels = walk.facts().walk.normalPixels(), most = {rows: 0, logits: 0, probabilities: 0};
    for (let t = 0; t < T; t++) {
      const made = t < first ? new Array(M).fill(0) : product(pixels.slice(t * size, (t + 1) * size), matrices.embed.values, M);
      made.forEach((x, m) => (most.rows = Math.max(most.rows, Math.abs(x + matrices.bias.values[t * M + m] + matrices.place.values[t * M + m] - run.x[t * M + m]))));
    }
    const row = finalRow(), weight = part('head.weight'), bias = part('head.bias'), {logits, probabilities} = store.get().result;
    const own = Array.from({length: config.classes}, (_, c) => row.reduce((sum, x, m) => sum + x * weight[c * M + m], bias ? bias[c] : 0));
    own.forEach((x, c) => (most.logits = Math.max(most.logits, Math.abs(x - logits[c]))));
    const sum = own.reduce((all, x) => all + Math.exp(x), 0);
    own.forEach((x, c) => (most.probabilities = Math.max(most.probabilities, Math.abs(Math.exp(x) / sum - probabilities[c]))));
    return most;
  });
  for (const [name, value] of Object.entries(far)) expect(value < 1e-4, `${name} are off by ${value}`);
  const formula = async (step) => {
    await page.locator('#steps').scrollIntoViewIfNeeded();
    await page.fill('#steps-slider', String(step));
    return (await page.textContent('.formula')).replace(/\s/g, '');
  };
  const [rows, answer] = [await formula(2), await formula(Number(await page.getAttribute('#steps-slider', 'max')))];
  expect(/cls.*pixels\u2032.*WE.*bE.*positions.*pixels.*\u2212.*\u00f7/.test(rows), rows);
  expect(/softmax\(LayerNorm\(clsrowofY.*WC.*bC/.test(answer), answer);
}

/* The maps of each block have a scale of their own, and scores have a legend beside that of weights. */
async function scalesAreTheirOwn(browser, path) {
  const {page} = await openPage(browser, path, {still: true});
  const darkest = await page.evaluate(() => {
    const {walk: {facts: make}, model} = window.mhaView, {walk} = make();
    return model.blocks.map(({heads}, b) => Math.min(...Array.from({length: heads}, (_, h) => {
      const {data} = walk.cardOf(b, h).getContext('2d').getImageData(0, 0, 224, 224);
      let least = 765;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3]) least = Math.min(least, data[i] + data[i + 1] + data[i + 2]);
      return least;
    })));
  });
  expect(darkest.every((sum) => sum < 300), `the darkest colours of blocks: ${darkest}`);
  await page.locator('#steps').scrollIntoViewIfNeeded();
  for (const [step, wanted] of [[6, 'Scores:'], [7, 'Weights:'], [2, '']]) {
    await page.fill('#steps-slider', String(step));
    const shown = await page.locator('.step-weights:not([hidden]) > p').allTextContents();
    expect(shown.join() === wanted, `step ${step}: ${shown}`);
  }
}

/* A number has the width that its row needs, not more. */
async function cellsFitNumbers(browser, path) {
  const {page} = await openPage(browser, path, {still: true});
  await page.locator('#steps').scrollIntoViewIfNeeded();
  for (const [width, step] of [[1280, 2], [390, 2], [1280, 6]]) {
    await page.setViewportSize({width, height: 900});
    await page.fill('#steps-slider', String(step));
    const bad = await page.evaluate(() => [...document.querySelectorAll('.step-cells')].flatMap((cells) => [...cells.querySelectorAll('span')]
      .filter((cell) => cell.scrollWidth > cell.clientWidth || cell.clientWidth > 80).map((cell) => cell.textContent)));
    expect(bad.length === 0, `${width} pixels, step ${step}: ${bad.length} cells are too narrow or too wide, such as ${bad[0]}`);
  }
}

export async function withStage(browser, path, run) {
  const {page} = await openPage(browser, path, {before: watchStage});
  await page.locator('#steps').scrollIntoViewIfNeeded();
  await page.waitForFunction(() => /^1 of /.test(document.getElementById('step-title').textContent));
  await run(page);
}

export async function testSteps(browser, folder) {
  const main = join(folder, 'main.html');
  await test('steps_mark_what_their_numbers_are_of', () => withStage(browser, main, async (page) => {
    for (const choice of [{block: 0, head: 1, token: 0}, {block: 5, head: 3, token: 49, key: 7}]) {
      await page.fill('#steps-slider', '1');
      await followsOne(page, choice);
    }
    await clicksSelect(page);
    await followsKeys(page);
  }));
  await test('formulas_of_the_steps_hold', () => formulasHold(browser, main));
  await test('scores_and_blocks_have_scales_of_their_own', () => scalesAreTheirOwn(browser, main));
  await test('cells_are_as_wide_as_their_numbers', () => cellsFitNumbers(browser, main));
  await test('steps_leave_time_to_read', () => withStage(browser, main, leavesTime));
  await test('frames_of_steps_are_short', () => withStage(browser, join(folder, 'heads_16_of_8_blocks.html'), framesAreShort));
}
