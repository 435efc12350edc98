// The model's chat format: Jinja, which the model's file brings.

import { Template } from "./jinja.js";

const ROLES = ["system", "user", "assistant"];
const FIELDS = new Set(["role", "content"]);
const RESERVED = new Set(["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"]);

export class ChatFormat {
  #template;
  #described;

  // As `chat` of model.json describes it.
  constructor(described) {
    this.#described = described;
    try {
      this.#template = new Template(described.template);
    } catch (error) {
      throw new Error(`the chat template can't be read: ${error.message}`);
    }
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
