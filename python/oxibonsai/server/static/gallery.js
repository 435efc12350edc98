// The pictures that were drawn, kept in the browser's database until they are deleted.

import { BrowserStore } from "./browser_store.js";
import { byId, element, saveFile } from "./dom.js";
import { showBlob } from "./pictures.js";
import { t } from "./words.js";

const store = new BrowserStore("drawings");

export class Gallery {
  // `refer(picture)` makes one a reference of the next, `again(picture)` asks for one like it;
  // `dropped()` follows the deletion of one.
  constructor({ refer, again, dropped }) {
    Object.assign(this, { refer, again, dropped });
  }

  // Keeps a picture: { blob, prompt, size, seed, steps }.
  async add(picture) {
    const id = `${Date.now()}-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    await store.put(id, { id, ...picture });
    await this.show();
  }

  async show() {
    const pictures = (await store.values()).sort((a, b) => (a.id < b.id ? 1 : -1));
    byId("gallery").replaceChildren(...pictures.map((picture) => this.figure(picture)));
    byId("no-drawings").hidden = pictures.length > 0;
  }

  figure(picture) {
    const { id, blob, prompt, size, seed, steps } = picture;
    const view = element("img", { alt: prompt, loading: "lazy" });
    const [width, height] = size.split("x");
    Object.assign(view, { width, height });
    showBlob(view, blob);
    const facts = [size, t`seed ${seed}`, steps && t`${steps} steps`].filter(Boolean).join(" · ");
    const caption = element("p", {}, element("span", { class: "said" }, prompt), element("small", {}, facts));
    const buttons = [
      [t`Download`, () => saveFile(`picture-${seed}.png`, blob)],
      [t`Use as reference`, () => this.refer(picture)],
      [t`Same again`, () => this.again(picture)],
      [t`Delete`, () => this.drop(id)],
    ].map(([label, act]) => {
      const button = element("button", { type: "button", class: "quiet" }, label);
      button.addEventListener("click", act);
      return button;
    });
    return element("li", {}, view, caption, element("div", { class: "drawn-actions" }, ...buttons));
  }

  async drop(id) {
    if (!confirm(t`Delete this picture?`)) return;
    await store.delete(id);
    await this.show();
    this.dropped();
  }
}
