/* The pages of text models: a decoder, and an encoder with a decoder, both with random weights and a token per letter. */
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {expect, expectNear, test} from './harness.mjs';
import * as browsing from './browser.mjs';
import {writeTensors} from './files.mjs';

const {openPage} = browsing;
const width = 16, vocabulary = 29, heads = 2, layers = 2;
const text = 'the cat saw the cat', source = 'a cat', target = 'eine katze';

/* Numbers that look random, the same in every run. */
function createNumbers() {
  let state = 12345;
  return (count, size) => Array.from({length: count}, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 31 - 1) * size;
  });
}

function writeModel(folder, config, tensors) {
  mkdirSync(folder, {recursive: true});
  const letters = Array.from({length: 26}, (_, n) => [String.fromCharCode(97 + n), n]);
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({version: '1.0',
    added_tokens: [{id: 27, content: '<i>', special: true, single_word: false, lstrip: false, rstrip: false, normalized: false}],
    pre_tokenizer: {type: 'ByteLevel', add_prefix_space: false, use_regex: false}, decoder: {type: 'ByteLevel'},
    post_processor: {type: 'TemplateProcessing', single: [{SpecialToken: {id: '<i>', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}}],
      pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
      special_tokens: {'<i>': {id: '<i>', ids: [27], tokens: ['<i>']}}},
    model: {type: 'BPE', merges: [], vocab: Object.fromEntries([...letters, ['\u0120', 26], ['<i>', 27]])}}));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeTensors(join(folder, 'model.safetensors'), tensors);
}

/* {name: {shape, numbers}} of names with their shapes; vectors are gains. */
function randomTensors(shapes) {
  const numbers = createNumbers(), sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name,
    {shape, numbers: shape.length === 1 ? new Array(shape[0]).fill(1) : numbers(sizeOf(shape), 0.6)}]));
}

function decoderShapes() {
  const shapes = {'model.embed_tokens.weight': [vocabulary, width], 'model.norm.weight': [width],
    'lm_head.weight': [vocabulary, width]};
  for (let l = 0; l < layers; l++) {
    const at = `model.layers.${l}.`;
    for (const name of ['q_proj', 'k_proj', 'v_proj', 'o_proj']) shapes[`${at}self_attn.${name}.weight`] = [width, width];
    Object.assign(shapes, {[`${at}input_layernorm.weight`]: [width], [`${at}post_attention_layernorm.weight`]: [width],
      [`${at}mlp.gate_proj.weight`]: [24, width], [`${at}mlp.up_proj.weight`]: [24, width], [`${at}mlp.down_proj.weight`]: [width, 24]});
  }
  return shapes;
}

function pairShapes() {
  const shapes = {'shared.weight': [vocabulary, width]};
  for (const stack of ['encoder', 'decoder']) {
    const parts = stack === 'encoder' ? ['SelfAttention'] : ['SelfAttention', 'EncDecAttention'];
    parts.forEach((part, n) => {
      for (const name of ['q', 'k', 'v', 'o']) shapes[`${stack}.block.0.layer.${n}.${part}.${name}.weight`] = [width, width];
      shapes[`${stack}.block.0.layer.${n}.layer_norm.weight`] = [width];
    });
    const mlp = `${stack}.block.0.layer.${parts.length}`;
    Object.assign(shapes, {[`${stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight`]: [8, heads],
      [`${mlp}.DenseReluDense.wi.weight`]: [24, width], [`${mlp}.DenseReluDense.wo.weight`]: [width, 24],
      [`${mlp}.layer_norm.weight`]: [width], [`${stack}.final_layer_norm.weight`]: [width]});
  }
  return shapes;
}

export function makeTexts(mha, folder) {
  writeModel(join(folder, 'letters'), {architectures: ['LlamaForCausalLM'], model_type: 'llama', vocab_size: vocabulary,
    hidden_size: width, num_hidden_layers: layers, num_attention_heads: heads, intermediate_size: 24,
    max_position_embeddings: 256, rms_norm_eps: 1e-6}, randomTensors(decoderShapes()));
  writeModel(join(folder, 'letter-pairs'), {architectures: ['T5ForConditionalGeneration'], model_type: 't5', d_ff: 24, d_kv: 8,
    d_model: width, decoder_start_token_id: 28, eos_token_id: 27, feed_forward_proj: 'relu', dense_act_fn: 'relu',
    is_gated_act: false, is_encoder_decoder: true, layer_norm_epsilon: 1e-6, num_decoder_layers: 1, num_heads: heads,
    num_layers: 1, pad_token_id: 28, relative_attention_max_distance: 12, relative_attention_num_buckets: 8,
    tie_word_embeddings: true, vocab_size: vocabulary}, randomTensors(pairShapes()));
  mha('view', 'letters', '--text', text, '-o', 'text.html');
  mha('view', 'letter-pairs', '--text', source, '--target', target, '-o', 'pair.html');
}

