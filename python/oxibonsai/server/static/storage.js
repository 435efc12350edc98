// What the browser keeps: conversations and settings for good, the API key for this tab.

// Two servers behind one host, told apart by their prefix, keep apart what they store.
const PREFIX = `oxibonsai:${location.pathname}:`;
const CONVERSATION = `${PREFIX}conversation:`;
const SETTINGS = `${PREFIX}settings`;
const KEY = `${PREFIX}key`;

export function newConversation() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), changed: 0, messages: [] };
}

export function titleOf(conversation) {
  const first = conversation.messages[0]?.content.trim().replace(/\s+/g, " ");
  if (!first) return "New conversation";
  return first.length > 60 ? `${first.slice(0, 59)}…` : first;
}

// The latest first. One entry each, so that two tabs don't overwrite each other's.
export function allConversations() {
  const found = Object.keys(localStorage)
    .filter((key) => key.startsWith(CONVERSATION))
    .map((key) => read(localStorage, key))
    .filter((conversation) => Array.isArray(conversation?.messages));
  return found.sort((a, b) => b.changed - a.changed);
}

// False where the browser has no room left.
export function saveConversation(conversation) {
  conversation.changed = Date.now();
  return write(localStorage, CONVERSATION + conversation.id, conversation);
}

export function deleteConversation(id) {
  localStorage.removeItem(CONVERSATION + id);
}

export const loadSettings = () => read(localStorage, SETTINGS) ?? {};
export const saveSettings = (settings) => write(localStorage, SETTINGS, settings);
export const loadKey = () => sessionStorage.getItem(KEY) ?? "";

export function saveKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

function read(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null; // Not ours, or cut short: as if it were not there.
  }
}

function write(storage, key, value) {
  try {
    storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
