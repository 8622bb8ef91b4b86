/* Lists of numbers. */

/* The largest number, ignoring NaN; 0 if there is none. */
export function largestOf(values) {
  let max = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > max) max = values[i];
  return max;
}

/* A function of a name that is called once for each. */
export function remember(make) {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, make(name));
    return known.get(name);
  };
}

/* The index of the largest number (the first one in case of a tie). */
export function bestOf(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/* `count` neighbours of `size` numbers each. */
export function splitNumbers(numbers, count, size) {
  return Array.from({length: count}, (_, n) => numbers.subarray(n * size, (n + 1) * size));
}

export const limit = (x, low, high) => Math.max(low, Math.min(high, x));

/* From 0 to 1, slowly at both ends. */
export const easeBoth = (x) => x * x * (3 - 2 * x);
