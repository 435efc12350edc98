// A message on the page.

import { chipOf } from "./attachments.js";
import { copyFrom, element, fitHeight, fromTemplate, isSendKey } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { setUpReading } from "./voice.js";
import { t } from "./words.js";

// The buttons that a question and an answer share; `versions` are those of this message, which
// `turn(-1)` and `turn(1)` lead through.
function setUpActions(root, message, { version, versions, turn, remove }) {
  const part = (name) => root.querySelector(name);
  const copy = part(".copy");
  copy.addEventListener("click", () => copyFrom(copy, message.content));
  part(".delete").addEventListener("click", remove);
  part(".versions").hidden = versions < 2;
  part(".versions span").textContent = `${version}/${versions}`;
  part(".previous").disabled = version === 1;
  part(".next").disabled = version === versions;
  part(".previous").addEventListener("click", () => turn(-1));
  part(".next").addEventListener("click", () => turn(1));
}

export class UserView {
  // `resend(text)` is called with the edited text.
  constructor(message, { resend, ...common }) {
    this.message = message;
    this.resend = resend;
    this.root = fromTemplate("user-template");
    this.text = this.root.querySelector(".text");
    this.text.textContent = message.content;
    this.text.hidden = !message.content;
    const files = message.attachments ?? [];
    this.root.querySelector(".attached").append(...files.map(chipOf));
    this.root.querySelector(".attached").hidden = !files.length;
    this.root.querySelector(".edit").addEventListener("click", () => this.edit());
    setUpActions(this.root, message, common);
  }

  edit() {
    const { content, attachments } = this.message;
    const save = (text) => (text || attachments) && this.resend(text);
    edit(this.root, this.text, { text: content, label: t`Send again`, save });
  }
}

// Edits the text of a message in place of it; `save(text)` is called with what came of it.
function edit(root, shown, { text, label, save }) {
  const form = fromTemplate("editor-template");
  const area = form.querySelector("textarea");
  form.querySelector(".primary").textContent = label;
  const close = () => {
    form.remove();
    root.classList.remove("editing");
    root.querySelector(".edit").focus();
  };
  const submit = () => save(area.value.trim());
  area.value = text;
  area.addEventListener("input", () => fitHeight(area));
  area.addEventListener("keydown", (event) => {
    if (isSendKey(event)) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      close();
    }
  });
  form.querySelector(".cancel").addEventListener("click", close);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  root.classList.add("editing");
  shown.after(form);
  fitHeight(area);
  area.focus();
}

export class AssistantView {
  // `again()` asks for this answer anew, `proceed()` for more of it; `rewrite(text)` puts another one
  // beside it, `choose()`, where there is one, goes on from this one of two. `waits(call)` is whether a call is
  // for the visitor to `decide(call, word)`: "allow", "always" or "decline"; `runs(call)` whether it runs.
  constructor(message, { again, proceed, rewrite, choose, waits, runs, decide, ...common }) {
    Object.assign(this, { message, waits, runs, decide });
    this.root = fromTemplate("assistant-template");
    const part = (name) => this.root.querySelector(name);
    this.waiting = part(".waiting");
    this.reasoning = part(".reasoning");
    this.thoughts = new MarkdownView(part(".reasoning .markdown"));
    this.answer = new MarkdownView(part(".answer"));
    this.tools = part(".tools");
    this.remark = part(".remark");
    this.failure = part(".failure");
    this.figures = part(".figures");
    this.proceed = part(".proceed");
    this.proceed.addEventListener("click", proceed);
    part(".again").addEventListener("click", again);
    part(".edit").addEventListener("click", () => {
      const save = (text) => text && rewrite(text);
      edit(this.root, part(".answer"), { text: message.content, label: t`Keep`, save });
    });
    setUpReading(part(".read-aloud"), () => this.answer.spokenFrom(0, true));
    part(".choose").hidden = !choose;
    part(".choose").addEventListener("click", () => choose());
    part(".retry").addEventListener("click", again);
    setUpActions(this.root, message, common);
  }

