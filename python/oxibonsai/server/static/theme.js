// Light, dark, or as the system has it.

import { byId } from "./dom.js";
import { loadSettings, saveSettings } from "./storage.js";

const NEXT = { system: "light", light: "dark", dark: "system" };

export function setUpTheme() {
  show(loadSettings().theme ?? "system");
  byId("theme").addEventListener("click", () => {
    const theme = NEXT[document.documentElement.dataset.theme];
    saveSettings({ ...loadSettings(), theme });
    show(theme);
  });
}

function show(theme) {
  document.documentElement.dataset.theme = theme;
  const label = `Colours: ${theme === "system" ? "as the system" : theme}`;
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}
