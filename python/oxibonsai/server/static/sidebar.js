// The list of conversations; on a narrow page it slides in over the text.

import { byId, element } from "./dom.js";
import { allConversations, deleteConversation, titleOf } from "./storage.js";

export class Sidebar {
  // `open(conversation)` shows one; `removed(id)` tells of one that is gone.
  constructor({ open, create, removed }) {
    this.open = open;
    this.removed = removed;
    byId("new").addEventListener("click", () => {
      this.slide(false);
      create();
    });
    byId("menu").addEventListener("click", () => this.slide(!this.isOut));
    byId("veil").addEventListener("click", () => this.slide(false));
    byId("sidebar").addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOut) {
        event.stopPropagation();
        this.slide(false);
        byId("menu").focus();
      }
    });
    byId("export").addEventListener("click", exportAll);
    byId("clear").addEventListener("click", () => this.clear());
    matchMedia("(min-width: 56rem)").addEventListener("change", () => this.slide(false));
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
    const conversations = allConversations();
    byId("conversations").replaceChildren(
      ...conversations.map((conversation) => this.row(conversation, currentId)),
    );
    byId("export").disabled = byId("clear").disabled = !conversations.length;
  }

  row(conversation, currentId) {
    const title = titleOf(conversation);
    const open = element("button", { type: "button", class: "open", title }, title);
    if (conversation.id === currentId) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      this.slide(false);
      this.open(conversation);
    });
    const remove = element("button", { type: "button", class: "remove" }, "×");
    remove.setAttribute("aria-label", `Delete “${title}”`);
    remove.addEventListener("click", () => {
      if (!confirm(`Delete “${title}”?`)) return;
      deleteConversation(conversation.id);
      this.removed([conversation.id]);
    });
    return element("li", {}, open, remove);
  }

  clear() {
    const ids = allConversations().map(({ id }) => id);
    const count = ids.length === 1 ? "the one conversation" : `all ${ids.length} conversations`;
    if (!confirm(`Delete ${count} in this browser?`)) return;
    ids.forEach(deleteConversation);
    this.removed(ids);
  }
}

function exportAll() {
  const json = JSON.stringify(allConversations(), null, 2);
  const address = URL.createObjectURL(new Blob([json], { type: "application/json" }));
  element("a", { href: address, download: "conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
