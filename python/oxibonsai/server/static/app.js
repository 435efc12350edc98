// The page: one conversation is open, at most one answer is being written.

import { fillAnswer } from "./answer.js";
import { describe, listModels } from "./api.js";
import { byId, element, fitHeight, isSendKey } from "./dom.js";
import { AssistantView, UserView } from "./message_view.js";
import { openSettings, requestBody, setUpSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { loadKey, newConversation, saveConversation } from "./storage.js";
import { setUpTheme } from "./theme.js";

const NEAR_END = 60; // pixels from the end within which the page follows the text
const FRAME = 16; // milliseconds between two looks at what has come

const scroller = byId("scroller");
const draft = byId("draft");
let conversation = newConversation();
let running = null; // { abort: AbortController, done: Promise } of the answer being written

const sidebar = new Sidebar({
  open: switchTo,
  create: () => switchTo(newConversation()),
  removed: (ids) =>
    ids.includes(conversation.id) ? switchTo(newConversation(), { keep: false }) : list(),
});

function list() {
  sidebar.show(conversation.id);
}

async function switchTo(next, { keep = true } = {}) {
  // What is being written belongs to the conversation that is left: stop, and keep it there.
  if (!keep) conversation.deleted = true;
  await stop();
  conversation = next;
  showMessages();
  list();
  draft.focus();
}

function showMessages() {
  byId("messages").replaceChildren(
    ...conversation.messages.map((message, i) => {
      const view = viewOf(message, i);
      if (view instanceof AssistantView) view.update({ busy: false });
      return view.root;
    }),
  );
  byId("welcome").hidden = conversation.messages.length > 0;
  scroller.scrollTop = scroller.scrollHeight;
  showLatest();
}

function viewOf(message, index) {
  if (message.role === "user") {
    return new UserView(message, { resend: (text) => ask(text, index) });
  }
  return new AssistantView(message, { regenerate: () => answer(index) });
}

// Asks `text` as the message of that index; what followed it goes.
function ask(text, index) {
  if (running) return;
  conversation.messages.length = index;
  conversation.messages.push({ role: "user", content: text });
  answer(index + 1);
}

// Writes the message of that index anew; what followed it goes.
async function answer(index) {
  if (running) return;
  conversation.messages.length = index;
  const message = { role: "assistant", content: "" };
  const body = requestBody(byId("model").value, conversation.messages);
  const owner = conversation;
  owner.messages.push(message);
  save(owner);
  showMessages();
  list();

  const view = viewOf(message, index);
  byId("messages").lastElementChild.replaceWith(view.root);
  const speaker = new Speaker(view.answer);
  const abort = new AbortController();
  const show = (busy) => {
    const follow = isNearEnd();
    view.update({ busy });
    speaker.speak(!busy);
    if (follow) scroller.scrollTop = scroller.scrollHeight;
    showLatest();
  };
  show(true);
  scroller.scrollTop = scroller.scrollHeight;
  let planned = 0;
  let pause = FRAME;
  const changed = () => {
    planned ||= setTimeout(() => {
      const began = performance.now();
      show(true);
      // No text keeps the page from its visitor for more than a fifth of the time.
      pause = Math.max(FRAME, 4 * (performance.now() - began));
      planned = 0;
    }, pause);
  };
  setBusy(true);
  const done = fillAnswer(message, body, { key: loadKey(), signal: abort.signal, changed });
  running = { abort, done };
  await done;
  clearTimeout(planned);
  show(false);
  running = null;
  setBusy(false);
  if (!owner.deleted) save(owner);
  list();
  if (message.status === 401) openSettings("key");
}

async function stop() {
  running?.abort.abort();
  while (running) {
    await running.done;
    await Promise.resolve(); // Lets the answer's own end run first.
  }
}

function setBusy(busy) {
  document.body.classList.toggle("answering", busy);
  const focused = document.activeElement;
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  // A hidden button can't keep the focus; its place in the order is the draft's neighbour.
  if (focused === byId("send") || focused === byId("stop")) draft.focus();
}

function save(owner) {
  if (saveConversation(owner)) return;
  notice("The browser has no room left, so this conversation is not kept. Delete old ones.");
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
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

const isNearEnd = () =>
  scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;

function showLatest() {
  byId("latest").hidden = isNearEnd();
}

async function showModels() {
  const select = byId("model");
  try {
    const chosen = select.value;
    const models = await listModels(loadKey());
    select.replaceChildren(...models.map((id) => element("option", { value: id }, id)));
    if (models.includes(chosen)) select.value = chosen;
    select.disabled = !models.length;
    notice("");
  } catch (error) {
    notice(describe(error));
    if (error.status === 401) openSettings("key");
  }
}

function setUpComposer() {
  const submit = () => {
    const text = draft.value.trim();
    if (!text || running) return;
    draft.value = "";
    fitHeight(draft);
    ask(text, conversation.messages.length);
    draft.focus();
  };
  draft.addEventListener("input", () => fitHeight(draft));
  draft.addEventListener("keydown", (event) => {
    if (!isSendKey(event)) return;
    event.preventDefault();
    submit();
  });
  byId("compose").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing && !byId("settings").open) stop();
  });
  scroller.addEventListener("scroll", showLatest);
  byId("latest").addEventListener("click", () => {
    scroller.scrollTop = scroller.scrollHeight;
    draft.focus();
  });
}

setUpTheme();
setUpSettings(showModels);
setUpComposer();
addEventListener("storage", list);
list();
showMessages();
showModels();
draft.focus();
