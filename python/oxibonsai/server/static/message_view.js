// A message on the page.

import { chipOf } from "./attachments.js";
import { copyFrom, element, fitHeight, fromTemplate, isSendKey } from "./dom.js";
import { MarkdownView } from "./markdown.js";

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
    this.editButton = this.root.querySelector(".edit");
    this.editButton.addEventListener("click", () => this.edit());
    setUpActions(this.root, message, common);
  }

  edit() {
    const form = fromTemplate("editor-template");
    const area = form.querySelector("textarea");
    const close = () => {
      form.remove();
      this.root.classList.remove("editing");
      this.editButton.focus();
    };
    const submit = () => {
      const text = area.value.trim();
      if (text || this.message.attachments) this.resend(text);
    };
    area.value = this.message.content;
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
    this.root.classList.add("editing");
    this.text.after(form);
    fitHeight(area);
    area.focus();
  }
}

export class AssistantView {
  // `again()` asks for this answer anew, `proceed()` for more of it.
  constructor(message, { again, proceed, ...common }) {
    this.message = message;
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
    this.proceed.hidden = !message.content || Boolean(message.toolCalls);
    this.answer.update(message.content);
    this.showReasoning(busy);
    this.showTools();
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
    const text = `Reading the prompt: ${processed} of ${total} tokens`;
    this.waiting.querySelector(".read").textContent = text;
  }

  showReasoning(busy) {
    const { message } = this;
    this.reasoning.hidden = !message.reasoning;
    if (!message.reasoning) return;
    this.thoughts.update(message.reasoning);
    const thinking = busy && !message.content;
    const seconds = message.thoughtSeconds;
    const done = seconds >= 1 ? `Thought for ${seconds.toFixed(1)} s` : "Thoughts";
    this.reasoning.querySelector("summary").textContent = thinking ? "Thinking…" : done;
    this.reasoning.classList.toggle("thinking", thinking);
  }

  showTools() {
    const calls = this.message.toolCalls?.filter(Boolean) ?? [];
    calls.forEach((call, i) => {
      const node = this.tools.children[i] ?? this.tools.appendChild(toolCall());
      node.querySelector("summary b").textContent = call.name;
      node.querySelector("code").textContent = pretty(call.arguments);
    });
  }
}

function toolCall() {
  const pre = element("pre", { tabindex: "0", role: "region", "aria-label": "Arguments" });
  pre.append(element("code"));
  const summary = element("summary", {}, "Calls ", element("b"));
  return element("details", { class: "tool" }, summary, pre);
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // Still coming in, or not JSON at all: as it was written.
  }
}

function remarkOn({ stopped, finish, error, content, reasoning, toolCalls }) {
  if (stopped) return "Stopped.";
  if (finish === "length") return "Cut off at the limit of tokens.";
  if (!error && !content && !toolCalls) {
    return reasoning ? "There was no answer after the thoughts." : "The answer is empty.";
  }
  return "";
}

function describeFigures(figures) {
  if (!figures?.tokens) return "";
  const { tokens, rate, promptTokens, firstSeconds } = figures;
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (rate) parts.push(`${rate.toFixed(1)} tokens/s`);
  if (firstSeconds !== null) parts.push(`first after ${firstSeconds.toFixed(2)} s`);
  if (promptTokens) parts.push(`prompt of ${promptTokens}`);
  return parts.join(" · ");
}
