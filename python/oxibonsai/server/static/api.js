// The server's API. Addresses are relative to the page, so that a prefix in front of it works.

export class ApiError extends Error {
  constructor(message, { status = 0, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds
  }
}

// The models that write text, each with its state as llama-server names it.
export async function listModels(key) {
  const answer = await send("v1/models", { headers: headers(key) });
  const { data } = await answer.json();
  const writes = ({ architecture }) => architecture?.output_modalities?.includes("text") ?? true;
  return data.filter(writes).map(({ id, status }) => ({ id, state: status?.failed ? "failed" : status?.value }));
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

// Yields the chunks of a streamed answer; returns once it is whole, throws where it is not.
export async function* streamChat(body, { key, signal }) {
  const answer = await send("v1/chat/completions", {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let finished = false;
  for await (const data of events(answer.body)) {
    if (data === "[DONE]") break;
    const chunk = parseChunk(data);
    finished ||= Boolean(chunk.choices?.[0]?.finish_reason);
    yield chunk;
  }
  if (!finished) throw new ApiError("The connection ended before the answer did.");
}

// What went wrong, for a reader.
export function describe(error) {
  if (!(error instanceof ApiError)) return "The connection to the server was lost.";
  switch (error.status) {
    case 401:
      return "The server wants an API key. Enter it in the settings.";
    case 429:
      return `Too many requests. ${when(error.retryAfter)}`;
    case 503:
      return `The server is busy or not ready yet. ${when(error.retryAfter)}`;
    default:
      return error.message;
  }
}

function when(seconds) {
  if (seconds === null) return "Try again in a moment.";
  if (seconds < 90) return `Try again in ${seconds} second${seconds === 1 ? "" : "s"}.`;
  return `Try again in ${Math.ceil(seconds / 60)} minutes.`;
}

export const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

async function send(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError("The server can't be reached.");
  }
  if (answer.ok) return answer;
  const { status } = answer;
  const retryAfter = readRetryAfter(answer.headers.get("Retry-After"));
  let message = `The server answered with status ${status}.`;
  try {
    const { error } = await answer.json();
    if (error?.message) message = `The server says (${status}): ${error.message}`;
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
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    // Also when the reader of these events leaves early: the server then stops generating.
    reader.cancel().catch(() => {});
  }
}

function parseChunk(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that is not part of an answer.");
  }
  if (chunk.error) {
    const said = chunk.error.message ?? String(chunk.error);
    throw new ApiError(`The server broke off: ${said}`);
  }
  return chunk;
}
