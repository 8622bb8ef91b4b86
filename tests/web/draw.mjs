/* The panel for drawing: by mouse, finger and pen, from files, undone and cleared; what the page computes from a drawing
 * is what `mha classify` computes from its pixels; bad input gets a notice. */
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {deflateSync} from 'node:zlib';
import {expect, farthest, note, test} from './harness.mjs';
import * as browsing from './browser.mjs';

const {frames, openPage, stateOf} = browsing;

/* A seven in two strokes and a one in one, in parts of the sheet. */
const seven = [[[0.3, 0.25], [0.68, 0.24], [0.45, 0.82]]], crossed = [...seven, [[0.4, 0.52], [0.68, 0.52]]];

/* ---- Drawing ------------------------------------------------------------------------------------------------------- */

/* The corners of strokes as points of the window. */
async function placed(page, strokes) {
  await page.locator('#sheet').scrollIntoViewIfNeeded();
  const box = await page.locator('#sheet').boundingBox();
  return strokes.map((stroke) => stroke.map(([x, y]) => ({x: box.x + box.width * x, y: box.y + box.height * y})));
}

async function settled(page) {
  await page.waitForFunction(() => !window.mhaView.store.get().penDown);
  await frames(page, 3);
}

async function drawByMouse(page, strokes, steps = 12) {
  for (const [first, ...others] of await placed(page, strokes)) {
    await page.mouse.move(first.x, first.y);
    await page.mouse.down();
    for (const {x, y} of others) await page.mouse.move(x, y, {steps});
    await page.mouse.up();
  }
  await settled(page);
}

/* Points on the way, as a finger or a pen has them. */
const between = ([first, ...others]) => others.reduce((all, end) => {
  const start = all[all.length - 1];
  return [...all, ...Array.from({length: 12}, (_, n) => ({x: start.x + ((end.x - start.x) * (n + 1)) / 12,
    y: start.y + ((end.y - start.y) * (n + 1)) / 12}))];
}, [first]);

/* Returns where the sheet was at the end of each stroke. */
async function drawByFinger(page, strokes) {
  const devices = await page.context().newCDPSession(page), places = [];
  const send = (type, touchPoints) => devices.send('Input.dispatchTouchEvent', {type, touchPoints});
  for (const stroke of await placed(page, strokes)) {
    const [first, ...others] = between(stroke);
    await send('touchStart', [first]);
    for (const point of others) await send('touchMove', [point]);
    places.push(Math.round((await page.locator('#sheet').boundingBox()).y));
    await send('touchEnd', []);
  }
  await settled(page);
  return places;
}

async function drawByPen(page, strokes, force) {
  const devices = await page.context().newCDPSession(page);
  const send = (type, {x, y}, buttons) => devices.send('Input.dispatchMouseEvent',
    {type, x, y, buttons, button: 'left', pointerType: 'pen', force, clickCount: 1});
  for (const stroke of await placed(page, strokes)) {
    const [first, ...others] = between(stroke);
    await send('mousePressed', first, 1);
    for (const point of others) await send('mouseMoved', point, 1);
    await send('mouseReleased', others[others.length - 1], 0);
  }
  await settled(page);
}

/* ---- What is shown ------------------------------------------------------------------------------------------------- */

/* The drawing as the page has it: null if there is none. */
const drawn = (page) => page.evaluate(() => {
  const {data, store} = window.mhaView, {image, result} = store.get(), shown = data.images[image];
  if (!document.querySelector('.draw-out') || document.querySelector('.draw-out').hidden) return null;
  return {bytes: Array.from(shown.bytes), name: shown.name, selected: image === data.images.length - 1,
    probabilities: Array.from(result.probabilities), answer: document.getElementById('draw-answer').textContent,
    words: document.querySelector('#image-name').textContent};
});

const noticeOf = (page) => page.evaluate(() => {
  const notice = document.getElementById('draw-notice');
  return notice.hidden ? '' : notice.textContent;
});

const ink = (bytes) => bytes.reduce((sum, byte) => sum + byte / 255, 0);

const centre = (bytes, at) => bytes.reduce((sum, byte, i) => sum + byte * (at(i) + 0.5), 0) / bytes.reduce((a, b) => a + b, 0);

const panelCanvases = (page) => page.evaluate(() => ['look', 'grid', 'rollout', 'gates'].map((id) =>
  [...document.querySelectorAll(`#${id} canvas`)].map((canvas) => canvas.toDataURL()).join()));

