/* Looks at what `mha view` writes as a person would, in a browser: node run.mjs COMMAND BROWSER FOLDER [WORD...]
 * (see run.sh). */
import {existsSync, rmSync} from 'node:fs';
import {join, resolve} from 'node:path';
import {startBrowser} from './browser.mjs';
import {makeUniform, testColours} from './colours.mjs';
import {testEngine} from './engine.mjs';
import {testDrawing} from './draw.mjs';
import {createCommand, synthetic} from './files.mjs';
import {finish, test} from './harness.mjs';
import {testKeyboard} from './keyboard.mjs';
import {testLooks} from './looks.mjs';
import {crowds, deep, testManyHeads} from './many_heads.mjs';
import {testModules} from './modules.mjs';
import {testControls, testNumbers} from './model.mjs';
import {testPhone} from './phone.mjs';
import {testPolicy} from './policy.mjs';
import {testSharing} from './share.mjs';
import {makeStatistics, testStatistics} from './statistics.mjs';
import {testSteps} from './steps.mjs';
import {makeTexts, testTexts} from './text.mjs';
import {testTextWalk} from './walk.mjs';
import {makeTraining, testTraining} from './train.mjs';
import {makeBatch, makeWeights, testWeights} from './weights.mjs';
import {testWriting} from './write.mjs';
import {testWords} from './write_words.mjs';

const [program, browserPath, folder] = [resolve(process.argv[2]), process.argv[3], resolve(process.argv[4])];
const mha = createCommand(program, folder);

/* Models of other kinds, so that every way through the engine is gone once. */
const others = {
  mean_pool_and_rms: 'patch=7,width=24,depth=2,heads=4,kv_heads=2,mlp=32,pool=mean,norm=rms,activation=silu',
  the_norm_behind: 'patch=7,width=16,depth=2,heads=2,mlp=32,order=post,activation=gelu_tanh',
  one_head_and_relu: 'patch=14,width=8,depth=1,heads=1,mlp=16,activation=relu',
};
const pruned = 'blocks_that_differ';

function train(name, data, config) {
  rmSync(join(folder, `${name}.safetensors`), {force: true});
  mha('train', 'vit', '--data', data, '--config', `average=0,${config}`, '--out', `${name}.safetensors`);
}

function makePages() {
  const two = (name) => mha('view', `${name}.safetensors`, '0', '1', '--data', 'synthetic:60', '-o', `${name}.html`); /* few images for its survey */
  train('main', 'synthetic:800', 'epochs=2,batch=32,lr=0.003');
  mha('view', 'main.safetensors', '--data', synthetic, '-o', 'main.html');
  mha('view', 'main.safetensors', '0', '1', '2', '3', '--data', synthetic, '-o', 'first.html');
  for (const [name, config] of Object.entries(others)) {
    train(name, 'synthetic:120', `epochs=1,batch=32,${config}`);
    two(name);
  }
  mha('prune', 'main.safetensors', '--data', 'synthetic:300', '--heads', '15', '--rounds', '1', '--tune', '0',
    '--epochs', '0', '--sample', '100', '-o', `${pruned}.safetensors`);
  two(pruned);
  for (const [name, config] of Object.entries({...crowds, ...deep})) {
    train(name, 'synthetic:60', `epochs=1,batch=8,${config}`);
    two(name);
  }
  makeUniform(mha, folder);
  makeStatistics(mha, folder);
  makeWeights(mha, folder);
  makeBatch(mha, folder);
  makeTexts(mha, folder);
  makeTraining(mha);
}

async function inBrowser(run) {
  const browser = await startBrowser(browserPath);
  await run(browser);
  await browser.close();
}

let made = false;
await test('pages_are_made', async () => {
  makePages();
  made = existsSync(join(folder, 'main.html'));
}, true);
if (made) {
  /* Two lists at the same time: most of a test is waiting for frames. */
  await Promise.all([
    inBrowser(async (browser) => {
      await testNumbers(browser, mha, folder, [...Object.keys(others), pruned]);
      await testEngine(browser, folder);
      await testStatistics(browser, mha, folder);
      await testColours(browser, folder);
      await testControls(browser, folder);
      await testWeights(browser, folder);
      await testTexts(browser, folder);
      await testWriting(browser, mha, folder);
      await testLooks(browser, folder);
      await testManyHeads(browser, folder, ['one_head_and_relu']);
    }),
    inBrowser(async (browser) => {
      await testDrawing(browser, mha, folder, Object.keys(crowds)[0]);
      await testSteps(browser, folder);
      await testTextWalk(browser, folder);
      await testTraining(browser, folder);
      await testWords(browser, mha, folder);
      await testSharing(browser, folder);
      await testPolicy(browser, folder);
      await testModules(browser, folder);
      await testPhone(browser, folder);
      await testKeyboard(browser, folder);
    }),
  ]);
}
finish();
