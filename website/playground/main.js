// The page: an editor, the compiler in a worker, and what the compiler says.
import { basicSetup, EditorView } from "codemirror";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, hoverTooltip, MatchDecorator, ViewPlugin, WidgetType } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const IDLE = 250; // milliseconds without a keystroke before the tab is compiled again
const element = (id) => document.getElementById(id);

// ---- the compiler -------------------------------------------------------------------------------
// Two workers: one answers while one types, and the other compiles, which may take a second.
function compiler() {
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const waiting = new Map();
  let calls = 0;
  worker.onmessage = ({ data: { id, value } }) => {
    waiting.get(id)(value);
    waiting.delete(id);
  };
  worker.onerror = (error) => say(`The compiler did not start: ${error.message}`);
  return (call, ...args) =>
    new Promise((answer) => {
      waiting.set(++calls, answer);
      worker.postMessage({ id: calls, call, args });
    });
}

const ask = compiler();
let build = async (...call) => (build = compiler())(...call); // started when the first is ready

// ---- the language -------------------------------------------------------------------------------
const data = await (await fetch(new URL("data.json", import.meta.url))).json();
const TAGS = {
  type: tags.typeName,
  reducer: tags.function(tags.name),
  constant: tags.atom,
  comment: tags.comment,
  name: tags.variableName,
  size: tags.className,
  number: tags.number,
  string: tags.string,
  keyword: tags.keyword,
};
const terminals = data.terminals.map(([kind, pattern]) => [kind, new RegExp(`(?:${pattern})`, "y")]);
const keywords = new Set(data.keywords);

function token(stream) {
  if (stream.eatSpace()) return null;
  for (const [kind, pattern] of terminals) {
    pattern.lastIndex = stream.pos;
    const found = pattern.exec(stream.string);
    if (found) {
      stream.pos += found[0].length;
      return kind === "name" && keywords.has(found[0]) ? "keyword" : kind;
    }
  }
  stream.next();
  return null;
}

const op = StreamLanguage.define({ token, tokenTable: TAGS, languageData: { commentTokens: { line: "#" } } });
const colours = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.keyword, color: "var(--keyword)" },
    { tag: [tags.typeName, tags.className], color: "var(--type)" },
    { tag: [tags.function(tags.name), tags.function(tags.variableName)], color: "var(--call)" },
    { tag: [tags.number, tags.atom, tags.bool], color: "var(--number)" },
    { tag: tags.string, color: "var(--string)" },
    { tag: tags.comment, color: "var(--comment)", fontStyle: "italic" },
  ]),
);

// A line is not broken inside of an arrow.
const arrows = new MatchDecorator({ regexp: /->/g, decoration: Decoration.mark({ class: "arrow" }) });
const wrapping = [
  EditorView.lineWrapping,
  ViewPlugin.define((view) => ({
    decorations: arrows.createDeco(view),
    update(change) { this.decorations = arrows.updateDeco(change, this.decorations); },
  }), { decorations: (plugin) => plugin.decorations }),
];

// ---- findings under their lines -----------------------------------------------------------------
const setFindings = StateEffect.define();

