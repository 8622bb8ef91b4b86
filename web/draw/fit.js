/* TEMPORARY */
function fitDrawing(model, {pixels, width, height}) {
  const {rows, columns} = model.config, grey = new Float32Array(width * height);
  let top = height, left = width, bottom = 0, right = 0, mass = 0, my = 0, mx = 0, border = 0;
  for (let i = 0; i < width * height; i++) grey[i] = pixels[4 * i];
  for (let x = 0; x < width; x++) border += grey[x] + grey[(height - 1) * width + x];
  if (border / (2 * width) > 127) grey.forEach((g, i) => (grey[i] = 255 - g));
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const g = grey[y * width + x];
    if (g < 64) continue;
    top = Math.min(top, y); bottom = Math.max(bottom, y + 1); left = Math.min(left, x); right = Math.max(right, x + 1);
    mass += g; my += g * (y + 0.5); mx += g * (x + 0.5);
  }
  const bytes = new Uint8Array(rows * columns);
  if (!bottom) return {bytes, blank: true, doubt: ''};
  const step = Math.max(bottom - top, right - left) / 20, y0 = my / mass - 14.5 * step, x0 = mx / mass - 14.5 * step;
  for (let i = 0; i < bytes.length; i++) {
    const ya = y0 + Math.floor(i / columns) * step, xa = x0 + (i % columns) * step;
    let sum = 0, n = 0;
    for (let y = Math.round(ya); y < ya + step; y++) for (let x = Math.round(xa); x < xa + step; x++) {
      n++;
      if (y >= 0 && x >= 0 && y < height && x < width) sum += grey[y * width + x];
    }
    bytes[i] = n ? sum / n : 0;
  }
  return {bytes, blank: false, doubt: mass / 255 > 0.65 * (20 * step) ** 2 ? 'the ink fills its frame, unlike strokes' : ''};
}
