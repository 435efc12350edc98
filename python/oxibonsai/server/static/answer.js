// An answer as it comes in: its text, reasoning, tool calls and figures.

import { ApiError, describe, streamChat } from "./api.js";

// Fills `message` with the answer to the request that `body()` makes, and calls `changed` after each
// chunk. Never throws: what went wrong is kept in the message, beside the text that had come.
export async function fillAnswer(message, body, { key, signal, changed }) {
  const clock = new Clock();
  try {
    for await (const chunk of streamChat(await body(), { key, signal })) {
      take(message, chunk, clock);
      changed();
    }
  } catch (error) {
    if (signal.aborted) {
      message.stopped = true;
    } else {
      message.error = describe(error);
      message.status = error instanceof ApiError ? error.status : 0;
    }
  }
  delete message.progress;
}

class Clock {
  began = performance.now();
  first = null; // when the first piece of the answer came
  pieces = 0;

  tick() {
    this.first ??= performance.now();
    this.pieces += 1;
  }
}

function take(message, chunk, clock) {
  const [choice] = chunk.choices ?? [];
  if (chunk.prompt_progress) message.progress = chunk.prompt_progress;
  const delta = choice?.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning || delta.content || delta.tool_calls) clock.tick();
  if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
  if (delta.content) {
    if (message.reasoning && message.thoughtSeconds === undefined) {
      message.thoughtSeconds = (performance.now() - clock.first) / 1000;
    }
    message.content += delta.content;
  }
  for (const call of delta.tool_calls ?? []) takeCall(message, call);
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  message.figures = figures(chunk, clock, message.figures);
}

function takeCall(message, { index = 0, function: called = {} }) {
  message.toolCalls ??= [];
  const call = (message.toolCalls[index] ??= { name: "", arguments: "" });
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
  const measured = tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null;
  return {
    tokens,
    counted,
    promptTokens: usage?.prompt_tokens ?? chunk.prompt_progress?.total ?? before?.promptTokens,
    rate: timings?.predicted_per_second ?? before?.serverRate ?? measured,
    serverRate: timings?.predicted_per_second ?? before?.serverRate,
    firstSeconds: clock.first === null ? null : (clock.first - clock.began) / 1000,
  };
}
