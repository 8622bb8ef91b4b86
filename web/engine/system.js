/* The system that the engine sees (WASI): files in memory, which are only read, and a clock. Everything else is refused.
 *
 * Paths have no leading slash. A folder is there if a file lies in it. Numbers are those of WASI: 0 for success, 8 for a
 * descriptor that is not open, 28 for a bad argument, 44 for no such file, 52 for what is not supported. */

const FILE_KIND = 4, FOLDER_KIND = 3, ROOT = 3; /* the descriptor of the folder / */

export function createSystem() {
  const files = new Map(), open = new Map();
  let memory = null, next = ROOT + 1;
  const view = () => new DataView(memory.buffer);
  const bytesAt = (at, length) => new Uint8Array(memory.buffer, at, length);
  const textAt = (at, length) => new TextDecoder().decode(bytesAt(at, length));
  const isFolder = (path) => path === '' || path === '.' || [...files.keys()].some((name) => name.startsWith(path + '/'));

  /* 64 bytes: at 16 the kind, at 24 the number of links, at 32 the size. */
  const describe = (to, kind, size) => {
    bytesAt(to, 64).fill(0);
    view().setUint8(to + 16, kind);
    view().setBigUint64(to + 24, 1n, true);
    view().setBigUint64(to + 32, BigInt(size), true);
    return 0;
  };
  /* Calls `each(at, length)` for the parts of a list of buffers. */
  const eachPart = (parts, count, each) => {
    for (let n = 0; n < count; n++) each(view().getUint32(parts + 8 * n, true), view().getUint32(parts + 8 * n + 4, true));
  };

  const calls = {
    fd_prestat_get(fd, to) {
      if (fd !== ROOT) return 8;
      view().setUint32(to, 0, true);
      view().setUint32(to + 4, 1, true);
      return 0;
    },
    fd_prestat_dir_name(fd, to) {
      bytesAt(to, 1)[0] = '/'.charCodeAt(0);
      return 0;
    },
    path_open(fd, flags, path, length, how, rights, inherited, more, to) {
      const name = textAt(path, length), bytes = files.get(name);
      if (!bytes) return 44;
      open.set(next, {bytes, at: 0});
      view().setUint32(to, next++, true);
      return 0;
    },
    path_filestat_get(fd, flags, path, length, to) {
      const name = textAt(path, length), bytes = files.get(name);
      if (bytes) return describe(to, FILE_KIND, bytes.length);
      return isFolder(name) ? describe(to, FOLDER_KIND, 0) : 44;
    },
    fd_filestat_get(fd, to) {
      const file = open.get(fd);
      return file ? describe(to, FILE_KIND, file.bytes.length) : 8;
    },
    fd_fdstat_get(fd, to) {
      if (fd !== ROOT && !open.has(fd)) return 8;
      bytesAt(to, 24).fill(0);
      view().setUint8(to, fd === ROOT ? FOLDER_KIND : FILE_KIND);
      view().setBigUint64(to + 8, ~0n, true);
      view().setBigUint64(to + 16, ~0n, true);
      return 0;
    },
    fd_read(fd, parts, count, to) {
      const file = open.get(fd);
      if (!file) return 8;
      let read = 0;
      eachPart(parts, count, (at, length) => {
        const piece = file.bytes.subarray(file.at, file.at + length);
        bytesAt(at, piece.length).set(piece);
        file.at += piece.length;
        read += piece.length;
      });
      view().setUint32(to, read, true);
      return 0;
    },
    fd_seek(fd, offset, from, to) {
      const file = open.get(fd);
      if (!file) return 8;
      const at = Number(offset) + [0, file.at, file.bytes.length][from];
      if (!(at >= 0)) return 28;
      file.at = at;
      view().setBigUint64(to, BigInt(at), true);
      return 0;
    },
    fd_close: (fd) => (open.delete(fd) ? 0 : 8),
    /* Nobody reads what is written. */
    fd_write(fd, parts, count, to) {
      let written = 0;
      eachPart(parts, count, (at, length) => (written += length));
      view().setUint32(to, written, true);
      return 0;
    },
    environ_sizes_get(count, size) {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return 0;
    },
    environ_get: () => 0,
    clock_time_get(id, precision, to) {
      view().setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    proc_exit(code) {
      throw new Error(`The engine exited with code ${code}.`);
    },
  };

  return {
    files,
    /* What a module imports; calls that it never makes here are refused. */
    imports(module) {
      const all = {};
      for (const {module: from, name} of WebAssembly.Module.imports(module)) {
        all[from] = all[from] || {};
        all[from][name] = calls[name] || (() => 52);
      }
      return all;
    },
    start(instance) {
      memory = instance.exports.memory;
      instance.exports._initialize();
    },
  };
}
