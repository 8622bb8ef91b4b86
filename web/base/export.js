/* Export of a panel as SVG or PNG.
 *
 * A panel returns its content as SVG text, in the current colours of the page; the file is self-contained. The PNG is
 * the same SVG, drawn at twice the size on a canvas, so both have the same content. foreignObject is not used: browsers
 * do not export a canvas on which one was drawn. */

const exportFont = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/* Escapes text for SVG. Characters that XML does not allow, including lone surrogates, become U+FFFD: a token may
 * contain any bytes, and one such character would make the file invalid. */
function escapeXml(text) {
  const entities = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'};
  return String(text)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd')
    .replace(/[\ud800-\udfff]/gu, '\ufffd') /* with the u flag a complete pair is one character and is kept */
    .replace(/[&<>"']/g, (c) => entities[c]);
}

/* The current colours of the page, light or dark. */
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return {
    page: read('--page', '#fbfaf8'),
    card: read('--card', '#ffffff'),
    ink: read('--ink', '#1d1a26'),
    soft: read('--soft', '#676273'),
    line: read('--line', '#e4e0e8'),
    accent: read('--accent', '#6a3aa2'),
    key: read('--key', '#0a7a4b'),
  };
}

/* ---- parts of an SVG --------------------------------------------------------------------------------------------- */

/* A complete file: a background in the colour of a card, a title for screen readers, and the body. */
function svgDocument(width, height, body, title) {
  const [w, h] = [svgNumber(width), svgNumber(height)];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" ` +
    `font-family="${escapeXml(exportFont)}" role="img">\n<title>${escapeXml(title)}</title>\n` +
    `<rect width="100%" height="100%" fill="${escapeXml(themeColours().card)}"/>\n${body}\n</svg>\n`;
}

/* A line of text with its baseline at (x, y). options: size, anchor ("start", "middle", "end"), weight, fill, opacity,
 * rotate (degrees about that point). */
function svgLabel(x, y, text, options = {}) {
  const {size = 13, anchor = 'start', weight = 400, fill = themeColours().ink, opacity = 1, rotate = 0} = options;
  const turn = rotate ? ` transform="rotate(${rotate} ${svgNumber(x)} ${svgNumber(y)})"` : '';
  const faint = opacity < 1 ? ` opacity="${svgNumber(opacity)}"` : '';
  return `<text x="${svgNumber(x)}" y="${svgNumber(y)}" font-size="${size}" font-weight="${weight}" ` +
    `text-anchor="${anchor}" fill="${escapeXml(fill)}" xml:space="preserve"${turn}${faint}>${escapeXml(text)}</text>`;
}

/* The content of a canvas as an image inside the SVG, without smoothing when scaled. */
function svgCanvas(canvas, x, y, width, height) {
  return `<image x="${svgNumber(x)}" y="${svgNumber(y)}" width="${svgNumber(width)}" height="${svgNumber(height)}" ` +
    `preserveAspectRatio="none" style="image-rendering:pixelated" href="${canvas.toDataURL('image/png')}"/>`;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

const exportScale = 2;

function downloadBlob(blob, name) {
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
function exportButtons(panel) {
  const button = (ending) => {
    const made = element('button', {
      type: 'button',
      class: 'export',
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
