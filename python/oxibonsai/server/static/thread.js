// The open conversation on the page: its messages, and the answers that are on their way. One that is
// left goes on writing, and is shown again when its conversation is.

import { fillAnswer } from "./answer.js";
import {
  append, branchOf, newConversation, newId, parentOf, remove, showVersion, versionsOf,
} from "./conversation.js";
import { byId, element } from "./dom.js";
import { AssistantView, UserView } from "./message_view.js";
import { requestBody } from "./request.js";
import { Runs } from "./runs.js";
import { allConversations, loadKey, saveMessage } from "./storage.js";
import { DECLINED } from "./tools.js";
import { t } from "./words.js";

const NEAR_END = 60; // pixels from the end within which the page follows the text
const FRAME = 16; // milliseconds between two looks at what has come
const KEEP = 1000; // milliseconds between two times that a growing answer is kept

export class Thread {
  conversation = newConversation();
  runs = new Runs();
  views = new Map(); // of the answers on the page, by the message's id
  unread = new Set(); // ids of conversations whose answers ended while another one was open

  // `tools` are those that the model may call; `models()` are the one or two to ask; `changed(conversation)`
  // follows each change that is to be kept, `joined()` where an answer goes on that was begun earlier,
  // `ended(message)` each answer, `measured(message)` what is known of its length.
  constructor({ tools, models, changed, joined, ended, measured }) {
    Object.assign(this, { tools, models, changed, joined, ended, measured });
    this.scroller = byId("scroller");
    this.scroller.addEventListener("scroll", () => this.showLatest());
    // The last chance to keep what has come; the server goes on, and a later visit joins it.
    addEventListener("pagehide", () => this.runs.all.forEach((run) => this.keep(run)));
  }

  // Whether something of the open conversation is on its way.
  get running() {
    return this.runs.in(this.conversation.id).length > 0;
  }

  isOpen({ id }) {
    return id === this.conversation.id;
  }

  // Shows a conversation; what is being written in the one that is left goes on.
  open(conversation) {
    this.conversation = this.runs.live(conversation);
    this.show();
    if (!this.unread.delete(conversation.id)) return;
    this.goOn(this.conversation, branchOf(this.conversation).at(-1));
  }

  // Joins the answers that were on their way when the page was left.
  joinAll() {
    for (const stored of allConversations()) {
      for (const message of stored.messages.filter(({ answerId }) => answerId)) {
        this.write(this.runs.live(stored), message, {});
      }
    }
  }

  // Ends what runs in conversations that are deleted, and keeps nothing of it.
  discard(ids) {
    for (const id of ids) {
      if (id === this.conversation.id) this.conversation.deleted = true;
      for (const { conversation } of this.runs.in(id)) conversation.deleted = true;
      this.runs.stop(id);
    }
  }

  // Title, folder and pin are changed in the list; what is open or running is another copy.
  amend(id, values) {
    if (id === this.conversation.id) Object.assign(this.conversation, values);
    for (const { conversation } of this.runs.in(id)) Object.assign(conversation, values);
  }

  show() {
    const branch = branchOf(this.conversation);
    this.views.clear();
    byId("messages").replaceChildren(...branch.map((message) => this.nodeOf(message)));
    byId("welcome").hidden = branch.length > 0;
    this.showBusy();
    this.scrollDown();
    this.showLatest();
    this.measured(branch.findLast(({ role }) => role === "assistant"));
  }

  // A message on the page; an answer beside the one that another model gave to the same question.
  nodeOf(message) {
    const both = message.pair
      ? versionsOf(this.conversation, message).filter(({ pair }) => pair === message.pair)
      : [message];
    if (both.length < 2) return this.viewOf(message).root;
    const name = element("h2", { class: "visually-hidden" }, t`Answers of two models`);
    const columns = both.map((one) => {
      const { root } = this.viewOf(one, { chosen: one === message });
      root.classList.toggle("chosen", one === message);
      return root;
    });
    return element("li", { class: "pair" }, name, element("ol", {}, ...columns));
  }

