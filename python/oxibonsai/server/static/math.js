// Formulas: where a text has them, and KaTeX's picture of each.

import "./vendor/katex.min.js"; // makes katex a global

// The delimiters that models write: $…$ and \(…\) within a line, $$…$$ and \[…\] on their own. A
// formula holds no blank line, so that half of one takes nothing of what comes after it. Each
// expression passes over a text once: after a backslash comes any character but a delimiter's.
const DISPLAYED = [
  String.raw`\$\$((?:[^\\$\n]|\\[^]|\n(?![ \t]*\n)|\$(?!\$)){1,8000})\$\$`,
  String.raw`\\\[((?:[^\\\n]|\\[^[\]]|\n(?![ \t]*\n)){1,8000})\\\]`,
].join("|");
// Environments that are displayed without delimiters, as LaTeX has them.
const ENVIRONMENT_NAME = String.raw`(?:align|alignat|equation|gather)\*?`;
const ENVIRONMENT =
  String.raw`\\begin\{(${ENVIRONMENT_NAME})\}` +
  String.raw`(?:[^\\\n]|\\(?!end\{\1\})[^]|\n(?![ \t]*\n)){1,8000}\\end\{\1\}`;
const WITHIN = [
  // As Pandoc has it, so that "$5 and $10" are prices: no space inside, no digit after.
  String.raw`\$(?![\s$])((?:[^\\$\n]|\\[^\n])*(?:[^\\$\s]|\\[^\n]))\$(?!\d)`,
  String.raw`\\\(((?:[^\\]|\\[^()]){1,8000})\\\)`,
].join("|");
// Groups in each other, as KaTeX's parser has them (a fraction is two): Chromium lays out 200 in 0.1 s
// and freezes or crashes at 400.
const MOST_NESTED = 100;
// Expansions of macros in any formula, and characters of one that defines its own, all told: each
// expansion may be as long as the formula.
const MOST_EXPANDED = 500;
const MOST_EXPANDED_CHARACTERS = 10_000;
const DEFINITION = /\\(?:[egx]?def|(?:re)?newcommand|providecommand)(?![A-Za-z])/;
const BLOCK = new RegExp(`^ {0,3}(?:${DISPLAYED})[ \\t]*(?:\\n+|$)`);
const ENVIRONMENT_BLOCK = new RegExp(`^ {0,3}(?:${ENVIRONMENT})[ \\t]*(?:\\n+|$)`);
const DISPLAYED_INLINE = new RegExp(`^(?:${DISPLAYED})`);
const INLINE = new RegExp(`^(?:${WITHIN})`);

// Where a line can begin a formula of its own, for the rule that ends a paragraph.
export const BLOCK_START = String.raw` {0,3}(?:\$\$|\\\[|\\begin\{${ENVIRONMENT_NAME}\})`;

const mathOf = (found) => (found[1] ?? found[2]).trim();

// marked's extension: a token of each formula, written as code that `typeset` finds again.
export const mathExtensions = {
  block: [
    (source) => {
      const found = BLOCK.exec(source);
      if (found) return { type: "formula", raw: found[0], text: mathOf(found) };
      const environment = ENVIRONMENT_BLOCK.exec(source);
      return environment ? { type: "formula", raw: environment[0], text: environment[0].trim() } : undefined;
    },
  ],
  inline: [
    (source) => {
      const displayed = DISPLAYED_INLINE.exec(source);
      const found = displayed ?? INLINE.exec(source);
      if (!found) return undefined;
      return { type: "math", raw: found[0], text: mathOf(found), displayed: Boolean(displayed) };
    },
  ],
};

// Whether more groups stand in each other than are laid out.
function isTooDeep(tree) {
  const open = [[tree, 0]];
  while (open.length > 0) {
    const [node, depth] = open.pop();
    if (depth > MOST_NESTED) return true;
    const within = node.type ? depth + 1 : depth; // lists and sizes are no groups
    for (const [key, value] of Object.entries(node)) {
      if (key !== "loc" && value && typeof value === "object") open.push([value, within]);
    }
  }
  return false;
}

function mostExpanded(text) {
  const most = DEFINITION.test(text) ? MOST_EXPANDED_CHARACTERS / text.length : MOST_EXPANDED;
  return Math.min(MOST_EXPANDED, Math.floor(most));
}

// Replaces a formula's source by its picture; a source that is none, or one that would keep the
// browser busy for long, stays as it was written.
export function typeset(code) {
  const text = code.textContent;
  const displayMode = code.classList.contains("display");
  const picture = document.createElement("span");
  const options = {
    displayMode,
    throwOnError: true,
    trust: false, // neither links nor pictures
    strict: "ignore",
    maxExpand: mostExpanded(text),
    maxSize: 20,
  };
  try {
    if (isTooDeep(katex.__parse(text, options))) throw new RangeError("nested too deeply");
    katex.render(text, picture, options);
  } catch {
    code.removeAttribute("class");
    return;
  }
  code.replaceWith(picture.firstElementChild);
}

// A copy of a node in which each formula is its source again, as a screen reader can say it.
export function spokenText(node) {
  const copy = node.cloneNode(true);
  for (const formula of copy.querySelectorAll(".katex")) {
    formula.replaceWith(formula.querySelector("annotation")?.textContent ?? "");
  }
  return copy.textContent;
}
