// The official JavaScript client: node openai_matrix.mjs URL MODEL, in a folder with the package.
// Prints the report of attempts.mjs.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { plainAndStreamed, report } from "./attempts.mjs";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const user = [{ role: "user", content: "What is the capital of France?" }];
const cities = ["Paris", "Rome"];
const city = {
  type: "object",
  properties: { city: { type: "string", enum: cities } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { type: "function", function: { name: "weather", parameters: city } };

async function chat(stream, fields) {
  const body = { model, messages: user, temperature: 0, max_tokens: 12, ...fields };
  if (!stream) return client.chat.completions.create(body);
  return client.chat.completions.stream(body).finalChatCompletion();
}

const textOf = (answer) => answer.choices[0].message.content ?? "";

const cases = {
  async text(stream) {
    const answer = await chat(stream, {});
    assert.ok(["stop", "length"].includes(answer.choices[0].finish_reason));
    assert.equal(textOf(answer), textOf(await chat(!stream, {})));
  },
  async listContent(stream) {
    const parts = [{ type: "text", text: user[0].content }];
    const answer = await chat(stream, { messages: [{ role: "user", content: parts }] });
    assert.equal(textOf(answer), textOf(await chat(stream, {})));
  },
  async tools(stream) {
    const fields = { tools: [weather], tool_choice: "required", max_tokens: 128 };
    const [choice] = (await chat(stream, fields)).choices;
    assert.equal(choice.finish_reason, "tool_calls");
    const call = choice.message.tool_calls[0];
    assert.equal(call.function.name, "weather");
    assert.ok(cities.includes(JSON.parse(call.function.arguments).city));
  },
  async jsonSchema(stream) {
    const json_schema = { name: "answer", strict: true, schema: city };
    const fields = { response_format: { type: "json_schema", json_schema }, max_tokens: 128 };
    assert.ok(cities.includes(JSON.parse(textOf(await chat(stream, fields))).city));
  },
  async unicodeOverTokens(stream) {
    const json_schema = { name: "answer", schema: { enum: ["é🙂漢字"] } };
    const fields = { response_format: { type: "json_schema", json_schema }, max_tokens: 128 };
    assert.equal(JSON.parse(textOf(await chat(stream, fields))), "é🙂漢字");
  },
  async logprobs(stream) {
    const answer = await chat(stream, { logprobs: true, top_logprobs: 2 });
    for (const token of answer.choices[0].logprobs.content) {
      assert.ok(token.logprob <= 0);
      assert.equal(token.top_logprobs.length, 2);
    }
  },
  async twoChoices(stream) {
    const answer = await chat(stream, { n: 2, temperature: 1, seed: 5 });
    assert.deepEqual(answer.choices.map((c) => c.index).sort(), [0, 1]);
  },
  async stop(stream) {
    const whole = textOf(await chat(false, { max_tokens: 24 }));
    const wanted = whole.slice(3, 6);
    const answer = await chat(stream, { max_tokens: 24, stop: ["never said", wanted] });
    assert.equal(textOf(answer), whole.slice(0, whole.indexOf(wanted)));
    assert.equal(answer.choices[0].finish_reason, "stop");
  },
  async seed(stream) {
    const fields = { temperature: 1.5, seed: 7 };
    assert.equal(textOf(await chat(stream, fields)), textOf(await chat(stream, fields)));
  },
  async completions(stream) {
    const body = { model, prompt: "Once upon a time", max_tokens: 8, temperature: 0 };
    const whole = (await client.completions.create(body)).choices[0].text;
    if (!stream) return;
    let text = "";
    for await (const chunk of await client.completions.create({ ...body, stream: true }))
      text += chunk.choices[0]?.text ?? "";
    assert.equal(text, whole);
  },
  async embeddings() {
    const body = { model, input: ["a cat", "a dog"] };
    const plain = await client.embeddings.create({ ...body, encoding_format: "float" });
    const packed = await client.embeddings.create(body); // asks for base64 and decodes it
    assert.equal(plain.data.length, 2);
    for (const i of [0, 1])
      plain.data[i].embedding.forEach((x, k) =>
        assert.ok(Math.abs(x - packed.data[i].embedding[k]) < 1e-6));
  },
  async responses(stream) {
    const body = { model, input: user[0].content, temperature: 0, max_output_tokens: 8 };
    const whole = await client.responses.create(body);
    const more = { input: "Go on.", previous_response_id: whole.id };
    if (!stream) {
      const next = await client.responses.create({ ...body, ...more });
      assert.ok(next.usage.input_tokens > whole.usage.input_tokens);
      await client.responses.delete(whole.id);
      await assert.rejects(client.responses.retrieve(whole.id), OpenAI.NotFoundError);
      return;
    }
    const final = await client.responses.stream(body).finalResponse();
    assert.equal(final.output_text, whole.output_text);
  },
  async files() {
    const file = await OpenAI.toFile(Buffer.from("a file\n"), "notes.txt");
    const made = await client.files.create({ file, purpose: "assistants" });
    assert.equal(await (await client.files.content(made.id)).text(), "a file\n");
    assert.ok((await client.files.delete(made.id)).deleted);
  },
  async assistants(stream) {
    const assistant = await client.beta.assistants.create({ model, instructions: "Be brief." });
    const thread = await client.beta.threads.create({ messages: user });
    const body = { assistant_id: assistant.id, temperature: 0, max_completion_tokens: 8 };
    const run = stream
      ? await client.beta.threads.runs.stream(thread.id, body).finalRun()
      : await client.beta.threads.runs.createAndPoll(thread.id, body, { pollIntervalMs: 50 });
    assert.ok(["completed", "incomplete"].includes(run.status), run.status);
  },
  async errors(stream) {
    await assert.rejects(chat(stream, { temperature: -1 }), OpenAI.BadRequestError);
    await assert.rejects(chat(stream, { messages: [] }), OpenAI.BadRequestError);
  },
};

await report("openai (npm)", plainAndStreamed(cases));
