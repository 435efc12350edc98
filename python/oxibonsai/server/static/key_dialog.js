// The dialog that asks for the server's API key when it wants one.

import { byId } from "./dom.js";
import { loadKey, saveKey } from "./storage.js";

// `saved()` is called once there is a new key.
export function setUpKeyDialog(saved) {
  const dialog = byId("key-dialog");
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    saveKey(byId("key").value.trim());
    dialog.close();
    saved();
  });
  byId("cancel-key").addEventListener("click", () => dialog.close());
}

export function askForKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  const key = loadKey();
  byId("key-refused").hidden = !key;
  byId("key").value = key;
  dialog.showModal();
  byId("key").select();
}
