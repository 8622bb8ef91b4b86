/* The theme of the page, light or dark. ?theme=dark or ?theme=light in the address sets it; the default is the system's. */

import {setColourTheme} from '../base/colour.js';
import {element} from '../base/dom.js';

export function preferredTheme() {
  const asked = new URLSearchParams(location.search).get('theme');
  if (asked === 'dark' || asked === 'light') return asked;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setColourTheme(theme);
}

export function themeButton(store) {
  const label = () => (store.get().theme === 'dark' ? 'Light page' : 'Dark page');
  const button = element('button', {type: 'button', id: 'theme', onclick: () => {
    const theme = store.get().theme === 'dark' ? 'light' : 'dark';
    applyTheme(theme);
    store.set({theme});
  }}, label());
  store.on('theme', () => (button.textContent = label()));
  return button;
}

/* Pages are printed in the light colours. It comes before what panels do then. */
export function printLight(storeOf) {
  let before = null;
  const show = (theme) => {
    applyTheme(theme);
    storeOf().set({theme});
  };
  window.addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme;
    if (before !== 'light') show('light');
  });
  window.addEventListener('afterprint', () => before !== 'light' && show(before));
}
