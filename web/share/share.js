/* The state of the page as a text: in the address, "#v=2&image=3&head=2&panel=look", and inside a saved copy of the page.
 *
 * The address follows the state, so that a served page can be shared by its address. A link to a local file is of no use
 * to others; there "Save this page" writes a copy of the file that opens in the same state. A text of another version, or
 * one that is not of this page, is reported, and what can be read of it is used. */

import {copyText, flash} from '../base/controls.js';
import {element} from '../base/dom.js';
import {downloadBlob} from '../base/export.js';
import {showNotice} from '../base/notice.js';
import {shareFields, walkFields, writeFields} from './fields.js';

const shareVersion = '2';

/* Each store of the page with its fields: those of the second and third panel of a page have a number in their names. A text
 * comes first, because tokens are counted in it. */
function shareStores({data, model, stores, pictures, drawing, writing, walk}) {
  const sets = data.sets || [data];
  const panels = stores.map((store, n) => ({store, after: n ? String(n + 1) : '', fields: shareFields[data.kind] || shareFields.maps,
    about: () => ({model, pictures, drawing, set: store.get().set || sets[n], state: store.get()})}));
  if (!writing) return panels;
  return [{store: writing.store, after: '', fields: writeFields, about: () => ({writing, state: writing.store.get()})}, ...panels,
    {store: walk.store, after: '', fields: walkFields, about: () => ({walk, state: walk.store.get()})}];
}

/* "v=1&..", with the panel that is in view. */
function writeShared(view, panel) {
  const parts = new URLSearchParams({v: shareVersion});
  for (const {fields, about, after} of shareStores(view)) {
    for (const [name, {write}] of Object.entries(fields)) {
      const text = write(about());
      if (text !== null) parts.set(name + after, text);
    }
  }
  if (panel) parts.set('panel', panel);
  return parts.toString();
}

/* Sets what the text says. Returns null, or what is wrong with it. */
function readShared(view, text) {
  const parts = new URLSearchParams(text), version = parts.get('v');
  if (version === null) return 'This address does not describe a state of this page. The page opens in its initial state.';
  if (version !== shareVersion) {
    return `This link was made for version ${version.slice(0, 20)} of the page; this is version ${shareVersion}. The page opens in its initial state.`;
  }
  const wrong = [], known = new Set(['v', 'panel']);
  for (const {store, fields, about, after} of shareStores(view)) {
    const patch = {}; /* set at once: a key belongs to the query beside it */
    for (const [name, {read}] of Object.entries(fields)) {
      known.add(name + after);
      if (!parts.has(name + after)) continue;
      try {
        const here = about();
        Object.assign(patch, read(parts.get(name + after), {...here, state: {...here.state, ...patch}}));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        wrong.push(name + after);
      }
    }
    store.set(patch);
  }
  for (const name of parts.keys()) if (!known.has(name)) wrong.push(name.slice(0, 20));
  return wrong.length ? `Parts of this link do not fit this page and were left out: ${[...new Set(wrong)].slice(0, 6).join(', ')}.` : null;
}

/* ---- The address ------------------------------------------------------------------------------------------------- */

/* The panel at the middle of the window, or null above the first one. */
function panelInView(panels) {
  const line = window.innerHeight / 2, found = panels.filter((panel) => panel.element.getBoundingClientRect().top < line);
  return found.length && window.scrollY > 40 ? found[found.length - 1].id : null;
}

function goToPanel(panels, id) {
  const panel = panels.find((one) => one.id === id);
  if (panel) panel.element.scrollIntoView({behavior: 'instant', block: 'start'});
  return Boolean(panel);
}

/* Opens the state of the address or of the copy, and keeps the address up to date. */
export function startSharing(view) {
  const {panels} = view;
  let timer = 0, known = null; /* the end of the address, as it was last read or written */
  const write = () => {
    if (location.hash !== known) return; /* somebody changed it: the event is on its way */
    const next = '#' + writeShared(view, panelInView(panels));
    try {
      if (next !== known) history.replaceState(null, '', next);
      known = location.hash;
    } catch (error) {
      if (error.name !== 'SecurityError') throw error; /* a frame without rights cannot change its address */
    }
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(write, 250);
  };
  const open = (text) => {
    const problem = readShared(view, text), panel = new URLSearchParams(text).get('panel');
    if (problem) showNotice(problem);
    if (panel && !goToPanel(panels, panel) && !problem) showNotice('This link names a panel that this page does not have.');
  };
  const openAddress = () => {
    const text = location.hash.slice(1);
    if (location.hash === known) return;
    known = location.hash;
    if (text && text !== 'main' && !goToPanel(panels, text)) open(text);
  };
  const kept = document.getElementById('mha-state');
  if (!location.hash && kept) open(JSON.parse(kept.textContent));
  openAddress();
  for (const {store} of shareStores(view)) store.on(Object.keys(store.get()).filter((key) => key !== 'survey'), later);
  window.addEventListener('hashchange', openAddress);
  window.addEventListener('scroll', later, {passive: true});
}

/* ---- The buttons ------------------------------------------------------------------------------------------------- */

let untouchedPage = null;

/* A copy of the page as it was read, before anything was added. Its texts are shared with the page, not copied. */
export function rememberPage() {
  untouchedPage = document.documentElement.cloneNode(true);
}

/* The file of the page, with a state inside that it opens with, and what it has made that no state can hold, such as trained weights. */
function pageWithState(text, kept) {
  const copy = untouchedPage.cloneNode(true);
  for (const [id, object] of Object.entries({'mha-state': text, 'mha-kept': kept})) {
    const old = copy.querySelector('#' + id);
    if (old) old.remove();
    if (object === null) continue;
    const part = element('script', {type: 'application/json', id});
    part.textContent = JSON.stringify(object).replace(/</g, '\\u003c');
    copy.querySelector('#mha-data').before(part);
  }
  return '<!doctype html>\n' + copy.outerHTML + '\n';
}

function savedName() {
  const name = decodeURIComponent(location.pathname.split('/').pop() || '').replace(/\.html?$/, '').replace(/-view$/, '');
  return (name || 'mha') + '-view.html';
}

/* "Copy link" where the page is served, and "Save this page" everywhere. */
export function shareButtons(view) {
  const button = (id, words, press) => {
    const made = element('button', {type: 'button', id, onclick: () => press(made)}, words);
    return made;
  };
  const copy = button('copy-link', 'Copy link', async (made) => {
    const address = location.href.split('#')[0] + '#' + writeShared(view, panelInView(view.panels));
    flash(made, (await copyText(address)) ? 'Link copied' : 'Could not copy');
  });
  const save = button('save-page', 'Save this page', (made) => {
    downloadBlob(new Blob([pageWithState(writeShared(view, panelInView(view.panels)), view.kept ? view.kept() : null)], {type: 'text/html'}), savedName());
    flash(made, 'Saved');
  });
  return /^https?:$/.test(location.protocol) ? [copy, save] : [save];
}
