// The open conversation on the page: its messages, and the one answer that may be on its way.

import { fillAnswer } from "./answer.js";
import {
  append, branchOf, newConversation, parentOf, remove, showVersion, versionsOf,
} from "./conversation.js";
import { byId, element } from "./dom.js";
import { AssistantView, UserView } from "./message_view.js";
import { requestBody } from "./request.js";
import { loadKey } from "./storage.js";

const NEAR_END = 60; // pixels from the end within which the page follows the text
const FRAME = 16; // milliseconds between two looks at what has come

export class Thread {
  conversation = newConversation();
  running = null; // { abort: AbortController, done: Promise } of the answer being written

  // `model()` is the one to ask; `changed(conversation)` follows each change that is to be kept,
  // `ended(message)` each answer, `measured(message)` what is known of its length.
  constructor({ model, changed, ended, measured }) {
    Object.assign(this, { model, changed, ended, measured });
    this.scroller = byId("scroller");
    this.scroller.addEventListener("scroll", () => this.showLatest());
  }

  // Shows a conversation; what is being written belongs to the one that is left, and is kept there.
  async open(conversation) {
    await this.stop();
    this.conversation = conversation;
    this.show();
  }

  show() {
    const branch = branchOf(this.conversation);
    const views = branch.map((message) => {
      const view = this.viewOf(message);
      if (view instanceof AssistantView) view.update({ busy: false });
      return view.root;
    });
    byId("messages").replaceChildren(...views);
    byId("welcome").hidden = branch.length > 0;
    this.scrollDown();
    this.showLatest();
    this.measured(branch.findLast(({ role }) => role === "assistant"));
  }

  viewOf(message) {
    const { conversation } = this;
    const versions = versionsOf(conversation, message);
    const at = versions.indexOf(message);
    const common = {
      version: at + 1,
      versions: versions.length,
      turn: (step) => this.change(() => showVersion(conversation, versions[at + step])),
      remove: () => this.remove(message),
    };
    if (message.role === "user") {
      const resend = (text) => this.askAgain(message, text);
      return new UserView(message, { ...common, resend });
    }
    const again = () => this.regenerate(message);
    return new AssistantView(message, { ...common, again, proceed: () => this.proceed(message) });
  }

  change(action) {
    if (this.running) return;
    action();
    this.changed(this.conversation);
    this.show();
  }

  remove(message) {
    if (this.running || !confirm("Delete this message and what follows it?")) return;
    this.change(() => remove(this.conversation, message));
    byId("draft").focus();
  }

  ask(content, attachments) {
    if (this.running) return;
    const question = { role: "user", content };
    if (attachments.length) question.attachments = attachments;
    const last = branchOf(this.conversation).at(-1);
    this.answer(append(this.conversation, last, question));
  }

  // The edited question stands beside the first one, with an answer of its own.
  askAgain(message, content) {
    if (this.running) return;
    const { attachments } = message;
    const parent = parentOf(this.conversation, message);
    const question = { role: "user", content, ...(attachments && { attachments }) };
    this.answer(append(this.conversation, parent, question));
  }

  regenerate(message) {
    if (this.running) return;
    const question = parentOf(this.conversation, message);
    // What never began is no version to come back to.
    if (!message.content && !message.reasoning) remove(this.conversation, message);
    this.answer(question);
  }

  answer(question) {
    const message = append(this.conversation, question, { role: "assistant", content: "" });
    return this.write(message, {});
  }

  proceed(message) {
    if (this.running) return;
    for (const name of ["stopped", "finish", "error", "status", "figures"]) delete message[name];
    this.write(message, { proceed: true });
  }

  // Fills an answer, or goes on with it.
  async write(message, { proceed = false }) {
    const owner = this.conversation;
    const branch = branchOf(owner).slice(0, proceed ? undefined : -1);
    const model = this.model();
    if (model) message.model = model;
    const body = () => requestBody({ model, system: owner.system, branch, proceed });
    const abort = new AbortController();
    let end;
    this.running = { abort, done: new Promise((resolve) => (end = resolve)) };
    this.changed(owner);
    this.show();

    const view = this.viewOf(message);
    byId("messages").lastElementChild.replaceWith(view.root);
    const speaker = new Speaker(view.answer);
    const show = (busy) => {
      const follow = this.isNearEnd();
      view.update({ busy });
      speaker.speak(!busy);
      if (follow) this.scrollDown();
      this.showLatest();
      this.measured(message);
    };
    show(true);
    this.scrollDown();
    this.setBusy(true);
    const pace = new Pace(() => show(true));
    const changed = () => pace.changed();
    await fillAnswer(message, body, { key: loadKey(), signal: abort.signal, changed });
    pace.end();
    show(false);
    this.running = null;
    this.setBusy(false);
    end();
    if (!owner.deleted) this.changed(owner);
    this.ended(message);
  }

  async stop() {
    this.running?.abort.abort();
    while (this.running) await this.running.done;
  }

  setBusy(busy) {
    document.body.classList.toggle("answering", busy);
    const focused = document.activeElement;
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    // A hidden button can't keep the focus; its place in the order is the draft's neighbour.
    if (focused === byId("send") || focused === byId("stop")) byId("draft").focus();
  }

  isNearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_END;
  }

  scrollDown() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  showLatest() {
    byId("latest").hidden = this.isNearEnd();
  }
}

// Shows what has come, and no text keeps the page from its visitor for more than a fifth of the time.
class Pace {
  planned = 0;
  pause = FRAME;

  constructor(show) {
    this.show = show;
  }

  changed() {
    this.planned ||= setTimeout(() => {
      const began = performance.now();
      this.show();
      this.pause = Math.max(FRAME, 4 * (performance.now() - began));
      this.planned = 0;
    }, this.pause);
  }

  end() {
    clearTimeout(this.planned);
  }
}

// Reads an answer out by whole blocks, since a screen reader can't follow single tokens.
class Speaker {
  constructor(markdown) {
    this.markdown = markdown;
    this.spoken = 0;
    byId("spoken").replaceChildren();
  }

  speak(complete) {
    const texts = this.markdown.spokenFrom(this.spoken, complete);
    this.spoken += texts.length;
    for (const text of texts) byId("spoken").append(element("p", {}, text));
  }
}
