/* The engine of text pages, in node, beside the same C compiled for this machine (engine_numbers.c) and the answers of other
 * libraries: node write_engine.mjs COMMAND NATIVE FOLDER [WORD...] */
import {execFileSync} from 'node:child_process';
import {cpSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync} from 'node:fs';
import {join, resolve} from 'node:path';
import {startEngine} from '../../web/engine/engine.js';
import {engineSettings, settingsOfCommand} from '../../web/write/settings.js';
import {createCommand, readTensors, writeTensors} from './files.mjs';
import {expect, farthest, finish, note, skip, test} from './harness.mjs';
import {writeTextModels} from './text_models.mjs';

const [program, native, folder] = process.argv.slice(2, 5).map((path) => resolve(path));
const {MHA_MODELS: models, MHA_TOKENIZERS: tokenizers} = process.env;
mkdirSync(folder, {recursive: true});
const mha = createCommand(program, folder);

/* ---- The engine -------------------------------------------------------------------------------------------------- */

/* The parts of a page: its data, and the engine's module. */
function readPage(name) {
  const text = readFileSync(join(folder, name), 'utf8'), part = (id) => (text.match(new RegExp(`id="${id}">([^<]*)<`)) || [])[1];
  const engine = part('mha-engine');
  return {data: JSON.parse(part('mha-data')), module: engine && Buffer.from(engine, 'base64')};
}

const packed = (path) => readFileSync(path).toString('base64');

