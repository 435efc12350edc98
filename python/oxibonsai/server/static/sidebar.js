// The list of conversations; on a narrow page it slides in over the text.

import { matches, titleOf } from "./conversation.js";
import { byId, element } from "./dom.js";
import { allConversations, deleteConversation, loadConversation, saveConversation } from "./storage.js";
import { exportAll } from "./transfer.js";

export class Sidebar {
  // `open(id)` shows a conversation, `create()` a new one; `removed(ids)`, `renamed(id, title)` and
  // `imported(file)` tell of what was done here.
  constructor({ open, create, removed, renamed, imported }) {
    Object.assign(this, { open, removed, renamed });
    byId("new").addEventListener("click", () => {
      this.slide(false);
      create();
    });
    byId("menu").addEventListener("click", () => this.slide(!this.isOut));
    byId("veil").addEventListener("click", () => this.slide(false));
    byId("sidebar").addEventListener("keydown", (event) => this.escape(event));
    byId("search").addEventListener("input", () => this.show(this.currentId));
    byId("export").addEventListener("click", exportAll);
    byId("clear").addEventListener("click", () => this.clear());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", async () => {
      const [file] = byId("import-file").files;
      if (file) await imported(file);
      byId("import-file").value = "";
    });
    matchMedia("(min-width: 56rem)").addEventListener("change", () => this.slide(false));
  }

  escape(event) {
    if (event.key !== "Escape") return;
    if (event.target.id === "search" && event.target.value) {
      event.target.value = "";
      this.show(this.currentId);
    } else if (this.isOut) {
      this.slide(false);
      byId("menu").focus();
    } else {
      return;
    }
    event.stopPropagation();
    event.preventDefault();
  }

  get isOut() {
    return document.body.classList.contains("sidebar-out");
  }

  slide(out) {
    document.body.classList.toggle("sidebar-out", out);
    byId("menu").setAttribute("aria-expanded", String(out));
    byId("veil").hidden = !out;
    byId("page").inert = out;
    if (out) byId("new").focus();
  }

  show(currentId) {
    this.currentId = currentId;
    // A title that is being written is not taken from under the hands.
    if (byId("conversations").querySelector("input")) return;
    const all = allConversations();
    const query = byId("search").value.trim();
    const found = query ? all.filter((conversation) => matches(conversation, query)) : all;
    byId("conversations").replaceChildren(...found.map((one) => this.row(one)));
    byId("no-match").hidden = !query || found.length > 0;
    byId("search").disabled = !all.length && !query;
    byId("export").disabled = byId("clear").disabled = !all.length;
  }

  row(conversation) {
    const { id } = conversation;
    const title = titleOf(conversation);
    const open = element("button", { type: "button", class: "open", title }, title);
    if (id === this.currentId) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      this.slide(false);
      this.open(id);
    });
    const rename = element("button", { type: "button", class: "rename" }, "✎");
    rename.setAttribute("aria-label", `Rename “${title}”`);
    const remove = element("button", { type: "button", class: "remove" }, "×");
    remove.setAttribute("aria-label", `Delete “${title}”`);
    remove.addEventListener("click", () => {
      if (!confirm(`Delete “${title}”?`)) return;
      deleteConversation(id);
      this.removed([id]);
    });
    const row = element("li", {}, open, rename, remove);
    rename.addEventListener("click", () => this.rename(row, conversation));
    return row;
  }

  rename(row, { id, title }) {
    const input = element("input", { type: "text", "aria-label": "Title", maxlength: "200" });
    input.value = title || row.querySelector(".open").textContent;
    let done = false;
    const finish = (keep) => {
      if (done) return;
      done = true;
      const text = input.value.trim();
      input.remove();
      const stored = loadConversation(id);
      if (keep && text && stored) {
        stored.title = text;
        saveConversation(stored);
        this.renamed(id, text);
      } else {
        this.show(this.currentId);
      }
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      finish(event.key === "Enter");
      byId("draft").focus();
    });
    input.addEventListener("blur", () => finish(true));
    row.replaceChildren(input);
    input.focus();
    input.select();
  }

  clear() {
    const ids = allConversations().map(({ id }) => id);
    const count = ids.length === 1 ? "the one conversation" : `all ${ids.length} conversations`;
    if (!confirm(`Delete ${count} in this browser?`)) return;
    ids.forEach(deleteConversation);
    this.removed(ids);
  }
}
