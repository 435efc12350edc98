// The page: one conversation with the model of this folder, which a worker runs.

import { byId, copyFrom, fitHeight, fromTemplate, isSendKey } from "./ui/dom.js";
import { MarkdownView } from "./ui/markdown.js";
import { t, translatePage } from "./ui/words.js";

const MOST_TOKENS = 1024; // of an answer for which nobody has asked for another number

translatePage();
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const settings = byId("settings-form");
const draft = byId("draft");
const scroller = byId("scroller");
let model; // what the worker has told of it
let messages = []; // with the system prompt only when they are sent
let answer; // the one that is being written

class Answer {
  constructor() {
    this.text = "";
    this.root = fromTemplate("assistant-template");
    this.part = (selector) => this.root.querySelector(selector);
    this.thoughts = new MarkdownView(this.part(".reasoning .markdown"));
    this.view = new MarkdownView(this.part(".answer"));
    this.part(".copy").addEventListener("click", () => copyFrom(this.part(".copy"), this.content));
    this.root.classList.add("busy");
  }

  // Without the reasoning that it may begin with.
  get content() {
    return split(this.text, model.reasoning)[1];
  }

  add(text) {
    this.text += text;
    const [thoughts, content] = split(this.text, model.reasoning);
    this.part(".waiting").hidden = true;
    this.part(".reasoning").hidden = !thoughts;
    this.thoughts.update(thoughts);
    this.view.update(content);
  }

  end({ tokens = 0, seconds = 0, stopped = false }, failure = "") {
    this.root.classList.remove("busy");
    this.part(".waiting").hidden = true;
    const remark = stopped ? t`Stopped.` : this.text || failure ? "" : t`The answer is empty.`;
    this.show(".remark", remark, this.part(".remark"));
    this.show(".failure", failure, this.part(".failure p"));
    const figures = [tokens === 1 ? t`1 token` : t`${tokens} tokens`, t`${(tokens / seconds).toFixed(1)} tokens/s`];
    this.part(".figures").textContent = tokens ? figures.join(" · ") : "";
  }

  show(selector, text, node) {
    this.part(selector).hidden = !text;
    node.textContent = text;
  }
}

// The reasoning and the answer of a text, whose end may not be there yet.
function split(text, tags) {
  if (!tags || !text.trimStart().startsWith(tags[0])) return ["", text];
  const [thoughts, ...rest] = text.trimStart().slice(tags[0].length).split(tags[1]);
  return [thoughts.trim(), rest.join(tags[1]).trimStart()];
}

function follow(change) {
  const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
  change();
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
}

function showBusy(busy) {
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  byId("new").disabled = busy;
}

function end(facts, failure) {
  follow(() => answer.end(facts, failure));
  if (failure) messages.pop();
  else messages.push({ role: "assistant", content: answer.content });
  answer = undefined;
  showBusy(false);
}

const heard = {
  progress: ({ bytes, all }) => {
    byId("state").textContent = t`Loading: ${Math.floor((100 * bytes) / all)} %`;
  },
  loaded: (facts) => {
    model = facts;
    document.title = model.name;
    byId("name").textContent = model.name;
    byId("state").textContent = "";
    settings.elements.continues.checked ||= !model.chats;
    settings.elements.continues.disabled = !model.chats;
    byId("send").disabled = false;
    byId("new").disabled = false;
  },
  text: ({ text }) => follow(() => answer.add(text)),
  done: (facts) => end(facts),
  error: ({ message }) => {
    if (answer) return end({}, message);
    byId("state").textContent = "";
    byId("notice").textContent = message;
    byId("notice").hidden = false;
  },
};

worker.onmessage = ({ data }) => heard[data.type](data);
worker.onerror = ({ message }) => heard.error({ message: message ?? "the worker could not start" });
worker.postMessage({ type: "load" });

function ask(text) {
  const { system, temperature, maxTokens, seed, continues } = settings.elements;
  const options = { maxTokens: Number(maxTokens.value || MOST_TOKENS) };
  if (temperature.value) options.temperature = Number(temperature.value);
  if (seed.value) options.seed = seed.value;
  const question = fromTemplate("user-template");
  question.querySelector(".text").textContent = text;
  answer = new Answer();
  byId("welcome").hidden = true;
  byId("messages").append(question, answer.root);
  scroller.scrollTop = scroller.scrollHeight;
  messages.push({ role: "user", content: text });
  showBusy(true);
  if (continues.checked) {
    worker.postMessage({ type: "generate", prompt: text, options });
    return;
  }
  const told = system.value.trim() ? [{ role: "system", content: system.value }, ...messages] : messages;
  worker.postMessage({ type: "chat", messages: told, options });
}

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!model || answer || !draft.value.trim()) return;
  ask(draft.value);
  draft.value = "";
  fitHeight(draft);
});
draft.addEventListener("input", () => fitHeight(draft));
draft.addEventListener("keydown", (event) => {
  if (!isSendKey(event)) return;
  event.preventDefault();
  byId("compose").requestSubmit();
});

const stop = () => worker.postMessage({ type: "stop" });
byId("stop").addEventListener("click", stop);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && answer) stop();
});

byId("new").addEventListener("click", () => {
  messages = [];
  byId("messages").replaceChildren();
  byId("welcome").hidden = false;
});
byId("open-settings").addEventListener("click", () => byId("settings").showModal());
