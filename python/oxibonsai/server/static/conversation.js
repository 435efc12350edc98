// A conversation: messages in a tree, since a question can be asked anew and an answer written anew.
// A message stands after its parent in `messages`; `leaf` is the end of the branch that is shown.

import { t } from "./words.js";

export const newId = () => crypto.getRandomValues(new Uint32Array(2)).join("-");

export function newConversation(system = "") {
  return {
    id: newId(), changed: 0, title: "", system, folder: "", pinned: false, messages: [], leaf: null,
  };
}

// The messages of the branch that is shown.
export function branchOf({ messages, leaf }) {
  const branch = [];
  let wanted = leaf;
  for (const message of messages.toReversed()) {
    if (message.id !== wanted) continue;
    branch.unshift(message);
    wanted = message.parent;
  }
  return branch;
}

// Adds a message after another (null: as the first one) and shows its branch.
export function append(conversation, parent, message) {
  const added = { id: newId(), parent: parent?.id ?? null, ...message };
  conversation.messages.push(added);
  conversation.leaf = added.id;
  return added;
}

// A message and those that stand in its place on other branches, the oldest first.
export function versionsOf({ messages }, { parent }) {
  return messages.filter((other) => other.parent === parent);
}

// Shows the branch through a message, to the latest of what follows it.
export function showVersion(conversation, message) {
  let { id } = message;
  for (const other of conversation.messages) if (other.parent === id) ({ id } = other);
  conversation.leaf = id;
}

export const parentOf = ({ messages }, { parent }) =>
  messages.find(({ id }) => id === parent) ?? null;

// Takes a message and all that follows it away; shows the version before it, or what it answered.
export function remove(conversation, message) {
  const versions = versionsOf(conversation, message);
  const at = versions.indexOf(message);
  const gone = new Set([message.id]);
  for (const { id, parent } of conversation.messages) if (gone.has(parent)) gone.add(id);
  conversation.messages = conversation.messages.filter(({ id }) => !gone.has(id));
  const next = versions[at - 1] ?? versions[at + 1];
  if (next) showVersion(conversation, next);
  else conversation.leaf = message.parent;
}

export function titleOf(conversation) {
  const [opening] = conversation.messages;
  const first = opening?.content || opening?.attachments?.[0]?.name || "";
  const title = (conversation.title || first).trim().replace(/\s+/g, " ");
  if (!title) return t`New conversation`;
  return title.length > 60 ? `${title.slice(0, 59)}…` : title;
}

// Whether all words of a query are in its title or its messages.
export function matches(conversation, query) {
  const text = [titleOf(conversation), ...conversation.messages.map(({ content }) => content)];
  const all = text.join("\n").toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

const isText = (value) => typeof value === "string";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// A conversation from the storage or a file, with what the page knows of; null where it is none.
export function readConversation(value) {
  if (!isText(value?.id) || !Array.isArray(value.messages)) return null;
  const messages = [];
  for (const given of value.messages) {
    const message = readMessage(given, messages);
    if (!message) return null;
    messages.push(message);
  }
  const known = messages.some(({ id }) => id === value.leaf);
  return {
    id: value.id,
    changed: isNumber(value.changed) ? value.changed : 0,
    title: isText(value.title) ? value.title : "",
    system: isText(value.system) ? value.system : "",
    folder: isText(value.folder) ? value.folder : "",
    pinned: value.pinned === true,
    messages,
    leaf: known ? value.leaf : (messages.at(-1)?.id ?? null),
  };
}

function readMessage(given, before) {
  if (!["user", "assistant"].includes(given?.role) || !isText(given.content)) return null;
  const { role, content } = given;
  // Before there were branches, messages had no ids: each followed the one before it.
  const linked = isText(given.id);
  const parent = linked ? given.parent : (before.at(-1)?.id ?? null);
  if (parent !== null && !before.some(({ id }) => id === parent)) return null;
  if (linked && before.some(({ id }) => id === given.id)) return null;
  const message = { id: linked ? given.id : newId(), parent, role, content };
  for (const name of ["reasoning", "finish", "error", "model", "answerId", "pair"]) {
    if (isText(given[name])) message[name] = given[name];
  }
  for (const name of ["stopped", "edited"]) if (given[name] === true) message[name] = true;
  if (isNumber(given.thoughtSeconds)) message.thoughtSeconds = given.thoughtSeconds;
  if (Array.isArray(given.toolCalls)) {
    const calls = given.toolCalls.filter((call) => isText(call?.name) && isText(call.arguments));
    message.toolCalls = calls.map(readCall);
  }
  if (Array.isArray(given.attachments)) {
    message.attachments = given.attachments.map(readAttachment).filter(Boolean);
  }
  if (isText(given.base?.content)) message.base = given.base;
  message.figures = readFigures(given.figures);
  return message;
}

function readCall(given) {
  const call = { name: given.name, arguments: given.arguments };
  for (const name of ["id", "result"]) if (isText(given[name])) call[name] = given[name];
  return call;
}

function readAttachment(given) {
  if (!isText(given?.name)) return null;
  if (isText(given.text)) return { name: given.name, text: given.text };
  for (const kind of ["picture", "document"]) {
    if (isText(given[kind])) return { name: given.name, [kind]: given[kind] };
  }
  return null;
}

function readFigures(given) {
  if (!isNumber(given?.tokens)) return undefined;
  const figures = { tokens: given.tokens, firstSeconds: null };
  for (const name of ["promptTokens", "rate", "firstSeconds"]) {
    if (isNumber(given[name])) figures[name] = given[name];
  }
  return figures;
}