  update({ busy }) {
    const { message } = this;
    const begun = message.content || message.reasoning || message.toolCalls;
    this.root.classList.toggle("busy", busy);
    this.root.classList.toggle("void", !begun && Boolean(message.error));
    this.root.setAttribute("aria-busy", String(busy));
    this.waiting.hidden = !busy || Boolean(begun);
    this.showProgress();
    this.proceed.hidden = !isCut(message);
    this.root.querySelector(".edit").hidden = !message.content || Boolean(message.toolCalls);
    this.root.querySelector(".name").textContent = message.model ?? "";
    this.root.querySelector(".name").hidden = !message.pair;
    this.answer.update(message.content);
    this.showReasoning(busy);
    this.showTools(busy);
    this.remark.textContent = busy ? "" : remarkOn(message);
    this.remark.hidden = !this.remark.textContent;
    this.failure.querySelector("p").textContent = message.error ?? "";
    this.failure.hidden = !message.error;
    this.figures.textContent = describeFigures(message.figures);
  }

  // How far the server is with a prompt; a short one is done before anybody could read it.
  showProgress() {
    const { progress } = this.message;
    const bar = this.waiting.querySelector("progress");
    const far = progress && progress.total > progress.cache;
    bar.hidden = !far;
    this.waiting.querySelector(".read").hidden = !far;
    if (!far) return;
    const { processed, total } = progress;
    bar.max = total;
    bar.value = processed;
    const text = t`Reading the prompt: ${processed} of ${total} tokens`;
    this.waiting.querySelector(".read").textContent = text;
  }

  showReasoning(busy) {
    const { message } = this;
    this.reasoning.hidden = !message.reasoning;
    if (!message.reasoning) return;
    this.thoughts.update(message.reasoning);
    const thinking = busy && !message.content;
    const seconds = message.thoughtSeconds;
    const done = seconds >= 1 ? t`Thought for ${seconds.toFixed(1)} s` : t`Thoughts`;
    this.reasoning.querySelector("summary").textContent = thinking ? t`Thinking…` : done;
    this.reasoning.classList.toggle("thinking", thinking);
  }

  showTools(busy) {
    const calls = this.message.toolCalls?.filter(Boolean) ?? [];
    calls.forEach((call, i) => {
      const node = this.tools.children[i] ?? this.tools.appendChild(this.toolCall(i));
      const part = (name) => node.querySelector(name);
      const waits = !busy && this.waits(call);
      part("summary b").textContent = call.name;
      part(".arguments code").textContent = pretty(call.arguments);
      part(".result").hidden = call.result === undefined;
      part(".result").textContent = call.result === undefined ? "" : pretty(call.result);
      part(".running").hidden = !this.runs(call);
      // Nobody can allow what is folded away.
      if (waits || this.runs(call)) node.open = true;
      part(".ask").hidden = !waits;
    });
  }

  toolCall(i) {
    const node = fromTemplate("tool-template");
    for (const word of ["allow", "always", "decline"]) {
      const decide = () => this.decide(this.message.toolCalls.filter(Boolean)[i], word);
      node.querySelector(`.${word}`).addEventListener("click", decide);
    }
    return node;
  }
}

// Whether an answer ended before the model had ended it: at a limit, by hand, with the connection.
const isCut = ({ content, finish, toolCalls, edited }) =>
  Boolean(content) && finish !== "stop" && !toolCalls && !edited;

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // Still coming in, or not JSON at all: as it was written.
  }
}

function remarkOn({ stopped, finish, error, content, reasoning, toolCalls, edited }) {
  if (edited) return t`Edited by you.`;
  if (stopped) return t`Stopped.`;
  if (finish === "length") return t`Cut off at the limit of tokens.`;
  if (!error && !content && !toolCalls) {
    return reasoning ? t`There was no answer after the thoughts.` : t`The answer is empty.`;
  }
  return "";
}

function describeFigures(figures) {
  if (!figures?.tokens) return "";
  const { tokens, rate, promptTokens, firstSeconds } = figures;
  const parts = [tokens === 1 ? t`1 token` : t`${tokens} tokens`];
  if (rate) parts.push(t`${rate.toFixed(1)} tokens/s`);
  if (firstSeconds !== null) parts.push(t`first after ${firstSeconds.toFixed(2)} s`);
  if (promptTokens) parts.push(t`prompt of ${promptTokens}`);
  return parts.join(" · ");
}
