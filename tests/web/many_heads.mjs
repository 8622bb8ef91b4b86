/* Pages of models with many heads and blocks: everything has room, on a desk, on a tablet and on a phone. */
import {join} from 'node:path';
import {complete, expect, test} from './harness.mjs';
import * as browsing from './browser.mjs';

/* heads x blocks: configurations of mha train. */
export const crowds = {
  heads_16_of_8_blocks: 'patch=14,width=64,depth=8,heads=16,mlp=16',
  ...(complete && {
    heads_12_of_6_blocks: 'patch=7,width=48,depth=6,heads=12,mlp=16',
    heads_32_of_2_blocks: 'patch=7,width=64,depth=2,heads=32,mlp=16',
  }),
};

const widths = {desk: 1280, ...(complete && {tablet: 768}), phone: 360};

/* Texts that leave their panel or are cut by an element that hides what is too wide, and elements that scroll sideways. */
const cutTexts = (page) => page.evaluate(() => {
  const cut = [], walker = document.createTreeWalker(document.getElementById('main'), NodeFilter.SHOW_TEXT);
  const range = document.createRange(), name = (node) => `${node.tagName}.${node.className}`;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement, style = getComputedStyle(parent);
    if (!node.textContent.trim() || parent.closest('.hidden, noscript, select')) continue;
    range.selectNodeContents(node);
    const text = range.getBoundingClientRect(), panel = parent.closest('.panel, .images').getBoundingClientRect();
    if (!text.width) continue;
    const within = (box) => text.left >= box.left - 1 && text.right <= box.right + 1;
    const hides = style.overflowX !== 'visible' && !within(parent.getBoundingClientRect());
    const cell = parent.closest('td, th, .switch');
    if (!within(panel) || hides || (cell && !within(cell.getBoundingClientRect()))) {
      cut.push(`"${node.textContent}" in ${name(parent)}`);
    }
  }
  for (const node of document.querySelectorAll('#main *')) {
    const {overflowX} = getComputedStyle(node);
    if (overflowX !== 'visible' && node.scrollWidth > node.clientWidth + 1 && !node.closest('.hidden')) {
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

/* In the picture of a step, no two texts lie on each other. */
async function expectApart(page, what) {
  await page.fill('#steps-slider', '10');
  const over = await page.evaluate(() => {
    const svg = window.mhaView.panels.find((panel) => panel.id === 'steps').toSvg(), place = document.createElement('div');
    place.innerHTML = svg;
    document.body.append(place);
    const texts = [...place.querySelectorAll('text')].map((node) => ({node, box: node.getBoundingClientRect()}));
    const found = texts.filter(({box: a}, i) => texts.some(({box: b}, j) => j > i && a.left < b.right - 1 &&
      b.left < a.right - 1 && a.top < b.bottom - 6 && b.top < a.bottom - 6)).map(({node}) => node.textContent);
    place.remove();
    return found;
  });
  expect(over.length === 0, `${what}: ${over.length} texts of the step are covered, such as ${over.slice(0, 3)}`);
}

async function hasRoom(browser, folder, name, place, width) {
  const {page, problems, close} = await browsing.openPage(browser, join(folder, `${name}.html`), {width, height: 900});
  const what = `${name} on a ${place}`, cut = await cutTexts(page);
  expect(cut.length === 0, `${what}: ${cut.length} are cut, such as ${cut.slice(0, 2).join('; ')}`);
  await browsing.expectNoSidewaysScroll(page, what);
  await browsing.expectWholeCaptions(page, what);
  await expectSwitches(page, what);
  await browsing.visitPanels(page, folder, `${name}-${place}`);
  if (place === 'desk') {
    await browsing.expectAccessible(page, what);
    await expectApart(page, what);
  }
  expect(problems.length === 0, problems.join('; '));
  await close();
}

export async function testManyHeads(browser, folder, others) {
  await test('four_heads_have_one_line_on_a_phone', async () => {
    const {page, close} = await browsing.openPage(browser, join(folder, 'main.html'), {width: widths.phone, height: 900});
    const tops = await page.evaluate(() => [...document.querySelectorAll('#wall .wall-row')].map((row) =>
      new Set([...row.querySelectorAll('.cell')].map((cell) => Math.round(cell.getBoundingClientRect().top))).size));
    expect(tops.every((lines) => lines === 1), `lines of blocks: ${tops}`);
    await browsing.expectWholeCaptions(page, 'a phone');
    await close();
  });
  for (const name of [...Object.keys(crowds), ...others]) {
    for (const [place, width] of Object.entries(widths)) {
      await test(`${name}_on_a_${place}`, () => hasRoom(browser, folder, name, place, width));
    }
  }
}