/* A model of files of this machine: a folder or a file. */
function openFiles(engine, path, tokenizer, pair = false) {
  const files = {}, isFile = /\.(safetensors|bin)$/.test(path);
  for (const name of isFile ? [''] : readdirSync(path)) files[`model/${name}`] = packed(join(path, name));
  if (isFile) files['model/m.safetensors'] = packed(path);
  if (tokenizer) files['tokenizer/t.json'] = packed(tokenizer);
  const place = {files, model: isFile ? 'model/m.safetensors' : 'model', tokenizer: tokenizer && 'tokenizer/t.json'};
  return engine.openText(pair && tokenizer ? {...place, target_tokenizer: 'tokenizer/t.json'} : place);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

const drawn = {temperature: 0.8, top_k: 40, top_p: 0.9}, newTokens = 20;

function generate(model, ids, settings, target) {
  const generation = model.generate(ids, settings, target);
  for (let n = 0; n < newTokens && generation.step() !== null; n++);
  const all = Array.from(generation.ids());
  generation.close();
  return all;
}

/* The largest difference, in units of the largest number where that is above 1. */
function apart(got, wanted) {
  return farthest(Array.from(got), wanted) / wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
}

/* WebAssembly has no fused multiply-add, so results differ by rounding. The error of a weight is that of its score, and scores
 * of trained models are tens, which float32 knows to some 1e-6; a logit has the rounding of all blocks before it. */
const bounds = {maps: 5e-6, logits: 2e-6, statistics: 1e-6, inside: 5e-6, next: 1e-6, drawn: 1e-6};

/* The inside of every attention: the same kinds, of the same sizes. Keys that are not visible have scores of
 * minus infinity, which JSON has no number for. */
function insideApart(model, wanted, ids, target) {
  const shown = model.attentions.map((_, n) => Object.values(model.insideTokens(n, ids, target)));
  expect(shown.length === wanted.length && shown.length > 0, `${shown.length} blocks, not ${wanted.length}`);
  return Math.max(...shown.flatMap((kinds, b) => kinds.map((got, n) => {
    const [hidden, known] = [wanted[b][n].map((x) => x === null), Array.from(wanted[b][n], Number)];
    expect(got.length === known.length && hidden.every((is, i) => is === (got[i] === -Infinity)), `kind ${n} of block ${b}`);
    return apart(Array.from(got, (x, i) => (hidden[i] ? 0 : x)), known);
  })));
}

/* Everything that the native program computed, once more in the engine. Returns the differences. */
function expectSame(model, wanted, texts) {
  const [text, target] = texts;
  const ids = text === undefined ? wanted.ids : model.encode(text).ids;
  const other = target === undefined ? wanted.target : model.encodeTarget(target).ids, pair = other.length > 0;
  expect(Array.from(ids).join() === wanted.ids.join() && Array.from(other).join() === wanted.target.join(), `ids ${ids}; ${other}`);
  if (wanted.words) {
    const words = model.encode(text).words.map((word) => Array.from(Buffer.from(word)));
    expect(JSON.stringify(words) === JSON.stringify(wanted.words), 'words differ');
  }
  const maps = pair ? model.runPair(ids, other, 2) : model.runTokens(ids, 2), rows = pair ? other.length : ids.length;
  const far = {
    maps: apart(maps.flatMap(({weights}) => Array.from(weights)), wanted.maps),
    logits: apart(model.take('logits', wanted.logits.length), wanted.logits),
    statistics: apart(model.take('statistics', wanted.statistics.length), wanted.statistics),
    inside: insideApart(model, wanted.inside, ids, other),
  };
  for (const [name, settings] of [['next', {}], ['drawn', drawn]]) {
    if (!wanted[name]) continue;
    const got = model.next(rows - 1, settings), half = (side) => wanted[name].filter((_, n) => n % 2 === side);
    expect(got.map(({id}) => id).join() === half(0).join(), `${name}: ${got.map(({id}) => id)}, not ${half(0)}`);
    far[name] = farthest(got.map(({p}) => p), half(1));
  }
  for (const [name, settings] of [['greedy', {temperature: 0}], ['sampled', {temperature: 0.8, top_k: 40, seed: 3}]]) {
    if (!wanted[name]) continue;
    const tokens = generate(model, ids, settings, other);
    expect(tokens.join() === wanted[name].join(), `${name}: ${tokens}, not ${wanted[name]}`);
  }
  for (const [name, most] of Object.entries(far)) expect(most <= bounds[name], `${name} are off by ${most}`);
  return far;
}

function runNative(...args) {
  return JSON.parse(execFileSync(native, args, {encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe']}));
}

/* A text, or ids, in both. */
function compare(engine, path, {tokenizer = null, text, target, ids, targetIds}) {
  const given = tokenizer ? [text, target] : [ids.join(' '), targetIds && targetIds.join(' ')];
  const wanted = runNative(path, tokenizer || '-', ...given.filter((part) => part !== undefined));
  const model = openFiles(engine, path, tokenizer, target !== undefined);
  const far = expectSame(model, wanted, tokenizer ? [text, target] : []);
  model.close();
  return far;
}

async function testModels(engine) {
  const letters = join(folder, 'letters'), pairs = join(folder, 'letter-pairs');
  await test('a_decoder_has_the_numbers_of_this_machine', async () => {
    compare(engine, letters, {tokenizer: join(letters, 'tokenizer.json'), text: 'the cat saw the cat'});
  });
  await test('a_pair_has_the_numbers_of_this_machine', async () => {
    compare(engine, pairs, {tokenizer: join(pairs, 'tokenizer.json'), text: 'a cat', target: 'eine katze'});
  });
  if (!models) return skip('models_of_others', 'set MHA_MODELS to their folder');
  await test('stories_have_the_numbers_of_this_machine', async () => {
    compare(engine, join(models, 'stories260k.safetensors'), {tokenizer: join(models, 'stories260k.tokenizer.json'),
      text: 'Once upon a time, there was a little girl named Lily.'});
  });
  await test('sorting_and_transliteration_have_the_numbers_of_this_machine', async () => {
    compare(engine, join(models, 'gpt-nano-sort.safetensors'), {ids: [2, 1, 0, 0, 2, 1]});
    compare(engine, join(models, 'aren-transliteration.safetensors'), {ids: [3, 5, 7, 11, 13], targetIds: [1, 4, 9, 12]});
  });
  await test('every_family_has_the_numbers_of_this_machine', async () => {
    const most = {};
    let count = 0;
    for (const name of readdirSync(join(models, 'hf'))) {
      const path = join(models, 'hf', name), config = join(path, 'config.json');
      const {vocab_size: vocabulary, is_encoder_decoder: pair, num_mel_bins: audio} = existsSync(config) ? JSON.parse(readFileSync(config)) : {};
      if (!vocabulary || audio) continue; /* of pictures or of sounds */
      const ids = Array.from({length: 11}, (_, n) => (7 * n * n + 3) % vocabulary);
      const far = compare(engine, path, {ids, targetIds: pair ? ids.slice(0, 5) : undefined});
      for (const [key, value] of Object.entries(far)) most[key] = Math.max(most[key] || 0, value);
      count++;
    }
    note(`${count} models, off by at most ${Object.entries(most).map(([key, value]) => `${key} ${value.toExponential(1)}`).join(', ')}`);
    expect(count > 30, `${count} models`);
  });
}

/* ---- What comes next --------------------------------------------------------------------------------------------- */

/* The softmax of a row of logits, and what settings make of it. */
function expectSettings(model, row, classes) {
  const plain = model.next(row), logits = Array.from(model.take('logits', classes, row * classes)), most = Math.max(...logits);
  const sum = logits.reduce((all, x) => all + Math.exp(x - most), 0);
  expect(plain.length === 20 && plain.every(({p}, n) => !n || p <= plain[n - 1].p), `${plain.map(({p}) => p)}`);
  for (const {id, p} of plain) expect(Math.abs(p - Math.exp(logits[id] - most) / sum) < 1e-6, `token ${id} has ${p}`);
  const few = model.next(row, {top_k: 3}), total = few.reduce((all, {p}) => all + p, 0);
  expect(few.length === 3 && Math.abs(total - 1) < 1e-6, `three of them sum to ${total}`);
  const ratio = ([a, b]) => a.p / b.p, cool = ratio(model.next(row, {temperature: 0.5})) / ratio(plain) ** 2;
  expect(Math.abs(cool - 1) < 1e-4, `half the temperature is off by ${cool}`);
  const one = model.next(row, {temperature: 0});
  expect(one.length === 1 && one[0].id === plain[0].id && one[0].p === 1, 'the most likely token alone');
  const least = (plain[0].p + plain[1].p) * 0.999, nucleus = model.next(row, {top_p: least});
  expect(nucleus.length === 2, `${nucleus.length} tokens have ${least}`);
}

async function testNext(engine) {
  const path = join(folder, 'letters'), prompt = 'the cat saw', classes = 29;
  await test('settings_change_what_comes_next', async () => {
    const model = openFiles(engine, path, join(path, 'tokenizer.json')), {ids} = model.encode(prompt);
    model.runTokens(ids, 0);
    for (const row of [0, 3, ids.length - 1]) expectSettings(model, row, classes);
    const [{id, word}] = model.next(0);
    expect(word === model.word(id) && word.length > 0, `token ${id} is '${word}'`);
    model.close();
  });
  await test('the_command_generates_the_same_tokens', async () => {
    for (const [name, words, settings] of [['letters', ['--greedy'], {temperature: 0}],
      ['letters', ['--temperature', '0.7', '--top-k', '9', '--seed', '5'], {temperature: 0.7, top_k: 9, seed: 5}],
      ['letter-pairs', ['--greedy'], {temperature: 0}]]) {
      const model = openFiles(engine, join(folder, name), join(path, 'tokenizer.json')), {ids} = model.encode(prompt);
      const generation = model.generate(ids, {...settings, max_new_tokens: 12}), got = [];
      for (let id = generation.step(); id !== null; id = generation.step()) got.push(id);
      const [{tokens}] = JSON.parse(mha('generate', name, '-p', prompt, ...words, '--tokens', '12', '--json', '--quiet')).sequences;
      expect(got.length > 0 && got.join() === tokens.join(), `${name}: ${got}, not ${tokens}`);
      model.close();
    }
  });
}

/* A page and the command, with the settings that both have where nobody sets any: the same seed, the same text. */
async function expectSameStory(engine, name, prompt) {
  mha('view', name, '--text', prompt, '-o', 'story.html');
  const {data: {live}} = readPage('story.html'), model = engine.openText(live), {ids} = model.encode(prompt);
  for (const [seed, words] of [[undefined, ['--sample']], [5, ['--seed', '5']], [6, ['--seed', '6']]]) {
    const settings = engineSettings({...settingsOfCommand(live.settings), ...(seed === undefined ? {} : {seed})});
    const got = generate(model, ids, {...settings, max_new_tokens: newTokens}).slice(ids.length);
    const [{tokens}] = JSON.parse(mha('generate', name, '-p', prompt, ...words, '--tokens', String(newTokens), '--json', '--quiet')).sequences;
    expect(got.length > 0 && got.join() === tokens.join(), `${name}, seed ${seed}: ${got}, not ${tokens}`);
  }
  model.close();
  return live.settings;
}

async function testStories(engine) {
  await test('the_command_writes_the_same_story_with_the_same_seed', async () => {
    const plain = await expectSameStory(engine, 'letters', 'the cat saw');
    expect(JSON.stringify(plain) === '{"temperature":1,"top_k":50,"top_p":1,"seed":0}', JSON.stringify(plain));
    cpSync(join(folder, 'letters'), join(folder, 'told'), {recursive: true});
    writeFileSync(join(folder, 'told/generation_config.json'), JSON.stringify({temperature: 2, top_k: 7, top_p: 0.9, repetition_penalty: 1.5}));
    const {temperature, top_k: most, top_p: share} = await expectSameStory(engine, 'told', 'the cat saw');
    expect(temperature === 2 && most === 7 && Math.abs(share - 0.9) < 1e-6, `${temperature}, ${most}, ${share}`);
  });
  if (!models) return skip('the_command_tells_the_same_story', 'set MHA_MODELS to their folder');
  await test('the_command_tells_the_same_story', async () => {
    mkdirSync(join(folder, 'stories'), {recursive: true});
    cpSync(join(models, 'stories260k.safetensors'), join(folder, 'stories/stories.safetensors'));
    cpSync(join(models, 'stories260k.tokenizer.json'), join(folder, 'stories/stories.tokenizer.json'));
    await expectSameStory(engine, 'stories/stories.safetensors', 'Once upon a time');
  });
}

/* ---- Tokenizers -------------------------------------------------------------------------------------------------- */

/* The ids and texts that the tokenizers library gives. */
async function testTokenizers(engine) {
  if (!tokenizers) return skip('tokenizers_of_others', 'set MHA_TOKENIZERS to their folder');
  for (const name of readdirSync(tokenizers).filter((entry) => existsSync(join(tokenizers, entry, 'cases.json')))) {
    const open = () => openFiles(engine, join(folder, 'letters'), join(tokenizers, name, 'tokenizer.json')), why = messageOf(() => open().close());
    if (/this build/.test(why)) {
      skip(`texts_are_encoded_as_${name}`, `${why.replace(/^.*: /, '')}; ./dev setup downloads the sources`);
      continue;
    }
    await test(`texts_are_encoded_as_${name}`, async () => {
      const model = open();
      const cases = JSON.parse(readFileSync(join(tokenizers, name, 'cases.json')));
      for (const {text, ids, decoded} of cases) {
        const got = Array.from(model.encode(text).ids);
        expect(got.join() === ids.join(), `${JSON.stringify(text)}: ${got}, not ${ids}`);
        expect(model.text(ids) === decoded, `${JSON.stringify(text)} becomes ${JSON.stringify(model.text(ids))}`);
      }
      expect(cases.length > 50, `${cases.length} cases`);
      model.close();
    });
  }
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

/* A page opens its own files and has the maps that it was written with. */
async function testPages(engine) {
  await test('a_page_runs_what_it_was_written_with', async () => {
    for (const name of ['text', 'pair']) {
      const {data: {live, sets}} = readPage(`${name}.html`), model = engine.openText(live), {ids} = model.encode(live.text);
      expect(live.kind === (name === 'pair' ? 'pair' : 'decoder') && live.mask === -1, `${live.kind}, mask ${live.mask}`);
      const maps = name === 'pair' ? model.runPair(ids, model.encodeTarget(live.target).ids) : model.runTokens(ids);
      const shown = sets.flatMap(({weights}) => Array.from(new Float32Array(new Uint8Array(Buffer.from(weights.data, 'base64')).buffer)));
      const far = farthest(maps.flatMap(({weights}) => Array.from(weights)), shown);
      expect(far <= 1e-6, `maps of ${name} are off by ${far}`);
      expect(model.encode(live.text).words.join() === sets[0].tokens.queries.join(), `words ${model.encode(live.text).words}`);
      model.close();
    }
  });
  await test('a_page_that_cannot_run_its_model_says_why', async () => {
    const path = join(folder, 'letters/tokenizer.json'), tokenizer = JSON.parse(readFileSync(path));
    cpSync(join(folder, 'letters'), join(folder, 'large'), {recursive: true});
    writeFileSync(join(folder, 'large/tokenizer.json'), JSON.stringify(tokenizer) + ' '.repeat(64e6));
    mha('view', 'large', '--text', 'the cat', '-o', 'large.html');
    const {data: {live}, module} = readPage('large.html');
    expect(/^The model and its tokenizer have 64\.1 MB; pages hold up to 64 MB\.$/.test(live.why) && !live.files && !module, JSON.stringify(live).slice(0, 200));
  });
}

/* ---- Bad input --------------------------------------------------------------------------------------------------- */

function messageOf(run) {
  try {
    run();
  } catch (error) {
    return error instanceof WebAssembly.RuntimeError ? `a trap: ${error.message}` : error.message;
  }
  return 'nothing was wrong';
}

async function testBadInput(engine) {
  const path = join(folder, 'letters');
  await test('what_cannot_be_run_is_one_clear_line', async () => {
    const model = openFiles(engine, path, join(path, 'tokenizer.json')), {ids} = model.encode('the cat');
    model.runTokens(ids);
    for (const [run, wanted] of [
      [() => model.encode('a'.repeat(100000)), /^The text has 100001 tokens; a page runs at most 1024\.$/],
      [() => model.runTokens(new Int32Array(1025)), /^The text has 1025 tokens; a page runs at most 1024\.$/],
      [() => model.runTokens([]), /^The text has no tokens\.$/],
      [() => model.runTokens([0, -1]), /token -1/],
      [() => model.runTokens([0, 29]), /token 29 is not below 29/],
      [() => model.runPair(ids, ids), /no decoder beside/],
      [() => model.encodeTarget('a'), /encoder|target/],
      [() => model.next(99), /no such row/],
      [() => model.insideTokens(9, ids), /^There is no such block\.$/],
      [() => model.insideTokens(0, []), /^The text has no tokens\.$/],
      [() => model.insideTokens(0, ids, ids), /no decoder beside/],
      [() => model.next(0, {temperature: 'warm'}), /not a number/],
      [() => model.next(0, {temperature: -1}), /temperature/],
      [() => model.next(0, {top_p: 2}), /top_p/],
      [() => model.next(0, {warmth: 1}), /unknown/],
      [() => model.generate([], {}).step(), /has no tokens/],
      [() => model.generate(ids, {seed: -1}), /out of range/],
      [() => model.openTokenizers('nothing.json'), /nothing\.json/],
    ]) expect(wanted.test(messageOf(run)), messageOf(run));
    model.close();
  });
  await test('strange_texts_are_encoded', async () => {
    const model = openFiles(engine, path, join(path, 'tokenizer.json'));
    expect(/token|UTF/.test(messageOf(() => model.encode('\u0000\ud800x'))) || model.encode('\u0000\ud800x').ids.length, 'a lone surrogate');
    expect(model.encode('').ids.join() === '27', `nothing is ${model.encode('').ids}`);
    expect(model.encode('cat').words.join() === '<i>,c,a,t', 'it still encodes');
    model.close();
  });
  await test('a_model_with_a_nan_says_so', async () => {
    const {tensors, metadata} = readTensors(join(path, 'model.safetensors'));
    tensors['model.layers.1.mlp.up_proj.weight'].numbers[5] = NaN;
    cpSync(path, join(folder, 'nan'), {recursive: true});
    writeTensors(join(folder, 'nan/model.safetensors'), tensors, metadata);
    const message = messageOf(() => openFiles(engine, join(folder, 'nan'), join(path, 'tokenizer.json')).runTokens([1, 2, 3]));
    expect(/not finite|NaN/.test(message), message);
  });
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

let engine = null;
await test('pages_are_made', async () => {
  writeTextModels(folder);
  mha('view', 'letters', '--text', 'the cat saw the cat', '-o', 'text.html');
  mha('view', 'letter-pairs', '--text', 'a cat', '--target', 'eine katze', '-o', 'pair.html');
  engine = await startEngine(readPage('text.html').module);
}, true);
if (engine) {
  await testModels(engine);
  await testNext(engine);
  await testStories(engine);
  await testTokenizers(engine);
  await testPages(engine);
  await testBadInput(engine);
}
finish();
