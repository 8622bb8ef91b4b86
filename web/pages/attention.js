/* The page of attention weights from a file. */

import {createAttentionPanel} from '../attention/attention.js';
import {countsOf, sizesInWords} from '../attention/data.js';
import {createStore} from '../base/store.js';
import {showPage} from './frame.js';

export function startAttention(data) {
  const store = createStore({block: 0, head: 0, token: 0, scale: 'linear', range: 'fixed',
    theme: document.documentElement.dataset.theme});
  const panels = [createAttentionPanel(store, data)];
  const view = {data, store, stores: [store], model: null, panels};
  const lead = 'Each head as a map of its weights: how much each token (query) attends to each token (key).';
  showPage(view, ['Attention weights', ...countsOf(data), sizesInWords(data)], lead);
  return view;
}
