/* What holds of every page, light and dark, on a screen and on a phone. With MHA_PICTURES=1, leaves pictures of all panels in
 * the folder. */
import {join} from 'node:path';
import {complete, test} from './harness.mjs';
import * as browsing from './browser.mjs';

async function looksWell(browser, folder, name, options, what) {
  const {page} = await browsing.openPage(browser, join(folder, `${name}.html`), options);
  await browsing.visitPanels(page, folder, `${name}-${what}`);
  await browsing.expectAccessible(page, what);
  await browsing.expectNoSidewaysScroll(page, what);
  await browsing.expectWholeCaptions(page, what);
  await browsing.expectHeadingsInOrder(page);
  await browsing.expectNamedControls(page);
}

const ways = {
  light: {},
  dark: {dark: true},
  phone_light: {width: 390, height: 844, touch: true},
  phone_dark: {width: 390, height: 844, touch: true, dark: true},
  small_phone: {width: 360, height: 640, touch: true},
};

/* A pooled page differs from others in its labels alone. */
const pages = complete ?
  {main: Object.keys(ways), weights: Object.keys(ways), pooled: ['light', 'phone_dark', 'small_phone'],
    text: Object.keys(ways), pair: ['light', 'phone_dark']} :
  {main: ['light', 'phone_dark'], weights: ['dark', 'small_phone'], pooled: ['light'], text: ['light'],
    pair: ['phone_dark']};

export async function testLooks(browser, folder) {
  for (const [name, wanted] of Object.entries(pages)) {
    for (const what of wanted) {
      await test(`${name}_in_${what}`, () => looksWell(browser, folder, name, ways[what], what));
    }
  }
}
