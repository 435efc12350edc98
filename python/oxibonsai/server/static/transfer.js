// Conversations as a file: all of them out, and such a file in. Pictures and documents travel within it.

import { readConversation, titleOf } from "./conversation.js";
import { saveFile } from "./dom.js";
import { asMarkdown } from "./markdown_file.js";
import { asDataUrl, fromDataUrl, keepPicture, loadPicture } from "./pictures.js";
import { allConversations, allDrafts, loadConversation, saveConversation } from "./storage.js";
import { t } from "./words.js";

export async function exportAll() {
  const conversations = allConversations();
  await withPictures(conversations);
  saveText("conversations.json", "application/json", JSON.stringify(conversations, null, 2));
}

// One conversation as such a file, which `importFrom` takes too.
export async function saveAsJson(conversation) {
  await withPictures([conversation]);
  const json = JSON.stringify(conversation, null, 2);
  saveText(`${fileName(conversation)}.json`, "application/json", json);
}

export function saveAsMarkdown(conversation) {
  saveText(`${fileName(conversation)}.md`, "text/markdown", asMarkdown(conversation));
}

// The title, as far as every system takes it for a name.
function fileName(conversation) {
  const name = titleOf(conversation).replace(/[^\p{L}\p{N} _-]+/gu, "").trim();
  return name || "conversation";
}

const saveText = (name, type, text) => saveFile(name, new Blob([text], { type }));

async function withPictures(conversations) {
  await eachPicture(conversations, async (key) => {
    const blob = await loadPicture(key);
    return blob ? asDataUrl(blob) : "";
  });
}

// Adds the conversations of a file that `exportAll` or `saveAsJson` made; of one that is here too, the later one
// stays. Returns what there is to say.
export async function importFrom(file) {
  let given;
  try {
    given = JSON.parse(await file.text());
  } catch {
    return t`“${file.name}” is no file of conversations: it is not JSON.`;
  }
  const read = (Array.isArray(given) ? given : [given]).map(readConversation);
  if (!read.length || read.includes(null)) {
    return t`“${file.name}” is no file of conversations, such as “Export all” makes.`;
  }
  const fresh = read.filter((one) => !((loadConversation(one.id)?.changed ?? -1) >= one.changed));
  await eachPicture(fresh, async (address) => {
    const blob = fromDataUrl(address);
    return blob ? keepPicture(blob) : "";
  });
  const kept = fresh.filter(saveConversation).length;
  if (kept < fresh.length) return t`The browser has no room left: ${kept} of ${fresh.length} came in.`;
  const known = read.length - fresh.length;
  return known
    ? t`${count(kept)} imported, ${count(known)} already here.`
    : t`${count(kept)} imported.`;
}

const count = (n) => (n === 1 ? t`1 conversation` : t`${n} conversations`);

// Changes what stands for each picture and document.
async function eachPicture(conversations, change) {
  for (const { messages } of conversations) {
    for (const { attachments = [] } of messages) {
      for (const file of attachments) {
        for (const kind of ["picture", "document"]) if (file[kind]) file[kind] = await change(file[kind]);
      }
    }
  }
}

// The keys of all pictures that some conversation or draft has.
export function picturesInUse() {
  const sent = allConversations().flatMap(({ messages }) =>
    messages.flatMap(({ attachments = [] }) => attachments),
  );
  const files = [...sent, ...allDrafts().flatMap((draft) => draft?.files ?? [])];
  return new Set(files.map(({ picture, document }) => picture ?? document).filter(Boolean));
}
