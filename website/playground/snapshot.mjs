// The compiler, started: `node snapshot.mjs SOURCES FILE` runs Pyodide over a folder of sources, imports all that the
// playground needs, compiles once of everything, and writes the memory to FILE. A browser begins where this ends,
// so that a reader waits for one second instead of ten. `pyodide.mjs` of the same version alone can read the file.
import { createReadStream, createWriteStream, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { loadPyodide } from "pyodide";

const [, , sources, file] = process.argv;
const python = await loadPyodide({ _makeSnapshot: true, env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0" } });

function copy(from, to) {
  python.FS.mkdirTree(to);
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [`${from}/${entry.name}`, `${to}/${entry.name}`];
    if (entry.isDirectory()) copy(source, target);
    else python.FS.writeFile(target, readFileSync(source));
  }
}

copy(sources, "/compiler");
python.runPython(`
import gc, importlib, sys
sys.path.insert(0, "/compiler")
sys.dont_write_bytecode = True
import session
session.warm()
gc.collect()
`);
writeFileSync(`${file}.raw`, python.makeMemorySnapshot());
await pipeline(createReadStream(`${file}.raw`), createGzip({ level: 9 }), createWriteStream(file));
process.exit(0);
