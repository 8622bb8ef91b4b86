/* The page of a text model. */

import {createAttentionPanel} from '../attention/attention.js';
import {countsOf, loadAttention, strongestKeys} from '../attention/data.js';
import {element} from '../base/dom.js';
import {createStore} from '../base/store.js';
import {plural} from '../base/words.js';
import {showPage} from './frame.js';
import {createStepsPanel} from '../steps/steps.js';
import {isSign, textSource} from '../steps/text.js';
import {startWriting} from '../write/start.js';

/* The head and query that a panel starts with: an induction head if there is one, else one with a name; and the last token
 * whose strongest key is neither the first token nor itself, a word rather than a sign of the model such as <s> or [SEP]. */
function firstChoice(set, attention) {
  const named = (word) => (set.words || []).findIndex((words) => words.startsWith(word) && !words.endsWith('weakly'));
  const found = ['induction', 'the previous token', 'the same token', 'aligned', 'single'].map(named).find((n) => n >= 0);
  const n = found === undefined ? 0 : found;
  const block = Math.floor(n / set.heads), head = n % set.heads;
  const queries = Array.from({length: set.queries}, (_, i) => set.queries - 1 - i);
  const telling = queries.filter((i) => ![0, i, undefined].includes(strongestKeys(attention.row(block, head, i), 1)[0]));
  const token = [telling.find((i) => !isSign(attention.queryTexts[i].trim())), telling[0]].find((i) => i !== undefined);
  return {block, head, token: token === undefined ? set.queries - 1 : token};
}

/* How many tokens and heads there are, of each stack. */
function textFacts(data, sets) {
  const countTokens = (set) => plural(set.pooled ? set.pooled.queries : set.queries, 'token');
  return [`${data.family} model`, `${data.parameters.toLocaleString('en')} parameters`,
    ...sets.filter((set) => set.title !== 'Cross-attention').flatMap((set) => (sets.length > 1
      ? [`${set.title.toLowerCase()}: ${[...countsOf(set), countTokens(set)].join(', ')}`]
      : [...countsOf(set), countTokens(set)]))];
}

const textLeads = {
  predicts: 'The whole model runs in your browser. Type a text, step through its attention, and see what the model predicts and what each head attends to.',
  reads: 'The whole model runs in your browser. Type a text, step through its attention, and see what each head attends to.',
  still: 'Select a token to see which tokens each head attends to, as a map, as lines and as shaded text.',
};

/* One panel for each kind of attention: encoder, decoder, cross-attention. Each has its own selection. Above them, if the page
 * has its model, the panel for writing. */
export async function startText(data) {
  const theme = document.documentElement.dataset.theme;
  const stores = data.sets.map((set) => createStore({...firstChoice(set, loadAttention(set)), key: null, set, scale: 'linear', range: 'fixed', theme}));
  const ids = {Decoder: 'decoder', 'Cross-attention': 'cross', Encoder: 'encoder'};
  const writing = await startWriting(data, stores);
  const maps = data.sets.map((set, n) => createAttentionPanel(stores[n], set, n ? ids[set.title] : 'attention',
    data.sets.length > 1 ? set.title : 'Attention maps'));
  const walk = writing && textSource(stores, writing, data);
  const panels = writing ? [writing.panel, createStepsPanel(walk), ...maps] : maps;
  stores[0].on('theme', (state) => stores.slice(1).forEach((store) => store.set({theme: state.theme})));
  const view = {data, store: stores[0], stores, model: null, panels, writing, walk};
  const facts = () => textFacts(data, stores.map((store) => store.get().set));
  const showFacts = showPage(view, facts(), textLeads[!writing ? 'still' : writing.writer.predicts ? 'predicts' : 'reads'],
    data.still ? element('p', {class: 'notice', id: 'still', role: 'note'}, data.still) : '');
  stores.forEach((store) => store.on('set', () => showFacts(facts())));
  return view;
}
