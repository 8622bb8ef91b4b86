/* Starts the page of the kind that its data says. window.mhaView = {data, store, model, panels, ..} is for tests and debugging. */

import {startAttention} from './pages/attention.js';
import {startText} from './pages/text.js';
import {applyTheme, preferredTheme, printLight} from './pages/theme.js';
import {startTraining} from './pages/train.js';
import {startVit} from './pages/vit.js';
import {rememberPage, startSharing} from './share/share.js';

async function startPage() {
  let opened = null;
  rememberPage();
  applyTheme(preferredTheme());
  printLight(() => opened);
  const data = JSON.parse(document.getElementById('mha-data').textContent);
  const kinds = {vit: startVit, train: startTraining, attention: startAttention, text: startText};
  const view = await kinds[data.kind](data), {store} = view;
  opened = store;
  startSharing(view);
  window.mhaView = view;
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    applyTheme(preferredTheme());
    store.set({theme: preferredTheme()});
  });
  const how = {vit: 'This page contains the model and runs it in your browser.',
    train: 'This page contains the digits and trains the model in your browser.',
    text: view.writing && 'This page contains the model and runs it in your browser.'}[data.kind] || 'This page contains the attention weights.';
  const words = `Written by ${data.version}. ${how}`;
  document.getElementById('foot').append(words);
}

await startPage();
