/* What a page with a text shows, and how it is typed into. */

export const chips = (side) => `#write-tokens-${side} [data-token]`;

export const writing = (page) => page.evaluate(() => {
  const {text, more, temperature, topK, topP, seed, running, ended, problem, next, result} = window.mhaView.writing.store.get();
  return {text, more, temperature, topK, topP, seed, running, ended, problem, next,
    sides: result && result.sides.map(({ids, words, prompt}) => ({ids: Array.from(ids), words, prompt}))};
});

export const shownTokens = (page, side = 0) => page.locator(chips(side)).allTextContents();

/* Types into the box, and waits until the model has read it. */
export async function type(page, text) {
  await page.fill('#write-text', text);
  await page.waitForFunction((wanted) => window.mhaView.writing.store.get().text === wanted, text);
}
