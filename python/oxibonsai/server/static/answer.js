// An answer as it comes in: its text, reasoning, tool calls and figures.

import {
  ApiError, cancelAnswer, ConnectionError, describe, EndedError, joinChat, streamChat,
} from "./api.js";
import { t } from "./words.js";

const PAUSE = 1000; // milliseconds before an answer is joined whose connection was lost
const LOST = t`The server no longer has the rest of this answer.`;

// Fills `message` with the answer to the request that `body()` makes, or joins the one on its way that
// `message.answerId` names, and calls `changed` after each chunk. Never throws: what went wrong is kept
// in the message, beside the text that had come.
export async function fillAnswer(message, body, { key, signal, changed }) {
  // What is joined comes from its first word on; what is shown stays until that is reached.
  const follow = async (chunks, clock, target = message) => {
    for await (const chunk of chunks) {
      take(target, chunk, clock);
      if (target !== message && lengthOf(target) >= lengthOf(message)) target = replace(message, target);
      changed();
    }
    if (target !== message) replace(message, target);
  };
  const join = () => {
    const { answerId, base = { content: "" }, figures } = message;
    const first = { ...base, answerId, figures: { firstSeconds: figures?.firstSeconds ?? null } };
    return follow(joinChat(answerId, { key, signal }), new Clock({ joined: true }), first);
  };
  try {
    if (message.answerId) {
      await join();
    } else {
      message.base = { content: message.content, reasoning: message.reasoning };
      try {
        await follow(streamChat(await body(), { key, signal }), new Clock());
      } catch (error) {
        if (!(error instanceof ConnectionError) || !message.answerId || signal.aborted) throw error;
        // The server goes on without us.
        await new Promise((resume) => setTimeout(resume, PAUSE));
        await join();
      }
    }
    settle(message);
  } catch (error) {
    fail(message, error, { key, signal });
  }
  delete message.progress;
}

function fail(message, error, { key, signal }) {
  if (signal.aborted) {
    if (message.answerId) cancelAnswer(message.answerId, key);
    message.stopped = true;
    settle(message);
    return;
  }
  const status = error instanceof ApiError ? error.status : 0;
  message.error = status === 404 && message.answerId ? LOST : describe(error);
  message.status = status;
  // With its id, the answer can be joined once the connection or the key is there again.
  const later = status === 401 || (error instanceof ConnectionError && !(error instanceof EndedError));
  if (!later) settle(message);
}

function settle(message) {
  delete message.answerId;
  delete message.base;
}

const lengthOf = ({ content, reasoning = "" }) => content.length + reasoning.length;

// Puts what was written anew in the place of what a message has.
function replace(message, target) {
  for (const name of ["content", "reasoning", "toolCalls", "finish", "figures"]) {
    if (target[name] === undefined) delete message[name];
    else message[name] = target[name];
  }
  return message;
}

class Clock {
  began = performance.now();
  first = null; // when the first piece of the answer came
  pieces = 0;

  // What comes of a joined answer came earlier to the server's clock.
  constructor({ joined = false } = {}) {
    this.joined = joined;
  }

  tick() {
    this.first ??= performance.now();
    this.pieces += 1;
  }
}

function take(message, chunk, clock) {
  const [choice] = chunk.choices ?? [];
  if (chunk.id) message.answerId = chunk.id;
  if (chunk.prompt_progress) message.progress = chunk.prompt_progress;
  const delta = choice?.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning || delta.content || delta.tool_calls) clock.tick();
  if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
  if (delta.content) {
    if (message.reasoning && message.thoughtSeconds === undefined && !clock.joined) {
      message.thoughtSeconds = (performance.now() - clock.first) / 1000;
    }
    message.content += delta.content;
  }
  for (const call of delta.tool_calls ?? []) takeCall(message, call);
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  message.figures = figures(chunk, clock, message.figures);
}

function takeCall(message, { index = 0, id, function: called = {} }) {
  message.toolCalls ??= [];
  const call = (message.toolCalls[index] ??= { name: "", arguments: "" });
  call.id ??= id;
  call.name += called.name ?? "";
  call.arguments += called.arguments ?? "";
}

// Until the server says how many tokens there were, its pieces are counted.
function figures(chunk, clock, before) {
  const { usage, timings } = chunk;
  const now = performance.now();
  const tokens = usage?.completion_tokens ?? before?.counted ?? clock.pieces;
  const counted = usage ? tokens : before?.counted;
  const seconds = (now - (clock.first ?? now)) / 1000;
  const measured = tokens > 1 && seconds > 0 && !clock.joined ? (tokens - 1) / seconds : null;
  const first = clock.first === null ? null : (clock.first - clock.began) / 1000;
  return {
    tokens,
    counted,
    promptTokens: usage?.prompt_tokens ?? chunk.prompt_progress?.total ?? before?.promptTokens,
    rate: timings?.predicted_per_second ?? before?.serverRate ?? measured,
    serverRate: timings?.predicted_per_second ?? before?.serverRate,
    firstSeconds: clock.joined ? (before?.firstSeconds ?? null) : first,
  };
}
