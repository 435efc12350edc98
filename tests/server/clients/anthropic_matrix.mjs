// Anthropic's JavaScript client: node anthropic_matrix.mjs URL MODEL
//
// Prints the report of attempts.mjs.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { plainAndStreamed, report } from "./attempts.mjs";

const [url, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const messages = [{ role: "user", content: "What is the weather in Rome?" }];
const cities = ["Paris", "Rome"];
const input_schema = {
  type: "object",
  properties: { city: { type: "string", enum: cities } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ name: "weather", description: "Says the weather.", input_schema }];

async function ask(stream, fields) {
  const body = { model, max_tokens: 12, messages, temperature: 0, ...fields };
  return stream ? client.messages.stream(body).finalMessage() : client.messages.create(body);
}

const textOf = (answer) =>
  answer.content.filter((b) => b.type === "text").map((b) => b.text).join("");

const cases = {
  async text(stream) {
    const answer = await ask(stream, { system: "Be brief." });
    assert.ok(["end_turn", "max_tokens"].includes(answer.stop_reason), answer.stop_reason);
    assert.ok(answer.usage.output_tokens > 0);
    assert.equal(textOf(answer), textOf(await ask(!stream, { system: "Be brief." })));
  },
  async stop(stream) {
    const wanted = textOf(await ask(false, { max_tokens: 24 })).slice(3, 6);
    const answer = await ask(stream, { max_tokens: 24, stop_sequences: [wanted] });
    assert.equal(answer.stop_reason, "stop_sequence");
    assert.equal(answer.stop_sequence, wanted);
  },
  async tools(stream) {
    const tool_choice = { type: "any", disable_parallel_tool_use: true };
    const forced = { tools, tool_choice, max_tokens: 128 };
    const answer = await ask(stream, forced);
    assert.equal(answer.stop_reason, "tool_use");
    const uses = answer.content.filter((b) => b.type === "tool_use");
    assert.ok(cities.includes(uses[0].input.city));
    const content = uses.map((u) => ({ type: "tool_result", tool_use_id: u.id, content: "21" }));
    const after = [...messages, { role: "assistant", content: answer.content }, { role: "user", content }];
    assert.ok((await ask(stream, { tools, messages: after })).usage.output_tokens > 0);
  },
  async countTokens() {
    const { input_tokens } = await client.messages.countTokens({ model, messages });
    const { usage } = await ask(false, {});
    assert.equal(input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
  },
  async models() {
    const listed = [];
    for await (const one of client.models.list()) listed.push(one.id);
    assert.ok(listed.includes(model));
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async errors(stream) {
    await assert.rejects(ask(stream, { temperature: -1 }), Anthropic.BadRequestError);
    await assert.rejects(ask(stream, { messages: [{ role: "tool", content: "21" }] }), Anthropic.BadRequestError);
  },
};

await report("anthropic (npm)", plainAndStreamed(cases));
