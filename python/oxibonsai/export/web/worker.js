// Keeps the model off the page's thread. Messages in: load, chat, generate, stop; out: loaded,
// progress, text, done, error.

import { load } from "./oxibonsai.js";

let model;
let stopping;

const tell = (type, facts = {}) => postMessage({ type, ...facts });

async function start({ context }) {
  model = await load(undefined, {
    context,
    onProgress: (bytes, all) => tell("progress", { bytes, all }),
  });
  tell("loaded", { name: model.name, chats: model.chats, reasoning: model.reasoning });
}

async function pass(begin, options) {
  stopping = new AbortController();
  const started = performance.now();
  let tokens = 0;
  const onToken = () => ++tokens;
  try {
    for await (const text of begin({ ...options, signal: stopping.signal, onToken })) tell("text", { text });
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
  }
  const seconds = (performance.now() - started) / 1000;
  tell("done", { tokens, seconds, stopped: stopping.signal.aborted });
}

const answers = {
  load: start,
  chat: ({ messages, options }) => pass((all) => model.chat(messages, all), options),
  generate: ({ prompt, options }) => pass((all) => model.generate(prompt, all), options),
  stop: async () => stopping?.abort(),
};

onmessage = async ({ data }) => {
  try {
    await answers[data.type](data);
  } catch (error) {
    tell("error", { message: error.message });
  }
};
