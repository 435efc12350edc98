// The settings dialog: sampling, thinking, the API key. They hold for all conversations.

import { byId } from "./dom.js";
import { fillSampling, readSampling, samplingForm } from "./sampling_fields.js";
import { loadKey, loadSettings, saveKey, saveSettings } from "./storage.js";

let defaults = null; // of the server, by name

// `saved()` is called after each change.
export function setUpSettings(saved) {
  const dialog = byId("settings");
  const form = byId("settings-form");
  byId("sampling").replaceChildren(...samplingForm());
  byId("open-settings").addEventListener("click", () => openSettings());
  byId("cancel-settings").addEventListener("click", () => dialog.close());
  byId("reset-settings").addEventListener("click", () => {
    fillSampling(form, {}, defaults);
    form.elements.thinking.value = "";
  });
  // A field that is out of range can't say so from a group that is folded.
  form.addEventListener(
    "invalid",
    (event) => {
      const group = event.target.closest("details");
      if (group) group.open = true;
    },
    true,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { theme, system, model, tools } = loadSettings();
    const thinking = form.elements.thinking.value;
    const settings = { theme, system, model, tools, ...readSampling(form) };
    if (thinking) settings.thinking = thinking;
    saveSettings(settings);
    saveKey(form.elements.key.value.trim());
    dialog.close();
    saved();
  });
}

// The server's defaults, shown where a field is empty.
export function showDefaults(params) {
  defaults = params;
  if (!byId("settings").open) return;
  const form = byId("settings-form");
  fillSampling(form, readSampling(form), defaults);
}

export function openSettings() {
  const form = byId("settings-form");
  const settings = loadSettings();
  fillSampling(form, settings, defaults);
  form.elements.thinking.value = settings.thinking ?? "";
  form.elements.key.value = loadKey();
  const dialog = byId("settings");
  if (!dialog.open) dialog.showModal();
  form.elements.temperature.focus();
}