/* ---- What a page has --------------------------------------------------------------------------------------------- */

async function showsTheText(page) {
  const shown = await page.evaluate(() => [...document.querySelectorAll('#token-keys [data-token]')].map((span) => span.textContent));
  expect(shown.length === text.length + 1 && shown[0] === '<i>', `${shown.length} tokens: ${shown.join('|')}`);
  expect(shown.slice(1).join('').replace(/\u2423/g, ' ') === text, shown.join(''));
  const facts = await page.evaluate(() => [...document.querySelectorAll('.facts li')].map((fact) => fact.textContent));
  expect(facts[0] === 'llama model' && facts.includes('2 layers') && facts.includes(`${text.length + 1} tokens`), facts.join());
}

/* Rows are weights of a causal model: they sum to one, and nothing is behind the query. */
async function weightsAreCausal(page) {
  const {sums, after} = await page.evaluate(() => {
    const set = window.mhaView.data.sets[0], bytes = Uint8Array.from(atob(set.weights.data), (c) => c.charCodeAt(0));
    const all = new Float32Array(bytes.buffer), T = set.keys, sums = [];
    let after = 0;
    for (let row = 0; row < all.length / T; row++) {
      sums.push(all.subarray(row * T, (row + 1) * T).reduce((sum, x) => sum + x, 0));
      for (let key = (row % T) + 1; key < T; key++) after = Math.max(after, all[row * T + key]);
    }
    return {sums, after};
  });
  expect(sums.length === layers * heads * (text.length + 1), `${sums.length} rows`);
  for (const sum of sums) expectNear(sum, 1, 1e-5, 'a row');
  expect(after === 0, `a weight of ${after} behind the query`);
}

async function headsHaveWords(page) {
  const words = await page.evaluate(() => window.mhaView.data.sets[0].words);
  expect(words.length === layers * heads && words.every((word) => word.length > 3), words.join('|'));
  for (let n = 0; n < words.length; n++) {
    const cell = `#heads .cell[data-layer="${Math.floor(n / heads)}"][data-head="${n % heads}"]`;
    await page.click(cell);
    const title = await page.textContent('#chosen-head'), about = words[n] === 'mixed' ? '' : words[n];
    expect((await page.locator(`${cell} .cell-words`).allTextContents()).join() === about, `${n}: not ${about}`);
    expect(title.startsWith(`Layer ${Math.floor(n / heads) + 1}, head ${(n % heads) + 1}: ${about && `${about}, `}entropy `), title);
  }
}

/* Three panels, each with its own selection; cross-attention has the decoder's tokens as queries and the source as keys. */
async function pairsHaveThreePanels(page) {
  const ids = await page.evaluate(() => window.mhaView.panels.map((panel) => panel.id));
  expect(ids.join() === 'attention,decoder,cross', ids.join());
  await page.click('#cross-token-queries [data-token="3"]');
  const [first, last] = await page.evaluate(() => window.mhaView.stores.map((store) => store.get().token).filter((_, n) => n !== 1));
  expect(last === 3 && first !== undefined, `queries ${first} and ${last}`);
  const count = (id) => page.locator(`#${id} [data-token]`).count();
  expect((await count('cross-token-keys')) === source.length + 1, `${await count('cross-token-keys')} keys`);
  expect((await count('cross-token-queries')) === target.length + 2, `${await count('cross-token-queries')} queries`);
  const twice = await page.evaluate(() => {
    const all = [...document.querySelectorAll('[id]')].map((node) => node.id);
    return all.filter((id, n) => all.indexOf(id) !== n);
  });
  expect(twice.length === 0, `ids that are there twice: ${twice}`);
  await page.click('#theme');
  const themes = await page.evaluate(() => window.mhaView.stores.map((store) => store.get().theme));
  expect(new Set(themes).size === 1, `themes ${themes}`);
}

export async function testTexts(browser, folder) {
  for (const [name, cases] of Object.entries({
    text: {a_text_is_shown_as_its_tokens: showsTheText, weights_of_a_text_are_causal: weightsAreCausal,
      heads_of_a_text_have_words: headsHaveWords,
      a_text_is_saved_as_a_picture: (page) => browsing.expectExports(page, 'attention')},
    pair: {pairs_have_three_panels: pairsHaveThreePanels,
      cross_attention_is_saved_as_a_picture: (page) => browsing.expectExports(page, 'cross')},
  })) {
    const {page, problems, requests, close} = await openPage(browser, join(folder, `${name}.html`));
    for (const [title, run] of Object.entries(cases)) await test(title, () => run(page));
    await test(`no_error_and_no_request_of_a_${name}`, async () => {
      expect(problems.length === 0, problems.join('; '));
      expect(requests.length === 0, requests.join(', '));
    });
    await close();
  }
}
