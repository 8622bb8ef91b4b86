/* The modules of the page, as they are written: what the bundlers and the browser would not see. And the page whose modules were joined
 * without esbuild, which is the same page. */
import {execFileSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {readdirSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname, join, resolve} from 'node:path';
import {parse} from 'acorn';
import {analyze} from 'eslint-scope';
import * as browsing from './browser.mjs';
import {expect, test} from './harness.mjs';

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Of each module {file, imports: [{name, from}], exports, own, used, free}: names that it declares, that it uses of these, and that it uses
 * of others. */
function readModules(web) {
  return readdirSync(web, {recursive: true}).filter((name) => name.endsWith('.js')).map((name) => {
    const file = join(web, name), options = {ecmaVersion: 2022, sourceType: 'module', ranges: true};
    const tree = parse(readFileSync(file, 'utf8'), options), {globalScope} = analyze(tree, options), [{variables}] = globalScope.childScopes;
    const of = (type) => tree.body.filter((node) => node.type === type);
    const imports = of('ImportDeclaration').flatMap(({source, specifiers}) => specifiers.map(({local}) => ({name: local.name, from: resolve(dirname(file), source.value)})));
    const exports = of('ExportNamedDeclaration').flatMap(({declaration: one}) => (one.id ? [one] : one.declarations).map(({id}) => id.name));
    return {file, imports, exports, own: variables.map((one) => one.name).filter((one) => !imports.some((other) => other.name === one)),
      used: variables.filter(({references}) => references.some(({init}) => !init)).map((one) => one.name),
      free: [...new Set(globalScope.through.map(({identifier}) => identifier.name))]};
  });
}

/* Names of the browser are those that it has. */
async function namesAreKnown(browser, folder, modules) {
  const {page} = await browsing.openPage(browser, join(folder, 'weights.html')), places = new Map();
  const foreign = await page.evaluate((all) => all.filter((name) => !(name in window) && name !== 'undefined'), modules.flatMap(({free}) => free));
  for (const {file, imports, exports, own, used, free} of modules) {
    for (const name of free) expect(!foreign.includes(name), `${file}: ${name} is neither declared nor imported`);
    for (const {name, from} of imports) {
      expect(used.includes(name), `${file}: ${name} is imported and not used`);
      expect(modules.some((other) => other.file === from && other.exports.includes(name)), `${file}: ${from} does not export ${name}`);
    }
    for (const name of own) {
      const others = modules.filter((other) => other.imports.some((one) => one.name === name && one.from === file));
      expect(used.includes(name) || others.length, `${file}: ${name} is not used`);
      expect(Boolean(others.length) === exports.includes(name), `${file}: ${name} is ${others.length ? 'not exported' : 'exported and not imported'}`);
      expect(!places.has(name), `${file}: ${name} is also declared by ${places.get(name)}`);
      places.set(name, file);
    }
  }
}

/* ---- The other bundle -------------------------------------------------------------------------------------------- */

/* The page with the script and the styles of the folder `bundle`. */
function rebundled(page, bundle) {
  const [script, style] = ['main.js', 'page.css'].map((name) => readFileSync(join(bundle, name), 'utf8'));
  expect(!/<!--|<\/script|<\/style/i.test(script + style), 'the bundle would end its element');
  return page.replace(/<style>\n[^]*?<\/style>/, () => `<style>\n${style}</style>`)
    .replace(/<script type="module">[^]*?<\/script>/, () => `<script type="module">${script}</script>`)
    .replace(/'sha256-[^']*'/, `'sha256-${createHash('sha256').update(script).digest('base64')}'`);
}

/* Pictures of all panels. */
async function picturesOf(browser, path) {
  const {page} = await browsing.openPage(browser, path, {still: true});
  const ids = await page.evaluate(() => window.mhaView.panels.map((panel) => panel.id)), pictures = {};
  for (const id of ids) {
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    await browsing.frames(page, 3);
    pictures[id] = (await page.locator(`#${id}`).screenshot()).toString('base64');
  }
  return pictures;
}

async function bundlesAreAlike(browser, folder, web) {
  const bundle = join(folder, 'joined');
  execFileSync(process.env.CMAKE || 'cmake', [`-DWEB=${web}`, `-DOUT=${bundle}`, '-P', join(web, '../cmake/bundle.cmake')]);
  for (const name of ['main', 'weights', 'text', 'train']) {
    const path = join(folder, `${name}.html`), other = join(folder, `${name}-joined.html`);
    writeFileSync(other, rebundled(readFileSync(path, 'utf8'), bundle));
    let wrong = null;
    for (let left = 3; left && (!wrong || wrong.length); left--) { /* a busy machine may draw a frame late */
      const wanted = await picturesOf(browser, path), found = await picturesOf(browser, other);
      wrong = Object.keys(wanted).filter((id) => found[id] !== wanted[id]);
    }
    expect(!wrong.length, `${name}: different pictures of ${wrong}`);
  }
}

export async function testModules(browser, folder) {
  const web = resolve(process.env.MHA_WEB);
  await test('names_of_modules_are_declared_imported_and_used', () => namesAreKnown(browser, folder, readModules(web)));
  await test('modules_without_esbuild_are_the_same_page', () => bundlesAreAlike(browser, folder, web));
}
