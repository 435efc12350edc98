// The server's API. Addresses are relative to the page, so that a prefix in front of it works.

import { t } from "./words.js";

export class ApiError extends Error {
  constructor(message, { status = 0, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds
  }
}

export class ConnectionError extends ApiError {}

// The connection ended in order, but before the answer did.
export class EndedError extends ConnectionError {}

// The models, each with what it makes (text, image or embeddings) and its state as llama-server names it.
export async function listModels(key) {
  const answer = await send("v1/models", { headers: headers(key) });
  const { data } = await answer.json();
  return data.map(({ id, status, architecture }) => ({
    id,
    makes: architecture?.output_modalities?.[0] ?? "text",
    state: status?.failed ? "failed" : status?.value,
  }));
}

// Whether the server loads its models on demand.
export async function isRouter(key) {
  return (await properties("props", key))?.role === "router";
}

// Properties of a model as llama-server has them; null where the server doesn't tell.
export function describeModel(model, key) {
  return properties(`props?${new URLSearchParams({ model })}`, key);
}

async function properties(address, key) {
  try {
    const answer = await send(address, { headers: headers(key) });
    return await answer.json();
  } catch {
    return null; // What is not known is not shown; a chat needs none of it.
  }
}

export async function setLoaded(model, load, key) {
  await send(`models/${load ? "load" : "unload"}`, {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ model }),
  });
}

// The tools of MCP servers that the model may be offered; none where the server has none, or lets only
// other keys call them.
export async function listTools(key) {
  try {
    const answer = await send("tools", { headers: headers(key) });
    const tools = await answer.json();
    return Array.isArray(tools) ? tools.filter((tool) => tool?.definition?.function?.name) : [];
  } catch {
    return [];
  }
}

// Calls a tool; returns the text for the model, which says so where the tool failed.
export async function callTool(tool, params, { key, signal }) {
  const answer = await send("tools", {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ tool, params }),
    signal,
  });
  const result = await answer.json();
  return result.plain_text_response ?? JSON.stringify(result);
}

// Yields the chunks of a streamed answer; returns once it is whole, throws where it is not. The server
// goes on with it when the page is left, until `cancelAnswer`.
export async function* streamChat(body, { key, signal }) {
  const asked = { ...body, stream: true, background: true, stream_options: { include_usage: true } };
  const answer = await send("v1/chat/completions", {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify(asked),
    signal,
  });
  yield* chunksOf(answer);
}

// The same of an answer on its way, or one that has ended lately, from its first chunk on.
export async function* joinChat(id, { key, signal }) {
  const address = `v1/chat/completions/${encodeURIComponent(id)}/stream`;
  yield* chunksOf(await send(address, { headers: headers(key), signal }));
}

// Ends an answer on its way. That it can't be told so is no concern of the reader's.
export function cancelAnswer(id, key) {
  const address = `v1/chat/completions/${encodeURIComponent(id)}/cancel`;
  send(address, { method: "POST", headers: headers(key), keepalive: true }).catch(() => {});
}

async function* chunksOf(answer) {
  let finished = false;
  for await (const data of events(answer.body)) {
    if (data === "[DONE]") break;
    const chunk = parseChunk(data);
    finished ||= Boolean(chunk.choices?.[0]?.finish_reason);
    yield chunk;
  }
  if (!finished) throw new EndedError(t`The connection ended before the answer did.`);
}

// Draws a picture, about the references where there are any; yields previews, then the picture.
export async function* drawPicture(wanted, references, { key, signal }) {
  const fields = { ...wanted, stream: true, partial_images: 3 };
  let [route, type, body] = ["generations", { "Content-Type": "application/json" }, JSON.stringify(fields)];
  if (references.length) {
    [route, type, body] = ["edits", {}, new FormData()];
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    references.forEach(({ blob }, i) => body.append("image[]", blob, `${i}.png`));
  }
  const options = { method: "POST", headers: { ...headers(key), ...type }, body, signal };
  const answer = await send(`v1/images/${route}`, options);
  let drawn = false;
  for await (const data of events(answer.body)) {
    const event = parseChunk(data);
    drawn ||= event.type.endsWith(".completed");
    yield event;
  }
  if (!drawn) throw new EndedError(t`The connection ended before the picture was drawn.`);
}

// What went wrong, for a reader.
export function describe(error) {
  if (!(error instanceof ApiError)) return t`The connection to the server was lost.`;
  switch (error.status) {
    case 401:
      return t`The server wants an API key.`;
    case 429:
      return `${t`Too many requests.`} ${when(error.retryAfter)}`;
    case 503:
      return `${t`The server is busy or not ready yet.`} ${when(error.retryAfter)}`;
    default:
      return error.message;
  }
}

function when(seconds) {
  if (seconds === null) return t`Try again in a moment.`;
  if (seconds === 1) return t`Try again in 1 second.`;
  if (seconds < 90) return t`Try again in ${seconds} seconds.`;
  return t`Try again in ${Math.ceil(seconds / 60)} minutes.`;
}

export const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

async function send(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ConnectionError(t`The server can't be reached.`);
  }
  if (answer.ok) return answer;
  const { status } = answer;
  const retryAfter = readRetryAfter(answer.headers.get("Retry-After"));
  let message = t`The server answered with status ${status}.`;
  try {
    const { error } = await answer.json();
    if (error?.message) message = t`The server says (${status}): ${error.message}`;
  } catch {
    // An answer of something in between, such as a proxy, is no JSON; its status must do.
  }
  throw new ApiError(message, { status, retryAfter });
}

// Seconds, from either form that the header has: a number, or a date.
function readRetryAfter(value) {
  if (!value) return null;
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(1, Math.ceil(seconds)) : null;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await readFrom(reader);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    // Also when the reader of these events leaves early.
    reader.cancel().catch(() => {});
  }
}

async function readFrom(reader) {
  try {
    return await reader.read();
  } catch {
    throw new ConnectionError(t`The connection to the server was lost.`);
  }
}

function parseChunk(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError(t`The server sent something that is not part of an answer.`);
  }
  if (chunk.error) {
    const said = chunk.error.message ?? String(chunk.error);
    throw new ApiError(t`The server broke off: ${said}`);
  }
  return chunk;
}
