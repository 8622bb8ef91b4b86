/* A test program: named cases, expectations that say what they saw, and a closing line, as tests/support/harness.h has them.
 *
 *     await test('rows sum to one', async () => { expect(Math.abs(sum - 1) < 1e-6, `the sum is ${sum}`); });
 *     finish();
 *
 * Tests may run at the same time: each has its own list of failures. */
import {AsyncLocalStorage} from 'node:async_hooks';

const running = new AsyncLocalStorage();
let passed = 0, failed = 0, skipped = 0;

/* Notes a failure and goes on. Returns whether the condition held. */
export function expect(held, text) {
  if (!held) running.getStore().failures.push(text);
  return Boolean(held);
}

export function expectNear(value, wanted, within, what) {
  return expect(Math.abs(value - wanted) <= within, `${what}: ${value}, not ${wanted}`);
}

/* The largest difference of two lists of numbers. */
export function farthest(a, b) {
  if (a.length !== b.length) return Infinity;
  return a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
}

/* Words behind the program's own arguments choose the tests whose names contain one of them. */
const words = process.argv.slice(5);

/* With MHA_SAMPLE=k and k > 1, as in `./dev test`, variants of a page that seldom fail alone are left out. */
export const complete = !(Number(process.env.MHA_SAMPLE) > 1);

/* With MHA_AGAIN=n, a test that failed is tried up to n times more: browsers depend on time, and what else a machine does
 * may take it away. Without it, as on a desk, the first failure counts. */
const again = Number(process.env.MHA_AGAIN) || 0;

/* Something to be done at the end of the running test, however it ends. Outside of tests, whoever opens something closes it. */
export function atEnd(call) {
  const now = running.getStore();
  if (now) now.ends.push(call);
}

async function failuresOf(run) {
  const failures = [], ends = [];
  await running.run({failures, ends}, async () => {
    for (let calls = [run]; calls.length; calls = ends.splice(0)) {
      for (const call of calls) {
        try {
          await call();
        } catch (error) {
          const place = /\w+\.mjs:\d+/.exec(String(error.stack).replace(/^.*node_modules.*$/gm, ''));
          failures.push(`${place || ''} ${String(error.message).split('\n').slice(0, 3).join(' ')}`);
        }
      }
    }
  });
  return failures;
}

function print(failures) {
  for (const line of failures.slice(0, 10)) console.log(`    ${line}`);
  if (failures.length > 10) console.log(`    and ${failures.length - 10} more`);
}

export async function test(name, run, always = false) {
  if (!always && words.length && !words.some((word) => name.includes(word))) return;
  const start = Date.now();
  let failures = await failuresOf(run);
  for (let left = again; failures.length && left > 0; left--) {
    console.log(`  ?     ${name} failed and is tried again`);
    print(failures);
    failures = await failuresOf(run);
  }
  print(failures);
  const seconds = Math.round((Date.now() - start) / 1000), took = seconds < 5 ? '' : `, ${seconds} s`;
  console.log(`${failures.length ? 'FAILED' : '  ok  '}  ${name}${took}`);
  if (failures.length) failed++;
  else passed++;
}

/* A test that lacks something. */
export function skip(name, why) {
  console.log(`  -     ${name}: ${why}`);
  skipped++;
}

/* Something measured, for whoever reads the log. */
export function note(text) {
  console.log(`          ${text}`);
}

export function finish() {
  console.log(`${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
  process.exitCode = failed || !passed ? 1 : 0;
}
