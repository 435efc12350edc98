// Renders chat templates as an exported folder does: node render_templates.mjs CHAT.JS < requests.
// A request is {source, messages, variables}; its answer is {text} or {error}.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { ChatFormat } = await import(pathToFileURL(process.argv[2]));

function answer({ template, messages, variables }) {
  try {
    return { text: new ChatFormat(template).prompt(messages, variables) };
  } catch (error) {
    return { error: error.message };
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(answer)));
