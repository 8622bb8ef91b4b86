/* Starts writing on a page of a text model that carries its files. */

/* The engine's model with its tokenizers. */
async function openLive(live) {
  const place = document.getElementById('mha-engine');
  if (!place) throw new Error('It was created by an mha that was built without its WebAssembly engine.');
  return (await startEngine(decodeBase64(place.textContent))).openText(live);
}

/* What the page was written with: the text and, of a model with two stacks, the tokens of the target. */
function firstText(model, {kind, text = '', target = ''}) {
  if (kind !== 'pair') return {text, more: []};
  const start = decoderStart(model, text).length;
  return {text, more: Array.from(model.encodeTarget(target).ids).slice(start)};
}

/* {panel, store, writer, first}; null if the page cannot run its model: then it says why, and shows the text that it was
 * written with. */
async function startWriting(data, mapStores) {
  const {live} = data;
  if (!live) return null;
  try {
    if (live.why) throw new Error(live.why);
    takeSettings(live.settings);
    const model = await openLive(live), first = firstText(model, live);
    const store = createStore({...first, ...firstSettings(), running: false, ended: false, result: null, tokens: null, next: null, mask: 0,
      problem: null, pointed: null, read: first});
    const writer = createWriter(model, data, store, mapStores);
    return {store, writer, first, panel: createWritePanel(store, writer, mapStores, data)};
  } catch (error) {
    data.still = `This page cannot run its model. ${error.message} It shows the text that it was created with.`;
    return null;
  }
}
