/* Export of a panel as SVG or PNG.
 *
 * A panel returns its content as SVG text, in the current colours of the page; the file is self-contained. The PNG is
 * the same SVG, drawn at twice the size on a canvas, so both have the same content. foreignObject is not used: browsers
 * do not export a canvas on which one was drawn. */

import {announce, element} from './dom.js';

/* ---- files ------------------------------------------------------------------------------------------------------- */

const exportScale = 2;

export function downloadBlob(blob, name) {
  const link = element('a', {href: URL.createObjectURL(blob), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000); /* later, because the browser may still be reading it */
}

/* A PNG of an SVG text, as a promise of a blob. */
async function svgToPng(svg) {
  const address = URL.createObjectURL(new Blob([svg], {type: 'image/svg+xml'}));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = Math.round(image.naturalWidth * exportScale);
    canvas.height = Math.round(image.naturalHeight * exportScale);
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => {
      canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error('the image is too large'))), 'image/png');
    });
  } finally {
    URL.revokeObjectURL(address);
  }
}

/* "mha-grid.svg": the name of the file, from the panel's id. */
const exportName = (panel, ending) => `mha-${panel.id}.${ending}`;

async function exportPanel(panel, ending) {
  try {
    const svg = panel.toSvg();
    const blob = ending === 'svg' ? new Blob([svg], {type: 'image/svg+xml'}) : await svgToPng(svg);
    downloadBlob(blob, exportName(panel, ending));
    announce(`Saved ${exportName(panel, ending)}`);
  } catch (error) {
    announce(`Could not save ${exportName(panel, ending)}: ${error.message}`);
  }
}

/* The two buttons of a panel. */
export function exportButtons(panel) {
  const button = (ending) => {
    const made = element('button', {
      type: 'button',
      'data-export': ending,
      title: `Save this panel as ${ending.toUpperCase()}`,
      'aria-label': `Save "${panel.title}" as ${ending.toUpperCase()}`,
    }, ending.toUpperCase());
    made.addEventListener('click', () => exportPanel(panel, ending));
    return made;
  };
  return element('div', {class: 'exports', role: 'group', 'aria-label': 'Save the panel'},
    button('svg'), button('png'));
}
