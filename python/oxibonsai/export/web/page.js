// The page: a prompt, its continuation, and a button that starts and stops.

const form = document.querySelector("form");
const prompt = document.querySelector("#prompt");
const button = document.querySelector("button");
const output = document.querySelector("output");
const state = document.querySelector("#state");
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
let running = false;

function show(now) {
  running = now;
  button.textContent = running ? "Stop" : "Continue the text";
}

const heard = {
  progress: ({ bytes, all }) => {
    state.textContent = `Loading: ${Math.floor((100 * bytes) / all)} %`;
  },
  loaded: ({ name }) => {
    document.title = name;
    document.querySelector("h1").textContent = name;
    state.textContent = "Ready";
    button.disabled = false;
  },
  text: ({ text }) => output.append(text),
  done: ({ tokens, seconds }) => {
    state.textContent = `${tokens} tokens, ${(tokens / seconds).toFixed(1)} a second`;
    show(false);
  },
  error: ({ message }) => {
    state.textContent = message;
    show(false);
  },
};

worker.onmessage = ({ data }) => heard[data.type](data);
worker.onerror = ({ message }) => heard.error({ message: message ?? "the worker could not start" });
worker.postMessage({ type: "load" });

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) {
    worker.postMessage({ type: "stop" });
    return;
  }
  const fields = new FormData(form);
  const options = { maxTokens: Number(fields.get("tokens")) };
  if (fields.get("temperature") !== "") options.temperature = Number(fields.get("temperature"));
  if (fields.get("seed") !== "") options.seed = fields.get("seed");
  output.textContent = "";
  show(true);
  worker.postMessage({ type: "generate", prompt: prompt.value, options });
});
