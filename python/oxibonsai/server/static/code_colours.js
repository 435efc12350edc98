// Colours in code, of the languages that highlight.js names without a guess.

import hljs from "./vendor/highlight.min.js";

const LONGEST = 20_000; // characters; a longer text stays plain, since colouring it takes long

// HTML of the code with spans of classes, to be sanitised; null where it stays plain.
export function coloured(text, language) {
  if (text.length > LONGEST || !hljs.getLanguage(language)) return null;
  return hljs.highlight(text, { language, ignoreIllegals: true }).value;
}