/* ---- Files --------------------------------------------------------------------------------------------------------- */

/* A grey PNG; pixel(y, x) is a byte. */
function writePng(path, rows, columns, pixel) {
  const table = Array.from({length: 256}, (_, n) => {
    let c = n;
    for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
    return c >>> 0;
  });
  const crc = (bytes) => (bytes.reduce((c, byte) => table[(c ^ byte) & 255] ^ (c >>> 8), 0xffffffff) ^ 0xffffffff) >>> 0;
  const chunk = (name, body) => {
    const all = Buffer.concat([Buffer.from(name), body]), ends = Buffer.alloc(8);
    ends.writeUInt32BE(body.length, 0);
    ends.writeUInt32BE(crc(all), 4);
    return Buffer.concat([ends.subarray(0, 4), all, ends.subarray(4)]);
  };
  const head = Buffer.alloc(13), raw = Buffer.alloc(rows * (columns + 1));
  head.writeUInt32BE(columns, 0);
  head.writeUInt32BE(rows, 4);
  head[8] = 8;
  for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) raw[y * (columns + 1) + x + 1] = pixel(y, x);
  writeFileSync(path, Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', head),
    chunk('IDAT', deflateSync(raw)), chunk('IEND', Buffer.alloc(0))]));
}

/* A dark one on light paper, unevenly lit; paper alone; something else altogether. */
function writePictures(folder) {
  writePng(join(folder, 'one.png'), 200, 150, (y, x) => (Math.abs(x - 80 + y / 10) < 9 && y > 40 && y < 160 ? 30 : 200 - Math.round(y / 8)));
  writePng(join(folder, 'paper.png'), 60, 60, () => 220);
  writePng(join(folder, 'square.png'), 90, 90, (y, x) => (Math.abs(y - 45) < 20 && Math.abs(x - 45) < 20 ? 0 : 255));
  writeFileSync(join(folder, 'broken.png'), 'not a PNG');
  writeFileSync(join(folder, 'words.txt'), 'no image');
}

/* A drop or a paste of a file on the page; right after a click on `first`, if given. */
async function give(page, path, type, kind, first = null) {
  const bytes = Array.from(readFileSync(path)), name = path.split('/').pop();
  await page.evaluate(({all, called, mime, how, button}) => {
    if (button) document.querySelector(button).click();
    const files = new DataTransfer();
    files.items.add(new File([Uint8Array.from(all)], called, {type: mime}));
    const target = document.querySelector('#grid');
    if (how === 'paste') document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: files, bubbles: true}));
    else for (const step of ['dragover', 'drop']) {
      target.dispatchEvent(new DragEvent(step, {dataTransfer: files, bubbles: true, cancelable: true}));
    }
  }, {all: bytes, called: name, mime: type, how: kind, button: first});
  await settled(page);
}

/* ---- Tests --------------------------------------------------------------------------------------------------------- */

async function nothingIsDrawn(page) {
  expect((await drawn(page)) === null, 'there is a drawing');
  expect(await page.isVisible('#draw-hint'), 'no hint');
  expect(await page.isDisabled('#draw-undo') && await page.isDisabled('#draw-clear'), 'there is something to undo');
  expect((await page.evaluate(() => window.mhaView.drawing.text())) === null, 'there is a state');
  expect((await page.locator('#images .thumb', {hasText: 'drawing'}).count()) === 0, 'there is a thumbnail');
}

/* What `mha classify` says to the pixels that are fitted, beside the page. */
async function sameAsClassify(page, mha, folder, file) {
  const shown = await drawn(page);
  if (!expect(shown, 'nothing is drawn')) return;
  const {images} = JSON.parse(mha('classify', 'main.safetensors', file, '--json'));
  const far = farthest(shown.probabilities, images[0].probabilities);
  expect(far < 1e-5, `${file}: the page's probabilities are off by ${far}`);
}

async function saveSheet(page, path) {
  const {pixels, width, height} = await page.evaluate(() => {
    const {pixels: all, width: w, height: h} = window.mhaView.panels.find(({id}) => id === 'draw').pixels();
    return {pixels: Array.from({length: w * h}, (_, i) => all[4 * i]), width: w, height: h};
  });
  writePng(path, height, width, (y, x) => pixels[y * width + x]);
}

