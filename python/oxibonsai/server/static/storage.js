// What the browser keeps: conversations, prompts and settings for good, the API key for this tab.

import { readConversation } from "./conversation.js";

// Two servers behind one host, told apart by their prefix, keep apart what they store.
export const PREFIX = `oxibonsai:${location.pathname}:`;
const CONVERSATION = `${PREFIX}conversation:`;
const DRAFT = `${PREFIX}draft:`;
const SETTINGS = `${PREFIX}settings`;
const PROMPTS = `${PREFIX}prompts`;
const KEY = `${PREFIX}key`;

// The latest first. One entry each, so that two tabs don't overwrite each other's.
export function allConversations() {
  const found = Object.keys(localStorage)
    .filter((key) => key.startsWith(CONVERSATION))
    .map((key) => readConversation(read(localStorage, key)))
    .filter(Boolean);
  return found.sort((a, b) => b.changed - a.changed);
}

// Null where the browser has none of that id.
export function loadConversation(id) {
  return readConversation(read(localStorage, CONVERSATION + id));
}

// False where the browser has no room left.
export function saveConversation(conversation) {
  return write(localStorage, CONVERSATION + conversation.id, conversation);
}

// Keeps one message of a conversation that may have gone on elsewhere; nothing where it is deleted.
export function saveMessage(id, message) {
  const conversation = loadConversation(id);
  const at = conversation?.messages.findIndex((other) => other.id === message.id) ?? -1;
  if (at < 0) return;
  conversation.messages[at] = message;
  saveConversation(conversation);
}

export function deleteConversation(id) {
  localStorage.removeItem(CONVERSATION + id);
  localStorage.removeItem(DRAFT + id);
}

// What is written but not sent: { text, files } by conversation, "" for a new one; null where there is none.
export const loadDraft = (id) => read(localStorage, DRAFT + id);

export function saveDraft(id, draft) {
  if (draft) write(localStorage, DRAFT + id, draft);
  else localStorage.removeItem(DRAFT + id);
}

export function allDrafts() {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(DRAFT));
  return keys.map((key) => read(localStorage, key));
}

export const loadSettings = () => read(localStorage, SETTINGS) ?? {};
export const saveSettings = (settings) => write(localStorage, SETTINGS, settings);

// System prompts that the user has named: { name: text }.
export function loadPrompts() {
  const prompts = Object.entries(read(localStorage, PROMPTS) ?? {});
  return Object.fromEntries(prompts.filter(([, text]) => typeof text === "string"));
}

export const savePrompts = (prompts) => write(localStorage, PROMPTS, prompts);
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
