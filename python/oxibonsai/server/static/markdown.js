// Markdown blocks to nodes: headings, lists, quotes, tables, fenced code, paragraphs.

import { copyFrom, element } from "./dom.js";
import { renderInline } from "./inline.js";

const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))([^`\n]*)$/; // no run can be cut in two ways
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?$/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*){0,99}\|?[ \t]*$/;
const MAX_DEPTH = 12;

// Shows a text that grows: blocks whose source is unchanged keep their nodes, so that a selection
// and a scroll position inside them outlive the next token.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.sources = [];
  }

  update(text) {
    const blocks = splitBlocks(text.replaceAll("\r\n", "\n").split("\n"));
    const sources = blocks.map((block) => `${block.type}\n${block.lines.join("\n")}`);
    const same = sources.findIndex((source, i) => source !== this.sources[i]);
    const keep = same === -1 ? sources.length : same;
    while (this.root.childElementCount > keep) this.root.lastElementChild.remove();
    for (const block of blocks.slice(keep)) this.root.append(renderBlock(block, 0));
    this.sources = sources;
  }

  // Text of the blocks from `first`; the last one counts once the text is complete.
  spokenFrom(first, complete) {
    const blocks = [...this.root.children].slice(first, complete ? undefined : -1);
    return blocks.map((block) => (block.matches(".code") ? "Code." : block.textContent));
  }
}

function splitBlocks(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [type, end] = blockAt(lines, at);
    blocks.push({ type, lines: lines.slice(at, end) });
    at = end;
  }
  return blocks;
}

function blockAt(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return ["code", fenceEnd(lines, at)];
  if (HEADING.test(line)) return ["heading", at + 1];
  if (RULE.test(line)) return ["rule", at + 1];
  if (QUOTE.test(line)) return ["quote", endOf(lines, at, (next) => QUOTE.test(next))];
  if (ITEM.test(line)) return ["list", listEnd(lines, at)];
  if (isTable(lines, at)) return ["table", endOf(lines, at + 1, (next) => next.includes("|"))];
  return ["paragraph", endOf(lines, at, (next, i) => !startsBlock(lines, i))];
}

function endOf(lines, at, belongs) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && belongs(lines[end], end)) end += 1;
  return end;
}

function startsBlock(lines, at) {
  const line = lines[at];
  const item = ITEM.exec(line);
  // "2024. was" inside a paragraph is no list, unlike "1. one"; neither is a lone dash.
  const startsList = item && item[3] && (!/^\d/.test(item[2]) || parseInt(item[2], 10) === 1);
  const plain = !FENCE.test(line) && !HEADING.test(line) && !RULE.test(line) && !QUOTE.test(line);
  return !plain || startsList || isTable(lines, at);
}

function isTable(lines, at) {
  const rule = lines[at + 1];
  if (!lines[at].includes("|") || !rule?.includes("-") || !TABLE_RULE.test(rule)) return false;
  return cells(lines[at]).length === cells(rule).length;
}

function fenceEnd(lines, at) {
  const fence = FENCE.exec(lines[at])[1];
  let end = at + 1;
  while (end < lines.length && !closesFence(lines[end], fence)) end += 1;
  return Math.min(end + 1, lines.length);
}

function closesFence(line, fence) {
  const trimmed = line.trim();
  return trimmed.length >= fence.length && trimmed === fence[0].repeat(trimmed.length);
}

// A list goes on over blank lines as long as an item or an indented line follows.
function listEnd(lines, at) {
  const indent = ITEM.exec(lines[at])[1].length;
  const ordered = isOrdered(lines[at]);
  let end = at + 1;
  while (end < lines.length) {
    let next = end;
    while (next < lines.length && !lines[next].trim()) next += 1;
    if (next === lines.length) break;
    const deeper = indentOf(lines[next]) > indent;
    const sibling = !RULE.test(lines[next]) && ITEM.test(lines[next]);
    if (sibling && !deeper && isOrdered(lines[next]) !== ordered) break;
    const lazy = next === end && !startsBlock(lines, next);
    if (!deeper && !sibling && !lazy) break;
    end = FENCE.test(lines[next]) ? fenceEnd(lines, next) : next + 1;
  }
  return end;
}

const isOrdered = (line) => /\d/.test(ITEM.exec(line)[2]);
const indentOf = (line) => line.length - line.trimStart().length;

function renderBlock({ type, lines }, depth) {
  switch (type) {
    case "code":
      return code(lines);
    case "heading":
      return heading(lines[0]);
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, nested(lines.map((l) => QUOTE.exec(l)[1]), depth));
    case "list":
      return list(lines, depth);
    case "table":
      return table(lines);
    default:
      return element("p", {}, renderInline(lines.map((l) => l.trim()).join("\n")));
  }
}

function nested(lines, depth) {
  const out = document.createDocumentFragment();
  if (depth >= MAX_DEPTH) {
    out.append(lines.join("\n"));
    return out;
  }
  for (const block of splitBlocks(lines)) out.append(renderBlock(block, depth + 1));
  return out;
}

function code(lines) {
  const [, fence, info] = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && closesFence(lines.at(-1), fence);
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const language = info.trim().split(/\s/, 1)[0].slice(0, 40);
  const button = element("button", { type: "button", class: "quiet" }, "Copy");
  button.addEventListener("click", () => copyFrom(button, text));
  const name = language ? `Code, ${language}` : "Code";
  // It scrolls sideways, so the keyboard must be able to reach it.
  const pre = element("pre", { tabindex: "0", role: "region", "aria-label": name });
  pre.append(element("code", {}, text));
  const head = element("div", { class: "code-head" }, element("span", {}, language || "code"));
  head.append(button);
  return element("div", { class: "code" }, head, pre);
}

function heading(line) {
  const [, marks, text] = HEADING.exec(line);
  // The page's own headings come first, so a model's begin at the third level.
  const level = Math.min(marks.length + 2, 6);
  const title = text.replace(/[ \t]+#+[ \t]*$/, "");
  return element(`h${level}`, { class: `level-${marks.length}` }, renderInline(title));
}

function list(lines, depth) {
  const items = [];
  const indent = ITEM.exec(lines[0])[1].length;
  let fence = null;
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (!fence && item && item[1].length <= indent + 1 && !RULE.test(line)) {
      items.push({ width: item[1].length + item[2].length + 1, lines: [item[3] ?? ""] });
      continue;
    }
    const opened = FENCE.exec(line.trim());
    if (fence ? closesFence(line, fence) : opened) fence = fence ? null : opened[1];
    const { width, lines: own } = items.at(-1);
    own.push(line.slice(Math.min(width, indentOf(line))));
  }
  const ordered = isOrdered(lines[0]);
  const start = parseInt(ITEM.exec(lines[0])[2], 10);
  const node = element(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {});
  for (const { lines: own } of items) node.append(listItem(own, depth));
  return node;
}

function listItem(lines, depth) {
  const content = nested(lines, depth);
  const first = content.firstElementChild;
  // A tight item reads as one line, so its first paragraph gives up its margins.
  if (first?.localName === "p") first.replaceWith(...first.childNodes);
  return element("li", {}, content);
}

function table(lines) {
  const sides = cells(lines[1]).map((cell) => {
    const right = cell.endsWith(":");
    return right ? (cell.startsWith(":") ? "center" : "right") : "left";
  });
  const row = (line, tag) => {
    const values = cells(line);
    const made = sides.map((side, i) => element(tag, { class: side }, renderInline(values[i] ?? "")));
    return element("tr", {}, ...made);
  };
  const head = element("thead", {}, row(lines[0], "th"));
  const body = element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")));
  const attributes = { class: "table", tabindex: "0", role: "region", "aria-label": "Table" };
  return element("div", attributes, element("table", {}, head, body));
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
