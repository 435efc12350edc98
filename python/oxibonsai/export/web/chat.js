// The model's chat format: Jinja, which the model's file brings.

import { Template } from "./jinja.js";

const ROLES = ["system", "user", "assistant"];
const FIELDS = new Set(["role", "content"]);
const RESERVED = new Set(["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"]);

// Python's methods, whose argument the Jinja of JavaScript passes over; spaces keep the names apart
// from a template's own.
const STRIPS = {
  strip: (text, characters) => stripEnd(stripStart(text, characters), characters),
  lstrip: stripStart,
  rstrip: stripEnd,
};
const stripped = (method) => `Python's ${method}`;
const FUNCTIONS = Object.fromEntries(
  Object.entries(STRIPS).map(([method, run]) => [stripped(method), run]),
);

function stripStart(text, characters) {
  let at = 0;
  while (at < text.length && characters.includes(text[at])) at += 1;
  return text.slice(at);
}

function stripEnd(text, characters) {
  let end = text.length;
  while (end > 0 && characters.includes(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

// Puts our functions in the place of calls such as text.strip("\n") in a template's tree.
function useOwnStrips(node) {
  if (typeof node !== "object" || node === null) return;
  Object.values(node).forEach(useOwnStrips);
  const { callee, args } = node;
  if (node.type !== "CallExpression" || callee.type !== "MemberExpression" || args.length !== 1) return;
  const method = callee.computed ? "" : callee.property.value;
  if (!Object.hasOwn(STRIPS, method)) return;
  node.args = [callee.object, ...args];
  node.callee = { type: "Identifier", value: stripped(method) };
}

export class ChatFormat {
  #template;
  #described;

  // As `chat` of model.json describes it.
  constructor(described) {
    this.#described = described;
    try {
      this.#template = new Template(described.template);
      useOwnStrips(this.#template.parsed);
    } catch (error) {
      throw new Error(`the chat template can't be read: ${error.message}`);
    }
  }

  get reasoning() {
    return this.#described.reasoning;
  }

  // The text that the answer follows.
  prompt(messages, variables = {}) {
    check(messages);
    const reserved = Object.keys(variables).find((name) => RESERVED.has(name));
    if (reserved) throw new Error(`a variable of the chat template may not be called ${reserved}`);
    const { bos_token, eos_token, needs_parts } = this.#described;
    const written = ({ role, content }) =>
      needs_parts ? { role, content: content ? [{ type: "text", text: content }] : [] } : { role, content };
    const values = {
      ...variables,
      ...FUNCTIONS,
      bos_token,
      eos_token,
      messages: messages.map(written),
      tools: null,
      add_generation_prompt: true,
    };
    try {
      return this.#template.render(values);
    } catch (error) {
      throw new Error(`the chat template refuses these messages: ${error.message}`);
    }
  }
}

function check(messages) {
  if (!Array.isArray(messages) || messages.length === 0)
    throw new Error("chat() takes a list of messages, such as [{ role: \"user\", content: \"Hello\" }]");
  messages.forEach((message, i) => {
    const other = Object.keys(message).find((name) => !FIELDS.has(name));
    if (other) throw new Error(`messages[${i}].${other} is not for the browser: a message has role and content`);
    if (!ROLES.includes(message.role))
      throw new Error(`messages[${i}].role is ${message.role}, none of ${ROLES.join(", ")}`);
    if (typeof message.content !== "string") throw new Error(`messages[${i}].content is no text`);
  });
  if (messages.at(-1).role === "assistant")
    throw new Error("the last message is the assistant's: there is nothing to answer");
}
