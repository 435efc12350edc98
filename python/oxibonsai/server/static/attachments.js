// Files beside a message: chosen, pasted or dropped; texts go into the message, pictures and PDF
// documents beside it.

import { byId, element } from "./dom.js";
import { keepPicture, showPicture } from "./pictures.js";
import { t } from "./words.js";

const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const LARGEST_TEXT = 1_000_000; // bytes
const LARGEST_PICTURE = 20_000_000; // bytes
const LARGEST_DOCUMENT = 32 * 2 ** 20; // bytes
const MOST = 10; // files of one message

// The files of the message that is being written.
export class Attachments {
  // `sees()` promises whether the model takes pictures; `refuse(text)` says why a file is not taken,
  // `changed()` follows what the visitor changes.
  constructor({ sees, refuse, changed }) {
    Object.assign(this, { sees, refuse, changed });
    this.files = [];
    const input = byId("files");
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    byId("draft").addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      if (!files.length) return;
      event.preventDefault();
      this.add(files);
    });
    const page = byId("page");
    page.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    page.addEventListener("dragleave", (event) => {
      if (!page.contains(event.relatedTarget)) document.body.classList.remove("dropping");
    });
    page.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  // What was attached, which the message now owns.
  take() {
    const taken = this.files;
    this.put([]);
    return taken;
  }

  put(files) {
    this.files = files;
    this.show();
  }

  async add(files) {
    this.refuse("");
    for (const file of files) {
      try {
        if (this.files.length >= MOST) throw new Refusal(t`A message takes ${MOST} files at most.`);
        this.files.push(await this.read(file));
      } catch (error) {
        const why = error instanceof Refusal ? error.message : t`“${file.name}” can't be read.`;
        this.refuse(why);
      }
    }
    this.show();
    this.changed();
    byId("draft").focus();
  }

  async read(file) {
    if (file.type.startsWith("image/")) return this.readPicture(file);
    if (file.type === "application/pdf") return readDocument(file);
    if (file.size > LARGEST_TEXT) throw new Refusal(t`“${file.name}” is larger than 1 MB.`);
    const bytes = await file.arrayBuffer();
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      if (text.includes("\0")) throw new TypeError("binary");
      return { name: file.name, text };
    } catch {
      throw new Refusal(
        t`“${file.name}” is no text: only text files, PDF documents and pictures can be attached.`,
      );
    }
  }

  async readPicture(file) {
    const { name, type, size } = file;
    if (!(await this.sees())) throw new Refusal(t`This model can't see pictures, so “${name}” is left out.`);
    if (!PICTURES.includes(type)) throw new Refusal(t`“${name}” is no PNG, JPEG, WebP or GIF.`);
    if (size > LARGEST_PICTURE) throw new Refusal(t`“${name}” is larger than 20 MB.`);
    return { name, picture: await keepPicture(file) };
  }

  show() {
    const chips = this.files.map((file) => {
      const chip = chipOf(file);
      const remove = element("button", { type: "button", class: "quiet" }, "×");
      remove.setAttribute("aria-label", t`Take “${file.name}” away`);
      remove.addEventListener("click", () => {
        this.files = this.files.filter((other) => other !== file);
        this.show();
        this.changed();
        byId("draft").focus();
      });
      chip.append(remove);
      return chip;
    });
    byId("attached").replaceChildren(...chips);
    byId("attached").hidden = !chips.length;
  }
}

class Refusal extends Error {}

// The server reads it, and says where it can't.
async function readDocument(file) {
  if (file.size > LARGEST_DOCUMENT) throw new Refusal(t`“${file.name}” is larger than 32 MiB.`);
  return { name: file.name, document: await keepPicture(file) };
}

// A file as it is shown: its name, of a picture also a small view.
export function chipOf(file) {
  const chip = element("li", { class: "file" });
  if (file.picture) {
    const view = element("img", { alt: "" });
    showPicture(view, file.picture);
    chip.append(view);
  }
  if (file.document) chip.append(element("b", { "aria-hidden": "true" }, "PDF"));
  chip.append(element("span", {}, file.name));
  return chip;
}
