// Pictures through OpenAI's JavaScript client: node images.mjs URL FILE OTHER
//
// Draws, watches a drawing, and edits two files; prints the pictures in base64 and the kinds of events.
import { createReadStream } from "node:fs";
import OpenAI, { toFile } from "openai";

const [url, ...paths] = process.argv.slice(2);
const { images } = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const asked = { prompt: "a tree", size: "96x64", seed: 42 };
const image = () => Promise.all(paths.map((path) => toFile(createReadStream(path))));
const found = {};

async function watched(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return { kinds: events.map((e) => e.type), picture: events.at(-1).b64_json };
}

found.drawn = (await images.generate(asked)).data[0].b64_json;
found.streamed = await watched(await images.generate({ ...asked, stream: true, partial_images: 1 }));
found.edited = (await images.edit({ ...asked, image: await image() })).data[0].b64_json;
found.editedStream = await watched(await images.edit({ ...asked, image: await image(), stream: true }));
console.log(JSON.stringify(found));
