// Conversations as a file: all of them out, and such a file in. Pictures travel within it.

import { readConversation } from "./conversation.js";
import { element } from "./dom.js";
import { asDataUrl, fromDataUrl, keepPicture, loadPicture } from "./pictures.js";
import { allConversations, loadConversation, saveConversation } from "./storage.js";

export async function exportAll() {
  const conversations = allConversations();
  await eachPicture(conversations, async (file) => {
    const blob = await loadPicture(file.picture);
    file.picture = blob ? await asDataUrl(blob) : "";
  });
  const json = JSON.stringify(conversations, null, 2);
  const address = URL.createObjectURL(new Blob([json], { type: "application/json" }));
  element("a", { href: address, download: "conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// Adds the conversations of a file that `exportAll` made; of one that is here too, the later one
// stays. Returns what there is to say.
export async function importFrom(file) {
  let given;
  try {
    given = JSON.parse(await file.text());
  } catch {
    return `“${file.name}” is no file of conversations: it is not JSON.`;
  }
  const read = (Array.isArray(given) ? given : [given]).map(readConversation);
  if (!read.length || read.includes(null)) {
    return `“${file.name}” is no file of conversations, such as “Export all” makes.`;
  }
  const fresh = read.filter((one) => !((loadConversation(one.id)?.changed ?? -1) >= one.changed));
  await eachPicture(fresh, async (attached) => {
    const blob = fromDataUrl(attached.picture);
    attached.picture = blob ? await keepPicture(blob) : "";
  });
  const kept = fresh.filter(saveConversation).length;
  if (kept < fresh.length) return `The browser has no room left: ${kept} of ${fresh.length} came in.`;
  const known = read.length - fresh.length;
  return `${count(kept)} imported${known ? `, ${count(known)} already here` : ""}.`;
}

const count = (n) => (n === 1 ? "1 conversation" : `${n} conversations`);

async function eachPicture(conversations, change) {
  for (const { messages } of conversations) {
    for (const { attachments = [] } of messages) {
      for (const file of attachments) if (file.picture) await change(file);
    }
  }
}

// The keys of all pictures that some conversation has.
export function picturesInUse() {
  const files = allConversations().flatMap(({ messages }) =>
    messages.flatMap(({ attachments = [] }) => attachments),
  );
  return new Set(files.map(({ picture }) => picture).filter(Boolean));
}
