// The request for an answer: what was said, and whatever was set; what was not is the server's.

import { ApiError } from "./api.js";
import { asDataUrl, loadPicture } from "./pictures.js";
import { samplingOf } from "./sampling_fields.js";
import { loadSettings } from "./storage.js";
import { t } from "./words.js";

// The body for an answer to the messages of a branch, with the tools on offer. With `proceed` the last
// of the messages is an answer that is to go on.
export async function requestBody({ model, system, branch, tools = [], proceed = false }) {
  const settings = loadSettings();
  const messages = [];
  if (system) messages.push({ role: "system", content: system });
  for (const message of branch) {
    if (hasResults(message)) {
      messages.push(...withResults(message));
      continue;
    }
    // Thoughts and calls without results are not sent back: templates want neither.
    const content = await contentOf(message);
    if (content.length) messages.push({ role: message.role, content });
  }
  const body = { messages, ...samplingOf(settings), return_progress: true };
  if (model) body.model = model;
  if (tools.length && !proceed) body.tools = tools;
  if (proceed) {
    body.continue_final_message = true;
    body.add_generation_prompt = false;
    const { reasoning } = branch.at(-1);
    if (reasoning) messages.at(-1).reasoning_content = reasoning;
  }
  if (settings.thinking) {
    body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  }
  return body;
}

const hasResults = ({ toolCalls }) =>
  Boolean(toolCalls?.length) && toolCalls.every((call) => call?.result !== undefined);

// An answer that called tools, and their results. Its thoughts led to the calls: what follows needs them.
function withResults({ content, reasoning, toolCalls }) {
  const idOf = (call, i) => call.id ?? `call_${i}`;
  const calls = toolCalls.map((call, i) => ({
    id: idOf(call, i),
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  const answer = { role: "assistant", content, tool_calls: calls };
  if (reasoning) answer.reasoning_content = reasoning;
  const results = toolCalls.map((call, i) => ({
    role: "tool",
    tool_call_id: idOf(call, i),
    content: call.result,
  }));
  return [answer, ...results];
}

async function contentOf({ content, attachments = [] }) {
  const texts = attachments.filter(({ text }) => text !== undefined);
  const text = [content, ...texts.map((file) => `--- File: ${file.name} ---\n${file.text}`)]
    .filter(Boolean)
    .join("\n\n");
  const kept = attachments.filter(({ picture, document }) => picture || document);
  if (!kept.length) return text;
  const parts = [];
  for (const { name, picture, document } of kept) {
    const blob = await loadPicture(picture ?? document);
    if (!blob) throw new ApiError(t`The file “${name}” is no longer in this browser.`);
    const url = await asDataUrl(blob);
    parts.push(
      picture
        ? { type: "image_url", image_url: { url } }
        : { type: "file", file: { filename: name, file_data: url } },
    );
  }
  if (text) parts.push({ type: "text", text });
  return parts;
}
