// What the browser keeps: conversations, prompts and settings for good, the API key for this tab.

import { readConversation } from "./conversation.js";

// Two servers behind one host, told apart by their prefix, keep apart what they store.
export const PREFIX = `oxibonsai:${location.pathname}:`;
const CONVERSATION = `${PREFIX}conversation:`;
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

export function deleteConversation(id) {
  localStorage.removeItem(CONVERSATION + id);
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
