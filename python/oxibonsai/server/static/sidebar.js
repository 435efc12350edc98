// The list of conversations; on a narrow page it slides in over the text.

import { matches, titleOf } from "./conversation.js";
import { ConversationDialog } from "./conversation_dialog.js";
import { byId, element } from "./dom.js";
import { allConversations, deleteConversation, loadConversation, saveConversation } from "./storage.js";
import { exportAll } from "./transfer.js";
import { t } from "./words.js";

export class Sidebar {
  running = new Set();
  folded = new Set(); // names of folders

  // `open(id)` shows a conversation, `create()` a new one; `removed(ids)`, `changed(id, values)` and
  // `imported(file)` tell of what was done here.
  constructor({ open, create, removed, changed, imported }) {
    Object.assign(this, { open, removed, changed });
    this.dialog = new ConversationDialog({ changed });
    byId("new").addEventListener("click", () => {
      this.slide(false);
      create();
    });
    byId("menu").addEventListener("click", () => this.slide(!this.isOut));
    byId("veil").addEventListener("click", () => this.slide(false));
    byId("sidebar").addEventListener("keydown", (event) => this.escape(event));
    byId("search").addEventListener("input", () => this.show());
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
      this.show();
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

  // `running` are the ids of conversations in which something is being written.
  show(currentId = this.currentId, running = this.running) {
    Object.assign(this, { currentId, running });
    // A title that is being written is not taken from under the hands.
    if (byId("conversations").querySelector("input")) return;
    const all = allConversations();
    const query = byId("search").value.trim();
    const found = query ? all.filter((conversation) => matches(conversation, query)) : all;
    const pinned = found.filter((one) => one.pinned);
    const rest = found.filter((one) => !one.pinned);
    const names = [...new Set(rest.map(({ folder }) => folder))].filter(Boolean).sort();
    byId("conversations").replaceChildren(
      ...(pinned.length ? [this.folder(t`Pinned`, pinned)] : []),
      ...names.map((name) => this.folder(name, rest.filter(({ folder }) => folder === name))),
      ...rest.filter(({ folder }) => !folder).map((one) => this.row(one)),
    );
    byId("no-match").hidden = !query || found.length > 0;
    byId("search").disabled = !all.length && !query;
    byId("export").disabled = byId("clear").disabled = !all.length;
  }

  folder(name, conversations) {
    const rows = element("ul", {}, ...conversations.map((one) => this.row(one)));
    const details = element("details", {}, element("summary", {}, name), rows);
    // What is looked for is not folded away.
    details.open = !this.folded.has(name) || Boolean(byId("search").value.trim());
    details.addEventListener("toggle", () => {
      if (!byId("search").value.trim()) this.folded[details.open ? "delete" : "add"](name);
    });
    return element("li", { class: "folder" }, details);
  }

  row(conversation) {
    const { id } = conversation;
    const title = titleOf(conversation);
    const open = element("button", { type: "button", class: "open", title }, title);
    if (id === this.currentId) open.setAttribute("aria-current", "true");
    if (this.running.has(id)) {
      const label = t`Being answered:`;
      open.prepend(element("span", { class: "writing", role: "img", "aria-label": label }));
    }
    open.addEventListener("click", () => {
      this.slide(false);
      this.open(id);
    });
    const rename = element("button", { type: "button", class: "rename" }, "✎");
    rename.setAttribute("aria-label", t`Rename “${title}”`);
    const remove = element("button", { type: "button", class: "remove" }, "×");
    remove.setAttribute("aria-label", t`Delete “${title}”`);
    remove.addEventListener("click", () => {
      if (!confirm(t`Delete “${title}”?`)) return;
      deleteConversation(id);
      this.removed([id]);
    });
    const more = element("button", { type: "button", class: "more" }, "⋯");
    more.setAttribute("aria-label", t`Folder, pin and files of “${title}”`);
    more.setAttribute("aria-haspopup", "dialog");
    more.addEventListener("click", () => this.dialog.open(conversation, title));
    const row = element("li", {}, open, more, rename, remove);
    rename.addEventListener("click", () => this.rename(row, conversation));
    return row;
  }

  rename(row, { id, title }) {
    const input = element("input", { type: "text", "aria-label": t`Title`, maxlength: "200" });
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
        this.changed(id, { title: text });
      } else {
        this.show();
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
    const question =
      ids.length === 1
        ? t`Delete the one conversation in this browser?`
        : t`Delete all ${ids.length} conversations in this browser?`;
    if (!confirm(question)) return;
    ids.forEach(deleteConversation);
    this.removed(ids);
  }
}
