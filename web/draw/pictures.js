/* Pictures for the Draw panel: chosen, dropped on the page, or pasted. */

import {element} from '../base/dom.js';

const PICTURE_SIDE = 640; /* larger pictures are reduced */

/* The first image among files; null if there is none. */
export function imageAmong(files) {
  return Array.from(files || []).find((file) => file.type.startsWith('image/')) || null;
}

/* A canvas with the picture of a file, as a promise; it fails if the browser cannot decode the file. */
export async function readPicture(file) {
  const bitmap = await createImageBitmap(file);
  const by = Math.min(1, PICTURE_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = element('canvas', {width: Math.max(1, Math.round(bitmap.width * by)),
    height: Math.max(1, Math.round(bitmap.height * by))});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

/* Files that are dropped anywhere on the page, or pasted, go to `take(files)`; while one hovers, `over(true)`. */
export function attachFiles(take, over) {
  const hasFiles = (event) => event.dataTransfer && Array.from(event.dataTransfer.types).includes('Files');
  window.addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); /* otherwise the browser opens the file in place of the page */
    over(true);
  });
  window.addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) over(false);
  });
  window.addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(false);
    take(event.dataTransfer.files);
  });
  document.addEventListener('paste', (event) => {
    if (event.clipboardData && event.clipboardData.files.length) take(event.clipboardData.files);
  });
}
