// Pictures that were attached: kept in the browser's database, since they are too big for its storage.

import { PREFIX } from "./storage.js";

const STORE = "pictures";

function database() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(`${PREFIX}pictures`, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function run(mode, action) {
  const opened = await database();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction(STORE, mode);
      const request = action(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    opened.close();
  }
}

// Keeps a picture (a Blob) and returns its key.
export async function keepPicture(blob) {
  const key = crypto.getRandomValues(new Uint32Array(2)).join("-");
  await run("readwrite", (store) => store.put(blob, key));
  return key;
}

// The Blob of a key; undefined where it is gone.
export const loadPicture = (key) => run("readonly", (store) => store.get(key));

// Drops every picture whose key is not among those in use.
export async function keepOnly(used) {
  const keys = await run("readonly", (store) => store.getAllKeys());
  for (const key of keys) {
    if (!used.has(key)) await run("readwrite", (store) => store.delete(key));
  }
}

// As a data: URL, the form in which a request carries a picture.
export function asDataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

// The Blob of a data: URL of a picture; null where it is none. Read here, not fetched: the page's
// policy lets it fetch from its own server only.
export function fromDataUrl(address) {
  const found = /^data:(image\/(?:png|jpeg|webp|gif));base64,([A-Za-z0-9+/=]*)$/.exec(address);
  if (!found) return null;
  try {
    const bytes = Uint8Array.from(atob(found[2]), (character) => character.charCodeAt(0));
    return new Blob([bytes], { type: found[1] });
  } catch {
    return null;
  }
}
