// The tools of MCP servers: which there are, and calls of them, each once the visitor allows it.

import { callTool, describe, listTools } from "./api.js";
import { byId, element } from "./dom.js";
import { loadKey, loadSettings, saveSettings } from "./storage.js";
import { t } from "./words.js";

const failed = (text) => JSON.stringify({ error: text });

export class Tools {
  listed = []; // as the server lists them
  allowed = new Set(); // names of tools that may run unasked until the page is closed

  // `changed()` follows each change of the list.
  constructor({ changed }) {
    this.changed = changed;
    const dialog = byId("tools");
    byId("open-tools").addEventListener("click", () => this.open());
    byId("close-tools").addEventListener("click", () => dialog.close());
    byId("offer-tools").addEventListener("change", ({ target }) => {
      saveSettings({ ...loadSettings(), tools: target.checked ? undefined : "off" });
    });
  }

  async refresh() {
    const listed = await listTools(loadKey());
    byId("open-tools").hidden = !listed.length;
    // The same again must not take the page from under the visitor's hands.
    if (JSON.stringify(listed) === JSON.stringify(this.listed)) return;
    this.listed = listed;
    this.changed();
  }

  // What the model is offered.
  get definitions() {
    if (loadSettings().tools === "off") return [];
    return this.listed.map(({ definition }) => definition);
  }

  has(name) {
    return this.listed.some(({ tool }) => tool === name);
  }

  // Whether a call may run unasked: its tool is allowed already, or is none, so that nothing runs.
  needsNoLeave({ name }) {
    return this.allowed.has(name) || !this.has(name);
  }

  open() {
    byId("offer-tools").checked = loadSettings().tools !== "off";
    const items = this.listed.map(({ tool, server, definition }) =>
      element("li", {}, element("b", {}, tool), t` of ${server}`,
        element("p", {}, definition.function.description ?? "")),
    );
    byId("tool-list").replaceChildren(...items);
    byId("tools").showModal();
  }

  // The result of a call, as the model reads it. Throws where it was stopped.
  async run({ name, arguments: given }, signal) {
    if (!this.has(name)) return failed("There is no such tool.");
    const params = parse(given);
    if (!params) return failed("The arguments are no JSON object.");
    try {
      return await callTool(name, params, { key: loadKey(), signal });
    } catch (error) {
      if (signal.aborted) throw error;
      return failed(describe(error));
    }
  }
}

export const DECLINED = failed("The user declined this call.");

function parse(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
