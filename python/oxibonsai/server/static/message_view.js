// A message on the page.

import { copyFrom, element, fitHeight, fromTemplate, isSendKey } from "./dom.js";
import { MarkdownView } from "./markdown.js";

export class UserView {
  // `resend(text)` is called with the edited text.
  constructor(message, { resend }) {
    this.message = message;
    this.resend = resend;
    this.root = fromTemplate("user-template");
    this.text = this.root.querySelector(".text");
    this.text.textContent = message.content;
    this.editButton = this.root.querySelector(".edit");
    this.editButton.addEventListener("click", () => this.edit());
    const copy = this.root.querySelector(".copy");
    copy.addEventListener("click", () => copyFrom(copy, message.content));
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
      if (text) this.resend(text);
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
  // `regenerate()` asks for this answer anew.
  constructor(message, { regenerate }) {
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
    part(".again").addEventListener("click", regenerate);
    part(".retry").addEventListener("click", regenerate);
    const copy = part(".copy");
    copy.addEventListener("click", () => copyFrom(copy, message.content));
  }

  update({ busy }) {
    const { message } = this;
    const begun = message.content || message.reasoning || message.toolCalls;
    this.root.classList.toggle("busy", busy);
    this.root.classList.toggle("void", !begun && Boolean(message.error));
    this.root.setAttribute("aria-busy", String(busy));
    this.waiting.hidden = !busy || Boolean(begun);
    this.answer.update(message.content);
    this.showReasoning(busy);
    this.showTools();
    this.remark.textContent = busy ? "" : remarkOn(message);
    this.remark.hidden = !this.remark.textContent;
    this.failure.querySelector("p").textContent = message.error ?? "";
    this.failure.hidden = !message.error;
    this.figures.textContent = describeFigures(message.figures);
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