async function drawsByMouse(page, mha, folder) {
  const before = await panelCanvases(page), {image} = await stateOf(page);
  await drawByMouse(page, seven);
  const shown = await drawn(page);
  if (!expect(shown && shown.selected, 'the drawing is not selected')) return;
  expect(shown.name === 'your drawing' && shown.words === shown.name, `it is called ${shown.words}`);
  expect(ink(shown.bytes) > 25 && ink(shown.bytes) < 200, `ink of ${ink(shown.bytes)} pixels`);
  const y = centre(shown.bytes, (i) => Math.floor(i / 28)), x = centre(shown.bytes, (i) => i % 28);
  expect(Math.abs(y - 14.5) < 0.5 && Math.abs(x - 14.5) < 0.5, `its centre is at ${y}, ${x}`);
  const best = shown.probabilities.indexOf(Math.max(...shown.probabilities));
  expect(shown.answer.startsWith(`${best} `), `the panel says ${shown.answer}, the model ${best}`);
  (await panelCanvases(page)).forEach((canvases, n) => expect(canvases !== before[n], `panel ${n} shows another image`));
  await saveSheet(page, join(folder, 'sheet.png'));
  await sameAsClassify(page, mha, folder, 'sheet.png');
  const far = await page.evaluate(() => {
    const {data, store} = window.mhaView, {logits, contributions} = data.images[store.get().image];
    return Math.max(...Array.from(logits, (logit, c) => Math.abs(logit - contributions.reduce((sum, row) => sum + row[c], 0))));
  });
  expect(far < 1e-4, `what heads add is off by ${far}`);
  await page.check('#images input[value="1"]', {force: true});
  expect((await stateOf(page)).image === 1, 'no other image can be selected');
  await page.locator('#images .thumb', {hasText: 'drawing'}).locator('input').check({force: true});
  expect((await drawn(page)).selected, 'the drawing cannot be selected again');
  await page.click('#draw-clear');
  await settled(page);
  await nothingShown(page);
  expect((await stateOf(page)).image === 1, `image ${(await stateOf(page)).image} came back, not the one before`);
  await page.click('#draw-undo');
  await settled(page);
  expect(farthest((await drawn(page)).bytes, shown.bytes) === 0, 'undo does not bring it back');
  await page.click('#draw-clear');
  await page.check(`#images input[value="${image}"]`, {force: true});
}

async function nothingShown(page) {
  expect((await drawn(page)) === null && await page.isVisible('#draw-hint'), 'something is drawn');
}

async function drawsByFingerAndPen(browser, path) {
  const {page} = await openPage(browser, path, {width: 390, height: 844, touch: true});
  const top = async () => Math.round((await page.locator('#sheet').boundingBox()).y);
  await page.locator('#sheet').scrollIntoViewIfNeeded();
  const before = await top(), places = await drawByFinger(page, seven);
  const finger = await drawn(page);
  expect(finger && finger.selected, 'a finger draws nothing');
  expect(places.every((place) => Math.abs(place - before) <= 1), `${places}, not ${before}: the sheet moved while a finger drew`);
  await browsing.expectNoSidewaysScroll(page, 'a phone with a drawing');
  await page.click('#draw-clear');
  await drawByPen(page, seven, 0.2);
  const light = await drawn(page);
  await page.click('#draw-clear');
  await drawByPen(page, seven, 0.9);
  const firm = await drawn(page);
  expect(light && firm && ink(firm.bytes) > 1.2 * ink(light.bytes), 'pressing the pen makes no difference');
}

async function undoesAndErases(page) {
  await drawByMouse(page, crossed);
  const whole = await drawn(page);
  await page.click('#draw-undo');
  await settled(page);
  const less = await drawn(page);
  expect(ink(less.bytes) !== ink(whole.bytes), 'undo changes nothing');
  await page.click('#draw-eraser');
  await drawByMouse(page, [[[0.25, 0.25], [0.5, 0.25]]]);
  const erased = await drawn(page);
  expect(farthest(erased.bytes, less.bytes) > 100, 'the eraser erases nothing');
  await drawByMouse(page, [[[0.1, 0.2], [0.9, 0.2], [0.9, 0.35], [0.1, 0.35], [0.3, 0.5], [0.9, 0.5], [0.7, 0.65], [0.3, 0.65],
    [0.3, 0.8], [0.8, 0.8], [0.4, 0.9]]]);
  await nothingShown(page);
  await page.click('#draw-pen');
  await page.click('#draw-clear');
}

