// How much of the context a conversation fills.

import { byId } from "./dom.js";
import { t } from "./words.js";

// `figures` of the last answer; `size` of the context in tokens, null where it is not known.
export function showContext(figures, size) {
  const used = figures?.promptTokens ? figures.promptTokens + figures.tokens : 0;
  byId("context").hidden = !used || !size;
  if (!used || !size) return;
  const meter = byId("context-meter");
  meter.max = size;
  meter.high = 0.8 * size;
  meter.value = used;
  byId("context-text").textContent = t`${used.toLocaleString("en")} of ${size.toLocaleString("en")} tokens`;
}
