// Shows Markdown: marked makes HTML of it, and of that DOMPurify lets through what a text is made of.

import "./vendor/purify.min.js"; // makes DOMPurify a global
import { coloured } from "./code_colours.js";
import { copyFrom, element } from "./dom.js";
import { readMarkdown, writeHtml } from "./markdown_rules.js";
import { spokenText, typeset } from "./math.js";
import { previewButton } from "./preview.js";
import { t } from "./words.js";

const MOST_FORMULAS = 1000; // of a text that are typeset; those after them are shown as they are written

// Nothing that loads, runs, styles, names or takes input.
DOMPurify.setConfig({
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["align", "class", "href", "start"],
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
});

// Shows a text that grows: blocks and items of lists whose source is unchanged keep their nodes, so
// that a selection and a scroll position inside them outlive the next token, and only what is new is
// sanitised. Each block is one child of `root`.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.text = "";
    this.blocks = [];
  }

  update(given) {
    const text = given.replace(/\r\n?/g, "\n");
    if (text === this.text) return;
    const from = text.startsWith(this.text) ? settled(this.blocks) : 0;
    const old = this.blocks.slice(from);
    this.blocks = this.blocks.slice(0, from).concat(readBlocks(text, old[0]?.start ?? 0));
    this.text = text;

    let keep = from;
    while (keep < this.blocks.length && this.blocks[keep].html === old[keep - from]?.html) keep += 1;
    const before = old[keep - from];
    const block = this.blocks[keep];
    if (before?.items && block?.list === before.list) {
      extend(this.root.children[keep], before.items, block.items);
      keep += 1;
    }
    while (this.root.childElementCount > keep) this.root.lastElementChild.remove();
    for (const added of this.blocks.slice(keep)) this.root.append(render(added));
    this.typesetAll();
  }

  typesetAll() {
    const shown = this.root.querySelectorAll(".katex").length;
    const waiting = this.root.querySelectorAll("code.math");
    [...waiting].slice(0, Math.max(0, MOST_FORMULAS - shown)).forEach(typeset);
  }

  // Text of the blocks from `first`; the last one counts once the text is complete.
  spokenFrom(first, complete) {
    const blocks = [...this.root.children].slice(first, complete ? undefined : -1);
    return blocks.map((block) => (block.matches(".code") ? t`Code.` : spokenText(block)));
  }
}

// How many blocks stay as they are, whatever is added to the text.
function settled(blocks) {
  let count = Math.max(0, blocks.length - 1);
  while (count > 0 && blocks[count].joined) count -= 1;
  return count;
}

// The blocks from a place in the text. One is joined to the block before it where more text may yet
// make it a part of that: without a blank line between them, or after a list.
function readBlocks(text, from) {
  const blocks = [];
  let start = from;
  let joined = false;
  for (const token of readMarkdown(text.slice(from))) {
    if (token.type === "space") {
      joined = Boolean(blocks.at(-1)?.items);
    } else {
      blocks.push({ ...written(token), start, joined });
      joined = token.type === "list" || !/\n[ \t]*\n$/.test(token.raw);
    }
    start += token.raw.length;
  }
  return blocks;
}

// The HTML of a block; of a list also that of each item, in a list of its own.
function written(token) {
  if (token.type !== "list") return { html: writeHtml([token]) };
  const list = writeHtml([{ ...token, items: [] }]);
  const items = token.items.map((item) => writeHtml([{ ...token, items: [item] }]));
  return { html: [list, ...items].join(""), list, items };
}

function render({ html, list, items }) {
  if (!items) return safeNode(html);
  const node = safeNode(list);
  extend(node, [], items);
  return node;
}

function extend(list, before, items) {
  let keep = 0;
  while (keep < items.length && items[keep] === before[keep]) keep += 1;
  while (list.childElementCount > keep) list.lastElementChild.remove();
  for (const item of items.slice(keep)) list.append(safeNode(item).firstElementChild);
}

// One node with nothing in it that the page would not have made itself.
export function safeNode(html) {
  const fragment = DOMPurify.sanitize(html);
  for (const link of fragment.querySelectorAll("a")) {
    link.setAttribute("rel", "noopener noreferrer nofollow");
    link.setAttribute("target", "_blank");
  }
  for (const pre of fragment.querySelectorAll("pre")) pre.replaceWith(code(pre.firstElementChild));
  for (const table of fragment.querySelectorAll("table")) frame(table);
  for (const formula of fragment.querySelectorAll("p.formula")) makeReachable(formula, t`Formula`);
  return fragment.childElementCount === 1 ? fragment.firstElementChild : element("p", {}, fragment);
}

function code(source) {
  const text = source.textContent.replace(/\n$/, "");
  const language = source.className.replace("language-", "").slice(0, 40);
  const button = element("button", { type: "button", class: "quiet" }, t`Copy`);
  button.addEventListener("click", () => copyFrom(button, text));
  const name = language ? t`Code, ${language}` : t`Code`;
  const pre = makeReachable(element("pre"), name);
  const colours = coloured(text, language);
  pre.append(element("code", {}, colours === null ? text : DOMPurify.sanitize(colours)));
  const head = element("div", { class: "code-head" }, element("span", {}, language || "code"));
  const block = element("div", { class: "code" }, head, pre);
  const preview = previewButton(text, language, block);
  head.append(...(preview ? [preview] : []), button);
  return block;
}

function frame(table) {
  for (const cell of table.querySelectorAll("th, td")) {
    cell.className = cell.getAttribute("align") ?? "left";
    cell.removeAttribute("align");
  }
  const around = makeReachable(element("div", { class: "table" }), t`Table`);
  table.replaceWith(around);
  around.append(table);
}

// What scrolls sideways must be within the keyboard's reach.
function makeReachable(node, name) {
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "region");
  node.setAttribute("aria-label", name);
  return node;
}
