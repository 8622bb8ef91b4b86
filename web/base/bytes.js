/* Bytes of the page: base64, numbers, gzip. */

/* Base64 to bytes. atob returns one character per byte. */
export function decodeBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function encodeBase64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 32768) parts.push(String.fromCharCode(...bytes.subarray(at, at + 32768)));
  return btoa(parts.join(''));
}

export async function unpackGzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* Little-endian float32 numbers; byte-swapped on big-endian machines. */
export function decodeFloats(text) {
  const bytes = decodeBase64(text);
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(bytes.buffer);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({length: bytes.length / 4}, (_, i) => view.getFloat32(4 * i, true));
}
