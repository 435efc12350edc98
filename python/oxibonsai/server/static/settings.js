// The settings dialog, and what the settings add to a request.

import { byId } from "./dom.js";
import { loadKey, loadSettings, saveKey, saveSettings } from "./storage.js";

const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens"];
const TEXTS = ["system", "thinking"];

// `saved()` is called after each change.
export function setUpSettings(saved) {
  const dialog = byId("settings");
  const form = byId("settings-form");
  byId("open-settings").addEventListener("click", () => openSettings());
  byId("cancel-settings").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const settings = { theme: loadSettings().theme };
    for (const name of [...NUMBERS, ...TEXTS]) {
      const value = form.elements[name].value.trim();
      if (value) settings[name] = NUMBERS.includes(name) ? Number(value) : value;
    }
    saveSettings(settings);
    saveKey(form.elements.key.value.trim());
    dialog.close();
    saved();
  });
}

export function openSettings(field = "system") {
  const form = byId("settings-form");
  const settings = loadSettings();
  for (const name of [...NUMBERS, ...TEXTS]) form.elements[name].value = settings[name] ?? "";
  form.elements.key.value = loadKey();
  const dialog = byId("settings");
  if (!dialog.open) dialog.showModal();
  form.elements[field].focus();
}

// The request for an answer to `messages`, with whatever was set; what was not is the server's.
export function requestBody(model, messages) {
  const settings = loadSettings();
  const body = { messages: history(messages, settings.system) };
  if (model) body.model = model;
  for (const name of NUMBERS) if (settings[name] !== undefined) body[name] = settings[name];
  if (settings.thinking) {
    body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  }
  return body;
}

// Thoughts and calls without results are not sent back: templates want neither.
function history(messages, system) {
  const said = messages.filter(({ content }) => content);
  const turns = said.map(({ role, content }) => ({ role, content }));
  return system ? [{ role: "system", content: system }, ...turns] : turns;
}
