/* The parts of an exported SVG, in the current colours of the page. */

export function svgNumber(x) {
  return String(Math.round(x * 1000) / 1000);
}

export const exportFont = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/* Escapes text for SVG. Characters that XML does not allow, including lone surrogates, become U+FFFD: a token may
 * contain any bytes, and one such character would make the file invalid. */
export function escapeXml(text) {
  const entities = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'};
  return String(text)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd')
    .replace(/[\ud800-\udfff]/gu, '\ufffd') /* with the u flag a complete pair is one character and is kept */
    .replace(/[&<>"']/g, (c) => entities[c]);
}

/* The current colours of the page, light or dark. */
export function themeColours() {
  const style = getComputedStyle(document.documentElement), names = ['page', 'card', 'ink', 'soft', 'line', 'accent', 'key', 'bad'];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/* A complete file: a background in the colour of a card, a title for screen readers, and the body. */
export function svgDocument(width, height, body, title) {
  const [w, h] = [svgNumber(width), svgNumber(height)];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" ` +
    `font-family="${escapeXml(exportFont)}" role="img">\n<title>${escapeXml(title)}</title>\n` +
    `<rect width="100%" height="100%" fill="${escapeXml(themeColours().card)}"/>\n${body}\n</svg>\n`;
}

/* A line of text with its baseline at (x, y). options: size, anchor ("start", "middle", "end"), weight, fill, opacity,
 * rotate (degrees about that point). */
export function svgLabel(x, y, text, options = {}) {
  const {size = 13, anchor = 'start', weight = 400, fill = themeColours().ink, opacity = 1, rotate = 0} = options;
  const turn = rotate ? ` transform="rotate(${rotate} ${svgNumber(x)} ${svgNumber(y)})"` : '';
  const faint = opacity < 1 ? ` opacity="${svgNumber(opacity)}"` : '';
  return `<text x="${svgNumber(x)}" y="${svgNumber(y)}" font-size="${size}" font-weight="${weight}" ` +
    `text-anchor="${anchor}" fill="${escapeXml(fill)}" xml:space="preserve"${turn}${faint}>${escapeXml(text)}</text>`;
}

/* A file with a heading: `title`, and `words` below it. */
export function svgPicture(width, height, title, words, parts, about = title) {
  const heading = [svgLabel(24, 38, title, {size: 20, weight: 600}), svgLabel(24, 58, words, {fill: themeColours().soft})];
  return svgDocument(width, height, [...heading, ...parts].join('\n'), about);
}

/* The content of a canvas as an image inside the SVG, without smoothing when scaled. */
export function svgCanvas(canvas, x, y, width, height) {
  return `<image x="${svgNumber(x)}" y="${svgNumber(y)}" width="${svgNumber(width)}" height="${svgNumber(height)}" ` +
    `preserveAspectRatio="none" style="image-rendering:pixelated" href="${canvas.toDataURL('image/png')}"/>`;
}
