// Pictures and documents that were attached: kept in the browser's database.

import { BrowserStore } from "./browser_store.js";

const pictures = new BrowserStore("pictures");

// Keeps a picture (a Blob) and returns its key.
export async function keepPicture(blob) {
  const key = crypto.getRandomValues(new Uint32Array(2)).join("-");
  await pictures.put(key, blob);
  return key;
}

// The Blob of a key; undefined where it is gone.
export const loadPicture = (key) => pictures.get(key);

// Drops every picture whose key is not among those in use.
export async function keepOnly(used) {
  for (const key of await pictures.keys()) if (!used.has(key)) await pictures.delete(key);
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

// Shows a kept picture in an <img>, which goes where the picture is gone.
export async function showPicture(view, key) {
  const blob = await loadPicture(key).catch(() => undefined);
  if (blob) showBlob(view, blob);
  else view.remove();
}

export function showBlob(view, blob) {
  const address = URL.createObjectURL(blob);
  view.onload = view.onerror = () => URL.revokeObjectURL(address);
  view.src = address;
}

// The Blob of a data: URL of a picture or a PDF; null where it is none. Read here, not fetched: the page's
// policy lets it fetch from its own server only.
export function fromDataUrl(address) {
  const found = /^data:(image\/(?:png|jpeg|webp|gif)|application\/pdf);base64,([A-Za-z0-9+/=]*)$/.exec(address);
  if (!found) return null;
  try {
    const bytes = Uint8Array.from(atob(found[2]), (character) => character.charCodeAt(0));
    return new Blob([bytes], { type: found[1] });
  } catch {
    return null;
  }
}