// What stands between backticks is code.
function prose(text) {
  return text.split("`").map((part, i) => {
    if (i % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

class Finding extends WidgetType {
  constructor(finding, column) {
    super();
    Object.assign(this, { finding, column });
  }
  eq(other) {
    return JSON.stringify([other.finding, other.column]) === JSON.stringify([this.finding, this.column]);
  }
  toDOM(view) {
    const { code, message, help, fix, severity } = this.finding;
    const box = document.createElement("div");
    box.className = `finding ${severity}`;
    box.style.paddingLeft = `${Math.min(this.column, 16)}ch`;
    box.append(...prose(`${code ? `${code}: ` : ""}${message}`));
    if (help) {
      const line = box.appendChild(document.createElement("div"));
      line.className = "help";
      line.append("help: ", ...prose(help), " ");
      if (fix) {
        const button = line.appendChild(document.createElement("button"));
        button.textContent = "Apply";
        button.onclick = () => view.dispatch({ changes: { from: fix.start, to: fix.end, insert: fix.text } });
      }
    }
    return box;
  }
}

const findingLines = StateField.define({
  create: () => Decoration.none,
  update(shown, change) {
    shown = shown.map(change.changes);
    for (const effect of change.effects) {
      if (effect.is(setFindings)) {
        const widgets = effect.value.map((finding) => {
          const line = change.state.doc.lineAt(Math.min(finding.start, change.state.doc.length));
          const widget = new Finding(finding, finding.start - line.from);
          return Decoration.widget({ widget, block: true, side: 1 }).range(line.to);
        });
        shown = Decoration.set(widgets, true);
      }
    }
    return shown;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const hover = hoverTooltip(async (view, position) => {
  const text = await ask("hover", view.state.doc.toString(), position);
  if (!text) return null;
  const create = () => {
    const dom = document.createElement("div");
    dom.className = "hover";
    dom.textContent = text.replaceAll("```op\n", "").replaceAll("```", "").replaceAll("**", "").trim();
    return { dom };
  };
  return { pos: position, create, above: true };
});

// ---- the two panes ------------------------------------------------------------------------------
const language = new Compartment();
const output = new EditorView({
  parent: element("output"),
  extensions: [basicSetup, colours, language.of([]), EditorState.readOnly.of(true), EditorView.editable.of(false)],
});
const editor = new EditorView({
  parent: element("editor"),
  extensions: [
    basicSetup,
    op,
    colours,
    wrapping,
    findingLines,
    hover,
    EditorView.updateListener.of((update) => update.docChanged && edited()),
    EditorView.contentAttributes.of({ "aria-label": "The spec" }),
  ],
});

let tab = "kernel";
let changed = 0; // when the text was changed last
let checking = false;
let idle;

async function edited() {
  changed = performance.now();
  document.body.dataset.shown = "";
  clearTimeout(idle);
  if (checking) return; // what is asked next is the text as it is by then
  checking = true;
  let text;
  do {
    text = editor.state.doc.toString();
    const asked = changed;
    mark(JSON.parse(await ask("check", text)));
    document.body.dataset.answered = Math.round(performance.now() - asked);
    document.body.dataset.ready ??= Math.round(performance.now());
  } while (text !== editor.state.doc.toString());
  checking = false;
  clearTimeout(idle);
  idle = setTimeout(show, IDLE);
}

function mark(findings) {
  const diagnostics = findings.map((f) => ({
    from: Math.min(f.start, editor.state.doc.length),
    to: Math.min(Math.max(f.end, f.start + 1), editor.state.doc.length),
    severity: f.severity,
    message: f.message,
  }));
  editor.dispatch(setDiagnostics(editor.state, diagnostics), { effects: setFindings.of(findings) });
  const errors = findings.filter((f) => f.severity === "error").length;
  document.body.dataset.errors = errors;
  say(errors ? `${errors} error${errors > 1 ? "s" : ""}` : "No errors");
}

let showing = false;

async function show() {
  document.body.dataset.shown = "";
  if (showing) return; // it looks again when it is done
  showing = true;
  let asked, answer;
  do {
    const [text, sizes] = [editor.state.doc.toString(), element("sizes").value];
    asked = [tab, text, sizes];
    if (tab === "explain" && !sizes) asked[2] = element("sizes").value = await build("example", text);
    answer = JSON.parse(await build("show", text, asked[0], asked[2]));
  } while (asked.join() !== [tab, editor.state.doc.toString(), element("sizes").value].join());
  showing = false;
  print(asked[0], answer);
}

function print(shownTab, { text: shown, problem, language: name }) {
  element("output").classList.toggle("stale", problem !== undefined);
  element("problem").replaceChildren(...prose(problem ?? ""));
  if (problem === undefined) {
    const scroll = output.scrollDOM.scrollTop;
    output.dispatch({
      changes: { from: 0, to: output.state.doc.length, insert: shown },
      effects: language.reconfigure(name === "python" ? python() : [name === "op" ? op : [], wrapping]),
    });
    output.scrollDOM.scrollTop = scroll;
  }
  document.body.dataset.shown = shownTab;
}

function say(text) {
  element("status").textContent = text;
}

function load(text) {
  element("sizes").value = "";
  editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
}

// ---- tabs, examples, links ----------------------------------------------------------------------
function open(name) {
  tab = name;
  for (const button of document.querySelectorAll("#tabs button")) {
    button.setAttribute("aria-selected", button.dataset.tab === name);
  }
  element("call").hidden = name !== "explain";
  output.scrollDOM.scrollTop = 0;
}

for (const button of document.querySelectorAll("#tabs button")) button.onclick = () => (open(button.dataset.tab), show());
element("call").onsubmit = (event) => (event.preventDefault(), show());
for (const name of Object.keys(data.examples)) element("examples").add(new Option(name));
element("examples").onchange = ({ target }) => {
  if (!target.value) return load(shared);
  history.replaceState(null, "", `#example=${encodeURIComponent(target.value)}`);
  load(data.examples[target.value]);
};
element("share").onclick = async () => {
  history.replaceState(null, "", `#spec=${await packed(editor.state.doc.toString())}`);
  await navigator.clipboard?.writeText(location.href).catch(() => {});
  say("The address of this page now holds the spec");
};

async function through(stream, bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function packed(text) {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(code) {
  const bytes = Uint8Array.from(atob(code.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), bytes));
}

const fragment = new URLSearchParams(location.hash.slice(1));
const examples = Object.keys(data.examples);
const asked = fragment.get("example");
const first = examples.includes(asked) ? asked : examples[0];
element("examples").value = first;
const shared = fragment.get("spec") && (await unpacked(fragment.get("spec")).catch(() => ""));
open(fragment.get("tab") ?? "kernel");
if (shared) element("examples").add(new Option("from the link", "", true, true), 0);
load(shared || data.examples[first]);
