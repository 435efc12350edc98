// Pictures in every form that OpenAI's and Anthropic's JavaScript clients have; prints one JSON object.
// Usage: node pictures.mjs URL PICTURE
import { createReadStream, readFileSync } from "node:fs";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const [url, path] = process.argv.slice(2);
const base64 = readFileSync(path).toString("base64");
const data = `data:image/png;base64,${base64}`;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const model = "served";
const text = "What is this?";
const found = {};

const chat = async (image) =>
  (await openai.chat.completions.create({
    model, temperature: 0, max_tokens: 6, seed: 1,
    messages: [{ role: "user", content: [...image, { type: "text", text }] }],
  })).usage.prompt_tokens;
const respond = async (image) =>
  (await openai.responses.create({
    model, temperature: 0, max_output_tokens: 6,
    input: [{ role: "user", content: [...image, { type: "input_text", text }] }],
  })).usage.input_tokens;
const message = async (image) => {
  const { usage } = await anthropic.messages.create({
    model, temperature: 0, max_tokens: 6,
    messages: [{ role: "user", content: [...image, { type: "text", text }] }],
  });
  return usage.input_tokens + usage.cache_read_input_tokens;
};

const file = await openai.files.create({ file: createReadStream(path), purpose: "vision" });
found.plain = [await chat([]), await respond([]), await message([])];
found.seen = [
  await chat([{ type: "image_url", image_url: { url: data, detail: "high" } }]),
  await respond([{ type: "input_image", image_url: data, detail: "auto" }]),
  await respond([{ type: "input_image", file_id: file.id, detail: "auto" }]),
  await message([{ type: "image", source: { type: "base64", media_type: "image/png", data: base64 } }]),
];
let streamed = 0;
const stream = await openai.chat.completions.create({
  model, stream: true, stream_options: { include_usage: true }, max_tokens: 3,
  messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: data } }, { type: "text", text }] }],
});
for await (const chunk of stream) streamed = chunk.usage?.prompt_tokens ?? streamed;
found.seen.push(streamed);
console.log(JSON.stringify(found));