async function takesFiles(page, mha, folder) {
  await page.setInputFiles('#draw-file', join(folder, 'one.png'));
  await page.waitForFunction(() => !document.querySelector('.draw-out').hidden);
  const chosen = await drawn(page);
  expect(chosen.name === 'one.png' && chosen.selected, `it is called ${chosen.name}`);
  await sameAsClassify(page, mha, folder, 'one.png');
  await page.click('#draw-clear');
  for (const kind of ['drop', 'paste']) {
    await give(page, join(folder, 'one.png'), 'image/png', kind);
    await page.waitForFunction(() => !document.querySelector('.draw-out').hidden);
    expect(farthest((await drawn(page)).bytes, chosen.bytes) === 0, `${kind}: another image`);
    await page.click('#draw-clear');
    await settled(page);
  }
  await give(page, join(folder, 'one.png'), 'image/png', 'drop');
  await page.waitForFunction(() => !document.querySelector('.draw-out').hidden);
  await drawByMouse(page, seven);
  expect((await drawn(page)).name === 'your drawing', 'a stroke on a picture is no new drawing');
  await page.click('#draw-undo');
  await settled(page);
  expect((await drawn(page)).name === 'one.png', 'undo does not bring the picture back');
  await page.click('#draw-clear');
}

async function noticesBadInput(page, folder) {
  const says = async (file, type, words, first) => {
    const before = await noticeOf(page);
    await give(page, join(folder, file), type, 'drop', first);
    await page.waitForFunction((old) => ![old, ''].includes(document.getElementById('draw-notice').textContent), before);
    expect(words.test(await noticeOf(page)), `${file}: ${await noticeOf(page)}`);
  };
  await drawByMouse(page, seven);
  await says('words.txt', 'text/plain', /^words\.txt is not an image\.$/, '#draw-clear');
  await nothingShown(page);
  await says('broken.png', 'image/png', /^broken\.png cannot be read as an image\.$/);
  await nothingShown(page);
  await says('paper.png', 'image/png', /^paper\.png is blank\.$/);
  await nothingShown(page);
  await says('square.png', 'image/png', /^This may not be a digit: the ink fills its frame/);
  expect((await drawn(page)) !== null, 'a doubtful picture has no prediction');
  await drawByMouse(page, seven);
  expect((await noticeOf(page)) === '', `of a digit: ${await noticeOf(page)}`);
  await page.click('#draw-clear');
  await drawByMouse(page, [[[0.5, 0.5], [0.5, 0.5]]]);
  expect(/^This may not be a digit/.test(await noticeOf(page)), `of a dot: ${await noticeOf(page)}`);
  await page.click('#draw-clear');
  await settled(page);
}

async function keepsItsState(browser, path, folder) {
  const {page} = await openPage(browser, path);
  const state = () => page.evaluate(() => window.mhaView.drawing.text());
  await drawByMouse(page, crossed);
  const first = await drawn(page), text = await state();
  expect(/^s[\w-]+$/.test(text) && text.length < 2200, `${text.length} letters: ${text.slice(0, 30)}`);
  await page.setInputFiles('#draw-file', join(folder, 'one.png'));
  await page.waitForFunction(() => window.mhaView.drawing.text().startsWith('i'));
  const second = await drawn(page), other = await state();
  await drawByMouse(page, crossed);
  const early = await page.evaluate(() => { /* before the frame that shows it */
    document.getElementById('draw-undo').click();
    const words = window.mhaView.drawing.text(), {data, store} = window.mhaView;
    return {words, bytes: Array.from(data.images[store.get().image].bytes)};
  });
  await frames(page, 3);
  expect(early.words === (await state()) && farthest(early.bytes, (await drawn(page)).bytes) === 0, 'the text is ahead of the drawing');
  const again = await openPage(browser, path), put = (words) => again.page.evaluate((all) =>
    window.mhaView.drawing.restore(all), words);
  for (const [words, want] of [[text, first], [other, second]]) {
    expect(await put(words), 'it was refused');
    const got = await drawn(again.page);
    expect(got && got.selected && farthest(got.bytes, want.bytes) === 0, 'another drawing came back');
    expect(farthest(got.probabilities, want.probabilities) === 0, 'other probabilities');
  }
  for (const wrong of ['', 's', 'x' + text.slice(1), 's' + text.slice(2, -1), 's!!', other.slice(0, -9), null, 7, 'sAAAA', 'i<b>']) {
    expect(!(await put(wrong)), `${wrong} was taken`);
  }
}

