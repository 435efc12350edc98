// The dialog of one conversation: its folder, whether it is pinned, and the files that it is saved as.

import { byId, element } from "./dom.js";
import { allConversations, loadConversation, saveConversation } from "./storage.js";
import { saveAsJson, saveAsMarkdown } from "./transfer.js";

export class ConversationDialog {
  // `changed(id, { folder, pinned })` follows what is chosen here.
  constructor({ changed }) {
    this.form = byId("conversation-form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { folder, pinned } = this.form.elements;
      const place = { folder: folder.value.trim(), pinned: pinned.checked };
      const stored = loadConversation(this.id);
      if (stored) saveConversation({ ...stored, ...place });
      byId("conversation-dialog").close();
      changed(this.id, place);
    });
    byId("cancel-conversation").addEventListener("click", () => byId("conversation-dialog").close());
    byId("save-markdown").addEventListener("click", () => this.save(saveAsMarkdown));
    byId("save-json").addEventListener("click", () => this.save(saveAsJson));
  }

  save(as) {
    const stored = loadConversation(this.id);
    if (stored) as(stored);
  }

  open({ id, folder, pinned }, title) {
    this.id = id;
    byId("conversation-title").textContent = title;
    this.form.elements.folder.value = folder;
    this.form.elements.pinned.checked = pinned;
    const folders = new Set(allConversations().map((one) => one.folder).filter(Boolean));
    byId("folders").replaceChildren(...[...folders].sort().map((value) => element("option", { value })));
    byId("conversation-dialog").showModal();
  }
}
