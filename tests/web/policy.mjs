/* What the page's policy keeps out: scripts that are not the page's own, and the network. The other tests see that the page does
 * all it should without a message on the console. */
import {join} from 'node:path';
import {expect, test} from './harness.mjs';
import {openPage} from './browser.mjs';

async function keepsOthersOut(browser, folder, name) {
  const {page, requests} = await openPage(browser, join(folder, `${name}.html`), {unchecked: true});
  const ran = await page.evaluate(async () => {
    const script = document.createElement('script'), node = document.createElement('p');
    script.textContent = 'window.foreignScript = true';
    node.innerHTML = '<img src="data:," onerror="window.foreignHandler = true">';
    document.body.append(script, node);
    const sent = await fetch('http://127.0.0.1:9/').then(() => true, () => false);
    await new Promise((done) => setTimeout(done, 100));
    let evaluated = false;
    try {
      evaluated = (0, eval)('true');
    } catch {} /* it is refused */
    return {script: window.foreignScript, handler: window.foreignHandler, sent, evaluated};
  });
  expect(!ran.script && !ran.handler && !ran.evaluated, `foreign code runs: ${JSON.stringify(ran)}`);
  expect(!ran.sent && requests.length === 0, `${requests.length} requests, such as ${requests[0]}`);
}

export async function testPolicy(browser, folder) {
  for (const name of ['main', 'text', 'weights']) {
    await test(`policy_of_${name}`, () => keepsOthersOut(browser, folder, name));
  }
}
