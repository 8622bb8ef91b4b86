/* Models with 4, 8, 12 and 16 heads, and some with more or fewer: everything has room, from a small phone to a wide screen. */
import {join} from 'node:path';
import {complete, expect, test} from './harness.mjs';
import * as browsing from './browser.mjs';

/* heads x blocks: configurations of mha train. */
export const crowds = {
  heads_8_of_2_blocks: 'patch=7,width=32,depth=2,heads=8,mlp=16',
  heads_12_of_6_blocks: 'patch=7,width=48,depth=6,heads=12,mlp=16',
  heads_16_of_8_blocks: 'patch=14,width=64,depth=8,heads=16,mlp=16',
  ...(complete && {heads_32_of_2_blocks: 'patch=7,width=64,depth=2,heads=32,mlp=16'}),
};

/* Numbers of blocks have room beside each other. */
export const deep = {blocks_100: 'patch=14,width=8,depth=100,heads=1,mlp=8'};

async function labelsHaveRoom(browser, folder) {
  const {page} = await browsing.openPage(browser, join(folder, 'blocks_100.html'), {width: 1280, height: 900, still: true, before: watchTexts});
  for (const width of [1280, 390]) {
    await page.setViewportSize({width, height: 900});
    await page.locator('#steps').scrollIntoViewIfNeeded();
    await browsing.frames(page, 4);
    await expectStage(page, `100 blocks, ${width} pixels wide`, 250);
  }
}

const widths = [1440, 1024, 768, 390, 320];

/* Texts that leave their panel or are cut by an element that hides what is too wide, and elements that scroll sideways. The
 * strip of images does so on purpose. */
const cutTexts = (page) => page.evaluate(() => {
  const cut = [], walker = document.createTreeWalker(document.getElementById('main'), NodeFilter.SHOW_TEXT);
  const range = document.createRange(), name = (node) => `${node.tagName}.${node.className}`;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement, style = getComputedStyle(parent);
    if (!node.textContent.trim() || parent.closest('.hidden, noscript, select, .thumbs')) continue;
    range.selectNodeContents(node);
    const text = range.getBoundingClientRect(), panel = parent.closest('.panel, .image-bar').getBoundingClientRect();
    if (!text.width || style.clipPath !== 'none') continue;
    const within = (box) => text.left >= box.left - 1 && text.right <= box.right + 1;
    const hides = style.overflowX !== 'visible' && style.textOverflow !== 'ellipsis' && !within(parent.getBoundingClientRect());
    const cell = parent.closest('td, th, .switch');
    if (!within(panel) || hides || (cell && !within(cell.getBoundingClientRect()))) {
      cut.push(`"${node.textContent}" in ${name(parent)}`);
    }
  }
  for (const node of document.querySelectorAll('#main *')) {
    const {overflowX, textOverflow} = getComputedStyle(node);
    const free = node.closest('.hidden, .thumbs') || textOverflow === 'ellipsis';
    if (overflowX !== 'visible' && node.scrollWidth > node.clientWidth + 1 && !free) {
      cut.push(`${name(node)} scrolls sideways: ${node.scrollWidth} in ${node.clientWidth}`);
    }
  }
  return cut;
});

/* Every switch is there, large enough for a finger and apart from the others. */
async function expectSwitches(page, what) {
  const {boxes, heads} = await page.evaluate(() => ({
    boxes: [...document.querySelectorAll('#gates input[type=checkbox]')].map((input) => {
      const {left, top, right, bottom} = input.getBoundingClientRect();
      return {left, top, right, bottom};
    }),
    heads: window.mhaView.model.config.heads.reduce((sum, count) => sum + count, 0),
  }));
  expect(boxes.length === heads, `${what}: ${boxes.length} switches of ${heads}`);
  const small = boxes.filter((box) => box.right - box.left < 24 || box.bottom - box.top < 24);
  expect(small.length === 0, `${what}: ${small.length} switches are smaller than 24 pixels`);
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
  expect(boxes.every((a, i) => boxes.slice(i + 1).every((b) => !meet(a, b))), `${what}: switches overlap`);
}

/* ---- The stage ---------------------------------------------------------------------------------------------------- */

