// Making nodes, and small services of the browser. Text reaches the page only as text nodes, never as markup.

import { t } from "./words.js";

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

// Has the browser save a Blob as a file.
export function saveFile(name, blob) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// Lets a text area grow with its text, as far as its style allows.
export function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

// Whether Enter was pressed to send; while an input method composes, it chooses a word instead.
export function isSendKey(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

// Copies, and says so on the button for a moment.
export async function copyFrom(button, text) {
  const label = button.textContent;
  button.textContent = (await copy(text)) ? t`Copied` : t`Can't copy`;
  setTimeout(() => (button.textContent = label), 1500);
}

async function copy(text) {
  // Browsers offer the clipboard only to https and localhost; elsewhere the old way still works.
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused, such as for want of focus.
    }
  }
  const area = element("textarea", { class: "visually-hidden" });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
