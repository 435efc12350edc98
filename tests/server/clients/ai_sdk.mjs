// The Vercel AI SDK, which checks every member of an answer: node ai_sdk.mjs URL MODEL
//
// Prints the report of attempts.mjs.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { report } from "./attempts.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [url, name] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey: "none" });
const compatible = createOpenAICompatible({
  name: "server", baseURL: url, includeUsage: true, supportsStructuredOutputs: true,
});
const models = {
  anthropic: createAnthropic({ baseURL: url, apiKey: "none" })(name),
  compatible: compatible(name),
  responses: openai.responses(name),
  chat: openai.chat(name),
};
const embedders = { compatible: compatible.textEmbeddingModel(name), openai: openai.embedding(name) };
const city = { type: "string", enum: ["Paris", "Rome"] };
const place = jsonSchema({
  type: "object", properties: { city }, required: ["city"], additionalProperties: false,
});
const description = "Says the weather.";
const weather = tool({ description, inputSchema: place });
const answering = tool({ description, inputSchema: place, execute: async () => "21 degrees" });

function check(condition, problem) {
  if (!condition) throw new Error(problem);
}

// Else random weights call once more until they are cut.
const providerOptions = {
  anthropic: { disableParallelToolUse: true },
  openai: { parallelToolCalls: false },
  server: { parallel_tool_calls: false },
};
const fail = ({ error }) => { throw error; };

const cases = {
  async text(model) {
    const asked = { model, system: "Be brief.", prompt: "Hi", maxOutputTokens: 16, temperature: 0.5 };
    const answer = await generateText({ ...asked, topK: 3, seed: 1, stopSequences: ["zz"] });
    check(answer.text && answer.usage.outputTokens, "no text, or no usage");
  },
  async stream(model) {
    let text = "";
    const stream = streamText({ model, prompt: "Hi", maxOutputTokens: 16, onError: fail });
    for await (const piece of stream.textStream) text += piece;
    check(text, "no text");
    check((await stream.usage).outputTokens, "no usage");
    check(["stop", "length"].includes(await stream.finishReason), await stream.finishReason);
  },
  async call(model) {
    const asked = { model, prompt: "Hi", tools: { weather }, maxOutputTokens: 128 };
    const { toolCalls } = await generateText({ ...asked, toolChoice: "required" });
    check(city.enum.includes(toolCalls[0].input.city), "a call of nowhere");
  },
  async streamedCall(model) {
    const asked = { model, prompt: "Hi", tools: { weather }, maxOutputTokens: 128, onError: fail };
    const calls = await streamText({ ...asked, toolChoice: "required" }).toolCalls;
    check(city.enum.includes(calls[0].input.city), "a call of nowhere");
  },
  async loop(model) {
    const asked = { model, prompt: "Hi", tools: { weather: answering }, maxOutputTokens: 128 };
    const { steps } = await generateText({
      ...asked, providerOptions, stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    });
    check(steps.length === 2, `${steps.length} steps`);
    check(steps[0].toolResults[0].output === "21 degrees", "no result");
  },
  async object(model) {
    const asked = { model, prompt: "Hi", maxOutputTokens: 128 };
    const { output } = await generateText({ ...asked, output: Output.object({ schema: place }) });
    check(city.enum.includes(output.city), "an object of nowhere");
  },
};

function* attempts() {
  for (const [provider, model] of Object.entries(models))
    for (const [what, run] of Object.entries(cases)) yield [`${provider} ${what}`, () => run(model)];
  for (const [provider, model] of Object.entries(embedders))
    yield [`${provider} vectors`, async () => {
      const { embeddings } = await embedMany({ model, values: ["a cat", "a dog"] });
      check(embeddings[0].some((x, i) => x !== embeddings[1][i]), "one vector for two texts");
    }];
}
await report("ai (npm)", attempts());
