/* What of the page's state is shared: one row per field, name: {write(view), read(text, view)}.
 *
 * `write` returns a text, or null if the field has nothing to say. `read` returns the values to set in the store, or
 * throws a RangeError if the text is not one that `write` returns for this page. */

import {learnChoices} from '../learn/learn.js';
import {LEARN_DIGITS} from '../learn/trainer.js';
import {walkMost} from '../steps/text.js';
import {stepKeys} from '../steps/words.js';
import {isSetting} from '../write/settings.js';

/* An integer from 0 to `count` - 1; count(view) is asked when a link is read, after the fields before it were set. */
function countField(key, count) {
  return {
    write: ({state}) => (Number.isInteger(state[key]) ? String(state[key]) : null),
    read(text, view) {
      if (!/^\d{1,6}$/.test(text) || Number(text) >= count(view)) throw new RangeError(text);
      return {[key]: Number(text)};
    },
  };
}

/* One of a few words; the default, which is the first, if no other is given, is not written. */
function wordField(key, words, first = words[0]) {
  return {
    write: ({state}) => (state[key] !== first && words.includes(state[key]) ? state[key] : null),
    read(text) {
      if (!words.includes(text)) throw new RangeError(text);
      return {[key]: text};
    },
  };
}

/* Heads that are switched off: "1.2_3.4" for head 2 of block 1 and head 4 of block 3, counted from 0. */
const gatesField = {
  write({state}) {
    const off = state.gates.flatMap((row, b) => Array.from(row, (gate, h) => (gate ? null : `${b}.${h}`)));
    return off.filter(Boolean).join('_') || null;
  },
  read(text, {model}) {
    const off = new Set(text.split('_'));
    const gates = model.blocks.map((block, b) => Float32Array.from({length: block.heads}, (_, h) => Number(!off.delete(`${b}.${h}`))));
    if (off.size) throw new RangeError(text);
    return {gates};
  },
};

/* A drawing, as the panel for drawing writes it; it selects the image itself. */
const drawingField = {
  write: ({state, pictures, drawing}) => (state.image >= pictures ? drawing.text() : null),
  read(text, {drawing}) {
    if (!drawing.restore(text)) throw new RangeError('drawing');
    return {};
  },
};

const imageField = {...countField('image', ({pictures}) => pictures),
  write: ({state, pictures}) => (state.image < pictures ? String(state.image) : null)};

/* A setting of the panel for writing, if it is not the first one. */
const settingField = (key) => ({
  write: ({state, writing: {first}}) => (state[key] === first[key] ? null : String(state[key])),
  read(text) {
    if (!/^[\d.]{1,8}$/.test(text) || !isSetting(key, Number(text))) throw new RangeError(text);
    return {[key]: Number(text)};
  },
});

/* What was written behind the text, as numbers of tokens: "12_7_300". */
const moreField = {
  write: ({state: {read}, writing: {first}}) => (read.text === first.text && read.more.join() === first.more.join() ? null : read.more.join('_')),
  read(text, {writing}) {
    const more = text ? text.split('_').map(Number) : [];
    if (!/^[\d_]*$/.test(text) || more.some((id) => !writing.writer.isToken(id))) throw new RangeError('more');
    return {more};
  },
};

/* A text that the model cannot read is not in the address, which has the last one that it could. */
export const writeFields = {
  text: {
    write: ({state: {read}, writing: {first}}) => (read.text === first.text ? null : read.text),
    read: (text) => ({text, more: []}),
  },
  more: moreField,
  temperature: settingField('temperature'),
  'top-k': settingField('topK'),
  'top-p': settingField('topP'),
  seed: settingField('seed'),
};

/* Which stack of a model with two is walked through, with its maps and query, which are set at once with the key. */
const stackField = {
  write: ({walk, state}) => (walk.stacks && state.stack !== walk.firstStack ? String(state.stack) : null),
  read(text, {walk}) {
    if (!walk.stacks || !/^\d$/.test(text) || Number(text) >= walk.stacks.length) throw new RangeError(text);
    return {stack: Number(text), ...walk.follow(Number(text))};
  },
};

/* The walk-through over a text; its query is that of the maps. */
export const walkFields = {
  'step-stack': stackField,
  step: countField('step', ({walk, state}) => stepKeys(walk.models[state.stack]).length),
  'step-layer': countField('block', ({walk, state}) => walk.models[state.stack].blocks.length),
  'step-head': countField('head', ({walk, state}) => walk.models[state.stack].blocks[state.block].heads),
  'step-key': countField('key', () => walkMost),
};

export const shareFields = {
  vit: {
    image: imageField,
    drawing: drawingField,
    block: countField('block', ({model}) => model.blocks.length),
    head: countField('head', ({model, state}) => model.blocks[state.block].heads),
    query: countField('token', ({model}) => model.tokens),
    key: countField('key', ({model}) => model.tokens),
    step: countField('step', ({model}) => stepKeys(model).length),
    off: gatesField,
    colour: wordField('scale', ['linear', 'log']),
    scale: wordField('range', ['fixed', 'per-head']),
    sort: wordField('sort', ['place', 'entropy', 'distance', 'importance', 'likeness']),
  },
  train: {
    digit: countField('digit', () => LEARN_DIGITS),
    ...Object.fromEntries(Object.entries(learnChoices).map(([key, {values, first}]) => [key, wordField(key, values, first)])),
  },
  maps: {
    layer: countField('block', ({set}) => set.layers),
    head: countField('head', ({set}) => set.heads),
    query: countField('token', ({set}) => set.queries),
    key: countField('key', ({set}) => set.keys),
    colour: wordField('scale', ['linear', 'log']),
    scale: wordField('range', ['fixed', 'per-head']),
    sort: wordField('sort', ['number', 'entropy']),
  },
};
