// Answers, streams and calls by the Vercel AI SDK, which checks every member of an answer.
//
//     node ai_sdk.mjs URL MODEL
//
// Prints a JSON object as openai_matrix.mjs does.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [url, name] = process.argv.slice(2);
const models = {
  anthropic: createAnthropic({ baseURL: url, apiKey: "none" })(name),
  compatible: createOpenAICompatible({ name: "server", baseURL: url })(name),
};
const city = { type: "string", enum: ["Paris", "Rome"] };
const weather = tool({
  description: "Says the weather.",
  inputSchema: jsonSchema({
    type: "object", properties: { city }, required: ["city"], additionalProperties: false,
  }),
});

const cases = {
  async text(model) {
    const asked = { model, system: "Be brief.", prompt: "Hi", maxOutputTokens: 12, temperature: 0.5 };
    const answer = await generateText({ ...asked, topK: 3, seed: 1, stopSequences: ["zz"] });
    if (!answer.text || !answer.usage.outputTokens) throw new Error("no text, or no usage");
  },
  async stream(model) {
    let text = "";
    const fail = ({ error }) => { throw error; };
    const stream = streamText({ model, prompt: "Hi", maxOutputTokens: 12, onError: fail });
    for await (const piece of stream.textStream) text += piece;
    if (!text) throw new Error("no text");
  },
  async call(model) {
    const asked = { model, prompt: "Hi", tools: { weather }, maxOutputTokens: 128 };
    const { toolCalls } = await generateText({ ...asked, toolChoice: "required" });
    if (!city.enum.includes(toolCalls[0].input.city)) throw new Error("a call of nowhere");
  },
};

const failures = {};
let passed = 0;
for (const [provider, model] of Object.entries(models)) {
  for (const [what, run] of Object.entries(cases)) {
    try {
      await run(model);
      passed += 1;
    } catch (error) {
      failures[`${provider} ${what}`] = String(error.cause?.message ?? error.stack);
    }
  }
}
console.log(JSON.stringify({ client: "ai (npm)", passed, failures }));
