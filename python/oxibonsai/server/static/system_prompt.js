// The system prompt of a conversation, and the prompts that are kept under a name.

import { byId, element } from "./dom.js";
import { loadPrompts, loadSettings, savePrompts, saveSettings } from "./storage.js";
import { t } from "./words.js";

const PRESETS = {
  Concise: "Answer briefly and to the point. Leave out introductions and summaries.",
  Programmer:
    "You are an experienced programmer. Answer with working code and short explanations, and say what you are not sure of.",
  Translator:
    "Translate what the user writes into English, or into another language if the user names one. Answer with the translation only.",
  Teacher:
    "Explain step by step, in plain words, with an example. Ask back where the question is not clear.",
};

export class SystemPrompt {
  // `current()` is the prompt of the conversation that is open; `changed(text)` sets it.
  constructor({ current, changed }) {
    this.current = current;
    this.form = byId("prompt-form");
    this.dialog = byId("prompt");
    const { preset } = this.form.elements;
    byId("open-prompt").addEventListener("click", () => this.open());
    byId("cancel-prompt").addEventListener("click", () => this.dialog.close());
    preset.addEventListener("change", () => {
      const text = { ...PRESETS, ...loadPrompts() }[preset.value];
      if (text !== undefined) this.form.elements.text.value = text;
      this.showRemove();
    });
    byId("keep-prompt").addEventListener("click", () => this.keep());
    byId("remove-prompt").addEventListener("click", () => this.removeNamed());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { text, always } = this.form.elements;
      const system = text.value.trim();
      if (always.checked) saveSettings({ ...loadSettings(), system });
      changed(system);
      this.dialog.close();
      this.show();
    });
  }

  // Shows on the page what the conversation's prompt is.
  show() {
    const text = this.current().replace(/\s+/g, " ");
    const short = text.length > 80 ? `${text.slice(0, 79)}…` : text;
    byId("open-prompt").textContent = text ? t`System prompt: ${short}` : t`Add a system prompt`;
  }

  open() {
    const { text, name, always } = this.form.elements;
    text.value = this.current();
    name.value = "";
    always.checked = false;
    this.list("");
    this.dialog.showModal();
    text.focus();
  }

  list(chosen) {
    const { preset } = this.form.elements;
    const names = [...new Set([...Object.keys(PRESETS), ...Object.keys(loadPrompts())])];
    const options = names.map((name) => element("option", { value: name }, name));
    preset.replaceChildren(element("option", { value: "" }, t`Choose …`), ...options);
    preset.value = chosen;
    this.showRemove();
  }

  showRemove() {
    byId("remove-prompt").hidden = !(this.form.elements.preset.value in loadPrompts());
  }

  keep() {
    const { text, name } = this.form.elements;
    const [key, value] = [name.value.trim(), text.value.trim()];
    if (!key || !value) {
      (key ? text : name).focus();
      return;
    }
    savePrompts({ ...loadPrompts(), [key]: value });
    name.value = "";
    this.list(key);
  }

  removeNamed() {
    const { [this.form.elements.preset.value]: gone, ...others } = loadPrompts();
    if (gone === undefined) return;
    savePrompts(others);
    this.list("");
    this.form.elements.preset.focus();
  }
}

// The prompt with which a conversation begins.
export function firstPrompt() {
  const { system } = loadSettings();
  return typeof system === "string" ? system : "";
}
