// Keeps the model off the page's thread. Messages in: load, generate, stop; out: loaded, progress,
// text, done, error.

import { load } from "./oxibonsai.js";

let model;
let stopping;

const tell = (type, facts = {}) => postMessage({ type, ...facts });

async function start({ context }) {
  model = await load(undefined, {
    context,
    onProgress: (bytes, all) => tell("progress", { bytes, all }),
  });
  tell("loaded", { name: model.name });
}

async function generate({ prompt, options }) {
  stopping = new AbortController();
  const begin = performance.now();
  let tokens = 0;
  const onToken = () => ++tokens;
  try {
    for await (const text of model.generate(prompt, { ...options, signal: stopping.signal, onToken }))
      tell("text", { text });
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
  }
  tell("done", { tokens, seconds: (performance.now() - begin) / 1000 });
}

const answers = { load: start, generate, stop: async () => stopping?.abort() };

onmessage = async ({ data }) => {
  try {
    await answers[data.type](data);
  } catch (error) {
    tell("error", { message: error.message });
  }
};
