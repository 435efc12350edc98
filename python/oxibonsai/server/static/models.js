// The models of the server: which there are, which of them are in memory, and what one can do.

import { describe, describeModel, isRouter, listModels, setLoaded } from "./api.js";
import { byId, element } from "./dom.js";
import { askForKey } from "./key_dialog.js";
import { showDefaults } from "./settings.js";
import { loadKey, loadSettings, saveSettings } from "./storage.js";
import { t } from "./words.js";

const POLL = 1000; // milliseconds between two looks at a model that is being loaded
const STATES = {
  unloaded: t`not loaded`,
  loading: t`loading …`,
  downloading: t`downloading …`,
  failed: t`failed to load`,
  sleeping: t`asleep`,
};

export class Models {
  contextSize = null; // tokens
  sees = false; // whether it takes pictures
  draws = false; // whether another one draws pictures
  known = Promise.resolve(); // once both are known of the chosen model
  states = new Map(); // by id, of a server that loads models on demand

  // `notice(text)` says what went wrong, or with "" that all is well; `changed()` follows each change.
  constructor({ notice, changed }) {
    this.notice = notice;
    this.changed = changed;
    this.select = byId("model");
    this.select.addEventListener("change", () => {
      saveSettings({ ...loadSettings(), model: this.chosen });
      this.known = this.describe();
    });
    this.second = byId("second-model");
    byId("load").addEventListener("click", () => this.toggle());
  }

  get chosen() {
    return this.select.value;
  }

  // Those that answer: the chosen one, and another one beside it.
  get asked() {
    return [this.chosen, ...(this.second.value ? [this.second.value] : [])];
  }

  refresh() {
    clearTimeout(this.timer);
    this.known = this.load();
    return this.known;
  }

  async load() {
    try {
      const all = await listModels(loadKey());
      const models = all.filter(({ makes }) => makes === "text");
      this.draws = all.some(({ makes }) => makes === "image");
      // A server with one model has nothing to load, whatever state it reports.
      const states = await isRouter(loadKey());
      this.show(models.map(({ id, state }) => ({ id, state: states ? state : undefined })));
      this.notice(models.length ? "" : t`The server has no model that chats.`);
      await this.describe();
    } catch (error) {
      this.notice(describe(error));
      if (error.status === 401) askForKey();
    }
  }

  show(models) {
    const ids = models.map(({ id }) => id);
    const wanted = [this.chosen, loadSettings().model].find((id) => ids.includes(id));
    this.states = new Map(models.map(({ id, state }) => [id, state]));
    const options = models.map(({ id, state }) =>
      element("option", { value: id }, STATES[state] ? `${id} (${STATES[state]})` : id),
    );
    this.select.replaceChildren(...options);
    if (wanted) this.select.value = wanted;
    this.select.disabled = !models.length;
    this.showSecond(ids);
    this.showLoad();
    if ([...this.states.values()].includes("loading")) {
      this.timer = setTimeout(() => this.refresh(), POLL);
    }
  }

  // A second model is for a comparison: it isn't remembered.
  showSecond(ids) {
    const wanted = this.second.value;
    const none = element("option", { value: "" }, t`Compare with …`);
    this.second.replaceChildren(none, ...ids.map((id) => element("option", { value: id }, id)));
    this.second.value = ids.includes(wanted) ? wanted : "";
    this.second.hidden = ids.length < 2;
  }

  showLoad() {
    const state = this.states.get(this.chosen);
    const button = byId("load");
    button.hidden = !state;
    button.disabled = state === "loading";
    button.textContent = state === "loaded" ? t`Unload` : t`Load`;
  }

  // What the server says of the chosen model: its context, its defaults, whether it sees.
  async describe() {
    this.showLoad();
    const model = this.chosen;
    const state = this.states.get(model);
    let found = null;
    // Nothing is known of a model that is not loaded.
    if (model && (state === undefined || state === "loaded")) {
      found = await describeModel(model, loadKey());
    }
    if (model !== this.chosen) return;
    this.contextSize = found?.default_generation_settings?.n_ctx ?? null;
    this.sees = found?.modalities?.vision === true;
    showDefaults(found?.default_generation_settings?.params ?? null);
    this.changed();
  }

  async toggle() {
    const load = this.states.get(this.chosen) !== "loaded";
    byId("load").disabled = true;
    try {
      await setLoaded(this.chosen, load, loadKey());
      await this.refresh();
    } catch (error) {
      this.notice(describe(error));
      this.showLoad();
    }
  }
}