  viewOf(message, { chosen = true } = {}) {
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
    const view = new AssistantView(message, {
      ...common,
      again: () => this.regenerate(message),
      proceed: () => this.proceed(message),
      rewrite: (text) => this.rewrite(message, text),
      choose: chosen ? null : () => this.change(() => showVersion(conversation, message)),
      waits: (call) => !this.running && this.tools.has(call.name) && this.waits(message, call),
      runs: (call) => call === this.runs.of(message)?.call,
      decide: (call, word) => this.decide(message, call, word),
    });
    const run = this.runs.of(message);
    view.update({ busy: Boolean(run && !run.call) });
    run?.speaker?.skip(view.answer);
    this.views.set(message.id, view);
    return view;
  }

  change(action) {
    if (this.running) return;
    action();
    this.changed(this.conversation);
    this.show();
  }

  remove(message) {
    if (this.running || !confirm(t`Delete this message and what follows it?`)) return;
    this.change(() => remove(this.conversation, message));
    byId("draft").focus();
  }

  ask(content, attachments) {
    if (this.running) return;
    const question = { role: "user", content };
    if (attachments.length) question.attachments = attachments;
    const { conversation } = this;
    const last = branchOf(conversation).at(-1);
    this.answer(conversation, append(conversation, last, question));
  }

  // The edited question stands beside the first one, with an answer of its own.
  askAgain(message, content) {
    if (this.running) return;
    const { attachments } = message;
    const { conversation } = this;
    const parent = parentOf(conversation, message);
    const question = { role: "user", content, ...(attachments && { attachments }) };
    this.answer(conversation, append(conversation, parent, question));
  }

  regenerate(message) {
    if (this.running) return;
    const { conversation } = this;
    if (message.answerId) {
      clearEnd(message);
      this.write(conversation, message, {});
      return;
    }
    const question = parentOf(conversation, message);
    // What never began is no version to come back to.
    if (!message.content && !message.reasoning && !message.toolCalls) remove(conversation, message);
    this.answer(conversation, question, this.models().slice(0, 1));
  }

  // Has a question answered, by two models where another one is chosen beside the first.
  answer(conversation, question, models = this.models()) {
    const pair = models.length > 1 ? newId() : undefined;
    const answers = models.map((model) => {
      const message = { role: "assistant", content: "", ...(model && { model }), ...(pair && { pair }) };
      return append(conversation, question, message);
    });
    conversation.leaf = answers[0].id;
    return Promise.all(answers.map((message) => this.write(conversation, message, {})));
  }

  // What the visitor makes of an answer stands beside it, as one more version.
  rewrite(message, content) {
    const { conversation } = this;
    const { reasoning, model } = message;
    const edited = { role: "assistant", content, edited: true, ...(reasoning && { reasoning }), ...(model && { model }) };
    this.change(() => append(conversation, parentOf(conversation, message), edited));
  }

  proceed(message) {
    if (this.running) return;
    clearEnd(message);
    if (!message.pair) message.model = this.models()[0];
    this.write(this.conversation, message, { proceed: true });
  }

  // Fills an answer, goes on with it, or joins it where the server is writing it.
  async write(conversation, message, { proceed = false }) {
    const branch = branchOf({ ...conversation, leaf: proceed ? message.id : message.parent });
    const { model } = message;
    const tools = this.tools.definitions;
    const body = () => requestBody({ model, system: conversation.system, branch, tools, proceed });
    const run = this.runs.begin(conversation, message);
    // Two answers at once can't be followed.
    if (message.id === conversation.leaf) run.speaker = new Speaker();
    if (message.answerId) this.joined();
    else this.changed(conversation);
    if (this.isOpen(conversation)) this.show();

    const pace = new Pace(() => this.refresh(run));
    const keep = new Pace(() => this.keep(run), KEEP);
    const changed = () => {
      pace.changed();
      keep.changed();
    };
    await fillAnswer(message, body, { key: loadKey(), signal: run.abort.signal, changed });
    pace.end();
    keep.end();
    this.finish(run);
    this.ended(message);
    await this.goOn(conversation, message);
  }

  // Shows what has come of an answer.
  refresh({ conversation, message, speaker }) {
    const view = this.isOpen(conversation) && this.views.get(message.id);
    if (!view) return;
    const busy = Boolean(this.runs.of(message));
    const follow = this.isNearEnd();
    view.update({ busy });
    speaker?.speak(view.answer, !busy);
    if (follow) this.scrollDown();
    this.showLatest();
    this.measured(message);
  }