/* Runs in the page before its scripts: notes where the texts and matrices of the stage are, in its pixels. */
export function watchTexts() {
  const kind = CanvasRenderingContext2D.prototype, write = kind.fillText, clear = kind.clearRect, draw = kind.drawImage;
  const shifts = {left: 0, center: 0.5, right: 1};
  window.stageTexts = [];
  kind.clearRect = function (...args) {
    if (this.canvas.id === 'steps-stage') Object.assign(window, {stageTexts: [], stageDrawn: {top: Infinity, bottom: 0}});
    return clear.apply(this, args);
  };
  const reach = (top, bottom) => {
    const {stageDrawn: drawn} = window;
    Object.assign(drawn, {top: Math.min(drawn.top, top), bottom: Math.max(drawn.bottom, bottom)});
  };
  kind.fillText = function (text, x, y) {
    if (this.canvas.id === 'steps-stage' && this.globalAlpha > 0.5) {
      const {a, e, f} = this.getTransform(), wide = this.measureText(text).width, size = parseFloat(this.font.match(/([\d.]+)px/)[1]);
      const left = e / a + x - wide * shifts[this.textAlign], top = f / a + y - size * 0.75;
      window.stageTexts.push({text, left, right: left + wide, top, bottom: f / a + y + size * 0.05, room: this.canvas.width / a});
      reach(top, f / a + y);
    }
    return write.call(this, text, x, y);
  };
  kind.drawImage = function (...args) {
    if (this.canvas.id === 'steps-stage') reach(args.at(-3), args.at(-3) + args.at(-1));
    return draw.apply(this, args);
  };
}

/* In every step no two texts lie on each other, none leaves the stage, and at most so many pixels above and below are empty. */
export async function expectStage(page, what, most = 85) {
  const count = Number(await page.getAttribute('#steps-slider', 'max'));
  for (let step = 0; step < count; step++) {
    const {over, out, empty} = await page.evaluate((n) => {
      (window.mhaView.walk || window.mhaView).store.set({step: n});
      const {stageTexts: texts, stageDrawn: drawn} = window, high = document.getElementById('steps-stage').clientHeight;
      const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
      return {over: texts.flatMap((a, i) => texts.slice(i + 1).filter((b) => meet(a, b)).map((b) => `${a.text} | ${b.text}`)),
        out: texts.filter(({left, right, room}) => left < -1.5 || right > room + 1.5).map(({text}) => text),
        empty: Math.max(drawn.top, high - drawn.bottom)};
    }, step);
    expect(over.length === 0, `${what}, step ${step + 1}: ${over.length} texts are covered, such as ${over.slice(0, 2)}`);
    expect(out.length === 0, `${what}, step ${step + 1}: ${out.length} texts leave the stage, such as ${out[0]}`);
    expect(empty <= most, `${what}, step ${step + 1}: ${empty} pixels of the stage are empty`);
  }
}

async function hasRoom(browser, folder, name, sizes) {
  const {page} = await browsing.openPage(browser, join(folder, `${name}.html`),
    {width: sizes[0], height: 900, still: true, before: watchTexts});
  for (const width of sizes) {
    const what = `${name}, ${width} pixels wide`;
    await page.setViewportSize({width, height: 900});
    await page.evaluate(() => window.scrollTo(0, 0));
    await browsing.frames(page, 4);
    const cut = await cutTexts(page);
    expect(cut.length === 0, `${what}: ${cut.length} are cut, such as ${cut.slice(0, 2).join('; ')}`);
    await browsing.expectNoSidewaysScroll(page, what);
    await browsing.expectWholeCaptions(page, what);
    await expectSwitches(page, what);
    await expectStage(page, what);
    await browsing.visitPanels(page, folder, `${name}-${width}`);
  }
  await page.setViewportSize({width: 1280, height: 900});
  await browsing.expectAccessible(page, name);
}

export async function testManyHeads(browser, folder, others) {
  await test('four_heads_have_one_line_on_a_phone', async () => {
    const {page} = await browsing.openPage(browser, join(folder, 'main.html'), {width: 360, height: 900});
    const tops = await page.evaluate(() => [...document.querySelectorAll('#wall .wall-row')].map((row) =>
      new Set([...row.querySelectorAll('.cell')].map((cell) => Math.round(cell.getBoundingClientRect().top))).size));
    expect(tops.every((lines) => lines === 1), `lines of blocks: ${tops}`);
    await browsing.expectWholeCaptions(page, 'a phone');
  });
  await test('labels_of_100_blocks', () => labelsHaveRoom(browser, folder));
  await Promise.all(['main', ...Object.keys(crowds)].map((name) => test(`room_for_${name}`, () => hasRoom(browser, folder, name, widths))));
  await Promise.all(others.map((name) => test(`room_for_${name}`, () => hasRoom(browser, folder, name, complete ? widths : [1024, 390]))));
}
