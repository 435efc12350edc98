// What is written but not sent, kept for each conversation: its text, and the files beside it.

import { byId, fitHeight } from "./dom.js";
import { loadDraft, saveDraft } from "./storage.js";

export class Drafts {
  id = ""; // of the conversation whose draft is shown; that of a new one has none

  constructor(attachments) {
    this.attachments = attachments;
    this.area = byId("draft");
    this.area.addEventListener("input", () => this.keep());
  }

  keep() {
    const { value: text } = this.area;
    const { files } = this.attachments;
    saveDraft(this.id, text || files.length ? { text, files } : null);
  }

  // Shows the draft of a conversation, whose id is "" as long as nothing was said in it.
  show(id) {
    const draft = loadDraft(id);
    this.id = id;
    this.area.value = typeof draft?.text === "string" ? draft.text : "";
    this.attachments.put(Array.isArray(draft?.files) ? draft.files : []);
    fitHeight(this.area);
  }

  // The draft is sent: what is written next belongs to the conversation that has begun.
  sent(id) {
    saveDraft(this.id, null);
    this.id = id;
  }
}
