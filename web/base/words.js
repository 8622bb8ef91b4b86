/* Numbers as a person reads them. */

/* A number from 0 to 1 as "43.2 %", "4.32 %", "<0.01 %" or ">99.99 %", with a non-breaking space: only what is exactly 0 or
 * 1 is written as such. */
export function percent(share) {
  const x = share * 100;
  if (!Number.isFinite(x)) return 'not a number';
  if (x === 0 || x === 100) return x.toFixed(0) + '\u00a0%';
  if (x < 0.01) return '<0.01\u00a0%';
  if (x > 99.99 && x < 100) return '>99.99\u00a0%';
  return x.toFixed(x >= 10 && x < 99.95 ? 1 : 2) + '\u00a0%';
}

/* A probability of a softmax in a sentence: "43.2 %", "less than 0.01 %" or "more than 99.99 %". It is never 0 or 1, though
 * float32 may round it to these. */
export function probabilityWords(share) {
  if (share > 0.9999) return 'more than 99.99\u00a0%';
  return share < 0.0001 ? 'less than 0.01\u00a0%' : percent(share);
}

/* Three significant digits, without an exponent if that is short. */
export function shortNumber(x) {
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return x.toExponential(1);
  if (size >= 1000) return String(Math.round(x));
  return x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
}

export function plural(count, one, many) {
  return count + ' ' + (count === 1 ? one : many || one + 's');
}

/* `digits` behind the point, fewer of large numbers. */
export function signedNumber(x, digits = 2) {
  const size = Math.abs(x), text = size.toFixed(size >= 99.5 ? 0 : size >= 9.95 ? 1 : digits);
  return (x < 0 && Number(text) > 0 ? '−' : '') + text;
}
