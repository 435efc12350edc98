// The page's words in the language that the browser asks for; a key is the English text. Names of
// parameters and what the server says stay as they are.

import german from "./words_de.js";
import french from "./words_fr.js";

const TABLES = { en: {}, de: german, fr: french };
const wanted = navigator.languages.map((tag) => tag.split("-")[0].toLowerCase());
export const language = wanted.find((tag) => Object.hasOwn(TABLES, tag)) ?? "en";
const table = TABLES[language];

const ATTRIBUTES = ["aria-label", "placeholder", "title", "alt"];

// t`Delete “${title}”?` is known as "Delete “{0}”?".
export function t(strings, ...values) {
  const key = strings.reduce((text, part, i) => `${text}{${i - 1}}${part}`);
  return (table[key] ?? key).replace(/\{(\d+)\}/g, (_, i) => values[i]);
}

// The words that stand in the document and in its templates.
export function translatePage() {
  document.documentElement.lang = language;
  const templates = [...document.querySelectorAll("template")].map(({ content }) => content);
  for (const root of [document.body, ...templates]) translate(root);
}

function translate(root) {
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const words = node.data.trim();
    const found = table[words.replace(/\s+/g, " ")];
    if (found) node.data = node.data.replace(words, () => found);
  }
  for (const name of ATTRIBUTES) {
    for (const node of root.querySelectorAll(`[${name}]`)) {
      const found = table[node.getAttribute(name)];
      if (found) node.setAttribute(name, found);
    }
  }
}
