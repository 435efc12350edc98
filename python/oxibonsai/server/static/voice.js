// Voice by the browser's own API, and only what stays on the device: nothing is sent to a service.

import { byId, fitHeight } from "./dom.js";
import { language, t } from "./words.js";

const synthesis = globalThis.speechSynthesis;
const Recognition = globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;
const localVoices = () => synthesis?.getVoices().filter(({ localService }) => localService) ?? [];

// Lets a button read texts aloud, which `texts()` gives; it is hidden as long as there is no voice.
export function setUpReading(button, texts) {
  const show = () => (button.hidden = !localVoices().length);
  show();
  synthesis?.addEventListener("voiceschanged", show);
  button.addEventListener("click", () => {
    const reads = button.classList.contains("reading");
    synthesis.cancel(); // what another button began, too
    if (reads) return;
    const utterance = new SpeechSynthesisUtterance(texts().join("\n"));
    const voices = localVoices();
    utterance.voice = voices.find(({ lang }) => lang.startsWith(language)) ?? voices[0];
    utterance.onend = utterance.onerror = () => mark(button, false);
    mark(button, true);
    synthesis.speak(utterance);
  });
}

function mark(button, reads) {
  button.classList.toggle("reading", reads);
  button.textContent = reads ? t`Stop reading` : t`Read aloud`;
}

// Dictation into the draft, where the browser recognizes speech on the device.
export async function setUpDictation() {
  const button = byId("dictate");
  const lang = navigator.language;
  // Without `available` there is no telling where the sound would go.
  const state = await Recognition?.available?.({ langs: [lang], processLocally: true }).catch(() => "");
  button.hidden = state !== "available";
  if (button.hidden) return;
  const recognition = Object.assign(new Recognition(), { lang, processLocally: true, continuous: true });
  const listen = (listens) => button.setAttribute("aria-pressed", String(listens));
  recognition.onresult = ({ results, resultIndex }) => {
    const said = [...results].slice(resultIndex).map(([best]) => best.transcript);
    write(said.join(" ").trim());
  };
  recognition.onend = recognition.onerror = () => listen(false);
  button.addEventListener("click", () => {
    const listens = button.getAttribute("aria-pressed") === "true";
    if (listens) recognition.stop();
    else recognition.start();
    listen(!listens);
  });
}

function write(text) {
  const draft = byId("draft");
  draft.value = [draft.value.trimEnd(), text].filter(Boolean).join(" ");
  fitHeight(draft);
  draft.dispatchEvent(new Event("input", { bubbles: true })); // which keeps the draft
}
