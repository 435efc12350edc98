// The dialog in which pictures are drawn, with a gallery of those that were.

import { describe, drawPicture } from "./api.js";
import { askForKey } from "./key_dialog.js";
import { byId, element } from "./dom.js";
import { Gallery } from "./gallery.js";
import { fromDataUrl, showBlob } from "./pictures.js";
import { loadKey } from "./storage.js";
import { t } from "./words.js";

const MOST_REFERENCES = 8;
const blobOf = (base64) => fromDataUrl(`data:image/png;base64,${base64}`);

export class Drawing {
  references = []; // { name, blob }: pictures that the prompt is about
  abort = null; // of the picture that is being drawn

  constructor() {
    this.form = byId("drawing-form");
    this.gallery = new Gallery({
      refer: (picture) => this.refer(picture),
      again: (picture) => this.fill(picture),
      dropped: () => this.form.elements.prompt.focus(),
    });
    byId("open-drawing").addEventListener("click", () => this.open());
    byId("close-drawing").addEventListener("click", () => byId("drawing").close());
    byId("stop-drawing").addEventListener("click", () => this.abort?.abort());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.draw();
    });
  }

  // Whether the server has a model that draws.
  offer(draws) {
    byId("open-drawing").hidden = !draws;
  }

  open() {
    byId("drawing").showModal();
    this.form.elements.prompt.focus();
    this.gallery.show();
  }

  fill({ prompt, size, seed, steps }) {
    const { elements } = this.form;
    elements.prompt.value = prompt;
    elements.seed.value = seed;
    elements.steps.value = steps ?? "";
    elements.size.value = size;
    if (!elements.size.value) elements.size.value = "auto";
    elements.prompt.focus();
  }

  refer({ prompt, blob }) {
    if (this.references.length >= MOST_REFERENCES) {
      this.say(t`A picture takes ${MOST_REFERENCES} references at most.`);
      return;
    }
    this.references.push({ name: prompt, blob });
    this.showReferences();
    this.form.elements.prompt.focus();
  }

  showReferences() {
    const chips = this.references.map((reference) => {
      const view = element("img", { alt: "" });
      showBlob(view, reference.blob);
      const remove = element("button", { type: "button", class: "quiet" }, "×");
      remove.setAttribute("aria-label", t`Take the reference “${reference.name}” away`);
      remove.addEventListener("click", () => {
        this.references = this.references.filter((other) => other !== reference);
        this.showReferences();
        this.form.elements.prompt.focus();
      });
      return element("li", { class: "file" }, view, element("span", {}, reference.name), remove);
    });
    byId("references").replaceChildren(...chips);
    byId("references").hidden = !chips.length;
  }

  async draw() {
    const { prompt, size, seed, steps } = this.form.elements;
    const wanted = { prompt: prompt.value.trim(), size: size.value };
    if (!wanted.prompt || this.abort) return;
    if (seed.value) wanted.seed = Number(seed.value);
    if (steps.value) wanted.steps = Number(steps.value);
    this.abort = new AbortController();
    this.say(t`Drawing…`);
    this.showBusy(true);
    try {
      const options = { key: loadKey(), signal: this.abort.signal };
      for await (const event of drawPicture(wanted, this.references, options)) await this.take(event, wanted);
      this.say("");
    } catch (error) {
      this.say(this.abort.signal.aborted ? t`Stopped.` : describe(error));
      if (error.status === 401) askForKey();
    }
    this.abort = null;
    this.showBusy(false);
  }

  async take({ type, b64_json: base64, size, seed }, { prompt, steps }) {
    const blob = blobOf(base64);
    if (!type.endsWith(".completed")) {
      showBlob(byId("preview"), blob);
      byId("preview").hidden = false;
      return;
    }
    await this.gallery.add({ blob, prompt, size, seed, steps });
  }

  say(text) {
    byId("drawing-notice").textContent = text;
  }

  showBusy(busy) {
    byId("draw").hidden = busy;
    byId("stop-drawing").hidden = !busy;
    byId("drawing-progress").hidden = !busy;
    if (!busy) {
      byId("preview").hidden = true;
      byId("preview").removeAttribute("src");
    }
    if (!byId("drawing").open) return;
    byId(busy ? "stop-drawing" : "draw").focus();
  }
}
