// How marked reads and writes an answer: as Markdown without HTML, in time that grows with its length.

import { footnoteExtensions } from "./footnotes.js";
import { BLOCK_START, mathExtensions } from "./math.js";
import { Lexer, Parser, Renderer, Tokenizer } from "./vendor/marked.esm.js";

const MAX_DEPTH = 12; // of quotes, lists and emphasis, each within the other
const LONGEST = 4000; // characters within which emphasis and links must end
const SPECIAL = /[\\<![`*~_$\n]|https?:\/\//g; // where something other than text may begin

// A method that returns nothing leaves its text to the others, and at last to `inlineText`.
class PageTokenizer extends Tokenizer {
  depth = 0;

  // What a model writes as HTML is shown as it stands.
  html() {}
  tag() {}

  // What comes later changes nothing that stands before it: neither the address of a link nor,
  // by a line of dashes, a paragraph into a heading.
  def() {}
  lheading() {}

  // Neither mail addresses nor "www.": to look for them takes marked quadratic time.
  url(source) {
    return /^https?:\/\//.test(source) ? super.url(source) : undefined;
  }

  inlineText(source) {
    SPECIAL.lastIndex = /^[`~]+/.exec(source)?.[0].length ?? 1;
    const raw = source.slice(0, SPECIAL.exec(source)?.index);
    return { type: "text", raw, text: raw, escaped: false };
  }
}

for (const name of ["blockquote", "list", "emStrong", "del", "link"]) {
  const unbounded = Tokenizer.prototype[name];
  PageTokenizer.prototype[name] = function (...given) {
    if (this.depth >= MAX_DEPTH) return undefined;
    this.depth += 1;
    try {
      return unbounded.apply(this, given);
    } finally {
      this.depth -= 1;
    }
  };
}

class PageLexer extends Lexer {
  constructor(given) {
    super(given);
    // A formula on lines of its own ends the paragraph before it, as a fence does.
    const { rules } = this.tokenizer;
    const paragraph = rules.block.paragraph.source.replace("\\n(?!", `\\n(?!${BLOCK_START}|`);
    rules.block = { ...rules.block, paragraph: new RegExp(paragraph) };
  }

  // For each mark that opens emphasis, marked looks through the rest of the text.
  inlineTokens(source, tokens = []) {
    for (let at = 0; at < source.length; ) {
      const rest = source.length - at;
      const space = rest > LONGEST ? source.lastIndexOf(" ", at + LONGEST) + 1 : source.length;
      const end = space > at ? space : at + LONGEST;
      super.inlineTokens(source.slice(at, end), tokens);
      at = end;
    }
    return tokens;
  }
}

class PageRenderer extends Renderer {
  heading({ depth, tokens }) {
    // The page's own headings come first, so a model's begin at the third level.
    const tag = `h${Math.min(depth + 2, 6)}`;
    return `<${tag} class="level-${depth}">${this.parser.parseInline(tokens)}</${tag}>`;
  }

  link({ href, raw, tokens }) {
    return anchor(href, this.parser.parseInline(tokens)) ?? escaped(raw);
  }

  // Pictures become links too: to load one would tell its server who reads this.
  image({ href, raw, text }) {
    return anchor(href, escaped(text || href)) ?? escaped(raw);
  }

  listitem(item) {
    const kind = item.task ? ' class="task"' : "";
    return `<li${kind}>${this.parser.parse(item.tokens)}</li>\n`;
  }

  checkbox({ checked }) {
    return checked ? "☑ " : "☐ ";
  }
}

// Only to http and https: an address such as javascript: stays text.
function anchor(address, label) {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return null;
  return `<a href="${escaped(new URL(address).href)}">${label}</a>`;
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);
}

const math = {
  math: ({ text, displayed }) =>
    `<code class="math${displayed ? " display" : ""}">${escaped(text)}</code>`,
  formula: ({ text }) => `<p class="formula"><code class="math display">${escaped(text)}</code></p>`,
};

const footnotes = {
  noteMark: ({ name }) => `<sup>${escaped(name)}</sup>`,
  note({ name, tokens }) {
    return `<p class="note"><sup>${escaped(name)}</sup> ${this.parser.parseInline(tokens)}</p>`;
  },
};

const options = {
  gfm: true,
  breaks: true,
  tokenizer: new PageTokenizer(),
  renderer: new PageRenderer(),
  extensions: {
    block: [...mathExtensions.block, footnoteExtensions.block],
    inline: [...mathExtensions.inline, footnoteExtensions.inline],
    renderers: { ...math, ...footnotes },
    childTokens: {},
  },
};

// The blocks of a text; `raw` of each is its source.
export function readMarkdown(text) {
  return new PageLexer(options).lex(text);
}

// HTML of blocks, to be sanitised.
export function writeHtml(blocks) {
  return new Parser(options).parse(blocks);
}
