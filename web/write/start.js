/* Starts writing on a page of a text model that carries its files. */

import {createStore} from '../base/store.js';
import {openEngine} from '../engine/page.js';
import {decoderStart} from './reader.js';
import {settingsOfCommand} from './settings.js';
import {createWritePanel} from './write.js';
import {createWriter} from './writer.js';

/* What the page was created with: the text and, of a model with two stacks, the tokens of the target. */
function firstText(model, {kind, text = '', target = ''}) {
  if (kind !== 'pair') return {text, more: []};
  const start = decoderStart(model, text).length;
  return {text, more: Array.from(model.encodeTarget(target).ids).slice(start)};
}

/* {panel, store, writer, first}, with the first text and settings; null if the page cannot run its model: then it says why, and shows the text that it was
 * written with. */
export async function startWriting(data, mapStores) {
  const {live} = data;
  if (!live) return null;
  try {
    if (live.why) throw new Error(live.why);
    const model = (await openEngine()).openText(live), first = {...firstText(model, live), ...settingsOfCommand(live.settings)};
    const store = createStore({...first, running: false, ended: false, result: null, tokens: null, next: null, mask: 0,
      problem: null, pointed: null, read: first});
    const writer = createWriter(model, data, store, mapStores);
    return {store, writer, first, panel: createWritePanel(store, writer, mapStores, data)};
  } catch (error) {
    data.still = `This page cannot run its model. ${error.message} It shows the text that it was created with.`;
    return null;
  }
}