  keep({ conversation, message }) {
    if (!conversation.deleted) saveMessage(conversation.id, message);
  }

  finish(run) {
    run.end();
    const { conversation } = run;
    this.refresh(run);
    this.showBusy();
    if (conversation.deleted) return;
    if (this.isOpen(conversation)) {
      this.changed(conversation);
    } else {
      this.keep(run);
      this.unread.add(conversation.id);
    }
  }

  // Whether a call is for the visitor to decide: one at the end of the branch, of a tool that is there.
  waits({ id, finish, error, toolCalls }, call) {
    const last = id === this.conversation.leaf && finish === "tool_calls" && !error;
    return last && call.result === undefined && toolCalls.some(({ name }) => this.tools.has(name));
  }

  // Declines a call, or runs it; after the last one the model goes on with the results.
  async decide(message, call, word) {
    const { conversation } = this;
    if (this.running || !this.waits(message, call)) return;
    if (word === "always") this.tools.allowed.add(call.name);
    if (word === "decline") call.result = DECLINED;
    else await this.call(conversation, message, call);
    // Stopped: it can be allowed or declined anew.
    if (call.result !== undefined) await this.goOn(conversation, message);
    else if (this.isOpen(conversation)) this.show();
  }

  async call(conversation, message, call) {
    const run = this.runs.begin(conversation, message, call);
    this.show();
    try {
      call.result = await this.tools.run(call, run.abort.signal);
    } catch {
      // Stopped: there is no result.
    }
    this.finish(run);
  }

  // Runs the calls of an answer that are allowed already; then the model reads the results of all.
  // Nothing is called for a conversation that is not open: it goes on when it is opened.
  async goOn(conversation, message) {
    const calls = (message?.toolCalls ?? []).filter(Boolean);
    if (!this.isOpen(conversation) || !calls.length || message.id !== conversation.leaf) return;
    this.changed(conversation);
    this.show();
    const next = calls.find((call) => this.waits(message, call));
    if (next && this.tools.needsNoLeave(next)) {
      await this.decide(message, next, "allow");
    } else if (next) {
      byId("spoken").append(element("p", {}, t`The model asks to call ${next.name}.`));
    } else if (calls.every(({ result }) => result !== undefined)) {
      await this.answer(conversation, message, [message.model]);
    }
  }

  stop() {
    return this.runs.stop(this.conversation.id);
  }

  showBusy() {
    const busy = this.running;
    document.body.classList.toggle("answering", busy);
    const focused = document.activeElement;
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    // A hidden button can't keep the focus; its place in the order is the draft's neighbour.
    if (focused === byId(busy ? "send" : "stop")) byId("draft").focus();
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

// An answer that is to go on, or to be joined, has not ended.
function clearEnd(message) {
  for (const name of ["stopped", "finish", "error", "status", "figures"]) delete message[name];
}

// Does something about what has come, such as to show it: not oftener than every `least` milliseconds,
// and so that it keeps the page from its visitor for no more than a fifth of the time.
class Pace {
  planned = 0;

  constructor(action, least = FRAME) {
    this.action = action;
    this.least = this.pause = least;
  }

  changed() {
    this.planned ||= setTimeout(() => {
      const began = performance.now();
      this.action();
      this.pause = Math.max(this.least, 4 * (performance.now() - began));
      this.planned = 0;
    }, this.pause);
  }

  end() {
    clearTimeout(this.planned);
  }
}

// Reads an answer out by whole blocks, since a screen reader can't follow single tokens.
class Speaker {
  spoken = 0;

  constructor() {
    byId("spoken").replaceChildren();
  }

  speak(markdown, complete) {
    const texts = markdown.spokenFrom(this.spoken, complete);
    this.spoken += texts.length;
    for (const text of texts) byId("spoken").append(element("p", {}, text));
  }

  // What was written while another conversation was open is there to be read, and not read out.
  skip(markdown) {
    this.spoken = Math.max(this.spoken, markdown.spokenFrom(0, false).length);
  }
}
