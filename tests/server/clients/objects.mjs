// Objects by the Vercel AI SDK, whole and streamed: node objects.mjs URL MODEL WISHES.json
//
// Prints a list of what came; that it fits the schemas, the caller checks.

import { readFileSync } from "node:fs";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, streamText } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [url, name, file] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey: "none" });
const models = {
  anthropic: createAnthropic({ baseURL: url, apiKey: "none" })(name),
  compatible: createOpenAICompatible({ name: "server", baseURL: url, supportsStructuredOutputs: true })(name),
  responses: openai.responses(name),
  chat: openai.chat(name),
};
const found = [];
for (const [prompt, schema] of Object.entries(JSON.parse(readFileSync(file, "utf-8")))) {
  for (const [provider, model] of Object.entries(models)) {
    const asked = {
      model, prompt, maxOutputTokens: 300, temperature: 0, maxRetries: 0,
      output: Output.object({ schema: jsonSchema(schema) }),
      providerOptions: { openai: { strictJsonSchema: false } },
      onError: ({ error }) => { throw error; },
    };
    for (const [way, get] of Object.entries({
      whole: async () => (await generateText(asked)).output,
      streamed: async () => await streamText(asked).output,
    })) {
      const one = { prompt, provider, way };
      try {
        found.push({ ...one, output: await get() });
      } catch (error) {
        found.push({ ...one, error: String(error) });
      }
    }
  }
}
console.log(JSON.stringify(found));
