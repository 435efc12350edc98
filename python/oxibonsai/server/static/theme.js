// Light, dark, or as the system has it.

import { byId } from "./dom.js";
import { loadSettings, saveSettings } from "./storage.js";
import { t } from "./words.js";

const LABELS = {
  system: t`Colours: as the system`,
  light: t`Colours: light`,
  dark: t`Colours: dark`,
};
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
  const label = LABELS[theme];
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}
