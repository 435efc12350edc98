// Runs an exported folder: node run_exported.mjs FOLDER < requests; answers on standard output.
// A request is {prompt, options} for a text, {messages, options} for an answer, {ids} for the logits
// after them, or {decode} for the text of ids.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { load } = await import(new URL("oxibonsai.js", pathToFileURL(`${process.argv[2]}/`)));
const model = await load();

async function whole(pieces) {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}

async function answer({ prompt, messages, options, ids, decode }) {
  try {
    if (decode) return { text: model.decode(decode) };
    if (ids) return { logits: Buffer.from(model.logits(ids).buffer).toString("base64") };
    if (messages) return { text: await whole(model.chat(messages, options)) };
    return { ids: model.encode(prompt), text: await whole(model.generate(prompt, options)) };
  } catch (error) {
    return { error: error.message };
  }
}

const answers = [];
for (const request of JSON.parse(readFileSync(0, "utf8"))) answers.push(await answer(request));
console.log(JSON.stringify(answers));
