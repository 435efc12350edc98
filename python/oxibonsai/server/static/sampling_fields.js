// The sampling settings: what each is called, its range, and how a request carries it.

import { element } from "./dom.js";

const real = (name, label, min, max) => ({ name, label, min, max, step: "any" });
const whole = (name, label, min, max) => ({ name, label, min, max, step: 1 });
const list = (name, label, hint) => ({ name, label, hint, list: true });

// The names are llama-server's, under which /props tells the server's defaults too.
export const GROUPS = [
  {
    title: "Sampling",
    open: true,
    fields: [
      real("temperature", "Temperature", 0, 10),
      whole("top_k", "Top k", 0),
      real("top_p", "Top p", 0, 1),
      real("min_p", "Min p", 0, 1),
      whole("max_tokens", "Max tokens", 1),
      whole("seed", "Seed", -1),
      whole("min_tokens", "Min tokens", 0),
      whole("thinking_budget_tokens", "Thinking budget", -1),
    ],
  },
  {
    title: "Penalties",
    fields: [
      real("repeat_penalty", "Repeat penalty", 0.01, 10),
      whole("repeat_last_n", "Repeat last n", -1),
      real("presence_penalty", "Presence penalty", -2, 2),
      real("frequency_penalty", "Frequency penalty", -2, 2),
      real("dry_multiplier", "DRY multiplier", 0),
      real("dry_base", "DRY base", 0),
      whole("dry_allowed_length", "DRY allowed length", 1),
      whole("dry_penalty_last_n", "DRY last n", -1),
    ],
  },
  {
    title: "More samplers",
    fields: [
      real("typical_p", "Typical p", 0, 1),
      real("top_a", "Top a", 0, 1),
      real("eta_cutoff", "Eta cutoff", 0, 1),
      real("epsilon_cutoff", "Epsilon cutoff", 0, 1),
      real("dynatemp_range", "Dynamic temperature range", 0),
      real("dynatemp_exponent", "Dynamic temperature exponent", 0),
      real("xtc_probability", "XTC probability", 0, 1),
      real("xtc_threshold", "XTC threshold", 0, 1),
      whole("mirostat", "Mirostat (0, 1 or 2)", 0, 2),
      real("mirostat_tau", "Mirostat tau", 0),
      real("mirostat_eta", "Mirostat eta", 0),
      list("samplers", "Order of the samplers", "separated by commas"),
      list("stop", "Stop at", "texts separated by commas"),
    ],
  },
];
const FIELDS = GROUPS.flatMap(({ fields }) => fields);

// The fields of the dialog, in groups that unfold.
export function samplingForm() {
  return GROUPS.map(({ title, open, fields }) => {
    const group = element("details", { class: "group" }, element("summary", {}, title));
    group.open = Boolean(open);
    const around = element("div", { class: "fields" }, ...fields.map(fieldOf));
    group.append(around);
    return group;
  });
}

function fieldOf({ name, label, min, max, step, list, hint }) {
  const input = element("input", { name, type: list ? "text" : "number", autocomplete: "off" });
  if (list) {
    input.setAttribute("spellcheck", "false");
  } else {
    input.setAttribute("inputmode", step === 1 ? "numeric" : "decimal");
    for (const [key, value] of Object.entries({ min, max, step })) {
      if (value !== undefined) input.setAttribute(key, value);
    }
  }
  const text = hint ? `${label} (${hint})` : label;
  return element("label", { class: list ? "field long" : "field" }, text, input);
}

// Shows the stored values, and the server's defaults where nothing is set.
export function fillSampling(form, settings, defaults) {
  for (const { name, list } of FIELDS) {
    const value = settings[name];
    form.elements[name].value = list ? (value ?? []).join(", ") : (value ?? "");
    form.elements[name].placeholder = shown(defaults?.[name], name);
  }
}

function shown(value, name) {
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "number") return name === "seed" ? "random" : "";
  if (name === "max_tokens" && value < 0) return "no limit";
  if (name === "seed" && value < 0) return "random";
  return String(Number(value.toPrecision(6)));
}

// What the form says, without the fields that are empty.
export function readSampling(form) {
  const settings = {};
  for (const { name, list } of FIELDS) {
    const text = form.elements[name].value.trim();
    if (text) settings[name] = list ? text.split(",").map((part) => part.trim()).filter(Boolean) : Number(text);
  }
  return settings;
}

// The part of a request that the settings decide.
export function samplingOf(settings) {
  const set = FIELDS.filter(({ name }) => settings[name] !== undefined);
  return Object.fromEntries(set.map(({ name }) => [name, settings[name]]));
}
