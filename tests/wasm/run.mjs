/* Runs a program of WebAssembly (WASI) with the arguments and the environment of this one:
 *
 *     node --no-warnings run.mjs PROGRAM.wasm [ARGUMENT...]
 *
 * The folder in which it runs is its root. */
import {readFileSync} from 'node:fs';
import {WASI} from 'node:wasi';

const [program, ...words] = process.argv.slice(2);
const wasi = new WASI({version: 'preview1', args: [program, ...words], env: process.env, preopens: {'/': '.', '.': '.'}});
const module = await WebAssembly.compile(readFileSync(program));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, {wasi_snapshot_preview1: wasi.wasiImport}));
