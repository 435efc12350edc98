// The page: one conversation is open; its address is its id, so that a reload opens it again.

import { Attachments } from "./attachments.js";
import { loadedAddress, showAddress } from "./address.js";
import { newConversation } from "./conversation.js";
import { byId, fitHeight, isSendKey } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Drafts } from "./drafts.js";
import { showContext } from "./gauge.js";
import { askForKey, setUpKeyDialog } from "./key_dialog.js";
import { Models } from "./models.js";
import { keepOnly } from "./pictures.js";
import { setUpSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { loadConversation, saveConversation } from "./storage.js";
import { firstPrompt, SystemPrompt } from "./system_prompt.js";
import { setUpTheme } from "./theme.js";
import { Thread } from "./thread.js";
import { Tools } from "./tools.js";
import { importFrom, picturesInUse } from "./transfer.js";
import { setUpDictation } from "./voice.js";
import { t, translatePage } from "./words.js";

translatePage();
const draft = byId("draft");
let lastAnswer;

const notice = (text) => {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
};
const drawing = new Drawing();
const models = new Models({
  notice,
  changed: () => {
    showGauge();
    drawing.offer(models.draws);
  },
});
const tools = new Tools({
  changed: () => {
    if (!thread.running) thread.show();
  },
});
const thread = new Thread({
  tools,
  models: () => models.asked,
  changed: save,
  measured: (message) => {
    lastAnswer = message;
    showGauge();
  },
  joined: list,
  ended: (message) => {
    list();
    // A server that loads models on demand has another one in memory now.
    if (models.states.get(models.chosen)) models.refresh();
    if (message.status === 401) askForKey();
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
  changed: () => drafts.keep(),
});
const drafts = new Drafts(attachments);
const sidebar = new Sidebar({
  open: (id) => openStored(id),
  create: () => switchTo(newConversation(firstPrompt())),
  changed: (id, values) => {
    thread.amend(id, values);
    list();
  },
  removed: (ids) => {
    thread.discard(ids);
    if (thread.conversation.deleted) switchTo(newConversation(firstPrompt()));
    list();
    dropPictures();
  },
  imported: async (file) => {
    notice(await importFrom(file));
    const current = loadConversation(thread.conversation.id);
    if (current && !thread.running) switchTo(current);
    list();
  },
});

function list() {
  const running = thread.runs.all.map(({ conversation }) => conversation.id);
  sidebar.show(thread.conversation.id, new Set(running));
}

function showGauge() {
  showContext(lastAnswer?.figures, models.contextSize);
}

function save(conversation) {
  conversation.changed = Date.now();
  if (conversation === thread.conversation) showAddress(conversation.id);
  if (!saveConversation(conversation)) {
    notice(t`The browser has no room left, so this conversation is not kept. Delete old ones.`);
  }
  list();
}

function switchTo(conversation) {
  thread.open(conversation);
  const address = conversation.messages.length ? conversation.id : "";
  showAddress(address);
  drafts.show(address);
  prompt.show();
  list();
  draft.focus();
}

// Opens what the browser keeps under an id; the page of an unknown one is a new conversation.
function openStored(id) {
  const stored = id ? loadConversation(id) : null;
  switchTo(stored ?? newConversation(firstPrompt()));
  notice(id && !stored ? t`This browser has no conversation at that address.` : "");
}

// Pictures of messages that are gone; one that was attached and not sent yet stays.
function dropPictures() {
  keepOnly(picturesInUse()).catch(() => {}); // What can't be tidied up now is tidied up another time.
}

function submit() {
  const text = draft.value.trim();
  if (thread.running || (!text && !attachments.files.length)) return;
  draft.value = "";
  fitHeight(draft);
  drafts.sent(thread.conversation.id);
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

function refresh() {
  models.refresh();
  tools.refresh();
}

setUpTheme();
setUpSettings(refresh);
setUpKeyDialog(refresh);
setUpComposer();
setUpDictation();
addEventListener("storage", list);
addEventListener("hashchange", () => {
  const id = loadedAddress();
  if (id !== thread.conversation.id) openStored(id);
});
thread.joinAll();
openStored(loadedAddress());
refresh();
