// Markdown within a line: code, emphasis, links. Everything becomes nodes; what is not understood
// stays the text it was. Searches that failed are remembered, so no input takes quadratic time.

import { element } from "./dom.js";

const TAGS = { "***": ["strong", "em"], "**": ["strong"], "*": ["em"], "~~": ["del"] };
Object.assign(TAGS, { "___": ["strong", "em"], "__": ["strong"], "_": ["em"] });
const DELIMITERS = ["***", "**", "*", "___", "__", "_", "~~"];
const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE_URL = /https?:\/\/[^\s<>"'`]{1,2000}/y;
const ANGLE_URL = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const LINK = /!?\[([^\]\n]{0,1000})\]\(\s{0,9}<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500})?)>?(?:\s{1,9}"[^"\n]{0,500}")?\s{0,9}\)/y;
const MAX_DEPTH = 12;

export function renderInline(text, depth = 0) {
  const out = document.createDocumentFragment();
  if (depth > MAX_DEPTH) {
    out.append(text);
    return out;
  }
  const missing = new Set();
  let plainFrom = 0;
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const special = SPECIAL.exec(text);
    if (!special) break;
    at = special.index;
    const found = construct(text, at, missing, depth);
    if (!found) {
      at += 1;
      continue;
    }
    if (plainFrom < at) out.append(text.slice(plainFrom, at));
    out.append(found.node);
    at = plainFrom = found.end;
  }
  if (plainFrom < text.length) out.append(text.slice(plainFrom));
  return out;
}

function construct(text, at, missing, depth) {
  switch (text[at]) {
    case "\n":
      return { node: element("br"), end: at + 1 };
    case "\\":
      return escaped(text, at);
    case "`":
      return codeSpan(text, at, missing);
    case "<":
      return angleLink(text, at);
    case "[":
    case "!":
      return link(text, at, depth);
    case "h":
      return bareLink(text, at);
    default:
      return emphasis(text, at, missing, depth);
  }
}

function escaped(text, at) {
  const next = text[at + 1];
  if (!next || !PUNCTUATION.test(next)) return null;
  return { node: document.createTextNode(next), end: at + 2 };
}

function codeSpan(text, at, missing) {
  const length = runLength(text, at);
  const run = "`".repeat(length);
  // A run that closes nothing is text as a whole, not a shorter run and a rest.
  const literal = { node: document.createTextNode(run), end: at + length };
  if (missing.has(run)) return literal;
  let close = at + length;
  while ((close = text.indexOf(run, close)) !== -1) {
    const closing = runLength(text, close);
    if (closing === length) {
      const code = text.slice(at + length, close).replaceAll("\n", " ");
      const padded = code.startsWith(" ") && code.endsWith(" ") && code.trim();
      return { node: element("code", {}, padded ? code.slice(1, -1) : code), end: close + length };
    }
    close += closing;
  }
  missing.add(run);
  return literal;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

function emphasis(text, at, missing, depth) {
  const delimiter = DELIMITERS.find((d) => text.startsWith(d, at));
  if (!delimiter || missing.has(delimiter)) return null;
  const inside = at + delimiter.length;
  const word = delimiter[0] === "_";
  if (!text[inside] || /\s/.test(text[inside])) return null;
  if (word && at > 0 && /[\p{L}\p{N}_]/u.test(text[at - 1])) return null;
  let close = inside;
  while ((close = text.indexOf(delimiter, close + 1)) !== -1) {
    const run = runLength(text, close);
    if (closes(text, close, run, delimiter)) {
      close += run - delimiter.length;
      const [outer, inner] = TAGS[delimiter];
      const content = renderInline(text.slice(inside, close), depth + 1);
      const node = element(outer, {}, inner ? element(inner, {}, content) : content);
      return { node, end: close + delimiter.length };
    }
    close += run - 1;
  }
  missing.add(delimiter);
  return null;
}

function closes(text, at, run, delimiter) {
  if (/[\s\\]/.test(text[at - 1])) return false;
  // The three of **a *b*** close both, the outer with its end; other runs are another pair's.
  if (run !== delimiter.length && run !== 3) return false;
  return delimiter[0] !== "_" || !/[\p{L}\p{N}]/u.test(text[at + run] ?? "");
}

function angleLink(text, at) {
  ANGLE_URL.lastIndex = at;
  const match = ANGLE_URL.exec(text);
  const node = match && anchor(match[1], match[1]);
  return node && { node, end: at + match[0].length };
}

function link(text, at, depth) {
  LINK.lastIndex = at;
  const match = LINK.exec(text);
  if (!match) return null;
  // Pictures become links too: to load one would tell its server who reads this.
  const label = match[1] ? renderInline(match[1], depth + 1) : match[2];
  const node = anchor(match[2], label);
  return node && { node, end: at + match[0].length };
}

function bareLink(text, at) {
  if (at > 0 && /[\p{L}\p{N}]/u.test(text[at - 1])) return null;
  BARE_URL.lastIndex = at;
  const match = BARE_URL.exec(text);
  if (!match) return null;
  let url = match[0].replace(/[.,;:!?*_~]{1,9}$/, "");
  // A bracket that was opened before the address is not part of it.
  if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
  const node = anchor(url, url);
  return node && { node, end: at + url.length };
}

// Only to http and https: an address such as javascript: stays text.
function anchor(address, label) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  const attributes = { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" };
  return element("a", attributes, label);
}
