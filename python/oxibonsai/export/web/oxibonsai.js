// Runs a model that `oxibonsai export-web` has written, in a browser or in node.

import { ChatFormat } from "./chat.js";
import createCore from "./core.mjs";
import { Tokenizer } from "./tokenizers.min.mjs";

const FORMAT = 2;
// Tokens of a context that nobody has asked for.
const MOST_UNASKED = 2048;
// Of what is shown of a character whose bytes are not all there yet.
const UNFINISHED = "\uFFFD";
const MOST = 2 ** 31 - 1;
// Tokens of a prompt between two looks at what has arrived meanwhile.
const STEP = 128;

async function read(url, { integrity, signal } = {}) {
  signal?.throwIfAborted();
  if (url.protocol === "file:") return readFile(url, integrity);
  const response = await fetch(url, { integrity, signal });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

// In node, whose fetch() knows no files.
async function readFile(url, integrity) {
  const [{ readFile }, { createHash }] = await Promise.all([
    import("node:fs/promises"),
    import("node:crypto"),
  ]);
  const bytes = new Uint8Array(await readFile(url));
  const found = `sha256-${createHash("sha256").update(bytes).digest("base64")}`;
  if (integrity && found !== integrity) throw new Error(`${url} is not as it was exported`);
  return bytes;
}

const text = async (url, options) => new TextDecoder().decode(await read(url, options));
const json = async (url, options) => JSON.parse(await text(url, options));

// Lets the page, or the worker, take what has arrived meanwhile.
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

export async function load(folder = new URL(".", import.meta.url), options = {}) {
  const { context, onProgress, signal } = options;
  const whole = new URL(`${folder}`.replace(/\/?$/, "/"), globalThis.location?.href ?? import.meta.url);
  const at = (name) => new URL(name, whole);
  const description = await json(at("model.json"), { signal });
  if (description.format !== FORMAT)
    throw new Error(`model.json has format ${description.format}, and this module reads ${FORMAT}`);
  const size = context ?? Math.min(description.trained_context ?? MOST_UNASKED, MOST_UNASKED);
  checkWhole("context", size, 1, MOST - 64);
  const [tokenizerJson, tokenizerConfig, wasmBinary] = await Promise.all([
    json(at("tokenizer.json"), { signal }),
    json(at("tokenizer_config.json"), { signal }),
    read(new URL("core.wasm", import.meta.url), { signal }),
  ]);
  const core = await createCore({ wasmBinary });
  const storage = new core.Storage(description.bytes);
  let loaded = 0;
  for (const { file, integrity } of description.pieces) {
    const piece = await read(at(file), { integrity, signal });
    storage.bytes().set(piece, loaded); // a new view: memory may have grown
    loaded += piece.length;
    onProgress?.(loaded, description.bytes);
  }
  const model = new core.LanguageModel(description, storage, size);
  storage.delete(); // the model holds it
  return new Model(description, size, model, new Tokenizer(tokenizerJson, tokenizerConfig));
}

export class Model {
  #model;
  #tokenizer;
  #ends;
  #ranges;
  #chat;
  #busy = false;

  constructor(description, context, model, tokenizer) {
    this.name = description.name;
    this.context = context;
    this.sampling = Object.freeze({ ...description.sampling });
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#ends = new Set(description.end_tokens);
    this.#ranges = description.ranges;
    this.#chat = description.chat && new ChatFormat(description.chat);
  }

  get chats() {
    return Boolean(this.#chat);
  }

  get reasoning() {
    return this.#chat?.reasoning ?? null;
  }

  encode(text) {
    return this.#tokenizer.encode(text).ids;
  }

  decode(ids) {
    return this.#tokenizer.decode(ids, {
      skip_special_tokens: true,
      clean_up_tokenization_spaces: false,
    });
  }

  // The logits after these tokens, of a sequence of their own.
  logits(ids) {
    this.#checkIdle();
    if (typeof ids === "string" || !Array.from(ids).every((id) => isWhole(id, 0, MOST)))
      throw new Error("logits() takes a list of token ids: encode() makes one of a text");
    this.#model.run(ids.slice(this.#model.begin(ids)));
    return Float32Array.from(this.#model.logits());
  }

  // The text of a conversation that its answer follows.
  prompt(messages, templateVariables = {}) {
    if (!this.#chat) throw new Error(`${this.name} has no chat template: generate() continues a text`);
    return this.#chat.prompt(messages, templateVariables);
  }

  async *chat(messages, { templateVariables, ...options } = {}) {
    const prompt = this.prompt(messages, templateVariables); // with the special tokens that it takes
    yield* this.#follow(this.#tokenizer.encode(prompt, { add_special_tokens: false }).ids, options);
  }

  async *generate(prompt, options = {}) {
    yield* this.#follow(this.encode(prompt), options);
  }

  async *#follow(prompt, options) {
    const { maxTokens = 256, seed = randomSeed(), signal, onToken, ...given } = options;
    const sampling = { ...this.sampling };
    for (const [name, value] of Object.entries(given)) {
      if (!(name in sampling)) throw new Error(`there is no option ${name}`);
      checkSetting(name, value, this.#ranges[name]);
      sampling[name] = value;
    }
    checkWhole("maxTokens", maxTokens, 0, Number.MAX_SAFE_INTEGER);
    const [high, low] = words(seed);
    this.#checkIdle();
    this.#busy = true;
    try {
      const ids = [...prompt];
      let shown = this.decode(ids).length;
      if (ids.length >= this.context)
        throw new Error(`${ids.length} tokens leave no room for more in a context of ${this.context}`);
      let done = this.#model.begin(ids);
      for (let step = 0; step < maxTokens && ids.length < this.context; ++step) {
        do {
          await turn();
          signal?.throwIfAborted();
          this.#model.run(ids.slice(done, done + STEP));
          done = Math.min(done + STEP, ids.length);
        } while (done < ids.length);
        const token = this.#model.choose(sampling, high, low, step);
        if (this.#ends.has(token)) break;
        ids.push(token);
        onToken?.(token);
        const whole = this.decode(ids);
        if (whole.endsWith(UNFINISHED)) continue;
        const piece = whole.slice(shown);
        shown = whole.length;
        if (piece) yield piece;
      }
      const rest = this.decode(ids).slice(shown);
      if (rest) yield rest;
    } finally {
      this.#busy = false;
    }
  }

  close() {
    this.#model?.delete();
    this.#model = undefined; // the module's memory goes with the last reference to it
  }

  #checkIdle() {
    if (this.#busy) throw new Error("the model is generating: wait for the end, or load it twice");
    if (!this.#model) throw new Error("the model is closed");
  }
}

const isWhole = (value, least, most) =>
  Number.isInteger(value) && value >= least && value <= most;

function checkWhole(name, value, least, most) {
  if (!isWhole(value, least, most))
    throw new Error(`${name} is ${value}: give a whole number from ${least} to ${most}`);
}

// `is` says the range in words.
function checkSetting(name, value, { low, high, above, integer, is }) {
  const inside = typeof value === "number" && (above ? value > low : value >= low) && value <= high;
  if (!inside || (integer && !Number.isInteger(value)))
    throw new Error(`${name} is ${value}; it must be ${is}`);
}

// The high and the low half of a seed of 64 bits.
function words(seed) {
  if (typeof seed === "number" && !Number.isSafeInteger(seed))
    throw new Error(`the seed ${seed} is no exact number: give a large one as a string or a BigInt`);
  const whole = BigInt(seed);
  if (whole !== BigInt.asUintN(64, whole)) throw new Error(`the seed ${seed} is not within 64 bits`);
  return [Number(whole >> 32n), Number(whole & 0xffffffffn)];
}

function randomSeed() {
  return crypto.getRandomValues(new BigUint64Array(1))[0];
}