/* Processor time of the page's thread for each frame of a stroke, which does not depend on what else the machine does. */
async function followsThePen(browser, path) {
  const {page} = await openPage(browser, path), devices = await page.context().newCDPSession(page);
  await devices.send('Performance.enable', {timeDomain: 'threadTicks'});
  const spent = async () => {
    const {metrics} = await devices.send('Performance.getMetrics');
    return 1000 * metrics.find(({name}) => name === 'TaskDuration').value;
  };
  await drawByMouse(page, seven);
  await page.evaluate(() => {
    window.changes = 0;
    new MutationObserver(() => window.changes++).observe(document.getElementById('draw-answer'), {childList: true});
  });
  const before = await spent(), [[first, second, third]] = await placed(page, seven);
  await page.mouse.move(first.x, first.y);
  await page.mouse.down();
  for (const {x, y} of [second, third, first, third]) await page.mouse.move(x, y, {steps: 25});
  const changes = await page.evaluate(() => window.changes), each = ((await spent()) - before) / changes;
  await page.mouse.up();
  note(`while drawing, ${each.toFixed(1)} ms of processor time for each of ${changes} frames`);
  expect(changes >= 20, `${changes} frames of 100 moves`);
  expect(each < 66, `${each} ms for a frame`); /* twice the time of one: processors of a busy machine are slower */
}

async function looksWell(browser, folder, name, options, what) {
  const {page} = await openPage(browser, join(folder, `${name}.html`), options);
  await (options.touch ? drawByFinger : drawByMouse)(page, seven);
  await browsing.visitPanels(page, folder, `drawn-${name}-${what}`);
  await browsing.expectAccessible(page, what);
  await browsing.expectNoSidewaysScroll(page, what);
  await browsing.expectNamedControls(page);
}

async function worksByKeyboard(page) {
  await page.focus('#draw-pen');
  const order = [];
  for (let n = 0; n < 6; n++) {
    order.push(await page.evaluate(() => document.activeElement.id));
    await page.keyboard.press('Tab');
  }
  expect(order.slice(0, 2).join() === 'draw-pen,draw-eraser' && order.includes('draw-file'), `the keyboard reaches ${order}`);
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.focus('#draw-file').then(() => page.keyboard.press('Space'))]);
  expect(!chooser.isMultiple(), 'several files can be chosen');
}

export async function testDrawing(browser, mha, folder, crowd) {
  const path = join(folder, 'main.html');
  writePictures(folder);
  const {page, problems, requests, close} = await openPage(browser, path);
  await test('nothing_drawn_is_a_hint', () => nothingIsDrawn(page));
  await test('a_drawing_is_the_image_of_the_page', () => drawsByMouse(page, mha, folder));
  await test('drawings_are_undone_and_erased', () => undoesAndErases(page));
  await test('drawings_come_from_files', () => takesFiles(page, mha, folder));
  await test('drawings_that_are_none_get_a_notice', () => noticesBadInput(page, folder));
  await test('drawing_works_by_keyboard', () => worksByKeyboard(page));
  await test('a_drawing_is_saved_as_a_picture', async () => {
    expect((await page.evaluate(() => window.mhaView.panels.find(({id}) => id === 'draw').toSvg())).includes('Nothing has been drawn.'), 'something is drawn');
    await drawByMouse(page, seven);
    await browsing.expectExports(page, 'draw');
  });
  await test('drawing_makes_no_error_and_no_request', async () => {
    expect(problems.length === 0, problems.join('; '));
    expect(requests.length === 0, requests.join(', '));
  });
  await close();
  await test('fingers_and_pens_draw', () => drawsByFingerAndPen(browser, path));
  await test('a_drawing_goes_through_a_text', () => keepsItsState(browser, path, folder));
  await test('the_page_follows_the_pen', () => followsThePen(browser, path));
  for (const [what, options] of Object.entries({light: {}, dark: {dark: true}, phone: {width: 390, height: 844, touch: true},
    small: {width: 320, height: 640, touch: true}})) {
    await test(`a_drawing_in_${what}`, () => looksWell(browser, folder, 'main', options, what));
  }
  await test('a_drawing_for_many_heads', () => looksWell(browser, folder, crowd, {width: 360, height: 800, touch: true}, 'phone'));
}
