// Footnotes: a mark in the text, [^name], and a line of its own that begins with [^name]: and says more.

const MARK = /^\[\^([^\]\s^]{1,40})\](?!:)/;
const NAME = String.raw` {0,3}\[\^([^\]\s^]{1,40})\]:[ \t]+`;
// Its line, and those after it up to a blank one or the next note.
const NOTE = new RegExp(`^${NAME}([^\\n]+(?:\\n(?!${NAME}|[ \\t]*(?:\\n|$))[^\\n]+){0,50})(?:\\n+|$)`);

// marked's extension. Neither leads to the other: what a model writes names nothing on the page.
export const footnoteExtensions = {
  block(source) {
    const found = NOTE.exec(source);
    if (!found) return undefined;
    const [raw, name, text] = found;
    return { type: "note", raw, name, tokens: this.lexer.inline(text) };
  },
  inline(source) {
    const found = MARK.exec(source);
    return found ? { type: "noteMark", raw: found[0], name: found[1] } : undefined;
  },
};
