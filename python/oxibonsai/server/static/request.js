// The request for an answer: what was said, and whatever was set; what was not is the server's.

import { ApiError } from "./api.js";
import { asDataUrl, loadPicture } from "./pictures.js";
import { samplingOf } from "./sampling_fields.js";
import { loadSettings } from "./storage.js";

// The body for an answer to the messages of a branch. With `proceed` the last of them is an answer
// that is to go on.
export async function requestBody({ model, system, branch, proceed = false }) {
  const settings = loadSettings();
  const messages = [];
  if (system) messages.push({ role: "system", content: system });
  for (const message of branch) {
    // Thoughts and calls without results are not sent back: templates want neither.
    const content = await contentOf(message);
    if (content.length) messages.push({ role: message.role, content });
  }
  const body = { messages, ...samplingOf(settings), return_progress: true };
  if (model) body.model = model;
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

async function contentOf({ content, attachments = [] }) {
  const texts = attachments.filter(({ text }) => text !== undefined);
  const text = [content, ...texts.map((file) => `--- File: ${file.name} ---\n${file.text}`)]
    .filter(Boolean)
    .join("\n\n");
  const pictures = attachments.filter(({ picture }) => picture);
  if (!pictures.length) return text;
  const parts = [];
  for (const { name, picture } of pictures) {
    const blob = await loadPicture(picture);
    if (!blob) throw new ApiError(`The picture “${name}” is no longer in this browser.`);
    parts.push({ type: "image_url", image_url: { url: await asDataUrl(blob) } });
  }
  if (text) parts.push({ type: "text", text });
  return parts;
}
