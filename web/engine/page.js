/* The engine that lies in this page. */

import {decodeBase64} from '../base/bytes.js';
import {startEngine} from './engine.js';

export async function openEngine() {
  const place = document.getElementById('mha-engine');
  if (!place) throw new Error('It was created by an mha that was built without its WebAssembly engine.');
  return startEngine(decodeBase64(place.textContent));
}
