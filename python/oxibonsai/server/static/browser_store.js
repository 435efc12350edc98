// A store of the browser's database, for what is too big for its storage.

import { PREFIX } from "./storage.js";

export class BrowserStore {
  constructor(name) {
    this.name = name;
  }

  put(key, value) {
    return this.run("readwrite", (store) => store.put(value, key));
  }

  get(key) {
    return this.run("readonly", (store) => store.get(key));
  }

  keys() {
    return this.run("readonly", (store) => store.getAllKeys());
  }

  values() {
    return this.run("readonly", (store) => store.getAll());
  }

  delete(key) {
    return this.run("readwrite", (store) => store.delete(key));
  }

  async run(mode, action) {
    const opened = await this.open();
    try {
      return await new Promise((resolve, reject) => {
        const transaction = opened.transaction(this.name, mode);
        const request = action(transaction.objectStore(this.name));
        transaction.oncomplete = () => resolve(request.result);
        transaction.onerror = transaction.onabort = () => reject(transaction.error);
      });
    } finally {
      opened.close();
    }
  }

  open() {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open(PREFIX + this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(this.name);
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }
}
