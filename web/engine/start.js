/* The engine of this page; null on a page without a model. A page whose engine cannot start says why. */

/* Shows the message of an error that ends the page, and throws it again. */
function failPage(about, error) {
  showNotice(`${about} ${error.message}`);
  throw error;
}

async function loadPageEngine() {
  const place = document.getElementById('mha-engine');
  if (!/^\{"kind":"(vit|train)"/.test(document.getElementById('mha-data').textContent)) return null;
  try {
    if (!place) throw new Error('It was created by an mha that was built without its WebAssembly engine.');
    return await startEngine(decodeBase64(place.textContent));
  } catch (error) {
    return failPage('This page cannot run its model.', error);
  }
}

const engine = await loadPageEngine();
