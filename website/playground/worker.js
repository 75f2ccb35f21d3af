// Runs the compiler, away from the page's own thread. Messages: {id, call, args}; answers: {id, value}.
import createPyodideModule from "./pyodide/pyodide.asm.mjs";
import { loadPyodide } from "./pyodide/pyodide.mjs";

const session = start();
let turn = session;

self.onmessage = ({ data: { id, call, args } }) => {
  turn = turn.then(async () => {
    const python = await session;
    self.postMessage({ id, value: python[call](...args) });
  });
};

async function start() {
  const here = new URL(".", self.location);
  const files = fetch(new URL("files.json", here)).then((found) => found.json());
  const snapshot = unpacked(new URL("compiler.bin", here));
  const python = await loadPyodide({
    indexURL: new URL("pyodide/", here).href,
    _loadSnapshot: snapshot,
    createPyodideModule: async (settings) => createPyodideModule(grown(settings, (await snapshot).length)),
  });
  for (const [name, text] of Object.entries(await files)) {
    const path = `/compiler/${name}`;
    python.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    python.FS.writeFile(path, text);
  }
  return python.pyimport("session");
}

async function unpacked(address) {
  const { body } = await fetch(address);
  return new Uint8Array(await new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

// Pyodide copies a snapshot into memory of the size that its own start needs: it must have room for all of it.
function grown(settings, bytes) {
  const instantiate = settings.instantiateWasm;
  settings.instantiateWasm = (imports, receive) =>
    instantiate(imports, (instance, module) => {
      const { memory } = instance.exports;
      memory.grow(Math.ceil((bytes - memory.buffer.byteLength) / 65536));
      return receive(instance, module);
    });
  return settings;
}
