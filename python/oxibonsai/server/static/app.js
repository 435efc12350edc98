// The page: one conversation is open; its address is its id, so that a reload opens it again.

import { Attachments } from "./attachments.js";
import { loadedAddress, showAddress } from "./address.js";
import { newConversation } from "./conversation.js";
import { byId, fitHeight, isSendKey } from "./dom.js";
import { showContext } from "./gauge.js";
import { Models } from "./models.js";
import { keepOnly } from "./pictures.js";
import { openSettings, setUpSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { loadConversation, saveConversation } from "./storage.js";
import { firstPrompt, SystemPrompt } from "./system_prompt.js";
import { setUpTheme } from "./theme.js";
import { Thread } from "./thread.js";
import { importFrom, picturesInUse } from "./transfer.js";

const draft = byId("draft");
let lastAnswer;

const notice = (text) => {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
};
const models = new Models({ notice, changed: showGauge });
const thread = new Thread({
  model: () => models.chosen,
  changed: save,
  measured: (message) => {
    lastAnswer = message;
    showGauge();
  },
  ended: (message) => {
    list();
    // A server that loads models on demand has another one in memory now.
    if (models.states.get(models.chosen)) models.refresh();
    if (message.status === 401) openSettings("key");
  },
});
const prompt = new SystemPrompt({
  current: () => thread.conversation.system,
  changed: (system) => {
    thread.conversation.system = system;
    if (thread.conversation.messages.length) save(thread.conversation);
  },
});
const attachments = new Attachments({
  sees: () => models.known.then(() => models.sees),
  refuse: notice,
});
const sidebar = new Sidebar({
  open: (id) => openStored(id),
  create: () => switchTo(newConversation(firstPrompt())),
  renamed: (id, title) => {
    if (id === thread.conversation.id) thread.conversation.title = title;
    list();
  },
  removed: async (ids) => {
    if (ids.includes(thread.conversation.id)) {
      thread.conversation.deleted = true;
      await switchTo(newConversation(firstPrompt()));
    }
    list();
    dropPictures();
  },
  imported: async (file) => {
    notice(await importFrom(file));
    const current = loadConversation(thread.conversation.id);
    if (current && !thread.running) await switchTo(current);
    list();
  },
});

function list() {
  sidebar.show(thread.conversation.id);
}

function showGauge() {
  showContext(lastAnswer?.figures, models.contextSize);
}

function save(conversation) {
  conversation.changed = Date.now();
  if (conversation === thread.conversation) showAddress(conversation.id);
  if (!saveConversation(conversation)) {
    notice("The browser has no room left, so this conversation is not kept. Delete old ones.");
  }
  list();
}

async function switchTo(conversation) {
  await thread.open(conversation);
  showAddress(conversation.messages.length ? conversation.id : "");
  prompt.show();
  list();
  draft.focus();
}

// Opens what the browser keeps under an id; the page of an unknown one is a new conversation.
async function openStored(id) {
  const stored = id ? loadConversation(id) : null;
  await switchTo(stored ?? newConversation(firstPrompt()));
  notice(id && !stored ? "This browser has no conversation at that address." : "");
}

// Pictures of messages that are gone; one that was attached and not sent yet stays.
function dropPictures() {
  const used = picturesInUse();
  for (const { picture } of attachments.files) if (picture) used.add(picture);
  keepOnly(used).catch(() => {}); // What can't be tidied up now is tidied up another time.
}

function submit() {
  const text = draft.value.trim();
  if (thread.running || (!text && !attachments.files.length)) return;
  draft.value = "";
  fitHeight(draft);
  thread.ask(text, attachments.take());
  draft.focus();
}

function setUpComposer() {
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
  byId("stop").addEventListener("click", () => thread.stop());
  document.addEventListener("keydown", (event) => {
    const free = !document.querySelector("dialog[open]");
    if (event.key === "Escape" && !event.isComposing && free) thread.stop();
  });
  byId("latest").addEventListener("click", () => {
    thread.scrollDown();
    draft.focus();
  });
}

setUpTheme();
setUpSettings(() => models.refresh());
setUpComposer();
addEventListener("storage", list);
addEventListener("hashchange", () => {
  const id = loadedAddress();
  if (id !== thread.conversation.id) openStored(id);
});
await openStored(loadedAddress());
models.refresh();
